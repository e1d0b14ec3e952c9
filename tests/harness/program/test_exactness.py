"""Exact metrics are a function of the program: equal in every process, however it is run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
READ = """
import json, sys
from importlib.util import module_from_spec, spec_from_file_location

specification = spec_from_file_location("programs", sys.argv[1])
programs = module_from_spec(specification)
specification.loader.exec_module(programs)
found = {
    form: {
        name: measured.value
        for name, measured in programs.read_step(
            getattr(programs, f"{form}_cache_step"), floor_bytes=1000
        ).metrics.items()
    }
    for form in ("carried", "passed")
}
print(json.dumps(found, sort_keys=True))
"""


def figures_of(*, one_core=False, flags=""):
    """The figures as text, from a process of its own."""
    command = [sys.executable, "-c", READ, str(FOLDER / "programs.py")]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    core = {min(os.sched_getaffinity(0))}
    done = subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=(lambda: os.sched_setaffinity(0, core)) if one_core else None,
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
