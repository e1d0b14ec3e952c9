"""Helpers by their path, and the stored programs of targets that are not there."""

import importlib.util
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent


def _load(name):
    qualified = f"layerbench_tests_{name}"
    if qualified not in sys.modules:
        specification = importlib.util.spec_from_file_location(qualified, FOLDER / f"{name}.py")
        module = importlib.util.module_from_spec(specification)
        sys.modules[qualified] = module
        specification.loader.exec_module(module)
    return sys.modules[qualified]


_load("loop_kinds")
_load("programs")


@pytest.fixture(scope="session")
def stored_text():
    """Gives the stored HLO text of a loop kind on a target."""
    return lambda target, kind: (FOLDER / "stored" / target / f"{kind}.hlo").read_text()
