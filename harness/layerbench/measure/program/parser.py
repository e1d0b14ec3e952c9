"""Reads HLO text. Every line is read once, from left to right: time is linear in the text.

The text is what `compiled.as_text()` gives. It is preferred to the serialised module, whose schema
no wheel ships and which would need a private interface; the text has all that is needed, and is
what a person looks at. Metadata (operation names, source lines) is not kept.
"""

from __future__ import annotations

import re

from layerbench.measure.program.errors import ProgramError
from layerbench.measure.program.hlo import (
    Alias,
    Computation,
    Instruction,
    Module,
    split_attributes,
)
from layerbench.measure.program.shapes import parse_shape

_HEADER = re.compile(r"HloModule ([^\s,]+)")
_COMPUTATION = re.compile(r"(ENTRY )?%?([^\s(]+) (?:\(.*)?\{\s*")
_INSTRUCTION = re.compile(r"\s+(ROOT )?%?(\S+) = ")
_TUPLE_END = re.compile(r"\) (?=[a-z])")
_OPCODE = re.compile(r"([a-z][a-z0-9\-]*)\(")
_PARENTHESIS = re.compile(r'"(?:[^"\\]|\\.)*"?|[()]')
_COMMENT = re.compile(r"/\*[^*]*\*/")
_METADATA = re.compile(r', metadata=\{(?:[^{}"]|"(?:[^"\\]|\\.)*")*\}')
_OPERAND = re.compile(r"%([^\s,()]+)")
_ALIAS = re.compile(r"\{([\d, ]*)\}: \((\d+), \{([\d, ]*)\}")
_SOURCE_TABLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")


def parse_module(text: str) -> Module:
    """The program that the text describes.

    Raises:
        ProgramError: It is not the text of a module.
    """
    lines = _Lines()
    for line in text.split("\n"):
        lines.take(line)
    named = _HEADER.match(lines.header)
    if named is None:
        raise ProgramError("the text does not begin with a module's header")
    if lines.open_name is not None:
        raise ProgramError(f"the text ends inside the computation {lines.open_name}")
    if not lines.entry:
        raise ProgramError("the module has no entry computation")
    module = Module(named[1], lines.computations, lines.entry, _parse_aliases(lines.header))
    _check(module)
    return module


def without_metadata(text: str) -> str:
    """The text without operation names and source lines, so that it moves with the program only."""
    kept: list[str] = []
    in_table = False
    for line in text.split("\n"):
        in_table = (in_table and bool(line.strip())) or line in _SOURCE_TABLES
        if not in_table and (line.strip() or (kept and kept[-1])):
            kept.append(_METADATA.sub("", line))
    return "\n".join(kept).strip() + "\n"


class _Lines:
    """What was read so far.

    Attributes:
        header: The line that names the module.
        entry: Name of the entry computation.
        computations: Those that are complete.
        open_name: Name of the one that is being read.
    """

    def __init__(self) -> None:
        self.header = ""
        self.entry = ""
        self.computations: dict[str, Computation] = {}
        self.open_name: str | None = None
        self._instructions: list[Instruction] = []
        self._in_table = False

    def take(self, line: str) -> None:
        """Reads the next line."""
        if not line.strip():
            self._in_table = False
        elif self.open_name is not None:
            self._take_inside(line, self.open_name)
        elif self._in_table or line in _SOURCE_TABLES:
            self._in_table = True
        elif line.startswith("HloModule "):
            self.header = line
        else:
            self._open(line)

    def _take_inside(self, line: str, name: str) -> None:
        if line[0].isspace():
            self._instructions.append(_parse_instruction(line))
            return
        if not line.startswith("}"):
            raise ProgramError(f"the computation {name} does not end: '{line[:60]}'")
        self.computations[name] = Computation(name, tuple(self._instructions))
        self.open_name, self._instructions = None, []

    def _open(self, line: str) -> None:
        match = _COMPUTATION.fullmatch(line)
        if match is None:
            raise ProgramError(f"expected a computation and found '{line[:60]}'")
        self.open_name = match[2]
        if self.open_name in self.computations:
            raise ProgramError(f"two computations are called {self.open_name}")
        if match[1]:
            self.entry = self.open_name


def _parse_instruction(line: str) -> Instruction:
    match = _INSTRUCTION.match(line)
    if match is None:
        raise ProgramError(f"expected an instruction and found '{line.strip()[:60]}'")
    start = match.end()
    if line.startswith("(", start):
        # The shape of a tuple ends at the first bracket before a word: its parts end in commas.
        closing = _TUPLE_END.search(line, start)
        end = -1 if closing is None else closing.start() + 1
    else:
        end = line.find(" ", start)
    opcode = _OPCODE.match(line, end + 1) if end > 0 else None
    if opcode is None:
        raise ProgramError(f"the instruction {match[2]} has no opcode")
    inside = opcode.end()
    close = _closing(line, inside)
    payload = line[inside:close]
    rest = line[close + 1 :]
    if "metadata={" in rest:
        rest = _METADATA.sub("", rest, count=1)
    is_leaf = opcode[1] in ("parameter", "constant")
    return Instruction(
        name=match[2],
        shape=parse_shape(line[start:end]),
        opcode=opcode[1],
        operands=() if is_leaf else _parse_operands(payload),
        payload=payload.strip() if is_leaf else "",
        attributes=rest,
        is_root=match[1] is not None,
    )


def _closing(line: str, inside: int) -> int:
    """Where the bracket closes that was opened just before `inside`."""
    close = line.find(")", inside)
    if close >= 0 and line.find("(", inside, close) < 0 and line.find('"', inside, close) < 0:
        return close
    depth = 1
    for match in _PARENTHESIS.finditer(line, inside):
        if match[0] == "(":
            depth += 1
        elif match[0] == ")":
            depth -= 1
            if depth == 0:
                return match.start()
    raise ProgramError(f"a bracket does not close: '{line.strip()[:60]}'")


def _parse_operands(text: str) -> tuple[str, ...]:
    if "%" in text:
        return tuple(_OPERAND.findall(text))
    if "/*" in text:
        text = _COMMENT.sub("", text)
    # Without the sign: the name is the last word, after a shape where there is one.
    return tuple(part.split()[-1] for part in text.split(",") if part.strip())


def _parse_aliases(header: str) -> tuple[Alias, ...]:
    text = split_attributes(header).get("input_output_alias", "")
    return tuple(
        Alias(_indices(output), int(parameter), _indices(index))
        for output, parameter, index in _ALIAS.findall(text)
        if len(parameter) < 10
    )


def _indices(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part.strip() and len(part) < 10)


def _check(module: Module) -> None:
    """Every operand and every computation that is named exists, so that the rest may rely on it."""
    for computation in module.computations.values():
        known = set()
        for instruction in computation.instructions:
            for operand in instruction.operands:
                if operand not in known:
                    raise ProgramError(
                        f"{instruction.name} in {computation.name} uses {operand}, which is not "
                        "made before it"
                    )
            known.add(instruction.name)
            for callee in instruction.callees:
                module.computation(callee)
        if len(known) < len(computation.instructions):
            raise ProgramError(f"a name stands twice in {computation.name}")
        if not known:
            raise ProgramError(f"the computation {computation.name} is empty")
