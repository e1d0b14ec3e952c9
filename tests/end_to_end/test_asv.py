"""asv driven for real: two commits of a small repository, one harness, a virtual environment.

The project in `asv_project/` is copied and committed twice; the second commit does five times the
work and has a layout that the first lacks. asv's environment borrows jax and the other packages
from the environment of these tests, so nothing is downloaded.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import math
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from layerbench.digest import ruler_digest
from layerbench.store.runs import load_runs

pytest.importorskip("asv", reason="asv is an extra of the harness")
if os.name != "posix":
    pytest.skip("asv starts its processes as on Linux and macOS", allow_module_level=True)

HERE = Path(__file__).parent
HARNESS = HERE.parents[1] / "harness"
STEP_MS, COMPILE_MS, LINES = (
    f"steps.Step.cell_{metric}" for metric in ("step_ms", "compile_ms", "stablehlo_lines")
)
PLAIN, WRONG, NEWER, DEADLY = range(4)
REFUSAL = (
    "layerbench: the harness or the workloads were edited while asv ran, so its numbers would be of "
    "two rulers"
)


@dataclasses.dataclass(frozen=True)
class Done:
    code: int
    output: str
    log: list[str]


class Repository:
    """A copy of the project under git, with a harness of its own."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "project"
        self.harness = self.root / "harness"
        self._log = folder / "log.txt"
        packages = sysconfig.get_path("purelib")
        shutil.copytree(HERE / "asv_project", self.root)
        shutil.copytree(HARNESS, self.harness, ignore=shutil.ignore_patterns("__pycache__"))
        config = self.root / "asv.conf.json"
        text = config.read_text().replace("SITE_PACKAGES", packages)
        config.write_text(text.replace("PYTHON_VERSION", f"3.{sys.version_info.minor}"))
        (self.root / ".gitignore").write_text(".asv/\nresults/\n__pycache__/\n")
        # asv asks pip for this in every environment, and nothing here uses it.
        satisfied = folder / "satisfied" / "wheel-1.0.dist-info"
        satisfied.mkdir(parents=True)
        (satisfied / "METADATA").write_text("Metadata-Version: 2.1\nName: wheel\nVersion: 1.0\n")
        # pip finds the lent packages through ASV_PYTHONPATH, which asv takes away again from the
        # processes that measure, by name; these find them through lend_packages.py.
        lent = folder / "lent"
        lent.symlink_to(packages)
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("ASV")},
            "HOME": str(folder),
            "ASV_PYTHONPATH": os.pathsep.join([str(satisfied.parent), str(lent)]),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "TINY_LOG": str(self._log),
            "TINY_HARNESS": str(self.harness),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.org",
            "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@example.org",
        }  # fmt: skip
        self._environment.pop("LAYERBENCH_MACHINE", None)
        self.git("init", "--quiet", "--initial-branch=main")

    def ruler_with(self, harness):
        """The digest that records hold when that harness measures this project."""
        return ruler_digest(self.root / "benchmarks" / "workloads.py", harness / "layerbench")

    def git(self, *arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.root, env=self._environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout.strip()

    def commit(self, message: str) -> str:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", message)
        return self.git("rev-parse", "HEAD")

    def asv(self, *arguments: str, **variables: str) -> Done:
        self._log.write_text("")
        done = subprocess.run(
            [sys.executable, "-m", "asv", *arguments],
            cwd=self.root, env=self._environment | variables, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return Done(done.returncode, done.stdout, self._log.read_text().splitlines())

    def results(self, commit: str) -> dict[str, dict[str, object]]:
        """asv's stored row of each benchmark, by column."""
        (path,) = (self.root / "results" / "asv" / "test-machine").glob(f"{commit[:8]}-*.json")
        content = json.loads(path.read_text())
        return {
            name: dict(zip(content["result_columns"], row, strict=False))
            for name, row in content["results"].items()
        }

    def runs(self):
        runs, problems = load_runs(self.root / "results")
        assert problems == []
        return runs


@dataclasses.dataclass(frozen=True)
class History:
    repository: Repository
    old: str
    new: str
    first_run: Done


@pytest.fixture(scope="module")
def history(tmp_path_factory) -> History:
    """Both commits, measured in one command."""
    repository = Repository(tmp_path_factory.mktemp("asv"))
    old = repository.commit("one product")
    models = repository.root / "models" / "tinymodels" / "__init__.py"
    models.write_text("PRODUCTS = 5\nnewer = True\n")
    new = repository.commit("five products")
    machine = repository.asv(
        "machine", "--yes", "--machine=test-machine", "--os=linux", "--arch=x86_64", "--cpu=any",
        "--num_cpu=2", "--ram=any",
    )  # fmt: skip
    assert machine.code == 0, machine.output
    hashes = repository.root / ".asv" / "hashes.txt"
    hashes.parent.mkdir(exist_ok=True)
    hashes.write_text(f"{old}\n{new}\n")
    run = repository.asv("run", f"HASHFILE:{hashes}", "--record-samples")
    assert run.code == 2, run.output  # some cells fail, and asv says so; 1 is another failure
    return History(repository, old, new, run)


def test_each_commit_is_measured_with_its_own_models(history):
    old, new = (history.repository.results(commit)[LINES] for commit in (history.old, history.new))
    assert new["result"][PLAIN] - old["result"][PLAIN] >= 4, history.first_run.output


def test_a_cell_is_compiled_once_for_all_its_metrics(history):
    traced = collections.Counter(
        line for line in history.first_run.log if line.startswith("traced")
    )
    assert traced == {
        f"traced {history.old} plain": 1,
        f"traced {history.old} wrong": 1,
        f"traced {history.old} deadly": 1,
        f"traced {history.new} plain": 1,
        f"traced {history.new} wrong": 1,
        f"traced {history.new} newer": 1,
        f"traced {history.new} deadly": 1,
    }


def test_only_the_process_that_measures_imports_jax(history):
    ended = collections.Counter(line for line in history.first_run.log if line.startswith("end"))
    assert ended[f"end {history.new} plain jax=True"] == 1
    assert ended[f"end {history.new} plain jax=False"] == 2


def test_timed_metrics_have_samples_and_exact_ones_a_value(history):
    rows = history.repository.results(history.new)
    assert len(rows[STEP_MS]["samples"][PLAIN]) >= 2
    assert rows[STEP_MS]["stats_number"][PLAIN] == 1
    assert len(rows[COMPILE_MS]["samples"][PLAIN]) == 1
    assert rows[LINES].get("samples") is None


def test_a_failed_cell_is_failed_with_its_reason(history):
    row = history.repository.results(history.new)[LINES]
    assert row["result"][WRONG] is None
    assert history.first_run.code == 2
    reason = "layerbench: tiny/step/wrong/L1/B1/S64/float32/cpu: the product is wrong by 17"
    assert history.first_run.output.count(reason) == 6
    assert "Traceback" not in history.first_run.output


def test_a_cell_that_ends_its_process_fails_for_all_metrics_and_dies_once(history):
    for metric in (STEP_MS, COMPILE_MS, LINES):
        assert history.repository.results(history.new)[metric]["result"][DEADLY] is None
    assert history.first_run.output.count("ended before it was done") == 4


def test_what_an_old_commit_lacks_is_not_applicable_there(history):
    old, new = (history.repository.results(commit)[LINES] for commit in (history.old, history.new))
    assert math.isnan(old["result"][NEWER])
    assert new["result"][NEWER] > 0
    assert "the installed models have no layout 'newer'" in history.first_run.output


def test_metrics_are_described_for_asv(history):
    path = history.repository.root / "results" / "asv" / "benchmarks.json"
    described = json.loads(path.read_text())[STEP_MS]
    assert described["type"] == "cell"
    assert described["unit"] == "ms"
    assert (described["metric"], described["kind"], described["role"]) == (
        "step_ms", "timed", "gate",
    )  # fmt: skip
    assert described["lower_is_better"] is True
    assert described["version"] == "1 model=tiny phase=step layers=1 batch=1 seq=64"
    assert described["param_names"] == ["layout"]
    assert "class Step" in described["code"]


def test_records_keep_what_asv_cannot(history):
    by_commit = {run.source.commit: run for run in history.repository.runs()}
    run = by_commit[history.new]
    reasons = {record.cell.layout: record.reason for record in run.records}
    assert reasons["wrong"] == "the product is wrong by 17"
    assert reasons["plain"] == ""
    assert "ended before it was done" in reasons["deadly"]
    assert re.fullmatch(r"asv run HASHFILE:\S+ --record-samples", run.command)
    assert run.environments["cpu"].machine == "test-machine"
    assert set(by_commit) == {history.old, history.new}
    assert {each.harness_digest for each in by_commit.values()} == {
        history.repository.ruler_with(HARNESS)
    }


def test_asv_compares_and_publishes(history):
    compared = history.repository.asv("compare", history.old, history.new)
    assert compared.code == 0, compared.output
    assert re.search(r"cell_stablehlo_lines\('plain'\)", compared.output)
    published = history.repository.asv("publish")
    assert published.code == 0, published.output
    index = json.loads((history.repository.root / ".asv" / "html" / "index.json").read_text())
    assert STEP_MS in index["benchmarks"]


@pytest.mark.slow
def test_more_rounds_and_appended_samples_are_new_measurements(history):
    repository = history.repository
    run = repository.asv(
        "run", f"{history.new}^!", "--append-samples", "-a", "rounds=2", "-a", "repeat=1",
        "--bench", r"cell_(step_ms|compile_ms)\('plain'\)",
    )  # fmt: skip
    assert run.code == 0, run.output
    assert run.log.count(f"traced {history.new} plain") == 2
    row = repository.results(history.new)[COMPILE_MS]
    assert len(set(row["samples"][PLAIN])) == 3
    assert row["result"][WRONG] is None, "what was not selected stays as it was"


@pytest.mark.slow
def test_a_quick_look_keeps_no_record(history):
    before = len(history.repository.runs())
    run = history.repository.asv(
        "run", f"{history.new}^!", "--quick", "--dry-run", "--bench", r"lines\('plain'\)"
    )
    assert run.code == 0, run.output
    assert len(history.repository.runs()) == before


def test_an_edit_of_the_harness_is_refused_within_a_run_and_seen_by_both_commits_afterwards(
    history,
):
    repository = history.repository
    hashes = repository.root / ".asv" / "hashes.txt"
    plain = ("run", f"HASHFILE:{hashes}", "--bench", r"lines\('plain'\)")
    refused = repository.asv(*plain, TINY_EDIT="plain")
    assert refused.code == 2
    assert refused.output.count(REFUSAL) == 2, refused.output
    assert [line for line in refused.log if line.startswith("traced")] == [
        f"traced {history.old} plain"
    ]

    accepted = repository.asv(*plain)
    assert accepted.code == 0, accepted.output
    edited = repository.ruler_with(repository.harness)
    assert edited != repository.ruler_with(HARNESS)
    commits = {run.source.commit for run in repository.runs() if run.harness_digest == edited}
    assert commits == {history.old, history.new}
