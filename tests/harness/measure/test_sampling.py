"""Sampling: order, batching, stopping, and state that is handed on; without a clock."""

import math

import pytest

from layerbench.measure.timing.sampling import (
    SamplingPlan,
    StepTimer,
    relative_precision,
    sample_in_turn,
)
from layerbench.workload import Turns

MS = 1_000_000


class FakeClock:
    """Time that passes only when something is done."""

    def __init__(self):
        self.now_ns = 0

    def __call__(self):
        return self.now_ns

    def pass_ms(self, milliseconds):
        self.now_ns += round(milliseconds * MS)


class FakeMember:
    """A step of known length; the lengths may differ from sample to sample."""

    def __init__(self, clock, log, name, step_ms):
        self.clock, self.log, self.name = clock, log, name
        self.step_ms = step_ms if callable(step_ms) else lambda _: step_ms
        self.sample = 0

    def time_step_ms(self, calls):
        step_ms = self.step_ms(self.sample)
        self.sample += 1
        self.clock.pass_ms(calls * step_ms)
        self.log.append((self.name, calls))
        return step_ms


def run(steps, **plan):
    clock, log = FakeClock(), []
    members = [FakeMember(clock, log, name, step) for name, step in steps.items()]
    samples = sample_in_turn(members, SamplingPlan(**plan), clock=clock)
    return samples, log, clock


def test_members_are_sampled_in_turn():
    _, log, _ = run({"a": 20, "b": 30, "c": 40}, min_samples=3, max_samples=3)
    calibration, rounds = log[:3], log[3:]
    assert [name for name, _ in calibration] == ["a", "b", "c"]
    assert [name for name, _ in rounds] == ["a", "b", "c"] * 3


def test_short_steps_are_batched_until_a_sample_fills_its_time():
    _, log, _ = run({"a": 0.1, "b": 25}, min_sample_ms=10, min_samples=1, max_samples=1)
    assert log[-2:] == [("a", 100), ("b", 1)]


def test_a_steady_step_needs_no_more_than_the_fewest_samples():
    samples, _, _ = run({"a": 20}, min_samples=6, max_samples=50)
    assert samples == [[20] * 6]


def test_a_noisy_step_is_sampled_until_it_is_known_well_enough():
    samples, _, _ = run(
        {"a": lambda sample: 20 + (sample % 5) * (8 if sample < 12 else 0.1)},
        min_samples=6,
        max_samples=500,
        budget_s=1000,
    )
    assert 6 < len(samples[0]) < 500
    assert relative_precision(samples[0]) <= 0.02


def test_one_noisy_member_keeps_all_in_the_same_rounds():
    samples, _, _ = run(
        {"steady": 20, "noisy": lambda sample: 20 + 10 * (sample % 2)}, max_samples=30, budget_s=1e9
    )
    assert len(samples[0]) == len(samples[1]) == 30


def test_the_budget_ends_the_sampling_after_the_fewest_samples():
    noisy = {"a": lambda sample: 100 + 50 * (sample % 2)}
    samples, _, clock = run(noisy, min_samples=6, max_samples=10_000, budget_s=3)
    assert 6 < len(samples[0]) < 10_000
    assert 3 < clock.now_ns / 1e9 < 3.5


def test_steps_far_slower_than_the_budget_are_sampled_twice():
    samples, _, _ = run({"a": 4000}, min_samples=6, budget_s=2)
    assert samples == [[4000, 4000]]


def test_a_slow_member_does_not_leave_the_others_without_samples():
    samples, log, _ = run({"slow": 4000, "quick": 100}, min_samples=6, budget_s=5)
    assert [len(each) for each in samples] == [2, 6]
    assert [name for name, _ in log[2:4]] == ["slow", "quick"]


def test_a_single_sample_claims_no_precision():
    assert relative_precision([5.0]) == math.inf


def test_a_plan_that_contradicts_itself_is_refused():
    with pytest.raises(ValueError, match="min_samples"):
        SamplingPlan(min_samples=10, max_samples=5)


def make_timer(clock, calls, step_ms=7, turns=None):
    def call(state, turn_count=1):
        calls.append((state, turn_count))
        clock.pass_ms(step_ms * turn_count if turns else step_ms)
        return state + 1

    return StepTimer(
        call,
        (0, 1) if turns else (0,),
        thread=lambda outputs, arguments: (outputs, *arguments[1:]),
        clock=clock,
        synchronise=lambda outputs: clock.pass_ms(3),
        turns=turns,
    )


def test_donated_state_is_handed_on_from_call_to_call():
    clock, calls = FakeClock(), []
    timer = make_timer(clock, calls)
    timer.first_call_ms()
    timer.time_step_ms(2)
    timer.time_step_ms(3)
    assert [state for state, _ in calls] == [0, 1, 2, 3, 4, 5]
    assert (timer.outputs, timer.calls_made) == (6, 6)


def test_a_sample_synchronises_once_at_its_end():
    clock, calls = FakeClock(), []
    timer = make_timer(clock, calls)
    assert timer.first_call_ms() == 10
    assert timer.time_step_ms(1) == 10
    assert timer.time_step_ms(3) == pytest.approx((3 * 7 + 3) / 3)


def test_a_loop_costs_its_marginal_turn():
    clock, calls = FakeClock(), []
    turns = Turns(short=2, long=10, with_turns=lambda arguments, count: (arguments[0], count))
    timer = make_timer(clock, calls, turns=turns)
    timer.first_call_ms()
    # (10 * 7 + 3) - (2 * 7 + 3) over 8 turns: the synchronisation cancels.
    assert timer.time_step_ms(1) == pytest.approx(7)
    assert [count for _, count in calls] == [1, 2, 10]


def test_a_loop_without_room_for_two_lengths_is_refused():
    with pytest.raises(ValueError, match="short < long"):
        Turns(short=4, long=4, with_turns=lambda arguments, _: arguments)
