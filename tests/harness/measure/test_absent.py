"""Compiling for chips that are not there: what refuses, what fits, what is recorded."""

import importlib.util
import json
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

from layerbench import Floor, Workload
from layerbench.chips import CHIPS
from layerbench.measure.absent import does_not_fit, gpu_text
from layerbench.measure.program.executable import Capacity, read_executable
from layerbench.metrics import METRICS, Kind
from layerbench.targets import parse_target

GIB = 1 << 30
REFUSALS = {
    "RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required for HLO temporaries "
    "(18.50G) exceeds available HBM (15.75G). HLO module: jit_f.": (18.5 * GIB, 15.75 * GIB),
    "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 1.25T of 95.50G hbm.": (
        1.25 * 1024 * GIB,
        95.5 * GIB,
    ),
}


@pytest.mark.parametrize("message", REFUSALS)
def test_a_program_that_does_not_fit_is_told_by_the_compilers_words(message):
    refusal = does_not_fit(message)
    assert (refusal.wanted_bytes, refusal.available_bytes) == REFUSALS[message]


@pytest.mark.parametrize(
    "message", ["INTERNAL: Used 2G of 1G hbm", "RESOURCE_EXHAUSTED: out of VMEM", ""]
)
def test_other_errors_are_no_such_refusal(message):
    assert does_not_fit(message) is None


def test_a_gpus_description_holds_its_figures_and_balanced_brackets():
    text = gpu_text(CHIPS["gpu-h200"].gpu)
    assert text.count("{") == text.count("}")
    for line in ("core_count: 132", "l2_cache_size: 52428800", "memory_bandwidth: 4800000000000"):
        assert line in text
    assert "unit_description" not in gpu_text(CHIPS["gpu-a100"].gpu)


def read_add(capacity, watched_bytes=4 * 1024):
    array = jax.ShapeDtypeStruct((watched_bytes // 4,), jnp.float32)
    workload = Workload(
        function=lambda x: x + 1,
        make_arguments=lambda: (),
        abstract_arguments=(array,),
        thread=lambda outputs, arguments: arguments,
        check=lambda outputs, calls: None,
        tokens_per_step=1,
        floor=Floor(hbm_bytes=2 * watched_bytes, flops=0),
        watched={"weights": array},
    )
    traced = jax.jit(workload.function).trace(array)
    lowered = traced.lower()
    return read_executable(workload, traced, lowered, lowered.compile(), capacity=capacity)


@pytest.mark.parametrize(("memory", "beyond"), [(8 * 1024, 0), (8 * 1024 - 1, 1), (0, 8 * 1024)])
def test_what_a_program_takes_beyond_the_devices_memory_is_counted(memory, beyond):
    reading = read_add(Capacity(main_memory_bytes=memory))
    assert reading.metrics["over_capacity_bytes"].value == beyond


def test_without_a_known_memory_nothing_is_said_of_it():
    assert "over_capacity_bytes" not in read_add(Capacity()).metrics


def test_a_buffer_that_fits_on_the_chip_has_no_ratio_and_says_so():
    small, large = (read_add(Capacity(on_chip_bytes=size)) for size in (4 * 1024, 4 * 1024 + 1))
    assert small.metrics["hbm_floor_ratio"].value == 1
    assert "hbm_floor_ratio" not in large.metrics
    assert "fits on chip" in large.notes[0]


MEASURE = """
import json, sys
from pathlib import Path
from layerbench import Cell
from layerbench.measure.session import measure_group
from layerbench.measure.timing.sampling import SamplingPlan
from layerbench.suite import load_suite

suite = load_suite(Path(sys.argv[1]))
cells = [Cell("toy", layout, "add", 3, 1, 1, target=sys.argv[2])
         for layout in ("plain", "raises", "absent")]
records = measure_group(cells, suite, SamplingPlan(min_samples=2, max_samples=2))
print(json.dumps([record.as_dict() for record in records]))
"""


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs layerbench[tpu]")
def test_a_cell_of_an_absent_chip_has_exact_metrics_alone(toy_project):
    command = [sys.executable, "-c", MEASURE, str(toy_project.workloads), "aot:tpu-v5e"]
    environment = parse_target("aot:tpu-v5e").process_environment(os.environ)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    plain, failed, absent = json.loads(done.stdout)
    assert done.stderr == ""
    assert plain["status"] == "ok"
    assert plain["metrics"]["over_capacity_bytes"]["value"] == 0
    assert {METRICS[name].kind for name in plain["metrics"]} == {Kind.EXACT}
    assert (failed["status"], absent["status"]) == ("failed", "not-applicable")
