"""Decode at 16 layers with a cache of 64 MiB, layouts in turn; compile time at 2 and 32 layers."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

from layerbench import Cell
from layerbench.measure.session import measure_group
from layerbench.measure.timing.sampling import SamplingPlan
from layerbench.measure.timing.stages import compile_program
from layerbench.record import Record, Status
from layerbench.statistics import median, median_interval
from layerbench.suite import find_project, load_suite

# Keys and values: 2 x 16 layers x 4 heads x 32 x 4 sequences x 1024 slots x 4 bytes = 64 MiB.
CELL = Cell("qwen3-small", "unrolled", "decode_step", layers=16, batch=4, seq=1024)
LAYOUTS = ("unrolled", "stacked", "stacked-scan")
PLAN = SamplingPlan(target_relative_precision=0.0, max_samples=60, budget_s=60.0)
SHALLOW, DEEP = 2, 32
COMPILATIONS = 5


def main() -> None:
    """Measures and prints tables in Markdown."""
    suite = load_suite(find_project(Path(__file__).parent).workloads)
    print("| phase | layout | `step_ms` | over unrolled, 95 % interval |\n|---|---|---|---|")
    for phase, new_tokens in (("decode_step", 0), ("generate", 16)):
        cells = [
            dataclasses.replace(CELL, phase=phase, layout=layout, new_tokens=new_tokens)
            for layout in LAYOUTS
        ]
        records = {record.cell.layout: record for record in measure_group(cells, suite, PLAN)}
        for layout in LAYOUTS:
            print(f"| {phase} | {layout} | {described(records[layout], records['unrolled'])} |")

    print("\n| layout | compile at 2 layers | at 32 | ratio |\n|---|---|---|---|")
    for layout in ("stacked-scan", "stacked", "unrolled"):
        shallow_ms, deep_ms = [], []
        for _ in range(COMPILATIONS if layout == "stacked-scan" else 1):
            for layers, times_ms in ((SHALLOW, shallow_ms), (DEEP, deep_ms)):
                cell = dataclasses.replace(CELL, layout=layout, layers=layers)
                program = compile_program(suite.build(cell), clock=time.perf_counter_ns)
                times_ms.append(program.metrics["compile_ms"].value)
        shallow, deep = median(shallow_ms), median(deep_ms)
        print(f"| {layout} | {shallow:.0f} ms | {deep:.0f} ms | {deep / shallow:.2f} |")


def described(record: Record, base: Record) -> str:
    """A cell's median, and its ratio to the base from samples that were taken side by side."""
    if record.status is not Status.OK or base.status is not Status.OK:
        return f"{record.reason or 'ok'} | -"
    step_ms, base_ms = (each.metrics["step_ms"].samples for each in (record, base))
    ratios = [value / reference for value, reference in zip(step_ms, base_ms, strict=True)]
    low, high = median_interval(ratios)
    return f"{median(step_ms):.3g} ms | {median(ratios):.2f} [{low:.2f}, {high:.2f}]"


if __name__ == "__main__":
    main()
