"""Exact metrics are a function of the program: equal in every process, however it is run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
READ = """
import json, os, sys
from importlib.util import module_from_spec, spec_from_file_location

if sys.argv[2]:
    os.sched_setaffinity(0, {int(sys.argv[2])})
specification = spec_from_file_location("programs", sys.argv[1])
programs = module_from_spec(specification)
specification.loader.exec_module(programs)
from layerbench.measure.program.fingerprint import take_fingerprint

found = {}
for form in ("carried", "passed"):
    step = getattr(programs, f"{form}_cache_step")
    reading = programs.read_step(step, floor_bytes=1000)
    found[form] = {name: measured.value for name, measured in reading.metrics.items()}
    found[f"fingerprint of {form}"] = take_fingerprint(reading.analysis).as_dict()
print(json.dumps(found, sort_keys=True))
"""


def figures_of(*, one_core=False, flags=""):
    """The figures as text, from a process of its own."""
    core = str(min(os.sched_getaffinity(0))) if one_core else ""
    done = subprocess.run(
        [sys.executable, "-c", READ, str(FOLDER / "programs.py"), core],
        env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.fixture(scope="module")
def figures():
    found = figures_of()
    assert json.loads(found)["passed"]["cache_copy_bytes"] > 0
    return found


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="cores are set as Linux does it")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"one_core": True},
        {"flags": "--xla_force_host_platform_device_count=8"},
        {"flags": "--xla_cpu_max_isa=SSE4_2"},
        {"flags": "--xla_cpu_max_isa=AVX2"},
        {"flags": "--xla_cpu_max_isa=AVX512"},
    ],
    ids=str,
)
def test_figures_are_equal_in_every_process(options, figures):
    assert figures_of(**options) == figures
