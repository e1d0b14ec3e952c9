"""The run with every kind of record, and records made to measure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from layerbench.cell import Cell
from layerbench.floor import Floor
from layerbench.record import Measured, Record, Run, Status
from layerbench.report.comparison import Comparison, compare_records

STORE = Path(__file__).parents[1] / "store"


@pytest.fixture
def run() -> Run:
    return Run.from_dict(json.loads((STORE / "golden" / "run-schema-1.json").read_text()))


@pytest.fixture
def comparison(run) -> Comparison:
    return compare_records(run.records)


@pytest.fixture
def make_record():
    """A record whose samples lie evenly around a step time."""

    def make(layout="unrolled", step_ms=10.0, *, spread=0.01, count=9, layers=2, **changes):
        cell = Cell("qwen3-tiny", layout, changes.pop("phase", "prefill"), layers, 3, 5)
        half = (count - 1) / 2 or 1
        samples = tuple(
            step_ms * (1 + spread * (index - (count - 1) / 2) / half) for index in range(count)
        )
        samples = changes.pop("samples", samples)
        compile_ms = changes.pop("compile_ms", 100.0)
        changes.setdefault("interleaved", True)
        return Record(
            cell=cell,
            status=Status.OK,
            metrics={"step_ms": Measured(step_ms, samples), "compile_ms": Measured(compile_ms)},
            floor=Floor(hbm_bytes=2_000_000, flops=4_000_000),
            tokens_per_step=15,
            **changes,
        )

    return make
