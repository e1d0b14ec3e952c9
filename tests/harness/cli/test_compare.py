"""`layerbench compare` from its options to its files, with workers that answer at once."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from layerbench.store.runs import load_run, load_runs

SCRIPT = Path(__file__).parent / "fake_workers.py"


def only_run(results):
    (run,), problems = load_runs(results)
    assert problems == []
    return run


def test_the_default_matrix_is_measured_stored_and_shown(layerbench, project):
    code, out, err = layerbench("compare")
    assert (code, err) == (0, "")
    run = only_run(project / "results" / "local")
    assert len(run.records) == 8
    assert run.command == "layerbench compare"
    assert run.environments["cpu"].cpu == "A CPU"
    assert out.startswith("prefill of toy, batch 3, seq 5, float32, cpu\n")
    assert "decode_step of toy on cpu, 4 layers: unrolled is the fastest; stacked-scan takes" in out
    folder = project / "results" / "local" / "compare" / run.id
    assert {path.name for path in folder.iterdir()} == {
        "index.html", "records.csv", "table.json",
        "cpu-toy-prefill-float32-B3-S5.png", "cpu-toy-decode_step-float32-B3-S11.png",
    }  # fmt: skip
    for path in [*folder.iterdir(), project / f"results/local/records/unnamed/{run.id}.json"]:
        assert f"  {path}\n" in out
    with (folder / "records.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 16
    assert len(json.loads((folder / "table.json").read_text())["groups"]) == 4


def test_all_options_reach_the_cells(layerbench, project, fake_workers):
    code, out, _ = layerbench(
        "compare", "--model", "toy, other", "--layout", "vmap,unrolled", "--phase", "generate",
        "--layers", "3,1,3", "--batch", 2, "--seq", 13, "--new-tokens", 17, "--dtype", "bfloat16",
        "--target", "gpu", "--mesh", "fsdp:2,tp:2", "--budget", 8, "--results", "-", "--json", "-",
    )  # fmt: skip
    assert code == 0
    records = json.loads(out)
    assert len(records) == 2 * 2 * 2
    assert records[0]["cell"] == {
        "model": "toy", "layout": "vmap", "phase": "generate", "layers": 3, "batch": 2, "seq": 13,
        "dtype": "bfloat16", "target": "gpu", "new_tokens": 17, "mesh": "fsdp:2,tp:2",
    }  # fmt: skip
    assert {record["cell"]["model"] for record in records} == {"toy", "other"}
    assert fake_workers.latest.plan.budget_s == 8 / 4
    assert fake_workers.latest.left
    assert not (project / "results").exists()


def test_the_default_budget_is_two_seconds_for_each_cell(layerbench, project, fake_workers):
    layerbench("compare", "--results", "-")
    assert fake_workers.latest.plan.budget_s == pytest.approx(4.0)  # groups of two


def test_a_sequence_that_is_asked_for_holds_for_every_phase(layerbench, project):
    _, out, _ = layerbench("compare", "--seq", 6, "--results", "-", "--json", "-")
    assert {record["cell"]["seq"] for record in json.loads(out)} == {6}


def test_the_worker_of_the_target_is_asked_what_there_is(layerbench, project, fake_workers):
    layerbench("compare", "--target", "gpu", "--results", "-")
    assert fake_workers.latest.described == "gpu"
    layerbench("compare", "--target", "gpu", "--mesh", "tp:2", "--results", "-")
    assert fake_workers.latest.described == "cpu"


def refuse_constant(name):
    raise AssertionError(name)


def test_json_on_stdout_is_alone_strict_and_of_the_contracts_form(layerbench, project):
    code, out, err = layerbench("compare", "--layout", "unrolled,crash", "--json", "-")
    assert code == 4
    records = json.loads(out, parse_constant=refuse_constant)
    assert [(record["status"], record["reason"]) for record in records[:2]] == [
        ("ok", None),
        ("failed", "the worker was ended by SIGSEGV"),
    ]
    assert records[0]["metrics"]["step_ms"] == {
        "value": 2.008, "unit": "ms", "kind": "timed", "version": "1",
        "samples": pytest.approx([2 * (1 + index / 1000) for index in range(9)]),
    }  # fmt: skip
    assert records[1]["metrics"] == {}
    assert "prefill of toy, batch 3" in err
    assert "Written:" in err


def test_json_in_a_file_leaves_the_table_on_stdout(layerbench, project):
    code, out, err = layerbench("compare", "--json", "out/cells.json")
    assert (code, err) == (0, "")
    assert "unrolled is the fastest" in out
    assert len(json.loads((project / "out" / "cells.json").read_text())) == 8


def test_a_failed_cell_is_stored_and_shown_and_the_rest_goes_on(layerbench, project):
    code, out, err = layerbench("compare", "--layout", "crash,unrolled", "--layers", "2")
    assert code == 4
    assert err == (
        "layerbench: toy/prefill/crash/L2/B3/S5/float32/cpu failed: the worker was ended by "
        "SIGSEGV (and 1 more, see the table)\n"
    )
    run = only_run(project / "results" / "local")
    assert [record.status.value for record in run.records] == ["failed", "ok"] * 2
    assert "[1] the worker was ended by SIGSEGV" in out


def test_a_clean_tree_on_a_named_machine_joins_the_projects_results(
    layerbench, repository, monkeypatch
):
    monkeypatch.setenv("LAYERBENCH_MACHINE", "h200")
    layerbench("compare")
    run = only_run(repository / "results")
    assert (repository / "results" / "records" / "h200" / f"{run.id}.json").is_file()
    assert run.environments["cpu"].machine == "h200"
    assert len(run.source.commit) == 40
    assert not run.source.dirty


def test_a_tree_with_changes_does_not(layerbench, repository, monkeypatch):
    monkeypatch.setenv("LAYERBENCH_MACHINE", "h200")
    with (repository / "pyproject.toml").open("a") as file:
        file.write("# changed\n")
    layerbench("compare")
    run = only_run(repository / "results" / "local")
    assert run.source.dirty


def test_each_record_is_on_disk_before_the_next_is_measured(project, fake_workers, layerbench):
    seen = []
    real = fake_workers.measure

    class Watching(fake_workers):
        def measure(self, cells, plan):
            for event in real(self, cells, plan):
                runs, _ = load_runs(project / "results" / "local")
                seen.append(sum(len(run.records) for run in runs))
                yield event

    from layerbench.cli import main

    assert main(["compare"], workers=Watching) == 0
    assert sorted(set(seen)) == list(range(8))


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--layout", "nope"], "unknown layout 'nope': choose from unrolled, stacked-scan"),
        (["--layout", "unrolled,,vmap"], "--layout wants names separated by commas, not"),
        (["--model", ""], "--model wants names separated by commas, not ''"),
        (["--layers", "0"], "--layers wants whole numbers of at least 1 separated by commas"),
        (["--layers", "2,x"], "--layers wants whole numbers of at least 1 separated by commas"),
        (["--layers", "-1"], "--layers wants whole numbers of at least 1 separated by commas"),
        (["--layers", "²"], "--layers wants whole numbers of at least 1 separated by commas"),
        (["--batch", "0"], "batch must be at least 1, not 0"),
        (["--seq", "-3"], "seq must be at least 1, not -3"),
        (["--batch", "two"], "invalid value for '--batch': "),
        (["--budget", "0"], "--budget wants seconds, more than 0, not 0"),
        (["--budget", "nan"], "--budget wants seconds, more than 0, not nan"),
        (["--budget", "inf"], "--budget wants seconds, more than 0, not inf"),
        (["--nope"], "no such option: --nope"),
        (["extra"], "got unexpected extra argument"),
    ],
)
def test_wrong_usage_is_one_line_and_measures_nothing(layerbench, project, arguments, line):
    code, out, err = layerbench("compare", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"layerbench: {line}")
    assert err.count("\n") == 1
    assert list(project.rglob("*.json")) == []


@pytest.mark.parametrize("option", ["--results", "--json"])
def test_a_folder_that_cannot_be_written_to_is_found_before_measuring(
    layerbench, project, fake_workers, option
):
    (project / "file").write_text("")
    fake_workers.latest = None
    code, out, err = layerbench("compare", option, "file/inside/x")
    assert (code, out) == (2, "")
    assert err.startswith("layerbench: cannot write to the folder ")
    assert err.count("\n") == 1
    assert fake_workers.latest is None


def test_outside_a_project_one_line_says_what_to_do(layerbench, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = layerbench("compare")
    assert code == 2
    assert err.startswith("layerbench: no pyproject.toml with a [tool.layerbench] table")
    assert err.count("\n") == 1


def test_a_machine_name_that_cannot_be_a_folder_is_refused(layerbench, project, monkeypatch):
    monkeypatch.setenv("LAYERBENCH_MACHINE", "../up")
    code, _, err = layerbench("compare")
    assert code == 2
    assert err.startswith("layerbench: the machine name '../up' cannot name a folder")


def test_what_nobody_expected_is_one_line_and_what_was_measured_stays(layerbench, project):
    code, out, err = layerbench("compare", "--layout", "unrolled,bug", "--layers", "2")
    assert (code, out) == (4, "")
    assert err.startswith(
        "layerbench: unexpected RuntimeError: nobody expected this: this is a bug"
    )
    assert err.count("\n") == 1
    assert len(only_run(project / "results" / "local").records) == 1


def test_the_traceback_is_there_when_asked_for(layerbench, project, monkeypatch):
    monkeypatch.setenv("LAYERBENCH_DEBUG", "1")
    _, _, err = layerbench("compare", "--layout", "bug")
    assert "Traceback (most recent call last)" in err
    assert err.splitlines()[-1].startswith("layerbench: unexpected RuntimeError")


def test_a_disk_that_fills_up_is_one_line_and_keeps_what_was_stored(
    layerbench, project, monkeypatch
):
    real, calls = os.fsync, []

    def fills_up(handle):
        calls.append(handle)
        if len(calls) > 4:  # the check of the folder, and three records
            raise OSError(28, "No space left on device")
        real(handle)

    monkeypatch.setattr("os.fsync", fills_up)
    code, _, err = layerbench("compare")
    monkeypatch.undo()
    assert code == 2
    assert err.startswith("layerbench: cannot write ")
    assert err.count("\n") == 1
    assert len(only_run(project / "results" / "local").records) == 3


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    ("options", "line"),
    [
        ([], "layerbench: interrupted: 1 of 8 cells are stored in {path}\n"),
        (["--results", "-"], "layerbench: interrupted: nothing was stored\n"),
    ],
)
def test_an_interrupt_is_one_line_that_says_what_is_stored_where(project, options, line, sent):
    command = [sys.executable, str(SCRIPT), "compare", "--layout", "unrolled,wait", *options]
    process = subprocess.Popen(
        command, cwd=project, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr.readline() == "waiting\n"
    time.sleep(0.05)
    process.send_signal(sent)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (130, "")
    paths = list((project / "results" / "local" / "records" / "unnamed").glob("*.json"))
    path = paths[0] if paths else None
    # As a path of the real folder: the project's root is resolved.
    assert err == line.format(path=path and path.resolve())
    if path is not None:
        assert len(load_run(path).records) == 1


def test_a_reader_that_goes_away_is_no_traceback(project):
    command = f"{sys.executable} {SCRIPT} compare --results - | true"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], cwd=project, capture_output=True, check=False
    )
    assert done.returncode in {0, 141}  # 0 if it was done before the reader went
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr


def test_a_terminal_without_unicode_gets_a_table_all_the_same(project):
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "compare", "--results", "-"],
        cwd=project,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=True,
    )
    assert done.stderr == b""
    assert b"unrolled is the fastest" in done.stdout
