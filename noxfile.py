"""Every task that a person or CI runs: `nox --list` names them, `nox -s NAME -- ARGS` runs one."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import NamedTuple

import nox

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["tests", "lint"]
nox.options.default_venv_backend = "virtualenv"  # comes with nox: nothing else to install
nox.options.reuse_venv = "yes"
nox.options.error_on_missing_interpreters = True  # a session is never skipped
nox.options.download_python = "never"  # measure with the Python that is there

ROOT = Path(__file__).parent
PYPROJECT = nox.project.load_toml(ROOT / "pyproject.toml")
CHANGELOG = ROOT / "changelog.d"
CHANGELOG_KINDS = ("added", "changed", "fixed", "removed")


class Lane(NamedTuple):
    """One toolchain: the exact versions in `constraints/`, and what they are resolved from."""

    constraints: str
    jax: str


LANES = {
    "3.11": Lane("constraints/py311-jax0.10.txt", jax="jax==0.10.*"),
    "3.12": Lane("constraints/py312-jax0.12.txt", jax="jax==0.12.*"),  # and any newer Python
}

PARITY = "constraints/parity-py311.txt"  # besides its lane


def lane_of(session: nox.Session) -> Lane:
    """The lane of the session's interpreter."""
    if session.python:
        major, minor = map(int, str(session.python).split("."))
    else:
        major, minor = sys.version_info[:2]
    if (major, minor) < (3, 11):
        session.error(
            f"layerbench needs Python 3.11 or newer and this is {major}.{minor}; "
            "README.md says how to get one"
        )
    return LANES["3.11" if (major, minor) == (3, 11) else "3.12"]


def group(*names: str) -> list[str]:
    """The requirements of dependency groups in `pyproject.toml`."""
    return nox.project.dependency_groups(PYPROJECT, *names)


def install(session: nox.Session, *requirements: str) -> None:
    """Install under the lane's constraints; both build tools come first, so builds are pinned."""
    session.env["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    constraints = lane_of(session).constraints
    session.install("-c", constraints, *group("build"))
    session.install("-c", constraints, "--no-build-isolation", *requirements)


def run_tests(session: nox.Session, marker: str) -> None:
    """Install everything that tests need and run those that the marker expression selects."""
    install(session, "-e", "harness[asv,jax]", "-e", "models", *group("tests"))
    # tests/benchmark is a smoke check here; its table is for those who run it by itself.
    session.run("pytest", "-m", marker, "--benchmark-quiet", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Compare the layer layouts on this machine: results, plots and a page (5 minutes)."""
    install(session, "-e", "harness[jax]", "-e", "models")
    session.run("layerbench", "compare", *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests, without the slow ones."""
    run_tests(session, "not slow")


@nox.session
def slow(session: nox.Session) -> None:
    """Run the slow tests."""
    run_tests(session, "slow")


@nox.session
def asv(session: nox.Session) -> None:
    """Run asv with the given arguments, or `run HEAD^!`, as the machine LAYERBENCH_MACHINE names."""
    install(session, "-e", "harness[asv]")
    machine = os.environ.get("LAYERBENCH_MACHINE")
    if not machine:
        session.error("name this machine: LAYERBENCH_MACHINE=linux-x86-2cpu nox -s asv -- ...")
    # asv's own guess would be the host's name, kernel and memory, and each of them a new history.
    known = Path.home() / ".asv-machine.json"
    if not known.exists() or machine not in json.loads(known.read_text(encoding="utf-8")):
        same = [f"--{name}=-" for name in ("os", "arch", "cpu", "num_cpu", "ram")]
        session.run("asv", "machine", "--yes", f"--machine={machine}", *same, silent=True)
    # Exact versions in asv's environments, of what its settings do not name as well.
    session.env["PIP_CONSTRAINT"] = str(ROOT / lane_of(session).constraints)
    command, *arguments = session.posargs or ["run", "HEAD^!", "--record-samples"]
    if command in ("run", "continuous"):
        arguments += ["--machine", machine]
    session.run("asv", command, *arguments)


@nox.session
def layouts(session: nox.Session) -> None:
    """Measure all layouts in every phase, at depths, batches and cache lengths (hours; `--help`)."""
    install(session, "-e", "harness[jax]", "-e", "models")
    session.run("python", "tools/layouts/sweep.py", *session.posargs)


@nox.session
def speed(session: nox.Session) -> None:
    """Make the numbers of docs/speed.md anew; the arguments choose among its scripts."""
    install(session, "-e", "harness[asv,jax]", "-e", "models")
    for script in session.posargs or ["suites", "step_against_loop", "decode_depth"]:
        session.run("python", f"tools/speed/{script}.py")


@nox.session(python="3.11")  # PyTorch's build for CPUs is pinned for this lane
def parity(session: nox.Session) -> None:
    """Hold the models to transformers, on checkpoints that it writes and reads (200 MB of PyTorch)."""
    install(session, "-r", PARITY, "-e", "models", *group("tests"))
    session.run("pytest", *(session.posargs or ["tests/parity"]))


@nox.session(python="3.11")
def checkpoints(session: nox.Session) -> None:
    """Make the numbers of docs/checkpoints.md anew: loads at several depths, transformers beside."""
    install(session, "-r", PARITY, "-e", "models")
    session.run("python", "tools/checkpoints/load.py", *session.posargs)


@nox.session(name="tests-newest-jax", python="3.12")
def tests_newest_jax(session: nox.Session) -> None:
    """Run the tests with the newest jax, on Python 3.12."""
    run_tests(session, "not slow")


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, formatting and, in the harness, types."""
    install(session, "-e", "harness[asv,jax]", *group("lint"))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")


@nox.session(python=list(LANES), reuse_venv=False)
def constraints(session: nox.Session) -> None:
    """Resolve a lane anew and write its file in constraints/ (the comments on top are kept)."""
    lane = LANES[str(session.python)]
    distributions = ["-e", "harness[asv,jax]", "-e", "models"]
    session.install(lane.jax, *distributions, *group(*PYPROJECT["dependency-groups"]))
    # `pip list`, since `pip freeze` writes addresses for what came from a file.
    freeze = ("pip", "list", "--format=freeze", "--exclude-editable")
    seeds = ("--exclude=pip", "--exclude=setuptools")  # come with the environment
    pins = session.run("python", "-m", *freeze, *seeds, silent=True)
    path = ROOT / lane.constraints
    header = [line for line in path.read_text().splitlines() if line.startswith("#")]
    path.write_text("\n".join([*header, *pins.splitlines()]) + "\n")
    session.log(f"wrote {lane.constraints}")


@nox.session(venv_backend="none")
def changelog(session: nox.Session) -> None:
    """Print the changelog assembled from changelog.d/; a malformed fragment name fails."""
    fragments: dict[str, list[str]] = {kind: [] for kind in CHANGELOG_KINDS}
    for path in sorted(CHANGELOG.iterdir()):
        if path.name == "README.md":
            continue
        match = re.fullmatch(rf"[a-z0-9-]+\.({'|'.join(CHANGELOG_KINDS)})\.md", path.name)
        if match is None:
            session.error(f"changelog.d/{path.name}: name it <topic>.<kind>.md; see its README.md")
        fragments[match[1]].append(path.read_text().strip())
    for kind, texts in fragments.items():
        if texts:
            print(f"## {kind.capitalize()}", *texts, sep="\n\n", end="\n\n")
