"""Loops and how often they run.

A count is *known* where the compiler wrote it down (`known_trip_count`, CPU and GPU), *inferred*
where start, bound and step of the counter are constants that can be followed (TPU text has no
counts), and otherwise *unknown*: it depends on data, and what the loop costs is told per trip.
"""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Mapping
from typing import Any

from layerbench.measure.program.errors import ProgramError
from layerbench.measure.program.hlo import Computation, Instruction, Module, parameter_number

_SAME_VALUE = frozenset(
    {"copy", "bitcast", "convert", "reshape", "broadcast", "copy-start", "copy-done", "transpose"}
)
_SWAPPED = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE", "NE": "NE"}
_MAX_STEPS = 200  # of following one value; a chain of copies has a handful


class TripSource(enum.StrEnum):
    """How a trip count was found."""

    KNOWN = "known"
    INFERRED = "inferred"
    UNKNOWN = "unknown"


@dataclasses.dataclass(frozen=True, slots=True)
class Loop:
    """A while instruction.

    Attributes:
        computation: Name of the computation it stands in.
        name: Of the instruction.
        body: Name of the computation that repeats.
        condition: Name of the computation that decides.
        trips: How often the body runs; None where it depends on data.
        source: How `trips` was found.
    """

    computation: str
    name: str
    body: str
    condition: str
    trips: int | None
    source: TripSource


def find_loops(module: Module) -> Mapping[tuple[str, str], Loop]:
    """All loops, by computation and instruction name."""
    callers = _loop_callers(module)
    loops = {}
    for computation in module.computations.values():
        for instruction in computation.instructions:
            if instruction.opcode == "while":
                loops[computation.name, instruction.name] = _read_loop(
                    module, computation, instruction, callers
                )
    return loops


_Callers = Mapping[str, tuple[Computation, Instruction]]


def _loop_callers(module: Module) -> _Callers:
    """For each loop's body and condition, the while that runs it, where there is only one."""
    callers: dict[str, tuple[Computation, Instruction]] = {}
    shared = set()
    for computation in module.computations.values():
        for instruction in computation.instructions:
            if instruction.opcode == "while":
                for key in ("body", "condition"):
                    callee = instruction.callee(key)
                    if callee in callers:
                        shared.add(callee)
                    callers[callee] = (computation, instruction)
    return {name: caller for name, caller in callers.items() if name not in shared}


def _read_loop(
    module: Module, computation: Computation, instruction: Instruction, callers: _Callers
) -> Loop:
    trips = _written_count(instruction)
    source = TripSource.KNOWN
    if trips is None:
        trips = _Follower(module, callers).trips(computation, instruction)
        source = TripSource.UNKNOWN if trips is None else TripSource.INFERRED
    return Loop(
        computation=computation.name,
        name=instruction.name,
        body=instruction.callee("body"),
        condition=instruction.callee("condition"),
        trips=trips,
        source=source,
    )


def _written_count(instruction: Instruction) -> int | None:
    text = instruction.attribute("backend_config")
    if text is None or "known_trip_count" not in text:
        return None
    try:
        config: Any = json.loads(text)
        if isinstance(config, str):
            config = json.loads(config)
        count = int(config["known_trip_count"]["n"])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ProgramError(f"cannot read the trip count of {instruction.name}") from error
    return count if count >= 0 else None


@dataclasses.dataclass(frozen=True, slots=True)
class _Place:
    """A value: an instruction's result, or one element of it.

    Attributes:
        element: Index into a tuple; None for the whole.
        parameters: What the parameters of a fusion or call stand for, outermost first.
    """

    computation: Computation
    instruction: Instruction
    element: int | None = None
    parameters: tuple[tuple[Computation, Instruction], ...] = ()


