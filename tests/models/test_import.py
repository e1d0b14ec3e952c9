"""Importing the package and building a model touch no device."""

from __future__ import annotations

import subprocess
import sys

import pytest


def devices_initialised(action):
    script = f"""
import layerbench_models
{action}
from jax._src import xla_bridge
print(bool(xla_bridge._backends))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return done.stdout.strip() == "True"


@pytest.mark.parametrize("action", ["", 'layerbench_models.build("qwen3-0.6b", "stacked").config'])
def test_importing_and_building_initialise_no_device(action):
    assert not devices_initialised(action)


def test_this_check_can_fail():
    assert devices_initialised("import jax; jax.devices()")
