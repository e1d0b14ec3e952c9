"""What was measured: the dataclasses that are stored, and their JSON form.

Schema history (a released version stays readable, a newer one is refused):
    1: first form.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from typing import TYPE_CHECKING, Any

from layerbench.cell import Cell
from layerbench.environment import Environment, Source
from layerbench.errors import LayerbenchError, StoreError
from layerbench.floor import Floor
from layerbench.metrics import METRICS, Kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SCHEMA_VERSION = 1


class Status(enum.StrEnum):
    """How the measurement of a cell ended."""

    OK = "ok"
    FAILED = "failed"
    NOT_APPLICABLE = "not-applicable"


@dataclasses.dataclass(frozen=True, slots=True)
class Measured:
    """The value of one metric, in the unit that its declaration names.

    Attributes:
        value: The figure that is compared; the median where there are samples.
        samples: What the value was made from, in order of measurement; empty for exact metrics.
        version: Of the metric's definition.
    """

    value: float
    samples: tuple[float, ...] = ()
    version: str = "1"

    def __post_init__(self) -> None:
        if not all(math.isfinite(number) for number in (self.value, *self.samples)):
            raise ValueError(
                f"a measured number must be finite, not {self.value} of {self.samples}"
            )


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """The result of one cell, a failure as much as a success.

    Attributes:
        cell: What was measured.
        status: How it ended.
        reason: Why it failed or does not apply; empty when it is ok.
        metrics: By name, of those that are declared in `layerbench.metrics`.
        floor: What a step cannot do without; None when the cell failed before it was known.
        tokens_per_step: Tokens that a step takes in or gives out.
        interleaved: Whether all layouts of the group that run were sampled in turn, so that the
            samples of a round belong together and drift cancels.
        notes: What a reader of the numbers has to know, a sentence each.
        contender: Whether the cell may be called the best of its group.
        started_at: UTC time in ISO 8601.
        duration_s: Wall time that the cell took in all.
        program: The compiled program's fingerprint (`measure.program.fingerprint`); None where it
            was not read.
    """

    cell: Cell
    status: Status
    reason: str = ""
    metrics: Mapping[str, Measured] = dataclasses.field(default_factory=dict)
    floor: Floor | None = None
    tokens_per_step: int = 0
    interleaved: bool = False
    notes: tuple[str, ...] = ()
    contender: bool = True
    started_at: str = ""
    duration_s: float = 0.0
    program: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if (self.status is Status.OK) == bool(self.reason):
            raise ValueError(f"a record needs a reason if and only if it is not ok: {self.cell.id}")

    @property
    def is_compiled_only(self) -> bool:
        """Whether it has exact metrics alone, as for a target that is not there."""
        return self.status is Status.OK and all(
            METRICS[name].kind is Kind.EXACT for name in self.metrics if name in METRICS
        )

    def value(self, metric: str) -> float | None:
        """The metric's value, or None where the cell has none."""
        measured = self.metrics.get(metric)
        return None if measured is None else measured.value

    @classmethod
    def failure(cls, cell: Cell, reason: str, **fields: Any) -> Record:
        """A failed cell with its reason in one line."""
        line = " ".join(reason.split()) or "failed without a word"
        return cls(cell=cell, status=Status.FAILED, reason=line, **fields)

    def as_dict(self) -> dict[str, Any]:
        """Strict JSON's types only; the form of the command contract and a little more."""
        program = {} if self.program is None else {"program": dict(self.program)}
        return {
            "cell": self.cell.as_dict(),
            "status": self.status.value,
            "reason": self.reason or None,
            "metrics": {
                name: {
                    "value": measured.value,
                    "unit": METRICS[name].unit,
                    "kind": METRICS[name].kind.value,
                    "version": measured.version,
                    "samples": list(measured.samples),
                }
                for name, measured in self.metrics.items()
            },
            "floor": None if self.floor is None else dataclasses.asdict(self.floor),
            "tokens_per_step": self.tokens_per_step,
            "interleaved": self.interleaved,
            "notes": list(self.notes),
            "contender": self.contender,
            "started_at": self.started_at,
            "duration_s": self.duration_s,
            **program,
        }

    def as_stored(self) -> dict[str, Any]:
        """As `as_dict`, without what `layerbench.metrics` and an empty list say anyway.

        Every commit stores dozens of these, and a commit has 150 kB for each machine.
        """
        fields = self.as_dict()
        for measured in fields["metrics"].values():
            del measured["unit"], measured["kind"]
            if not measured["samples"]:
                del measured["samples"]
        return fields

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Record:
        """Inverse of `as_dict` and of `as_stored`; metrics of a later version are left out."""
        floor = fields["floor"]
        return cls(
            cell=Cell.from_dict(fields["cell"]),
            status=Status(fields["status"]),
            reason=fields["reason"] or "",
            metrics={
                name: Measured(
                    value=measured["value"],
                    samples=tuple(measured.get("samples", ())),
                    version=measured["version"],
                )
                for name, measured in fields["metrics"].items()
                if name in METRICS
            },
            floor=None if floor is None else Floor(**floor),
            tokens_per_step=fields["tokens_per_step"],
            interleaved=fields["interleaved"],
            notes=tuple(fields["notes"]),
            contender=fields["contender"],
            started_at=fields["started_at"],
            duration_s=fields["duration_s"],
            program=fields.get("program"),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """The records of one command on one machine at one commit.

    Attributes:
        id: Starting time and a random suffix; names the run's file.
        command: The command line that reproduces it.
        source: The commit that was measured.
        harness_digest: Content digest of the harness and workloads that measured.
        environments: Where each target ran, by target.
        records: In order of measurement.
    """

    id: str
    command: str
    source: Source
    harness_digest: str
    environments: Mapping[str, Environment]
    records: Sequence[Record]

    def as_dict(self) -> dict[str, Any]:
        """Strict JSON's types only."""
        return {
            "schema_version": SCHEMA_VERSION,
            "id": self.id,
            "command": self.command,
            "source": dataclasses.asdict(self.source),
            "harness_digest": self.harness_digest,
            "environments": {
                target: environment.as_dict() for target, environment in self.environments.items()
            },
            "records": [record.as_stored() for record in self.records],
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Run:
        """Inverse of `as_dict`.

        Raises:
            StoreError: The fields are of a newer schema, or not of a run at all.
        """
        version = fields.get("schema_version")
        if not isinstance(version, int):
            raise StoreError("not a layerbench run: it has no schema_version")
        if version > SCHEMA_VERSION:
            raise StoreError(f"schema {version} is newer than {SCHEMA_VERSION}: update layerbench")
        try:
            return cls(
                id=fields["id"],
                command=fields["command"],
                source=Source(**fields["source"]),
                harness_digest=fields["harness_digest"],
                environments={
                    target: Environment.from_dict(environment)
                    for target, environment in fields["environments"].items()
                },
                records=[Record.from_dict(record) for record in fields["records"]],
            )
        except (AttributeError, KeyError, TypeError, ValueError, LayerbenchError) as error:
            raise StoreError(
                f"a damaged run: {type(error).__name__}: {' '.join(str(error).split())}"
            ) from error
