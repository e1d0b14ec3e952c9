"""One point of the matrix that is measured, and its stable id."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from layerbench.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Cell:
    """What is measured, where; two cells are the same series if and only if their ids are equal.

    Attributes:
        model: A preset's name, or a folder with a `config.json`.
        layout: How the decoder layers are laid out, by name.
        phase: `prefill`, `train_step`, `decode_step`, `generate`, or another phase of the suite.
        layers: Number of decoder layers.
        batch: Sequences in the batch.
        seq: Tokens of the prompt (prefill, train_step), or slots of the KV cache (decode_step,
            generate).
        dtype: Of parameters, activations and KV cache.
        target: Where the cell runs, such as `cpu` or `gpu`.
        new_tokens: Tokens that `generate` adds; 0 in every other phase.
        mesh: Device mesh such as `fsdp:2,tp:2`; empty for one device.
    """

    model: str
    layout: str
    phase: str
    layers: int
    batch: int
    seq: int
    dtype: str = "float32"
    target: str = "cpu"
    new_tokens: int = 0
    mesh: str = ""

    def __post_init__(self) -> None:
        for name in ("layers", "batch", "seq"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.new_tokens < 0:
            raise UsageError(f"new tokens must not be negative, not {self.new_tokens}")

    @property
    def model_name(self) -> str:
        """The model without its folder, so that an id is the same on every machine."""
        return PurePath(self.model).name

    @property
    def id(self) -> str:
        """A readable id that is stable over machines, commits and versions."""
        parts = [
            self.model_name,
            self.phase,
            self.layout,
            f"L{self.layers}",
            f"B{self.batch}",
            f"S{self.seq}",
        ]
        if self.new_tokens:
            parts.append(f"N{self.new_tokens}")
        parts += [self.dtype, self.target]
        if self.mesh:
            parts.append(self.mesh.replace(":", "").replace(",", "-"))
        return "/".join(parts)

    @property
    def group(self) -> Cell:
        """The cell without its layout: cells of one group answer the same question."""
        return dataclasses.replace(self, layout="")

    def as_dict(self) -> dict[str, Any]:
        """The fields by name, for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Cell:
        """Inverse of `as_dict`; fields of a later version are left out."""
        known = {field.name for field in dataclasses.fields(cls)}
        return cls(**{name: value for name, value in fields.items() if name in known})


@dataclasses.dataclass(frozen=True, slots=True)
class Matrix:
    """The cells of a comparison: every combination of models, layouts, phases, layers and targets.

    Attributes:
        phase_seq: Where a phase has another `seq` than the rest: a prompt and a cache that are
            worth measuring differ in length.
    """

    models: Sequence[str]
    layouts: Sequence[str]
    phases: Sequence[str]
    layers: Sequence[int]
    batch: int
    seq: int
    new_tokens: int
    dtype: str
    targets: Sequence[str]
    mesh: str = ""
    phase_seq: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Matrix:
        """Inverse of `dataclasses.asdict` after a way through JSON, which knows no tuples."""
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in fields.items()
        }
        return cls(**values)

    def cells(self) -> list[Cell]:
        """All cells, those of one group side by side."""
        product = itertools.product(
            self.targets, self.models, self.phases, self.layers, self.layouts
        )
        return [
            Cell(
                model=model,
                layout=layout,
                phase=phase,
                layers=layers,
                batch=self.batch,
                seq=self.phase_seq.get(phase, self.seq),
                dtype=self.dtype,
                target=target,
                new_tokens=self.new_tokens if phase == "generate" else 0,
                mesh=self.mesh,
            )
            for target, model, phase, layers, layout in product
        ]


def group_cells(cells: Iterable[Cell]) -> list[list[Cell]]:
    """Cells that differ in nothing but their layout, together and in order of appearance."""
    groups: dict[Cell, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.group, []).append(cell)
    return list(groups.values())
