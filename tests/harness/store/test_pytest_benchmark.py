"""What pytest-benchmark writes becomes a run."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from layerbench.cell import Cell
from layerbench.errors import StoreError
from layerbench.record import Status
from layerbench.store.files import read_json
from layerbench.store.pytest_benchmark import import_pytest_benchmark, is_pytest_benchmark

CELL = Cell("qwen3-tiny", "unrolled", "prefill", layers=2, batch=3, seq=5)
SUITE = f"""
CELL = {CELL.as_dict()!r}

def test_with_a_cell(benchmark):
    benchmark.extra_info["cell"] = CELL
    benchmark.pedantic(sum, args=([1, 2],), rounds=7)

def test_without_a_cell(benchmark):
    benchmark.pedantic(sum, args=([1, 2],), rounds=7)
"""


def entry(name="test_a", cell=CELL, data=(0.002, 0.001, 0.004), **extra):
    info = extra if cell is None else {"cell": cell.as_dict(), **extra}
    return {"fullname": name, "extra_info": info, "stats": {"data": list(data)}}


def document(*entries, **changes):
    return {
        "machine_info": {
            "python_version": "3.11.9",
            "system": "Linux",
            "machine": "x86_64",
            "cpu": {"brand_raw": "A CPU", "count": 2},
        },
        "commit_info": {"id": "c0ffee", "dirty": False, "branch": "main"},
        "benchmarks": list(entries),
        "datetime": "2026-01-02T03:04:05.678901+00:00",
        "version": "5.3.1",
        **changes,
    }


def test_seconds_become_milliseconds_of_a_step():
    run = import_pytest_benchmark(document(entry()), command="pytest").run
    (record,) = run.records
    assert record.cell == CELL
    assert record.status is Status.OK
    assert record.metrics["step_ms"].samples == pytest.approx((2.0, 1.0, 4.0))
    assert record.metrics["step_ms"].value == pytest.approx(2.0)
    assert record.started_at == "2026-01-02T03:04:05Z"
    assert run.source.commit == "c0ffee"
    assert run.environments["cpu"].cpu == "A CPU"
    assert run.id.startswith("20260102T030405Z-")


def test_the_same_content_gets_the_same_id_and_another_one_does_not():
    first = import_pytest_benchmark(document(entry()), command="a").run.id
    again = import_pytest_benchmark(json.loads(json.dumps(document(entry()))), command="b").run.id
    other = import_pytest_benchmark(document(entry(data=[1.0])), command="a").run.id
    assert first == again
    assert first != other


def test_the_environment_is_taken_where_the_benchmark_tells_it(run):
    told = {**run.environments["cpu"].as_dict(), "machine": "h200"}
    imported = import_pytest_benchmark(document(entry(environment=told)), command="pytest").run
    assert imported.environments["cpu"].machine == "h200"
    assert imported.environments["cpu"].packages["jax"] == "0.10.2"


def test_what_cannot_be_taken_is_named_once_and_the_rest_is_taken():
    imported = import_pytest_benchmark(
        document(
            entry("no_cell", cell=None),
            entry("good"),
            entry("no_samples", data=()),
            {"fullname": "no_stats", "extra_info": {"cell": CELL.as_dict()}},
            {"fullname": "bad_cell", "extra_info": {"cell": {"layers": 1}}, "stats": {"data": [1]}},
        ),
        command="pytest",
    )
    assert len(imported.run.records) == 1
    assert [line.partition(":")[0] for line in imported.left_out] == [
        "no_cell", "no_samples", "no_stats", "bad_cell",
    ]  # fmt: skip
    assert imported.left_out[0] == 'no_cell: left out, since its extra_info has no "cell"'


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"benchmarks": []}, "it holds no benchmarks"),
        ({"benchmarks": {}}, "its benchmarks are not a list"),
        ({"benchmarks": [7]}, "one of its benchmarks is not an object"),
        ({"benchmarks": [entry(cell=None)]}, 'has no "cell"'),
        ({"datetime": "yesterday"}, "a damaged pytest-benchmark file"),
        ({"commit_info": [1]}, "a damaged pytest-benchmark file"),
    ],
)
def test_a_file_with_nothing_to_take_is_refused_in_one_line(damage, message):
    with pytest.raises(StoreError) as caught:
        import_pytest_benchmark(document(entry(), **damage), command="pytest")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_run_is_not_taken_for_one(run):
    assert is_pytest_benchmark(document())
    assert not is_pytest_benchmark(run.as_dict())
    assert not is_pytest_benchmark([])


def test_what_pytest_benchmark_really_writes_can_be_taken(tmp_path):
    (tmp_path / "test_suite.py").write_text(SUITE)
    command = [
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path),
        "--benchmark-json", "out.json", "test_suite.py",
    ]  # fmt: skip
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    imported = import_pytest_benchmark(read_json(tmp_path / "out.json"), command="pytest")
    assert len(imported.run.records[0].metrics["step_ms"].samples) == 7
    assert imported.left_out == (
        'test_suite.py::test_without_a_cell: left out, since its extra_info has no "cell"',
    )
    assert imported.run.environments["cpu"].python.startswith("3.")
