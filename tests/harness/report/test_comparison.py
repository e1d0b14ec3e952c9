"""Which layout is called the fastest, and when nothing is claimed."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from layerbench.record import Measured, Record
from layerbench.report.comparison import compare_records
from layerbench.store.files import encode_json


def marks(records):
    (group,) = compare_records(records).groups
    return {row.layout: row.mark.value for row in group.rows}


def test_the_fastest_is_marked_and_the_others_are_set_against_it(make_record):
    records = [make_record("a", 30.0), make_record("b", 20.0)]
    (group,) = compare_records(records).groups
    assert marks(records) == {"a": "", "b": "fastest"}
    assert [row.ratio for row in group.rows] == [1.5, 1.0]


def test_layouts_sampled_apart_are_tied_if_their_intervals_overlap(make_record):
    steps = {"a": 10.0, "b": 10.05, "c": 11.0}
    records = [make_record(name, step, interleaved=False) for name, step in steps.items()]
    assert marks(records) == {"a": "tied", "b": "tied", "c": ""}


def test_a_drift_that_layouts_share_does_not_hide_which_is_slower(make_record):
    drift = [10, 14, 9, 22, 11, 10, 17, 12, 9, 13]
    records = [
        make_record("a", 11.5, samples=tuple(float(each) for each in drift)),
        make_record("b", 12.0, samples=tuple(1.05 * each for each in drift)),
    ]
    assert marks(records) == {"a": "fastest", "b": ""}


def test_layouts_that_take_turns_in_being_faster_are_tied(make_record):
    records = [
        make_record("a", 10.0, samples=(10.0,) * 10),
        make_record("b", 10.1, samples=(9.0, 11.0) * 5),
    ]
    assert marks(records) == {"a": "tied", "b": "tied"}


@pytest.mark.parametrize(("fast", "slow"), [(9, 1), (3, 2), (5, 2)])
def test_too_few_samples_are_told_apart_from_nothing(make_record, fast, slow):
    records = [make_record("a", 10.0, count=fast), make_record("b", 90.0, count=slow)]
    assert marks(records) == {"a": "tied", "b": "tied"}


@pytest.mark.parametrize(("fast", "slow"), [(8, 2), (9, 5)])
def test_a_layout_too_slow_for_an_interval_is_told_apart_if_no_sample_overlaps(
    make_record, fast, slow
):
    quick = make_record("a", 10.0, count=fast)
    assert marks([quick, make_record("b", 90.0, count=slow)]) == {"a": "fastest", "b": ""}
    overlapping = make_record("b", 90.0, samples=(10.0, 90.0))
    assert marks([quick, overlapping]) == {"a": "tied", "b": "tied"}


def test_who_is_no_contender_is_never_the_best(make_record):
    records = [make_record("pipeline", 1.0, contender=False), make_record("a", 10.0)]
    (group,) = compare_records(records).groups
    assert marks(records) == {"pipeline": "", "a": "fastest"}
    assert group.rows[0].ratio == pytest.approx(0.1)


def test_who_failed_is_never_the_best(make_record):
    slow = make_record("a", 10.0)
    failed = Record.failure(dataclasses.replace(slow.cell, layout="b"), "out of memory")
    assert marks([failed, slow]) == {"b": "", "a": "fastest"}


def test_a_group_without_a_contender_has_no_best(make_record):
    records = [make_record("pipeline", 1.0, contender=False)]
    (group,) = compare_records(records).groups
    assert group.leaders == ()
    assert group.rows[0].ratio is None


def test_rates_are_the_floor_over_the_step_time(make_record):
    (group,) = compare_records([make_record(step_ms=4.0)]).groups
    (row,) = group.rows
    assert row.achieved_gb_s == pytest.approx(0.5)
    assert row.achieved_gflop_s == pytest.approx(1.0)
    assert row.tokens_per_s == pytest.approx(3750)


@pytest.mark.parametrize("step_ms", [0.0, -0.5])
def test_a_marginal_turn_that_came_out_as_nothing_has_no_rates(make_record, step_ms):
    (group,) = compare_records([make_record(step_ms=step_ms), make_record("b", 3.0)]).groups
    row = group.rows[0]
    assert (row.achieved_gb_s, row.tokens_per_s, row.ratio, row.spread) == (None,) * 4
    assert group.rows[1].ratio is None


def test_of_two_records_for_one_cell_the_later_counts(make_record):
    (group,) = compare_records([make_record(step_ms=4.0), make_record(step_ms=5.0)]).groups
    assert [row.step_ms for row in group.rows] == [5.0]


def test_a_metric_without_samples_is_shown_and_claims_nothing(make_record):
    bare = dataclasses.replace(make_record("a"), metrics={"step_ms": Measured(3.0)})
    (group,) = compare_records([bare, make_record("b")]).groups
    assert group.rows[0].step_ms == 3.0
    assert group.rows[0].low_ms is None
    assert [row.mark.value for row in group.rows] == ["tied", "tied"]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            [("a", 10.0, 100.0), ("b", 15.0, 2500.0), ("c", 40.0, 99.0)],
            (
                "prefill of qwen3-tiny on cpu, 8 layers: a is the fastest; b takes 1.50 times and c "
                "takes 4.00 times as long. c compiles in 0.10 s, b in 2.50 s, 25.25 times as long."
            ),
        ),
        (
            [("a", 10.0, 100.0), ("b", 10.0, 100.0), ("c", 40.0, 100.0)],
            (
                "prefill of qwen3-tiny on cpu, 8 layers: a and b are not told apart; c takes 4.00 "
                "times as long as a. All compile in about 0.10 s."
            ),
        ),
        (
            [("a", 10.0, 100.0), ("b", 10.0, 100.0)],
            (
                "prefill of qwen3-tiny on cpu, 8 layers: a and b are not told apart. All compile in "
                "about 0.10 s."
            ),
        ),
        (
            [("a", 10.0, 100.0)],
            "prefill of qwen3-tiny on cpu, 8 layers: a is the only layout that was measured.",
        ),
    ],
)
def test_the_summary_is_of_the_deepest_depth(make_record, changes, line):
    deep = [
        make_record(layout, step_ms, layers=8, compile_ms=compile_ms)
        for layout, step_ms, compile_ms in changes
    ]
    shallow = [make_record("zzz", 1.0, layers=2), make_record("a", 2.0, layers=2)]
    assert compare_records([*deep, *shallow]).summary == (line,)


def test_the_summary_is_of_the_deepest_depth_that_could_be_measured(make_record):
    records = [make_record("a", 1.0), make_record("b", 2.0, layers=1)]
    deep = Record.failure(dataclasses.replace(records[0].cell, layers=64), "out of memory")
    (line,) = compare_records([*records, deep]).summary
    assert line.startswith("prefill of qwen3-tiny on cpu, 2 layers: a is the only layout")


def test_a_phase_in_which_all_failed_says_so(make_record):
    failed = Record.failure(make_record().cell, "out of memory")
    assert compare_records([failed]).summary == (
        "prefill of qwen3-tiny on cpu: no layout could be measured.",
    )


def test_nothing_measured_is_nothing_to_compare():
    comparison = compare_records([])
    assert (comparison.groups, comparison.summary, comparison.sections()) == ((), (), [])


@given(
    steps=st.lists(
        st.tuples(st.floats(0.01, 1e4), st.floats(0, 0.5), st.integers(1, 20), st.booleans()),
        min_size=1,
        max_size=6,
    )
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_whatever_is_measured_a_leader_is_the_fastest_contender_and_ratios_are_of_it(
    make_record, steps
):
    records = [
        make_record(f"layout-{index}", step, spread=spread, count=count, contender=contender)
        for index, (step, spread, count, contender) in enumerate(steps)
    ]
    (group,) = compare_records(records).groups
    contenders = [row for row in group.rows if row.record.contender]
    assert bool(group.leaders) == bool(contenders)
    if contenders:
        assert group.leaders[0].step_ms == min(row.step_ms for row in contenders)
        assert all(row.ratio >= 1 for row in contenders)
        assert {row.mark.value for row in group.leaders} == (
            {"fastest"} if len(group.leaders) == 1 else {"tied"}
        )


def test_the_plain_form_is_strict_json_with_failures_in_it(comparison):
    document = json.loads(encode_json(comparison.as_dict()))
    rows = document["groups"][1]["rows"]
    assert document["groups"][1]["group"]["layers"] == 16
    assert "layout" not in document["groups"][1]["group"]
    assert [(row["layout"], row["mark"], row["status"]) for row in rows] == [
        ("unrolled", "fastest", "ok"),
        ("stacked-scan", None, "ok"),
        ("vmap", None, "failed"),
    ]
    assert rows[2]["reason"].startswith("the worker was ended")
    assert len(document["summary"]) == 3
