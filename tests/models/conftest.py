"""jax as strict as it gets, for the tests of the models alone; helpers by their path."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import jax
import pytest


def _load(name: str):
    qualified = f"layerbench_models_tests_{name}"
    if qualified not in sys.modules:
        path = Path(__file__).parent / f"{name}.py"
        specification = importlib.util.spec_from_file_location(qualified, path)
        module = importlib.util.module_from_spec(specification)
        sys.modules[qualified] = module
        specification.loader.exec_module(module)
    return sys.modules[qualified]


@pytest.fixture(autouse=True)
def strict_jax():
    """Exact float32 products; no implicit promotion of types or ranks."""
    with (
        jax.default_matmul_precision("highest"),
        jax.numpy_rank_promotion("raise"),
        jax.numpy_dtype_promotion("strict"),
    ):
        yield


@pytest.fixture(scope="session")
def oracle():
    """The slow, obvious forward pass; by its path, since test folders are no packages."""
    return _load("numpy_oracle")


@pytest.fixture(scope="session")
def parity():
    """Runs a model's phases and compares what they return with another's."""
    return _load("parity")
