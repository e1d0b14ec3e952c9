"""What a fusion reads and writes through its boundary, and which of its results only move data."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from layerbench.measure.program.hlo import Computation, Instruction, Module, parameter_number
from layerbench.measure.program.opcodes import SLICES, words

# One element of the result needs one element of each operand of its size.
_ELEMENTWISE = words(
    """
    abs add and atan2 bitcast bitcast-convert cbrt ceil clamp compare complex convert copy
    cosine count-leading-zeros divide erf exponential exponential-minus-one floor imag
    is-finite log log-plus-one logistic maximum minimum multiply negate not or popcnt power
    real reduce-precision remainder reshape reverse round-nearest-afz round-nearest-even
    rsqrt select shift-left shift-right-arithmetic shift-right-logical sign sine sqrt
    subtract tan tanh transpose xor
    """
)
_VIEWS = frozenset({"bitcast", "reshape"})
_MOVES = frozenset({"bitcast", "reshape", "copy", "transpose", "convert", "reverse"})
_MAX_NESTING = 50


@dataclasses.dataclass(frozen=True, slots=True)
class Update:
    """A part that is written into a larger buffer.

    Attributes:
        bytes: Of the part.
        fraction: The part over the whole buffer.
    """

    bytes: int
    fraction: float


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """One array that a fusion gives.

    Attributes:
        in_place: Number of the parameter whose buffer is updated; None for a new buffer.
        updates: The parts that are written, where the result is a larger buffer with parts updated.
        moved: Numbers of the parameters whose data it is, where it does nothing but move data.
        is_slice: Whether only a part of them is moved.
    """

    in_place: int | None = None
    updates: tuple[Update, ...] = ()
    moved: tuple[int, ...] = ()
    is_slice: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Boundary:
    """What crosses a fusion's boundary.

    Attributes:
        read_fraction: Of each parameter, the share of elements that is read, by number.
        results: For each array of the result.
    """

    read_fraction: Mapping[int, float]
    results: tuple[Result, ...]


class Boundaries:
    """The boundaries of a module's fusions, each worked out once."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._known: dict[str, Boundary] = {}

    def of(self, name: str, depth: int = 0) -> Boundary:
        """The boundary of a fused computation.

        Raises:
            ProgramError: There is no such computation.
        """
        if name not in self._known:
            computation = self._module.computation(name)
            if depth > _MAX_NESTING:
                # Deeper than any compiler nests: everything read and written in whole.
                reads = dict.fromkeys(computation.parameters, 1.0)
                return Boundary(reads, tuple(Result() for _ in computation.root.shape.leaves))
            self._known[name] = self._work_out(computation, depth)
        return self._known[name]

    def _work_out(self, computation: Computation, depth: int) -> Boundary:
        root = computation.root
        outputs = (
            [computation.operand(root, i) for i in range(len(root.operands))]
            if root.opcode == "tuple"
            else [root]
        )
        in_place: set[str] = set()
        results: list[Result] = []
        for output in outputs:
            updated = self._updated(computation, output, depth)
            if updated is None:
                moved, is_slice = self._moved(computation, output, depth)
                results += [Result(moved=moved, is_slice=is_slice)] * len(output.shape.leaves)
            else:
                result, chain = updated
                results.append(result)
                in_place |= chain if result.in_place is not None else set()
        reads = self._reads(computation, {output.name for output in outputs}, in_place, depth)
        return Boundary(reads, tuple(results))

    def _updated(
        self, computation: Computation, output: Instruction, depth: int
    ) -> tuple[Result, set[str]] | None:
        """The buffer that an output updates, and the instructions that do it.

        None where the output is not a dynamic-update-slice or scatter, or a chain of them.
        """
        updates: list[Update] = []
        chain: set[str] = set()
        place = output
        while not place.shape.is_tuple:
            if place.opcode in _VIEWS:
                place = computation.operand(place, 0)
            elif place.opcode == "dynamic-update-slice" or (
                place.opcode == "scatter" and len(place.operands) == 3
            ):
                part = computation.operand(place, 1 if place.opcode != "scatter" else 2)
                updates.append(_update(part.shape.bytes, place.shape.bytes))
                chain.add(place.name)
                place = computation.operand(place, 0)
            elif place.opcode == "fusion":
                inner = self.of(place.callee("calls"), depth + 1).results[0]
                if not inner.updates or inner.in_place is None:
                    break
                updates += inner.updates
                place = computation.operand(place, inner.in_place)
            else:
                break
        if not updates:
            return None
        same_size = place.opcode == "parameter" and place.shape.bytes == output.shape.bytes
        number = parameter_number(place) if same_size else None
        return Result(in_place=number, updates=tuple(updates)), chain

    def _moved(  # noqa: PLR0911 - a case for each kind of instruction
        self, computation: Computation, output: Instruction, depth: int
    ) -> tuple[tuple[int, ...], bool]:
        """The parameters whose data an output is, unchanged but for place, order and type."""
        place, is_slice = output, False
        while not place.shape.is_tuple:
            if place.opcode in _MOVES:
                place = computation.operand(place, 0)
            elif place.opcode in SLICES:
                is_slice = is_slice or place.shape.bytes < _bytes_of(computation, place)
                place = computation.operand(place, 0)
            elif place.opcode == "concatenate":
                parts = [computation.operand(place, i) for i in range(len(place.operands))]
                if any(part.opcode in ("concatenate", "fusion") for part in parts):
                    return (), False  # nothing that a compiler leaves; keeps this linear
                found = [self._moved(computation, part, depth) for part in parts]
                if not all(moved for moved, _ in found):
                    return (), False
                return tuple(number for moved, _ in found for number in moved), is_slice
            elif place.opcode == "fusion":
                inner = self.of(place.callee("calls"), depth + 1).results[0]
                if len(inner.moved) != 1:
                    return (), False
                is_slice = is_slice or inner.is_slice
                place = computation.operand(place, inner.moved[0])
            elif place.opcode == "parameter":
                return (parameter_number(place),), is_slice
            else:
                return (), False
        return (), False

    def _reads(
        self, computation: Computation, outputs: set[str], in_place: set[str], depth: int
    ) -> dict[int, float]:
        """Goes from the results to the parameters and adds up the elements that each step needs."""
        needed: dict[str, int] = {}
        reads: dict[int, float] = {}
        for instruction in reversed(computation.instructions):
            whole = _elements(instruction)
            is_output = instruction.name in outputs or instruction.is_root
            need = whole if is_output else min(whole, needed.get(instruction.name, 0))
            if instruction.opcode == "parameter":
                reads[parameter_number(instruction)] = need / whole if whole else 0.0
            elif need:
                shares = self._needs(computation, instruction, need, in_place, depth)
                for operand, share in zip(instruction.operands, shares, strict=True):
                    needed[operand] = needed.get(operand, 0) + share
        return reads

    def _needs(  # noqa: PLR0911 - a case for each kind of instruction
        self,
        computation: Computation,
        instruction: Instruction,
        need: int,
        in_place: set[str],
        depth: int,
    ) -> list[int]:
        """Elements that `need` elements of an instruction need of each operand."""
        sizes = [
            _elements(computation.operand(instruction, i)) for i in range(len(instruction.operands))
        ]
        opcode = instruction.opcode
        if opcode in SLICES or opcode == "gather":
            return [min(sizes[0], need), *sizes[1:]] if sizes else []
        if opcode == "dynamic-update-slice" and len(sizes) > 1:
            kept = 0 if instruction.name in in_place else min(need, max(0, sizes[0] - sizes[1]))
            return [kept, min(sizes[1], need), *sizes[2:]]
        if opcode == "scatter" and instruction.name in in_place:
            return [min(sizes[0], sizes[2]), *sizes[1:]]  # what is added to is read first
        if opcode == "fusion":
            fractions = self.of(instruction.callee("calls"), depth + 1).read_fraction
            return [math.ceil(size * fractions.get(i, 1.0)) for i, size in enumerate(sizes)]
        if opcode in _ELEMENTWISE:
            whole = _elements(instruction)
            return [min(size, need) if size == whole else size for size in sizes]
        if opcode in ("broadcast", "pad", "concatenate"):
            return [min(size, need) for size in sizes]
        return sizes


def _update(part: int, whole: int) -> Update:
    return Update(bytes=part, fraction=part / whole if whole else 1.0)


def _elements(instruction: Instruction) -> int:
    return sum(leaf.elements for leaf in instruction.shape.leaves)


def _bytes_of(computation: Computation, instruction: Instruction) -> int:
    return computation.operand(instruction, 0).shape.bytes
