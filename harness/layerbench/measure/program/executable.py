"""From a compiled executable of jax to the exact metrics: the only part here that knows jax."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from layerbench.measure.program.analysis import Analysis, analyse
from layerbench.measure.program.buffers import Watched
from layerbench.measure.program.errors import ProgramError
from layerbench.measure.program.figures import notes, program_figures
from layerbench.measure.program.fingerprint import take_fingerprint
from layerbench.measure.program.operations import count_operations
from layerbench.record import Measured
from layerbench.workload import Workload


@dataclasses.dataclass(frozen=True, slots=True)
class Capacity:
    """Of one device of a target; None where it is not known or does not matter.

    Attributes:
        main_memory_bytes: Device memory that programs may fill.
        on_chip_bytes: The largest memory on the chip that buffers can stay in.
    """

    main_memory_bytes: int | None = None
    on_chip_bytes: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """What a compiled executable tells.

    Attributes:
        metrics: The exact ones.
        resident_bytes: Device memory that a call needs: arguments, results that alias none of them,
            and temporaries.
        notes: What the reader has to know, a sentence each.
        analysis: Of the program's text; None where that could not be read.
        text: The optimised HLO.
    """

    metrics: Mapping[str, Measured]
    resident_bytes: int
    notes: tuple[str, ...]
    analysis: Analysis | None
    text: str

    @property
    def fingerprint(self) -> dict[str, Any] | None:
        """Of the program's structure, as it is stored; None where the text could not be read."""
        return None if self.analysis is None else take_fingerprint(self.analysis).as_dict()


def read_executable(
    workload: Workload, traced: Any, lowered: Any, compiled: Any, *, capacity: Capacity
) -> Reading:
    """Reads all exact metrics; for several devices, those of one of them.

    Args:
        workload: What was compiled.
        traced: `jax.stages.Traced`.
        lowered: `jax.stages.Lowered`.
        compiled: `jax.stages.Compiled`.
        capacity: Of the target's device.
    """
    figures: dict[str, float] = dict(_memory_figures(workload, compiled, capacity))
    resident_bytes = round(figures.pop("resident_bytes"))
    figures["stablehlo_lines"] = lowered.as_text().count("\n")
    said: list[str] = []
    has_turns = workload.turns is not None
    operations = count_operations(traced.jaxpr, with_turns=has_turns)
    if operations.uncounted_kernels:
        said.append(
            f"{operations.uncounted_kernels} kernels declare no cost: flops leave them out."
        )
    figures["flops"] = operations.flops.turn if has_turns else operations.flops.once
    text = compiled.as_text() or ""
    analysis = None
    try:
        analysis = analyse(
            text,
            _platform(compiled),
            watched=find_watched(workload, compiled),
            with_turns=has_turns,
        )
        figures |= program_figures(analysis, with_turns=has_turns)
        said += notes(analysis, with_turns=has_turns)
    except ProgramError as error:
        said.append(f"The compiled program could not be read: {error}.")
    if "hbm_bytes" in figures and workload.floor.hbm_bytes:
        if _fits_on_chip(workload, capacity):
            said.append("A watched buffer fits on chip: no ratio to the floor is given.")
        else:
            moved = figures["hbm_bytes"] * _device_count(workload)
            figures["hbm_floor_ratio"] = moved / workload.floor.hbm_bytes
    return Reading(
        metrics={name: Measured(value) for name, value in figures.items()},
        resident_bytes=resident_bytes,
        notes=tuple(said),
        analysis=analysis,
        text=text,
    )


def find_watched(workload: Workload, compiled: Any) -> tuple[Watched, ...]:
    """Where a workload's watched buffers are among the executable's arguments.

    They are found by identity: a watched tree usually is one of the workload's abstract arguments.
    A tree that is not is left to be told by type and shape.
    """
    arguments = jax.tree.leaves(workload.abstract_arguments)
    shardings = compiled.in_tree.flatten_up_to(compiled.input_shardings)
    # Arguments that the program does not use are dropped from it; they have no sharding.
    kept = [position for position, sharding in enumerate(shardings) if sharding is not None]
    numbers = {position: number for number, position in enumerate(kept)}
    watched = []
    for role, tree in workload.watched.items():
        leaves = jax.tree.leaves(tree)
        positions = _positions(arguments, leaves)
        watched.append(
            Watched(
                role=role,
                parameters=tuple(numbers[each] for each in positions if each in numbers),
                arrays=tuple(
                    dict.fromkeys((_hlo_type(leaf.dtype), device_shape(leaf)) for leaf in leaves)
                ),
            )
        )
    return tuple(watched)


def _positions(arguments: Sequence[Any], leaves: Sequence[Any]) -> range:
    """Where the same abstract arrays stand among the arguments; empty where they do not."""
    count = len(leaves)
    for start in range(len(arguments) - count + 1):
        if all(arguments[start + i] is leaf for i, leaf in enumerate(leaves)):
            return range(start, start + count)
    return range(0)


def device_shape(leaf: Any) -> tuple[int, ...]:
    """The shape of one device's part of an abstract array."""
    sharding = getattr(leaf, "sharding", None)
    return tuple(leaf.shape if sharding is None else sharding.shard_shape(leaf.shape))


def device_bytes(trees: Sequence[Any]) -> int:
    """Bytes of one device's part of all abstract arrays."""
    total = 0
    for leaf in jax.tree.leaves(trees):
        elements = 1
        for size in device_shape(leaf):
            elements *= size
        total += elements * leaf.dtype.itemsize
    return total


def _memory_figures(workload: Workload, compiled: Any, capacity: Capacity) -> dict[str, int]:
    memory = compiled.memory_analysis()
    donated = device_bytes([workload.abstract_arguments[i] for i in workload.donated])
    resident = (
        memory.argument_size_in_bytes
        + memory.output_size_in_bytes
        - memory.alias_size_in_bytes
        + memory.temp_size_in_bytes
    )
    figures = {
        "temp_bytes": memory.temp_size_in_bytes,
        "output_bytes": memory.output_size_in_bytes,
        "undonated_bytes": max(0, donated - memory.alias_size_in_bytes),
        "resident_bytes": resident,
    }
    if capacity.main_memory_bytes is not None:
        figures["over_capacity_bytes"] = max(0, resident - capacity.main_memory_bytes)
    return figures


def _fits_on_chip(workload: Workload, capacity: Capacity) -> bool:
    return capacity.on_chip_bytes is not None and any(
        device_bytes([tree]) < capacity.on_chip_bytes for tree in workload.watched.values()
    )


def _platform(compiled: Any) -> str:
    for sharding in jax.tree.leaves(compiled.input_shardings):
        for device in sharding.device_set:
            platform = device.platform
            return "gpu" if platform in ("cuda", "rocm") else str(platform)
    return jax.default_backend()


def _device_count(workload: Workload) -> int:
    return max(
        (
            len(leaf.sharding.device_set)
            for leaf in jax.tree.leaves(workload.abstract_arguments)
            if getattr(leaf, "sharding", None) is not None
        ),
        default=1,
    )


def _hlo_type(dtype: Any) -> str:
    """The name that HLO has for a numpy type."""
    name = str(dtype)
    if name == "bool":
        return "pred"
    for long, short in (
        ("bfloat", "bf"), ("float8_", "f8"), ("float", "f"),
        ("uint", "u"), ("int", "s"), ("complex", "c"),
    ):  # fmt: skip
        if name.startswith(long):
            return short + name.removeprefix(long).replace("_", "")
    return name
