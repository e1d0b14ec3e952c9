from pathlib import Path

import pytest

from layerbench.suite import load_suite


@pytest.fixture(scope="session")
def suite():
    return load_suite(Path(__file__).parents[2] / "benchmarks" / "workloads.py")
