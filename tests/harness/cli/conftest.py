"""A project to run commands in, and workers that answer at once."""

from __future__ import annotations

import importlib.util
import signal
import subprocess
from pathlib import Path

import pytest

from layerbench.cli import main

SCRIPT = Path(__file__).parent / "fake_workers.py"


@pytest.fixture(scope="session")
def fake_workers():
    """The class; by its path, since test folders are no packages."""
    specification = importlib.util.spec_from_file_location("fake_workers", SCRIPT)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module.FakeWorkers


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with a suite, which is the working directory; no machine has a name in it."""
    (tmp_path / "pyproject.toml").write_text('[tool.layerbench]\nworkloads = "workloads.py"\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LAYERBENCH_MACHINE", raising=False)
    monkeypatch.delenv("LAYERBENCH_DEBUG", raising=False)
    return tmp_path


@pytest.fixture
def repository(project):
    """The project as a clean git repository."""
    (project / ".gitignore").write_text("results/\n")
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    for command in (["init", "-q"], ["add", "."], [*identity, "commit", "-qm", "first"]):
        subprocess.run(["git", *command], cwd=project, check=True)
    return project


@pytest.fixture
def layerbench(fake_workers, capsys):
    """Runs a command in this process: exit code, stdout, stderr."""

    def run(*arguments):
        code = main([str(argument) for argument in arguments], workers=fake_workers)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture(autouse=True)
def _signals():
    """Puts back what `main` sets for a process of its own."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)
