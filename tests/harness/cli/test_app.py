"""Help, versions, and what is not imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

import layerbench as package

READERS = ["layerbench.store", "layerbench.report", "layerbench.cli"]
GUARD = """
import importlib, pkgutil, sys
for name in {packages!r}:
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        importlib.import_module(module.name)
{extra}
sys.exit(f"imported: {{found}}" if (found := {banned!r} & sys.modules.keys()) else 0)
"""


def imports_banned(packages, banned, extra=""):
    script = GUARD.format(packages=packages, banned=banned, extra=extra)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 or done.stderr.startswith("imported: "), done.stderr
    return done.returncode != 0


def test_nothing_that_reads_and_reports_imports_jax():
    assert not imports_banned(READERS, {"jax", "jaxlib", "flax"})


def test_that_check_can_fail():
    assert imports_banned(READERS, {"jax"}, extra="import jax")
    assert imports_banned(READERS, {"pandas"})


@pytest.mark.parametrize("arguments", [["--help"], ["compare", "--help"], ["--version"]])
def test_help_is_quick_since_it_imports_nothing_heavy(arguments):
    run = f"from layerbench.cli import main; assert main({arguments!r}) == 0"
    assert not imports_banned([], {"pandas", "numpy", "matplotlib", "jax", "jinja2"}, extra=run)


@pytest.mark.parametrize("command", [[], ["compare"], ["merge"]])
def test_every_command_has_help_with_an_example(layerbench, command):
    code, out, err = layerbench(*command, "--help")
    assert (code, err) == (0, "")
    assert "Example" in out
    assert f"\n    layerbench {' '.join(command)}" in out


def test_the_version_is_the_packages(layerbench):
    assert layerbench("--version") == (0, f"layerbench {package.__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "missing command: see layerbench --help"),
        (["bogus"], "no such command 'bogus': see layerbench --help"),
        (["merge", "x"], "missing option '--results': see layerbench merge --help"),
        (["merge"], "missing argument 'FILE|DIR': see layerbench merge --help"),
    ],
)
def test_wrong_usage_is_one_line(layerbench, arguments, line):
    assert layerbench(*arguments) == (2, "", f"layerbench: {line}\n")


def test_python_dash_m_is_the_same_command():
    done = subprocess.run(
        [sys.executable, "-m", "layerbench", "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"layerbench {package.__version__}\n"
