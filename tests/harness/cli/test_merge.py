"""`layerbench merge` takes what it can and names what it cannot."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from layerbench.record import Run
from layerbench.store.files import encode_json
from layerbench.store.places import Place
from layerbench.store.runs import load_run, load_runs, save_run

GOLDEN = Path(__file__).parents[1] / "store" / "golden" / "run-schema-1.json"


@pytest.fixture
def run():
    return Run.from_dict(json.loads(GOLDEN.read_text()))


@pytest.fixture
def benchmark_file(run, tmp_path):
    cell = run.records[0].cell.as_dict()
    path = tmp_path / "benchmark.json"
    document = {
        "machine_info": {"python_version": "3.11.9"},
        "commit_info": {},
        "benchmarks": [
            {"fullname": "a", "extra_info": {"cell": cell}, "stats": {"data": [0.001, 0.002]}},
            {"fullname": "b", "extra_info": {}, "stats": {"data": [0.001]}},
        ],
        "datetime": "2026-01-02T03:04:05+00:00",
        "version": "5.3.1",
    }
    path.write_text(json.dumps(document))
    return path


def test_a_run_lands_in_its_machines_folder_once(layerbench, run, tmp_path):
    store = tmp_path / "store"
    assert layerbench("merge", GOLDEN, "--results", store) == (
        0, f"1 of 1 runs stored in {store}\n", "",
    )  # fmt: skip
    assert layerbench("merge", GOLDEN, GOLDEN, "--results", store) == (
        0, f"0 of 2 runs stored in {store}, 2 were there already\n", "",
    )  # fmt: skip
    (path,) = store.rglob("*.json")
    assert path == store / "records" / "linux-x86-2cpu" / f"{run.id}.json"
    assert load_run(path) == run


def test_a_results_folder_is_taken_whole(layerbench, run, tmp_path):
    ids = ["first", "second", "third"]
    for run_id in ids:
        save_run(dataclasses.replace(run, id=run_id), Place(tmp_path / "from", "anywhere"))
    code, _, _ = layerbench("merge", tmp_path / "from", "--results", tmp_path / "store")
    assert code == 0
    assert [each.id for each in load_runs(tmp_path / "store")[0]] == ids


def test_pytest_benchmark_is_taken_once_and_what_is_left_out_is_named(
    layerbench, benchmark_file, tmp_path
):
    for stored in (1, 0):
        code, out, err = layerbench("merge", benchmark_file, "--results", tmp_path / "store")
        assert code == 0
        assert out.startswith(f"{stored} of 1 runs stored")
        assert err == (
            f'layerbench: {benchmark_file}: b: left out, since its extra_info has no "cell"\n'
        )
    (taken,), problems = load_runs(tmp_path / "store")
    assert problems == []
    assert taken.records[0].metrics["step_ms"].samples == (1.0, 2.0)


def test_each_refused_file_is_named_in_one_line_and_the_rest_is_taken(layerbench, tmp_path):
    folder = tmp_path / "from"
    folder.mkdir()
    shutil.copy(GOLDEN, folder / "a.json")
    (folder / "b.json").write_text("{")
    (folder / "c.json").write_text("[]")
    (tmp_path / "empty").mkdir()
    code, out, err = layerbench(
        "merge", folder, tmp_path / "empty", tmp_path / "none.json", "--results", tmp_path / "store"
    )
    assert code == 0
    assert out.startswith("1 of 1 runs stored")
    assert err.splitlines() == [
        (
            f"layerbench: refused {folder / 'b.json'}: not JSON, or cut off: Expecting property name "
            "enclosed in double quotes in line 1"
        ),
        (
            f"layerbench: refused {folder / 'c.json'}: not a layerbench run: a JSON array, not an "
            "object"
        ),
        f"layerbench: refused {tmp_path / 'empty'}: no runs in this folder",
        f"layerbench: refused {tmp_path / 'none.json'}: no such file or directory",
    ]


def test_nothing_to_take_is_wrong_usage(layerbench, tmp_path):
    code, out, err = layerbench("merge", tmp_path / "none.json", "--results", tmp_path / "store")
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith("layerbench: nothing could be taken")


def test_another_run_with_the_same_id_is_refused_and_the_stored_one_kept(layerbench, run, tmp_path):
    layerbench("merge", GOLDEN, "--results", tmp_path / "store")
    other = tmp_path / "other.json"
    other.write_text(encode_json(dataclasses.replace(run, command="other").as_dict()))
    code, _, err = layerbench("merge", other, "--results", tmp_path / "store")
    assert code == 2
    assert "another run has the same id" in err
    assert load_runs(tmp_path / "store") == ([run], [])


def test_a_store_that_cannot_be_written_to_is_one_line(layerbench, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, err = layerbench("merge", GOLDEN, "--results", tmp_path / "file" / "store")
    assert code == 2
    assert err.startswith("layerbench: cannot write to the folder ")
    assert err.count("\n") == 1
