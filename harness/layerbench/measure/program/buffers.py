"""Follows watched buffers through the program: which values are the KV cache, which the weights.

Two values are one buffer where the program hands it on: through tuples, loops, calls, copies,
changes of layout or type, updates in place, and where a result takes over an argument's memory.
A slice is another buffer, with data of the first. Nothing is guessed from sizes, unless the watched arguments themselves
could not be found in the program; the caller then says so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from layerbench.measure.program.hlo import Computation, Instruction, Module
from layerbench.measure.program.opcodes import (
    SLICES,
    allocates_only,
    base_opcode,
    result_offset,
    words,
)
from layerbench.measure.program.shapes import Array, Shape
from layerbench.measure.program.traffic import TrafficReader
from layerbench.measure.program.weights import branches, called

_SAME_BUFFER = words(
    """
    copy bitcast reshape transpose convert reverse opt-barrier copy-done fusion-done
    dynamic-update-slice scatter domain
    """
)


@dataclasses.dataclass(frozen=True, slots=True)
class Watched:
    """Buffers of one role.

    Attributes:
        role: Such as `kv_cache` or `weights`.
        parameters: Positions among the program's arguments, in the order in which they are
            flattened; empty where they are not known.
        arrays: Type and dimensions of each on one device; what is matched where `parameters` is
            empty.
    """

    role: str
    parameters: tuple[int, ...]
    arrays: tuple[tuple[str, tuple[int, ...]], ...]


class BufferMap:
    """Tells the role of any array in the program."""

    def __init__(self, module: Module, names: Iterable[str], reader: TrafficReader) -> None:
        """Follows every buffer.

        Args:
            module: The program.
            names: The computations that run.
            reader: Knows which results of a fusion are another's buffer.
        """
        self._module = module
        self._reader = reader
        self._first: dict[tuple[str, str], int] = {}
        self._parents: list[int] = []
        self._arrays: list[Array] = []
        self._roles: dict[int, str] = {}
        self._cuts: list[tuple[int, int]] = []
        self._data_roles: dict[int, str] = {}
        self._shape_roles: dict[tuple[str, tuple[int, ...]], str] = {}
        for name in names:
            for instruction in module.computation(name).instructions:
                self._first[name, instruction.name] = len(self._parents)
                self._parents.extend(
                    range(len(self._parents), len(self._parents) + len(instruction.shape.leaves))
                )
                self._arrays.extend(instruction.shape.leaves)
        for name in names:
            computation = module.computation(name)
            for instruction in computation.instructions:
                self._connect(computation, instruction)
        self._connect_aliases()

    def watch(self, watched: Sequence[Watched]) -> tuple[str, ...]:
        """Gives roles to buffers; returns the roles that could only be told by shape."""
        by_shape = []
        arguments = self._arguments()
        for buffers in watched:
            positions = buffers.parameters
            if positions and max(positions) < len(arguments):
                for position in positions:
                    self._roles.setdefault(self._find(arguments[position]), buffers.role)
            elif buffers.arrays:
                by_shape.append(buffers.role)
                for array in buffers.arrays:
                    self._shape_roles.setdefault(array, buffers.role)
        self._follow_cuts()
        return tuple(by_shape)

    def _follow_cuts(self) -> None:
        """What is cut out of a watched buffer, or out of such a part, holds its data."""
        cuts: dict[int, list[int]] = {}
        for source, part in self._cuts:
            cuts.setdefault(self._find(source), []).append(self._find(part))
        waiting = list(self._roles.items())
        while waiting:
            source, role = waiting.pop()
            for part in cuts.get(source, ()):
                if part not in self._data_roles and part not in self._roles:
                    self._data_roles[part] = role
                    waiting.append((part, role))

    def data_role(self, computation: str, instruction: str, leaf: int = 0) -> str | None:
        """The role of the buffer whose data an array holds: the array's own, or of its source."""
        own = self.role(computation, instruction, leaf)
        first = self._first.get((computation, instruction))
        if own is not None or first is None or first + leaf >= len(self._arrays):
            return own
        return self._data_roles.get(self._find(first + leaf))

    def role(self, computation: str, instruction: str, leaf: int = 0) -> str | None:
        """The role of one array of an instruction's value."""
        first = self._first.get((computation, instruction))
        if first is None:
            return None
        node = first + leaf
        if node >= len(self._arrays):
            return None
        array = self._arrays[node]
        by_shape = self._shape_roles.get((array.dtype, array.dims))
        return self._roles.get(self._find(node), by_shape)

    def _arguments(self) -> list[int]:
        """The entry's arguments, flattened: one parameter each, or one tuple of them all."""
        entry = self._module.entry_computation
        nodes: list[int] = []
        for _, parameter in sorted(entry.parameters.items()):
            first = self._first[entry.name, parameter.name]
            nodes.extend(range(first, first + len(parameter.shape.leaves)))
        return nodes

    def _connect(  # noqa: PLR0912 - a case for each kind of instruction
        self, computation: Computation, instruction: Instruction
    ) -> None:
        operands = [computation.operand(instruction, i) for i in range(len(instruction.operands))]
        opcode = base_opcode(instruction)
        here = self._node(computation, instruction)
        match opcode:
            case "tuple":
                at = here
                for operand in operands:
                    self._join(at, self._node(computation, operand), operand.shape)
                    at += len(operand.shape.leaves)
            case "get-tuple-element" if operands:
                index = instruction.index()
                parts = operands[0].shape.parts
                if index < len(parts):
                    offset = sum(len(part.leaves) for part in parts[:index])
                    self._join(
                        here, self._node(computation, operands[0]) + offset, instruction.shape
                    )
            case "while" if operands:
                self._join(here, self._node(computation, operands[0]), instruction.shape)
                body = instruction.callee("body")
                self._enter(body, [operands[0]], computation)
                self._leave(body, here, instruction.shape)
                self._enter(instruction.callee("condition"), [operands[0]], computation)
            case "call" | "async":
                self._enter(called(instruction), operands, computation)
                shape, offset = result_offset(instruction)
                self._leave(called(instruction), here + offset, shape)
            case "conditional":
                for operand, branch in zip(operands[1:], branches(instruction), strict=False):
                    self._enter(branch, [operand], computation)
                    self._leave(branch, here, instruction.shape)
            case "fusion":
                shape, offset = result_offset(instruction)
                for leaf, result in enumerate(self._reader.results_of(instruction)):
                    here_leaf = here + offset + leaf
                    for moved in result.moved:
                        if moved < len(operands):
                            source = self._node(computation, operands[moved])
                            self._cuts.append((source, here_leaf))
                    whole = result.moved if not result.is_slice else ()
                    for number in (result.in_place, *whole):
                        if number is not None and number < len(operands):
                            self._join_one(here_leaf, self._node(computation, operands[number]))
            case "slice" | "dynamic-slice" | "concatenate" | "custom-call":
                if opcode == "custom-call" and not allocates_only(instruction):
                    return
                for operand in operands[:1] if opcode in SLICES else operands:
                    _, offset = result_offset(instruction)
                    self._cuts.append((self._node(computation, operand), here + offset))
            case _ if opcode in _SAME_BUFFER and operands:
                source, offset = self._node(computation, operands[0]), 0
                if instruction.opcode.endswith("-done"):
                    _, offset = result_offset(operands[0])
                self._join(here, source + offset, result_offset(instruction)[0])
            case _:
                pass

    def _connect_aliases(self) -> None:
        entry = self._module.entry_computation
        for alias in self._module.aliases:
            parameter = entry.parameters.get(alias.parameter)
            output = _leaf_at(entry.root.shape, alias.output)
            if parameter is None or output is None:
                continue
            argument = _leaf_at(parameter.shape, alias.parameter_index)
            if argument is not None:
                self._join_one(
                    self._node(entry, entry.root) + output,
                    self._node(entry, parameter) + argument,
                )

    def _enter(self, callee: str, operands: list[Instruction], computation: Computation) -> None:
        parameters = self._module.computation(callee).parameters
        for number, operand in enumerate(operands):
            if number in parameters and (callee, parameters[number].name) in self._first:
                inside = self._first[callee, parameters[number].name]
                self._join(inside, self._node(computation, operand), operand.shape)

    def _leave(self, callee: str, outside: int, shape: Shape) -> None:
        root = self._module.computation(callee).root
        if (callee, root.name) in self._first:
            self._join(self._first[callee, root.name], outside, shape)

    def _node(self, computation: Computation, instruction: Instruction) -> int:
        return self._first[computation.name, instruction.name]

    def _join(self, left: int, right: int, shape: Shape) -> None:
        for leaf in range(len(shape.leaves)):
            self._join_one(left + leaf, right + leaf)

    def _join_one(self, left: int, right: int) -> None:
        if max(left, right) >= len(self._arrays):
            return
        # Of one size, so that text which contradicts itself cannot make the parts of a tuple one.
        if self._arrays[left].elements == self._arrays[right].elements:
            self._parents[self._find(left)] = self._find(right)

    def _find(self, node: int) -> int:
        parents = self._parents
        while parents[node] != node:
            parents[node] = parents[parents[node]]
            node = parents[node]
        return node


def _leaf_at(shape: Shape, path: tuple[int, ...]) -> int | None:
    """The number of the array at a path into nested tuples; None where there is none."""
    offset = 0
    for index in path:
        if index >= len(shape.parts):
            return None
        offset += sum(len(part.leaves) for part in shape.parts[:index])
        shape = shape.parts[index]
    return offset if not shape.is_tuple else None
