"""Workers that measure nothing and answer at once; run as a script, it is `layerbench` with them.

What a cell does is in its layout's name: `crash` fails, `wait` never comes to an end, `bug` raises
what nobody expects, anything else is measured.
"""

from __future__ import annotations

import sys
import time

from layerbench.cell import Matrix
from layerbench.cli import main
from layerbench.environment import Environment
from layerbench.errors import UsageError
from layerbench.floor import Floor
from layerbench.measure.events import Progress, SuiteDescription, TargetReady
from layerbench.record import Measured, Record, Status

LAYOUTS = ("unrolled", "stacked-scan", "vmap", "crash", "wait", "bug")


class FakeWorkers:
    """Stands in for `layerbench.measure.workers.Workers`."""

    harness_digest = "0123456789abcdef"
    latest: FakeWorkers

    def __init__(self, project, machine=""):
        self.project, self.machine = project, machine
        self.left = False
        self.plan = None
        self.described = None
        FakeWorkers.latest = self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.left = True

    def describe(self, target="cpu"):
        self.described = target
        default = Matrix(
            models=("toy",), layouts=LAYOUTS[:2], phases=("prefill", "decode_step"), layers=(2, 4),
            batch=3, seq=5, new_tokens=7, dtype="float32", targets=("cpu",),
            phase_seq={"decode_step": 11},
        )  # fmt: skip
        return SuiteDescription(("toy",), LAYOUTS, ("prefill", "decode_step", "generate"), default)

    def validate(self, cells):
        for cell in cells:
            if cell.layout not in LAYOUTS:
                message = f"unknown layout '{cell.layout}': choose from {', '.join(LAYOUTS)}"
                raise UsageError(message)

    def measure(self, cells, plan):
        self.plan = plan
        for target in dict.fromkeys(cell.target for cell in cells):
            yield TargetReady(target, environment(self.machine))
        for cell in cells:
            for stage in ("build", "compile", "sample"):
                yield Progress(cell, stage)
            if cell.layout == "wait":
                sys.stderr.write("waiting\n")
                sys.stderr.flush()
                time.sleep(5)
            if cell.layout == "bug":
                raise RuntimeError("nobody\nexpected this")
            if cell.layout == "crash":
                yield Record.failure(cell, "the worker was ended by SIGSEGV")
                continue
            yield measured(cell)


def measured(cell):
    """A record whose step time depends on the cell alone."""
    step_ms = cell.layers * (1.0 if cell.layout == "unrolled" else 1.5)
    samples = tuple(step_ms * (1 + index / 1000) for index in range(9))
    return Record(
        cell=cell,
        status=Status.OK,
        metrics={"step_ms": Measured(samples[4], samples), "compile_ms": Measured(120.0)},
        floor=Floor(hbm_bytes=1_000_000, flops=2_000_000),
        tokens_per_step=3,
        interleaved=True,
        contender=cell.layout != "vmap",
    )


def environment(machine):
    """As a worker would tell it."""
    return Environment(
        machine=machine, python="3.11.9", system="Linux-x86_64", cpu="A CPU", cpu_count=2,
        memory_bytes=1 << 33, backend="cpu", device_kind="cpu", device_count=1,
        platform_version="", packages={"jax": "0.10.2"}, flags={}, matmul_precision="default",
        prng="threefry2x32",
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], workers=FakeWorkers))
