"""The main-memory bytes that each instruction reads and writes when it runs once.

Counted where memory is crossed: at the boundaries of fusions, and for instructions outside them.
Buffers in on-chip memory count nothing, nor do results that nobody reads (workspaces). What is
sliced is read as far as the slice; what is updated in place is written as far as the update.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Any

from layerbench.measure.program.errors import ProgramError
from layerbench.measure.program.fusions import Boundaries, Result, Update
from layerbench.measure.program.hlo import Computation, Instruction, Module
from layerbench.measure.program.opcodes import SLICES, base_opcode, result_offset, starts_work
from layerbench.measure.program.shapes import Array

_MOVES = frozenset({"copy", "transpose", "convert", "reshape", "reverse", "concatenate"})

MAIN_MEMORY: Mapping[str, frozenset[int]] = {
    "cpu": frozenset({0}),
    # Space 1 holds buffers for collectives, which are device memory all the same; 5 is the host's.
    "gpu": frozenset({0, 1}),
    "tpu": frozenset({0}),
}
"""The memory spaces that are main memory, by platform."""


@dataclasses.dataclass(frozen=True, slots=True)
class Read:
    """What is read of an operand."""

    operand: int
    bytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class Write:
    """What is written of one array of the result.

    Attributes:
        leaf: Which array of the instruction's value.
        bytes: That are written to main memory.
        result: How the array comes about.
    """

    leaf: int
    bytes: int
    result: Result


@dataclasses.dataclass(frozen=True, slots=True)
class Traffic:
    """One run of an instruction.

    Attributes:
        computation: Where it stands.
        instruction: What runs.
        reads: Of main memory, by operand.
        writes: To main memory, by array of the result.
        opaque: Bytes of these that are only assumed: a custom call's operands and results.
        estimated: Bytes by a custom call's own estimate, in place of reads and writes.
    """

    computation: str
    instruction: Instruction
    reads: tuple[Read, ...]
    writes: tuple[Write, ...]
    opaque: int = 0
    estimated: int | None = None

    @property
    def bytes(self) -> int:
        """Read and written."""
        if self.estimated is not None:
            return self.estimated
        return sum(read.bytes for read in self.reads) + self.written

    @property
    def written(self) -> int:
        """Written alone."""
        return sum(write.bytes for write in self.writes)


class TrafficReader:
    """Works out the traffic of a module's instructions for one platform."""

    def __init__(self, module: Module, platform: str) -> None:
        self._module = module
        self._spaces = MAIN_MEMORY.get(platform, frozenset({0}))
        self._boundaries = Boundaries(module)

    def of_computation(self, name: str) -> list[Traffic]:
        """Of all its instructions that start work, in order."""
        computation = self._module.computation(name)
        return [
            self._of_instruction(computation, instruction)
            for instruction in computation.instructions
            if starts_work(instruction)
        ]

    def results_of(self, instruction: Instruction) -> tuple[Result, ...]:
        """How each array of the value that an instruction computes comes about."""
        opcode = base_opcode(instruction)
        if opcode == "fusion":
            return self._boundaries.of(instruction.callee("calls")).results
        shape, _ = result_offset(instruction)
        if opcode in _MOVES or opcode in SLICES:
            moved = tuple(range(len(instruction.operands) if opcode == "concatenate" else 1))
            result = Result(moved=moved, is_slice=opcode in SLICES)
        else:
            result = Result()
        return (result,) * len(shape.leaves)

    def _of_instruction(self, computation: Computation, instruction: Instruction) -> Traffic:
        opcode = base_opcode(instruction)
        operands = [computation.operand(instruction, i) for i in range(len(instruction.operands))]
        shape, offset = result_offset(instruction)
        results = self.results_of(instruction)
        if len(results) != len(shape.leaves):
            raise ProgramError(f"{instruction.name} and what it calls differ in their results")
        shares = [1.0] * len(operands)
        if opcode == "fusion":
            fractions = self._boundaries.of(instruction.callee("calls")).read_fraction
            shares = [fractions.get(number, 1.0) for number in range(len(operands))]
        elif opcode in SLICES or opcode == "gather":
            shares[:1] = [_share(shape.bytes, operands[:1])]
        elif opcode in ("dynamic-update-slice", "scatter") and len(operands) >= 3:
            updates = operands[1] if opcode == "dynamic-update-slice" else operands[-1]
            updated = updates.shape.bytes
            whole = operands[0].shape.bytes
            # A scatter combines with what is there; a dynamic-update-slice overwrites it.
            is_overwritten = opcode == "dynamic-update-slice"
            shares[:1] = [0.0 if is_overwritten else _share(updated, operands[:1])]
            update = Update(updated, updated / whole if whole else 1.0)
            results = (Result(in_place=0, updates=(update,)),) * len(results)
        used = self._used_leaves(computation, instruction)
        writes = tuple(
            Write(offset + leaf, self._written(array, result), result)
            for leaf, (array, result) in enumerate(zip(shape.leaves, results, strict=True))
            if used is None or leaf in used
        )
        reads = tuple(
            Read(number, round(self._main_bytes(operand.shape.leaves) * share))
            for number, (operand, share) in enumerate(zip(operands, shares, strict=True))
        )
        traffic = Traffic(computation.name, instruction, reads, writes)
        return _with_estimate(traffic) if opcode == "custom-call" else traffic

    def _written(self, array: Array, result: Result) -> int:
        if array.memory_space not in self._spaces:
            return 0
        if result.in_place is None:
            return array.bytes
        return min(array.bytes, sum(update.bytes for update in result.updates))

    def _main_bytes(self, leaves: Iterable[Array]) -> int:
        return sum(leaf.bytes for leaf in leaves if leaf.memory_space in self._spaces)

    def _used_leaves(self, computation: Computation, instruction: Instruction) -> set[int] | None:
        """The arrays of a tuple that anyone reads; None for all of them."""
        shape, _ = result_offset(instruction)
        if not shape.is_tuple:
            return None
        firsts = [0]
        for part in shape.parts:
            firsts.append(firsts[-1] + len(part.leaves))
        used: set[int] = set()
        readers = [instruction]
        while readers:
            reader = readers.pop()
            if reader.is_root:
                return None
            for user in computation.users.get(reader.name, ()):
                if is_done(user):
                    readers.append(user)
                elif user.opcode != "get-tuple-element":
                    return None
                elif user.is_root or user.name in computation.users:
                    index = user.index()
                    if index < len(shape.parts):
                        used.update(range(firsts[index], firsts[index + 1]))
        return used


def is_done(instruction: Instruction) -> bool:
    """Whether its value is what an asynchronous operation computed."""
    return instruction.opcode.endswith("-done")


def _share(part: int, whole: list[Instruction]) -> float:
    total = whole[0].shape.bytes if whole else 0
    return min(1.0, part / total) if total else 0.0


def _with_estimate(traffic: Traffic) -> Traffic:
    estimate = _custom_call_estimate(traffic.instruction)
    if estimate is None:
        return dataclasses.replace(traffic, opaque=traffic.bytes)
    return dataclasses.replace(traffic, estimated=estimate)


def _custom_call_estimate(instruction: Instruction) -> int | None:
    """The bytes that a kernel's author declared (Pallas' `cost_estimate`)."""
    text = instruction.attribute("backend_config")
    if text is None or "cost_estimate" not in text:
        return None
    try:
        config: Any = json.loads(text)
        config = json.loads(config) if isinstance(config, str) else config
        config = config.get("custom_call_config", config)
        estimate = int(config["cost_estimate"]["bytes_accessed"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return max(0, estimate)
