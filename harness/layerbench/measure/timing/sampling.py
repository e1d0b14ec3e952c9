"""Samples of steady-state step times, taken in turn until they are precise enough.

Nothing here knows jax or reads a clock of its own: both come in as arguments, so that the rules can
be tested to the nanosecond.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import math
import statistics
from typing import TYPE_CHECKING, Protocol

from layerbench.statistics import median_interval

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from layerbench.workload import Arguments, Turns

    Clock = Callable[[], int]
    Synchronise = Callable[[object], object]

_NS_PER_MS = 1e6
_FEWEST = 2
"""Samples of a member that is far too slow for the budget."""


@dataclasses.dataclass(frozen=True, slots=True)
class SamplingPlan:
    """When a set of step times is good enough.

    Attributes:
        target_relative_precision: Wanted half width of the median's 95 % interval, over the median.
        min_samples: Taken whatever the precision by every member that could take them alone within
            the budget; a slower one stops when the budget is spent, after two samples at least
            (two and eight that do not overlap are told apart with 95 % confidence).
        max_samples: Never exceeded.
        budget_s: Wall time for all members together; a round that has begun is finished.
        min_sample_ms: A sample is made of as many calls as fill this time, so that the clock, the
            synchronisation and the loop around the calls do not count.
    """

    target_relative_precision: float = 0.02
    min_samples: int = 8
    max_samples: int = 60
    budget_s: float = 6.0
    min_sample_ms: float = 10.0

    def __post_init__(self) -> None:
        if not 1 <= self.min_samples <= self.max_samples:
            raise ValueError("a sampling plan needs 1 <= min_samples <= max_samples")


class Member(Protocol):
    """Something whose step can be timed again and again."""

    def time_step_ms(self, calls: int) -> float:
        """Milliseconds of one step, from `calls` calls with one synchronisation at their end."""


class StepTimer:
    """Times a call whose donated state is handed on from call to call.

    Attributes:
        outputs: Of the latest call.
        calls_made: How many calls have been made.
    """

    def __init__(
        self,
        call: Callable[..., object],
        arguments: Arguments,
        *,
        thread: Callable[[object, Arguments], Arguments],
        clock: Clock,
        synchronise: Synchronise,
        turns: Turns | None = None,
    ) -> None:
        self._call = call
        self._arguments = arguments
        self._thread = thread
        self._clock = clock
        self._synchronise = synchronise
        self._turns = turns
        self.outputs: object = None
        self.calls_made = 0

    def first_call_ms(self) -> float:
        """Makes the first call; its outputs stay untouched in `outputs` until the next one."""
        start = self._clock()
        self.outputs = self._call(*self._arguments)
        self._synchronise(self.outputs)
        self.calls_made = 1
        return (self._clock() - start) / _NS_PER_MS

    def time_step_ms(self, calls: int) -> float:
        """Milliseconds of one step: of a call, or of the marginal turn of a loop."""
        turns = self._turns
        if turns is None:
            return self._time_calls_ms(calls)
        # The long run comes last, so that its answer is the one that is checked in the end.
        short_ms = self._time_calls_ms(calls, turns.short)
        long_ms = self._time_calls_ms(calls, turns.long)
        return (long_ms - short_ms) / (turns.long - turns.short)

    def _time_calls_ms(self, calls: int, turn_count: int | None = None) -> float:
        call, thread = self._call, self._thread
        arguments = self._next_arguments()
        if turn_count is not None and self._turns is not None:
            arguments = self._turns.with_turns(arguments, turn_count)
        start = self._clock()
        outputs = call(*arguments)
        for _ in range(calls - 1):
            arguments = thread(outputs, arguments)
            outputs = call(*arguments)
        self._synchronise(outputs)
        elapsed_ns = self._clock() - start
        self._arguments, self.outputs = arguments, outputs
        self.calls_made += calls
        return elapsed_ns / calls / _NS_PER_MS

    def _next_arguments(self) -> Arguments:
        if self.calls_made == 0:
            return self._arguments
        return self._thread(self.outputs, self._arguments)


def sample_in_turn(
    members: Sequence[Member],
    plan: SamplingPlan,
    *,
    clock: Clock,
    before_sample: Callable[[int], None] = lambda _: None,
) -> list[list[float]]:
    """Step times of each member in milliseconds, sampled A B C A B C so that drift cancels.

    Args:
        members: Warm: their first call has been made.
        plan: When to stop.
        clock: Monotonic nanoseconds.
        before_sample: Told the index of the member that is sampled next.

    Returns:
        For each member its samples in order of the rounds. A slow member may have taken part in
        the first rounds only.
    """
    start_ns = clock()
    samples: list[list[float]] = [[] for _ in members]
    costs_s = [0.0] * len(members)
    with _no_garbage_collection():
        calls = []
        for index, member in enumerate(members):
            before_sample(index)
            calls.append(_calls_per_sample(member, plan.min_sample_ms, clock))
        in_turn = list(range(len(members)))
        while in_turn:
            for index in in_turn:
                before_sample(index)
                began_ns = clock()
                samples[index].append(members[index].time_step_ms(calls[index]))
                costs_s[index] = (clock() - began_ns) / 1e9
            elapsed_s = (clock() - start_ns) / 1e9
            in_turn = [
                index
                for index in _still_wanted(samples, costs_s, plan, elapsed_s)
                if index in in_turn
            ]
    return samples


def relative_precision(samples: Sequence[float]) -> float:
    """Half width of the median's 95 % interval over the median; infinite where it is unknown."""
    middle = statistics.median(samples)
    if middle <= 0:
        return math.inf
    low, high = median_interval(samples)
    return (high - low) / 2 / middle


def _still_wanted(
    samples: Sequence[Sequence[float]],
    costs_s: Sequence[float],
    plan: SamplingPlan,
    elapsed_s: float,
) -> list[int]:
    """The members that take part in the next round."""
    rounds = max(map(len, samples))
    if rounds >= plan.max_samples:
        return []
    if rounds < min(_FEWEST, plan.min_samples):
        return list(range(len(samples)))
    if elapsed_s <= plan.budget_s:
        precise = all(
            relative_precision(each) <= plan.target_relative_precision for each in samples
        )
        return [] if rounds >= plan.min_samples and precise else list(range(len(samples)))
    # The budget is spent. Who needs few seconds for the fewest samples gets them: one slow member
    # must not leave the others without an interval.
    return [
        index
        for index, cost_s in enumerate(costs_s)
        if rounds < plan.min_samples and cost_s * plan.min_samples <= plan.budget_s
    ]


def _calls_per_sample(member: Member, min_sample_ms: float, clock: Clock) -> int:
    # Whole samples are timed, not steps: a marginal turn can come out as zero or less.
    calls = 1
    while True:
        start_ns = clock()
        member.time_step_ms(calls)
        elapsed_ms = (clock() - start_ns) / _NS_PER_MS
        if elapsed_ms >= min_sample_ms or calls >= 1 << 16:
            return calls
        wanted = math.ceil(calls * min_sample_ms / max(elapsed_ms, min_sample_ms / 64))
        calls = max(calls + 1, wanted)


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Keeps Python's collector out of the samples; what it has to do, it does before."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
