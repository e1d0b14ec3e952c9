"""A program read whole: what runs, how often, what it moves, and whose bytes those are."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from layerbench.measure.program.buffers import BufferMap, Watched
from layerbench.measure.program.hlo import Module
from layerbench.measure.program.loops import Loop, find_loops
from layerbench.measure.program.opcodes import CONTROL
from layerbench.measure.program.parser import parse_module
from layerbench.measure.program.traffic import Traffic, TrafficReader, Write
from layerbench.measure.program.weights import Weight, callees_first, weigh

KV_CACHE = "kv_cache"
WEIGHTS = "weights"


@dataclasses.dataclass(frozen=True, slots=True)
class Movement:
    """An instruction that starts work, with all its runs.

    Attributes:
        traffic: Of one run.
        weight: Runs for each call of the program.
        loop_depth: Loops around it.
        operand_bytes: Of all operands, wherever they lie.
        read_roles: For each read, the role of the buffer; None for one that is not watched.
        write_roles: The same for each write.
        read_data: For each read, the role of the buffer whose data it is, also where that was cut
            out of it before.
    """

    traffic: Traffic
    weight: Weight
    loop_depth: int
    operand_bytes: int
    read_roles: tuple[str | None, ...]
    write_roles: tuple[str | None, ...]
    read_data: tuple[str | None, ...]

    def writes_to(self, role: str) -> Iterator[Write]:
        """The writes to main memory that go to buffers of a role."""
        for write, found in zip(self.traffic.writes, self.write_roles, strict=True):
            if found == role and write.bytes:
                yield write

    def bytes_read_of(self, role: str) -> int:
        """Bytes of one run that are read of buffers of a role."""
        return sum(
            read.bytes
            for read, found in zip(self.traffic.reads, self.read_roles, strict=True)
            if found == role
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Analysis:
    """What a program's text tells.

    Attributes:
        module: The program.
        loops: Those that the entry reaches.
        movements: All that runs, in the order of the text.
        watched: What was followed.
        followed_by_shape: Roles whose buffers could only be told by type and dimensions.
        counted_once: Loops whose trips depend on data and that no turn stands for.
        has_turns: Whether the loop whose trips are the turns was found.
        has_branches: Whether a conditional was counted by its costliest branch.
    """

    module: Module
    loops: tuple[Loop, ...]
    movements: tuple[Movement, ...]
    watched: tuple[Watched, ...]
    followed_by_shape: tuple[str, ...]
    counted_once: tuple[Loop, ...]
    has_turns: bool
    has_branches: bool


def analyse(
    text: str, platform: str, *, watched: Sequence[Watched] = (), with_turns: bool = False
) -> Analysis:
    """Reads a compiled program.

    Args:
        text: The optimised HLO of one device's program, as `compiled.as_text()` gives it.
        platform: `cpu`, `gpu` or `tpu`: tells which memory spaces are main memory.
        watched: Buffers to follow.
        with_turns: Whether the outermost loop whose trips depend on data stands for the turns of
            the workload.

    Raises:
        ProgramError: The text cannot be read.
    """
    module = parse_module(text)
    order = callees_first(module)
    loops = find_loops(module)
    reader = TrafficReader(module, platform)
    scheduled = _scheduled(module, order)
    traffic = {name: reader.of_computation(name) for name in order if name in scheduled}
    cost = {name: sum(each.bytes for each in found) for name, found in traffic.items()}
    weights = weigh(module, loops, cost, with_turns=with_turns)
    running = [name for name in order if name in weights.weights]
    # Conditions and branches not taken hand buffers on as well.
    buffers = BufferMap(module, [name for name in order if name in scheduled], reader)
    by_shape = buffers.watch(watched)
    movements = tuple(
        Movement(
            traffic=each,
            weight=weights.weights[name],
            loop_depth=weights.loop_depth[name],
            operand_bytes=sum(
                module.computation(name).by_name[operand].shape.bytes
                for operand in each.instruction.operands
            ),
            read_roles=tuple(
                buffers.role(name, each.instruction.operands[read.operand]) for read in each.reads
            ),
            write_roles=tuple(
                buffers.role(name, each.instruction.name, write.leaf) for write in each.writes
            ),
            read_data=tuple(
                buffers.data_role(name, each.instruction.operands[read.operand])
                for read in each.reads
            ),
        )
        for name in running
        for each in traffic[name]
    )
    return Analysis(
        module=module,
        loops=tuple(loop for (name, _), loop in loops.items() if name in weights.weights),
        movements=movements,
        watched=tuple(watched),
        followed_by_shape=by_shape,
        counted_once=weights.counted_once,
        has_turns=weights.has_turns,
        has_branches=weights.has_branches,
    )


def _scheduled(module: Module, order: Sequence[str]) -> set[str]:
    """Computations whose instructions run one by one: the entry, loops, calls and branches."""
    scheduled = {module.entry}
    for name in reversed(order):
        if name not in scheduled:
            continue
        for instruction in module.computation(name).instructions:
            if instruction.opcode in CONTROL:
                scheduled.update(instruction.callees)
    return scheduled
