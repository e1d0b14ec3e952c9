"""A compiled program as data: computations, their instructions in order, and aliases."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from functools import cached_property

from layerbench.measure.program.errors import ProgramError
from layerbench.measure.program.shapes import Shape

# A string that does not end reaches to the end of the text, so that no part is read twice.
_DELIMITER = re.compile(r'"(?:[^"\\]|\\.)*"?|[{}()\[\],]')
_NAME = re.compile(r"%?([\w.\-<>$:]+)")
# Attributes that name computations, in the order in which they matter.
_SINGLE_CALLS = ("calls", "to_apply", "body", "condition", "true_computation", "false_computation")
_LISTED_CALLS = ("branch_computations", "called_computations")
_ANY_CALL = re.compile("|".join(f"{key}=" for key in (*_SINGLE_CALLS, *_LISTED_CALLS)))


@dataclasses.dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction.

    Attributes:
        name: Unique in its computation.
        shape: Of the result.
        opcode: Such as `fusion` or `dynamic-update-slice`.
        operands: Names, in order.
        payload: What stands in the place of operands for `parameter` and `constant`.
        attributes: The text after the operands, without metadata; see `attribute`.
        is_root: Whether it is the computation's result.
    """

    name: str
    shape: Shape
    opcode: str
    operands: tuple[str, ...]
    payload: str
    attributes: str
    is_root: bool

    def attribute(self, key: str) -> str | None:
        """The text of an attribute, such as `LT` of `direction=LT`; None where there is none."""
        if f"{key}=" not in self.attributes:
            return None
        return split_attributes(self.attributes).get(key)

    @property
    def callees(self) -> tuple[str, ...]:
        """Names of the computations that it calls."""
        if _ANY_CALL.search(self.attributes) is None:
            return ()
        attributes = split_attributes(self.attributes)
        names = [_one_name(attributes[key]) for key in _SINGLE_CALLS if key in attributes]
        for key in _LISTED_CALLS:
            if key in attributes:
                names += _NAME.findall(attributes[key])
        return tuple(names)

    def callee(self, *keys: str) -> str:
        """The computation that the first of these attributes names.

        Raises:
            ProgramError: There is none.
        """
        for key in keys:
            text = self.attribute(key)
            if text is not None:
                return _one_name(text)
        raise ProgramError(f"{self.opcode} {self.name} names no {' or '.join(keys)}")

    def index(self, key: str = "index") -> int:
        """An attribute that is a number.

        Raises:
            ProgramError: It is not there, or no number.
        """
        return parse_integer(self.attribute(key) or "", f"{key} of {self.name}")


@dataclasses.dataclass(frozen=True)
class Computation:
    """Instructions in the order in which they run (the text of a scheduled module)."""

    name: str
    instructions: tuple[Instruction, ...]

    @cached_property
    def by_name(self) -> Mapping[str, Instruction]:
        """Instructions by name."""
        return {instruction.name: instruction for instruction in self.instructions}

    @cached_property
    def root(self) -> Instruction:
        """The result."""
        for instruction in reversed(self.instructions):
            if instruction.is_root:
                return instruction
        if not self.instructions:
            raise ProgramError(f"the computation {self.name} is empty")
        return self.instructions[-1]

    @cached_property
    def parameters(self) -> Mapping[int, Instruction]:
        """Parameters by number."""
        return {
            parameter_number(instruction): instruction
            for instruction in self.instructions
            if instruction.opcode == "parameter"
        }

    @cached_property
    def users(self) -> Mapping[str, tuple[Instruction, ...]]:
        """For each instruction's name, those that take it as an operand."""
        users: dict[str, list[Instruction]] = {}
        for instruction in self.instructions:
            for operand in dict.fromkeys(instruction.operands):
                users.setdefault(operand, []).append(instruction)
        return {name: tuple(found) for name, found in users.items()}

    def operand(self, instruction: Instruction, position: int) -> Instruction:
        """The instruction that makes an operand.

        Raises:
            ProgramError: There is no such operand.
        """
        try:
            return self.by_name[instruction.operands[position]]
        except (IndexError, KeyError) as error:
            raise ProgramError(
                f"{instruction.opcode} {instruction.name} has no operand {position}"
            ) from error


@dataclasses.dataclass(frozen=True, slots=True)
class Alias:
    """A result that takes over an argument's buffer.

    Attributes:
        output: Index into the result tuple, empty for a result that is one array.
        parameter: Number of the entry's parameter.
        parameter_index: Index into the parameter, empty for an array.
    """

    output: tuple[int, ...]
    parameter: int
    parameter_index: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Module:
    """A compiled program.

    Attributes:
        name: Of the module.
        computations: By name.
        entry: Name of the one that runs.
        aliases: Results that reuse arguments.
    """

    name: str
    computations: Mapping[str, Computation]
    entry: str
    aliases: tuple[Alias, ...]

    def computation(self, name: str) -> Computation:
        """The computation of that name.

        Raises:
            ProgramError: There is none.
        """
        found = self.computations.get(name)
        if found is None:
            raise ProgramError(f"there is no computation '{name}'")
        return found

    @property
    def entry_computation(self) -> Computation:
        """The one that runs."""
        return self.computation(self.entry)


def parameter_number(instruction: Instruction) -> int:
    """Which of its computation's parameters it is.

    Raises:
        ProgramError: It does not say.
    """
    text = instruction.payload
    if not text.isdecimal() or len(text) > 9:
        raise ProgramError(f"the parameter {instruction.name} has no number")
    return int(text)


def split_attributes(text: str) -> dict[str, str]:
    """Splits `, a=1, b={c, d}, e="f, g"` at its outer commas; the first of equal keys counts."""
    attributes: dict[str, str] = {}

    def take(part: str) -> None:
        key, equals, value = part.partition("=")
        if equals:
            attributes.setdefault(key.strip(), value.strip())

    depth = start = 0
    for match in _DELIMITER.finditer(text):
        mark = match[0]
        if mark in "{([":
            depth += 1
        elif mark in "})]":
            depth -= 1
        elif mark == "," and depth == 0:
            take(text[start : match.start()])
            start = match.end()
    take(text[start:])
    return attributes


def parse_integer(text: str, what: str) -> int:
    """A decimal number of a sensible length.

    Raises:
        ProgramError: It is not one.
    """
    digits = text.strip()
    if not digits.removeprefix("-").isdecimal() or len(digits) > 20:
        raise ProgramError(f"{what} is '{digits[:20]}', not a number")
    return int(digits)


def _one_name(text: str) -> str:
    match = _NAME.fullmatch(text)
    if match is None:
        raise ProgramError(f"cannot read the computation's name '{text[:60]}'")
    return match[1]
