"""`step_ms` against a bare loop around the same compiled function, sampled in turn."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import jax

from layerbench import Cell
from layerbench.measure.timing.sampling import SamplingPlan, StepTimer, sample_in_turn
from layerbench.measure.timing.stages import compile_program
from layerbench.statistics import median, median_interval
from layerbench.suite import find_project, load_suite

CELLS = (
    Cell("qwen3-small", "unrolled", "decode_step", layers=8, batch=4, seq=1024),
    Cell("qwen3-small", "stacked-scan", "prefill", layers=8, batch=4, seq=64),
    Cell("qwen3-tiny", "unrolled", "decode_step", layers=2, batch=1, seq=64),
)
PLAN = SamplingPlan(min_samples=101, max_samples=101, budget_s=60.0)


class BareLoop:
    """What one would write in a notebook; prefill and decode_step have the same form."""

    def __init__(self, compiled: Any, params: Any, cache: Any, *inputs: Any) -> None:
        self.compiled, self.params, self.cache, self.inputs = compiled, params, cache, inputs

    def time_step_ms(self, calls: int) -> float:
        """Milliseconds of a call."""
        compiled, params, cache, inputs = self.compiled, self.params, self.cache, self.inputs
        started = time.perf_counter()
        for _ in range(calls):
            logits, cache = compiled(params, cache, *inputs)
        jax.block_until_ready((logits, cache))
        elapsed_s = time.perf_counter() - started
        self.cache = cache
        return 1e3 * elapsed_s / calls


def main() -> None:
    """Measures each cell and prints a table in Markdown."""
    suite = load_suite(find_project(Path(__file__).parent).workloads)
    print("| cell | `step_ms` | bare loop | ratio, 95 % interval |\n|---|---|---|---|")
    for cell in CELLS:
        workload = suite.build(cell)
        program = compile_program(workload, clock=time.perf_counter_ns)
        timer = StepTimer(
            program.call,
            workload.make_arguments(),
            thread=workload.thread,
            clock=time.perf_counter_ns,
            synchronise=jax.block_until_ready,
        )
        timer.first_call_ms()
        bare = BareLoop(program.call, *workload.make_arguments())
        bare.time_step_ms(1)
        ours, loop = sample_in_turn([timer, bare], PLAN, clock=time.perf_counter_ns)
        ratios = [a / b for a, b in zip(ours, loop, strict=True)]
        low, high = median_interval(ratios)
        print(
            f"| {cell.id} | {median(ours):.4g} ms | {median(loop):.4g} ms "
            f"| {median(ratios):.3f} [{low:.3f}, {high:.3f}] |"
        )


if __name__ == "__main__":
    main()
