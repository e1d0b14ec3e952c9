"""The tidy frame: a row for each cell and metric, failures too."""

from __future__ import annotations

import dataclasses

import pandas as pd
import pytest

from layerbench.record import Measured
from layerbench.store.frame import COLUMNS, runs_frame


def test_each_cell_and_metric_is_a_row_and_each_failure_is_one(run):
    frame = runs_frame([run, dataclasses.replace(run, id="another")])
    rows = sum(max(1, len(record.metrics)) for record in run.records)
    assert len(frame) == 2 * rows
    assert list(frame.columns) == list(COLUMNS)
    failed = frame[frame["status"] != "ok"]
    assert list(failed["layout"]) == ["vmap", "unrolled"] * 2
    assert failed["value"].isna().all()
    assert failed["metric"].isna().all()
    assert failed["reason"].iloc[0] == ("the worker was ended by SIGKILL (is there enough memory?)")


def test_a_row_says_what_was_measured_where_and_how(run):
    frame = runs_frame([run])
    row = frame[(frame["metric"] == "step_ms") & (frame["layout"] == "unrolled")].iloc[0]
    assert row["value"] == 1.0107
    assert row["low"] <= row["value"] <= row["high"]
    assert row["sample_count"] == len(row["samples"]) == 9
    assert row["unit"] == "ms"
    assert row["kind"] == "timed"
    assert row["floor_bytes"] == 8_000_000
    assert row["machine"] == "linux-x86-2cpu"
    assert row["jax"] == "0.10.2"
    assert row["flags"] == "XLA_FLAGS=--xla_cpu_example=1"
    assert row["commit"] == run.source.commit
    assert row["cell"] == run.records[0].cell.id


def test_too_few_samples_have_no_interval(run):
    frame = runs_frame([run])
    row = frame[(frame["phase"] == "prefill") & (frame["metric"] == "step_ms")].iloc[0]
    assert row["sample_count"] == 3
    assert pd.isna(row["low"])
    assert pd.isna(row["high"])


@pytest.mark.parametrize("runs", [[], ["golden"]])
def test_types_do_not_depend_on_what_is_in_it(runs, run):
    frame = runs_frame([run] if runs else [])
    assert {name: str(kind) for name, kind in frame.dtypes.items()} == COLUMNS


def test_a_target_that_never_came_up_and_a_metric_of_a_later_version_have_their_row(run):
    strange = dataclasses.replace(run.records[0], metrics={"later_ms": Measured(1.5)})
    frame = runs_frame([dataclasses.replace(run, environments={}, records=[strange])])
    assert frame["machine"].isna().all()
    assert frame["value"].tolist() == [1.5]
    assert frame["unit"].isna().all()
