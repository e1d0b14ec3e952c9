"""How often each computation runs: the call graph, weighted by trip counts.

A weight has two parts, since the loop of `generate` runs as often as data say: what runs once in a
call, and what runs in every turn of that loop. A program of `n` turns runs `once + n * turn` times.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from layerbench.measure.program.errors import ProgramError
from layerbench.measure.program.hlo import Instruction, Module
from layerbench.measure.program.loops import Loop

_CALLS = frozenset({"call", "async-start", "call-start"})


@dataclasses.dataclass(frozen=True, slots=True)
class Weight:
    """Runs for each call of the program.

    Attributes:
        once: Runs that do not depend on the number of turns.
        turn: Further runs with each turn.
    """

    once: int
    turn: int

    def __add__(self, other: Weight) -> Weight:
        return Weight(self.once + other.once, self.turn + other.turn)

    def __mul__(self, times: int) -> Weight:
        return Weight(self.once * times, self.turn * times)


ZERO = Weight(0, 0)


@dataclasses.dataclass(frozen=True, slots=True)
class Weights:
    """The computations that run, each with its weight.

    Attributes:
        weights: By computation; the bodies of fusions, reductions and loops' conditions have none.
        loop_depth: Loops around each computation.
        counted_once: Loops whose trips depend on data and that no turn stands for: their bodies
            weigh as if they ran once.
        has_turns: Whether there is a loop whose trips are the turns.
        has_branches: Whether a conditional was counted by its costliest branch.
    """

    weights: Mapping[str, Weight]
    loop_depth: Mapping[str, int]
    counted_once: tuple[Loop, ...]
    has_turns: bool
    has_branches: bool


def weigh(
    module: Module,
    loops: Mapping[tuple[str, str], Loop],
    cost: Mapping[str, int],
    *,
    with_turns: bool,
) -> Weights:
    """Weighs every computation that the entry reaches.

    Args:
        module: The program.
        loops: Its loops.
        cost: Of each computation's own instructions, run once; decides which branch of a
            conditional is the costliest.
        with_turns: Whether the outermost loop of unknown trips is the one that turns are counted
            of.

    Raises:
        ProgramError: Computations call each other in a circle.
    """
    order = callees_first(module)
    total: dict[str, int] = {}
    for name in order:
        total[name] = cost.get(name, 0) + sum(
            max((total[callee] for callee in call.alternatives), default=0) * call.times(1)
            for call in _calls(module, name, loops)
        )
    weights: dict[str, Weight] = {module.entry: Weight(1, 0)}
    depths: dict[str, int] = {module.entry: 0}
    counted_once: list[Loop] = []
    has_turns = has_branches = False
    for name in reversed(order):
        weight = weights.get(name)
        if weight is None:
            continue
        for call in _calls(module, name, loops):
            has_branches |= len(call.alternatives) > 1
            inner = weight * call.times(1)
            if call.loop is not None and call.loop.trips is None:
                if with_turns and not weight.turn:
                    inner, has_turns = Weight(0, weight.once), True
                else:
                    counted_once.append(call.loop)
            callee = max(call.alternatives, key=total.__getitem__, default="")
            if callee:
                weights[callee] = weights.get(callee, ZERO) + inner
                depth = depths[name] + (call.loop is not None)
                depths[callee] = max(depths.get(callee, 0), depth)
    return Weights(weights, depths, tuple(counted_once), has_turns, has_branches)


@dataclasses.dataclass(frozen=True, slots=True)
class _Call:
    """A place where a computation runs others.

    Attributes:
        alternatives: The one that runs, or the branches of which one does.
        loop: Where it is a loop.
    """

    alternatives: tuple[str, ...]
    loop: Loop | None = None

    def times(self, unknown: int) -> int:
        """How often it runs; `unknown` where that depends on data."""
        if self.loop is None:
            return 1
        return unknown if self.loop.trips is None else self.loop.trips


def _calls(module: Module, name: str, loops: Mapping[tuple[str, str], Loop]) -> Sequence[_Call]:
    found = []
    for instruction in module.computation(name).instructions:
        if instruction.opcode == "while":
            loop = loops[name, instruction.name]
            found.append(_Call((loop.body,), loop))
        elif instruction.opcode == "conditional":
            found.append(_Call(branches(instruction)))
        elif instruction.opcode in _CALLS:
            found.append(_Call((called(instruction),)))
    return found


def branches(conditional: Instruction) -> tuple[str, ...]:
    """The computations of which a conditional runs one."""
    return conditional.callees


def called(call: Instruction) -> str:
    """The computation that a call, or an asynchronous one, runs."""
    return call.callee("to_apply", "calls")


def callees_first(module: Module) -> list[str]:
    """All computations that the entry reaches by any call, every callee before its callers.

    Raises:
        ProgramError: Computations call each other in a circle.
    """
    order: list[str] = []
    entered: set[str] = set()
    done: set[str] = set()
    stack: list[tuple[str, bool]] = [(module.entry, False)]
    while stack:
        name, is_left = stack.pop()
        if is_left:
            done.add(name)
            order.append(name)
        elif name not in entered:
            entered.add(name)
            stack.append((name, True))
            for instruction in module.computation(name).instructions:
                for callee in instruction.callees:
                    if callee in entered and callee not in done:
                        raise ProgramError(f"the computation {callee} calls itself")
                    stack.append((callee, False))
    return order
