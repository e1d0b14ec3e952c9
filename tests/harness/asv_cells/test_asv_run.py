import datetime as dt
import json
import os
from pathlib import Path

import psutil
import pytest

from layerbench.asv_cells.asv_run import AsvRun, current_run
from layerbench.digest import ruler_digest
from layerbench.errors import MeasurementError

WORKLOADS = Path(__file__)  # any file: it is a part of the ruler
STARTED = dt.datetime(2025, 12, 1, 10, 50, tzinfo=dt.UTC)


def run_of(command="asv run", commit="c0ffee", environment="virtualenv-py3.11"):
    return AsvRun(STARTED, command, "digest", commit, environment)


@pytest.fixture
def environments(tmp_path, monkeypatch):
    """The folder of asv's environments, as this process would know it below asv."""
    monkeypatch.setenv("ASV_ENV_DIR", str(tmp_path / "one"))
    monkeypatch.setenv("ASV_ENV_NAME", "virtualenv-py3.11")
    monkeypatch.setenv("ASV_COMMIT", "c0ffee")
    return tmp_path


def written(folder):
    return folder / f"layerbench-run-{os.getppid()}.json"


def test_the_first_process_writes_down_the_harness_and_the_next_belongs_to_the_same_run(
    environments, monkeypatch
):
    first = current_run(WORKLOADS)
    monkeypatch.setenv("ASV_ENV_DIR", str(environments / "another"))
    assert current_run(WORKLOADS) == first
    assert first.commit == "c0ffee"
    assert json.loads(written(environments).read_text())["harness_digest"] == ruler_digest(
        WORKLOADS
    )


def test_another_harness_is_refused(environments):
    current_run(WORKLOADS)
    state = json.loads(written(environments).read_text())
    written(environments).write_text(json.dumps(state | {"harness_digest": "of another day"}))
    with pytest.raises(MeasurementError, match="were edited while asv ran"):
        current_run(WORKLOADS)


def test_a_process_that_was_given_a_finished_ones_id_begins_a_run_of_its_own(environments):
    long_ago = psutil.Process(os.getppid()).create_time() - 1e5
    state = {"started": long_ago, "harness_digest": "of another day"}
    written(environments).write_text(json.dumps(state))
    assert current_run(WORKLOADS).harness_digest == ruler_digest(WORKLOADS)


def test_files_of_finished_runs_are_removed(environments):
    finished = environments / "layerbench-run-999999999.json"
    finished.write_text("{}")
    current_run(WORKLOADS)
    assert not finished.exists()


def test_a_run_is_named_by_command_commit_and_environment():
    ids = {run.id for run in (run_of(), run_of(commit="d00d"), run_of(environment="py3.12"))}
    assert len(ids) == 3
    assert all(each.startswith("20251201T105000Z-") for each in ids)
    assert run_of().id == run_of().id


@pytest.mark.parametrize(
    ("command", "environment", "kept"),
    [
        ("asv run 'HEAD^!'", "virtualenv-py3.11", True),
        ("asv run --dry-run", "virtualenv-py3.11", False),
        ("asv run -n", "virtualenv-py3.11", False),
        ("asv run --python=same", "", False),
    ],
)
def test_results_are_kept_where_asv_keeps_them(command, environment, kept):
    assert run_of(command, environment=environment).keeps_results is kept
