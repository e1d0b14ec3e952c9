"""The inner loop: edit a layer, run this, read a number a few seconds later.

    pytest tests/benchmark --benchmark-json=step.json && layerbench merge step.json --results results

In the normal run of the tests it shows that the cells still work. `generate` is not here: its step
is the difference of two runs, which pytest-benchmark cannot say.
"""

from pathlib import Path

import jax
import pytest

from layerbench.cell import Cell
from layerbench.environment import capture_environment
from layerbench.measure.timing.stages import compile_program
from layerbench.store.places import machine_name
from layerbench.suite import find_project, load_suite

LAYOUTS = ("unrolled", "stacked-scan", "stacked")
CELLS = [
    Cell("qwen3-tiny", layout, phase, layers=2, batch=2, seq=32, target=jax.default_backend())
    for phase in ("prefill", "train_step", "decode_step")
    for layout in LAYOUTS
]


class Stepper:
    """Calls a compiled workload, its donated state handed on outside the timed part."""

    def __init__(self, workload):
        self._workload = workload
        self._call = compile_program(workload, clock=lambda: 0).call
        self._arguments = None
        self.outputs = None
        self.calls_made = 0

    def arguments(self):
        if self._arguments is None:
            self._arguments = self._workload.make_arguments()
        else:
            self._arguments = self._workload.thread(self.outputs, self._arguments)
        return self._arguments, {}

    def step(self, *arguments):
        self.outputs = jax.block_until_ready(self._call(*arguments))
        self.calls_made += 1

    def check(self):
        self._workload.check(self.outputs, self.calls_made - 1)


@pytest.fixture(scope="module")
def project():
    return find_project(Path(__file__).parent)


@pytest.fixture(scope="module")
def suite(project):
    return load_suite(project.workloads)


@pytest.fixture(scope="module")
def environment(project):
    return capture_environment(machine_name(project)).as_dict()


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: f"{cell.phase}-{cell.layout}")
def test_a_step_is_right_and_is_timed(cell, project, suite, environment, benchmark):
    benchmark.group = cell.phase
    benchmark.extra_info["cell"] = cell.as_dict()
    benchmark.extra_info["environment"] = environment
    stepper = Stepper(suite.build(cell))
    arguments, _ = stepper.arguments()
    stepper.step(*arguments)
    stepper.check()
    benchmark.pedantic(stepper.step, setup=stepper.arguments, rounds=20, warmup_rounds=2)
    stepper.check()