class _Follower:
    """Follows scalar values to the constants or loop counters that they come from."""

    def __init__(self, module: Module, callers: _Callers) -> None:
        self._module = module
        self._callers = callers

    def trips(self, computation: Computation, loop: Instruction) -> int | None:
        """The trip count from the condition's comparison, or None."""
        condition = self._module.computation(loop.callee("condition"))
        compare = self._origin(_Place(condition, condition.root))
        if compare is None or compare.instruction.opcode != "compare":
            return None
        direction = compare.instruction.attribute("direction")
        if direction not in _SWAPPED:
            return None
        left, right = (self._operand(compare, position) for position in (0, 1))
        for counter, bound, sense in (
            (left, right, direction),
            (right, left, _SWAPPED[direction]),
        ):
            index = self._carried_index(counter, condition)
            limit = None if bound is None else self._constant(bound)
            if index is None or limit is None:
                continue
            step = self._step(loop, index)
            start = self._constant(_Place(computation, computation.operand(loop, 0), index))
            if start is not None and step is not None:
                return _count(start, limit, step, sense)
        return None

    def _carried_index(self, place: _Place | None, condition: Computation) -> int | None:
        """Which element of the loop's state a value of its condition is."""
        origin = None if place is None else self._origin(place)
        if origin is None or origin.instruction.opcode != "parameter":
            return None
        if origin.computation.name != condition.name or origin.parameters:
            return None
        return origin.element if origin.instruction.shape.is_tuple else None

    def _step(self, loop: Instruction, index: int) -> int | None:
        """What the body adds to the counter."""
        body = self._module.computation(loop.callee("body"))
        origin = self._origin(_Place(body, body.root, index))
        if origin is None or origin.instruction.opcode not in ("add", "subtract"):
            return None
        left, right = (self._operand(origin, position) for position in (0, 1))
        sign = 1 if origin.instruction.opcode == "add" else -1
        for counter, change in ((left, right), (right, left)):
            begin = None if counter is None else self._origin(counter)
            if begin is None or begin.instruction.opcode != "parameter":
                continue
            if begin.computation.name != body.name or begin.element != index:
                continue
            value = None if change is None else self._constant(change)
            return None if value is None else sign * value
        return None

    def _operand(self, place: _Place, position: int) -> _Place | None:
        if position >= len(place.instruction.operands):
            return None
        operand = place.computation.operand(place.instruction, position)
        return _Place(place.computation, operand, None, place.parameters)

    def _constant(self, place: _Place) -> int | None:
        """The value, where it is an integer constant, also one that a loop only carries."""
        origin: _Place | None = place
        for _ in range(_MAX_STEPS):
            origin = self._origin(origin) if origin is not None else None
            if origin is None:
                return None
            if origin.instruction.opcode == "constant":
                text = origin.instruction.payload
                is_number = text.removeprefix("-").isdecimal() and len(text) < 20
                return int(text) if is_number else None
            origin = self._before_loop(origin)
        return None

    def _before_loop(self, place: _Place) -> _Place | None:
        """The value at a loop's entry, where the loop hands it on unchanged."""
        index = place.element
        if place.instruction.opcode == "while":
            computation, loop = place.computation, place.instruction
        elif place.instruction.opcode == "parameter" and place.computation.name in self._callers:
            computation, loop = self._callers[place.computation.name]
        else:
            return None
        if index is None:
            return None
        body = self._module.computation(loop.callee("body"))
        handed_on = self._origin(_Place(body, body.root, index))
        if (
            handed_on is None
            or handed_on.instruction.opcode != "parameter"
            or handed_on.computation.name != body.name
            or handed_on.element != index
        ):
            return None
        return _Place(computation, computation.operand(loop, 0), index)

    def _origin(self, place: _Place) -> _Place | None:
        """Goes back through copies, tuples, fusions and calls as far as the value is the same."""
        for _ in range(_MAX_STEPS):
            before = self._one_back(place)
            if before is None:
                return None
            if before is place:
                return place
            place = before
        return None

    def _one_back(  # noqa: PLR0911 - a case for each kind of instruction
        self, place: _Place
    ) -> _Place | None:
        """One step back; the same place where there is none, None where it cannot be told."""
        computation, instruction = place.computation, place.instruction
        match instruction.opcode:
            case "tuple" if place.element is not None:
                return self._operand(place, place.element)
            case "get-tuple-element" if place.element is None:
                source = computation.operand(instruction, 0)
                return dataclasses.replace(place, instruction=source, element=instruction.index())
            case "opt-barrier":
                source = computation.operand(instruction, 0)
                return dataclasses.replace(place, instruction=source)
            case opcode if opcode in _SAME_VALUE and instruction.operands:
                source = computation.operand(instruction, 0)
                return dataclasses.replace(place, instruction=source, element=None)
            case "fusion" | "call":
                callee = self._module.computation(instruction.callee("calls", "to_apply"))
                return _Place(
                    callee,
                    callee.root,
                    place.element,
                    (*place.parameters, (computation, instruction)),
                )
            case "parameter" if place.parameters:
                outer, call = place.parameters[-1]
                number = parameter_number(instruction)
                if number >= len(call.operands):
                    return None
                return _Place(
                    outer, outer.operand(call, number), place.element, place.parameters[:-1]
                )
            case _:
                return place


def _count(start: int, limit: int, step: int, direction: str) -> int | None:
    """Trips of `for (i = start; i <direction> limit; i += step)`; None for one that never ends."""
    match direction:
        case "LT":
            distance = limit - start
        case "LE":
            distance = limit - start + 1
        case "GT":
            distance, step = start - limit, -step
        case "GE":
            distance, step = start - limit + 1, -step
        case _:  # NE ends only where the steps meet the limit
            if step == 0 or (limit - start) % step or (limit - start) // step < 0:
                return None
            return (limit - start) // step
    if distance <= 0:
        return 0
    return None if step <= 0 else -(-distance // step)
