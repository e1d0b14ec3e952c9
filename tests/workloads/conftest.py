from pathlib import Path

import jax
import pytest

from layerbench.suite import load_suite

jax.config.update("jax_num_cpu_devices", 4)


@pytest.fixture(scope="session")
def suite():
    return load_suite(Path(__file__).parents[2] / "benchmarks" / "workloads.py")
