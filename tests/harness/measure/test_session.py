"""Measuring a group in this process: real programs, real failures."""

import dataclasses

import pytest

from layerbench import Cell
from layerbench.measure.session import measure_group
from layerbench.measure.timing.sampling import SamplingPlan
from layerbench.metrics import METRICS
from layerbench.record import Record, Status

# Of a loop, of watched buffers, and of a target whose memory is known.
SPECIAL = {
    "hbm_bytes_once",
    "cache_copy_bytes",
    "layer_update_bytes",
    "loop_weight_slice_bytes",
    "over_capacity_bytes",
}
PLAN = SamplingPlan(min_samples=2, max_samples=2, min_sample_ms=0.1)


def cells(*layouts, phase="add", layers=3):
    return [Cell("toy", layout, phase, layers, 1, 1) for layout in layouts]


def measure(suite, *layouts, phase="add", **options):
    records = measure_group(cells(*layouts, phase=phase), suite, PLAN, **options)
    return {record.cell.layout: record for record in records}


def test_a_cell_has_every_metric_that_applies_its_floor_and_its_samples(toy_suite):
    record = measure(toy_suite, "plain")["plain"]
    assert record.status is Status.OK
    assert set(record.metrics) == set(METRICS) - SPECIAL
    assert record.program["flows"]
    assert Record.from_dict(record.as_dict()) == record
    assert len(record.metrics["step_ms"].samples) == 2
    assert (record.floor.flops, record.tokens_per_step) == (3 * 64 * 64, 5)


def test_a_failing_cell_is_a_record_and_the_rest_goes_on(toy_suite):
    records = measure(toy_suite, "raises", "wrong", "absent", "plain")
    assert {layout: record.status for layout, record in records.items()} == {
        "raises": Status.FAILED,
        "wrong": Status.FAILED,
        "absent": Status.NOT_APPLICABLE,
        "plain": Status.OK,
    }
    assert records["raises"].reason == "ValueError: this layout always raises"
    assert records["wrong"].reason == "the sum is 3.0 and should be 4"


def test_an_answer_that_drifts_while_it_is_timed_is_caught(toy_suite):
    """The check sees the outputs of the last timed call with the number of calls before it."""
    seen = []
    build = toy_suite.build

    def spying_build(cell):
        workload = build(cell)
        check = workload.check

        def spy(outputs, calls):
            seen.append(calls)
            check(outputs, calls)

        return dataclasses.replace(workload, check=spy)

    measure(dataclasses.replace(toy_suite, build=spying_build), "plain")
    assert seen[0] == 0
    assert seen[1] > 2


def test_layouts_that_fit_together_are_sampled_in_turn(toy_suite):
    told = []
    records = measure(toy_suite, "plain", "twice", tell=told.append)
    assert all(record.interleaved for record in records.values())
    sampled = [progress.cell.layout for progress in told if progress.stage == "sample"]
    # First calls, calibration, two rounds.
    assert sampled[-4:] == ["plain", "twice", "plain", "twice"]


def test_layouts_that_do_not_fit_together_are_sampled_alone_and_say_so(toy_suite):
    records = measure(toy_suite, "plain", "twice", usable_bytes=40_000)
    for record in records.values():
        assert record.status is Status.OK
        assert not record.interleaved
        assert any("do not fit in memory together" in note for note in record.notes)


def test_a_workload_can_say_that_it_is_no_contender_and_why(toy_suite):
    record = measure(toy_suite, "twice")["twice"]
    assert not record.contender
    assert "Adds in place." in record.notes


def test_a_loop_is_timed_by_its_marginal_turn(toy_suite):
    record = measure(toy_suite, "plain", phase="loop")["plain"]
    assert record.status is Status.OK
    assert len(record.metrics["step_ms"].samples) == 2


def test_a_buffer_that_is_donated_in_vain_is_counted(toy_suite):
    build = toy_suite.build

    def donates_in_vain(cell):
        workload = build(cell)
        return dataclasses.replace(
            workload,
            function=lambda state, weights: (state + weights)[0],
            thread=lambda _outputs, _arguments: workload.make_arguments(),
            check=lambda _outputs, _calls: None,
        )

    record = measure(dataclasses.replace(toy_suite, build=donates_in_vain), "plain")["plain"]
    assert record.value("undonated_bytes") == 64 * 64 * 4
    assert any("donated" in note for note in record.notes)


@pytest.mark.parametrize("layers", [1, 4])
def test_stablehlo_grows_with_an_unrolled_loop(toy_suite, layers):
    (record,) = measure_group(cells("plain", layers=layers), toy_suite, PLAN)
    assert record.value("stablehlo_lines") == 5 + layers


def test_a_cell_that_fails_while_it_is_sampled_takes_no_other_with_it(toy_suite):
    build = toy_suite.build

    def fails_in_the_third_call(cell):
        workload = build(cell)
        if cell.layout != "twice":
            return workload
        made = []

        def thread(outputs, arguments):
            made.append(1)
            if len(made) == 3:
                raise ValueError("out of luck")
            return workload.thread(outputs, arguments)

        return dataclasses.replace(workload, thread=thread)

    suite = dataclasses.replace(toy_suite, build=fails_in_the_third_call)
    records = measure(suite, "plain", "twice")
    assert records["plain"].status is Status.OK
    assert records["twice"].reason == "ValueError: out of luck"
