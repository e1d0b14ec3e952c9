"""One tidy frame for everything above the store: a row for each run, cell and metric."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pandas as pd

from layerbench.metrics import METRICS
from layerbench.statistics import median_interval

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from layerbench.record import Measured, Record, Run

_TEXT, _WHOLE, _FLAG, _REAL, _ANY = "str", "Int64", "boolean", "float64", "object"

COLUMNS = {
    # Where the row comes from.
    "run": _TEXT, "machine": _TEXT, "commit": _TEXT, "dirty": _FLAG, "branch": _TEXT,
    "harness_digest": _TEXT,
    # What a number may be compared within: the environment's key.
    "system": _TEXT, "cpu": _TEXT, "cpu_count": _WHOLE, "backend": _TEXT, "device_kind": _TEXT,
    "device_count": _WHOLE, "platform_version": _TEXT, "python": _TEXT, "jax": _TEXT,
    "jaxlib": _TEXT, "flax": _TEXT, "flags": _TEXT,
    # The cell.
    "cell": _TEXT, "model": _TEXT, "layout": _TEXT, "phase": _TEXT, "layers": _WHOLE,
    "batch": _WHOLE, "seq": _WHOLE, "new_tokens": _WHOLE, "dtype": _TEXT, "target": _TEXT,
    "mesh": _TEXT,
    # How it went.
    "status": _TEXT, "reason": _TEXT, "contender": _FLAG, "interleaved": _FLAG,
    "started_at": _TEXT, "duration_s": _REAL, "tokens_per_step": _WHOLE, "floor_bytes": _WHOLE,
    "floor_flops": _WHOLE,
    # The number; all empty for a cell without any.
    "metric": _TEXT, "unit": _TEXT, "kind": _TEXT, "version": _TEXT, "value": _REAL, "low": _REAL,
    "high": _REAL, "sample_count": _WHOLE, "samples": _ANY,
}  # fmt: skip
"""Columns and their types; the same for an empty frame."""


def runs_frame(runs: Sequence[Run]) -> pd.DataFrame:
    """All numbers of the runs, tidy; a cell without numbers is one row with its reason.

    `low` and `high` are the confidence interval of the median, missing where there are too few
    samples for one.
    """
    rows = [row for run in runs for record in run.records for row in _rows(run, record)]
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    return frame.astype(COLUMNS)


def _rows(run: Run, record: Record) -> Iterator[dict[str, Any]]:
    base = _run_columns(run, record.cell.target) | _record_columns(record)
    if not record.metrics:
        yield base | {"samples": ()}
    for name, measured in record.metrics.items():
        yield base | _metric_columns(name, measured)


def _run_columns(run: Run, target: str) -> dict[str, Any]:
    columns: dict[str, Any] = {
        "run": run.id,
        "commit": run.source.commit,
        "dirty": run.source.dirty,
        "branch": run.source.branch,
        "harness_digest": run.harness_digest,
    }
    environment = run.environments.get(target)
    if environment is None:  # The target's worker died before it could tell.
        return columns
    return columns | {
        "machine": environment.machine,
        "system": environment.system,
        "cpu": environment.cpu,
        "cpu_count": environment.cpu_count,
        "backend": environment.backend,
        "device_kind": environment.device_kind,
        "device_count": environment.device_count,
        "platform_version": environment.platform_version,
        "python": environment.python,
        "jax": environment.packages.get("jax"),
        "jaxlib": environment.packages.get("jaxlib"),
        "flax": environment.packages.get("flax"),
        "flags": " ".join(f"{name}={value}" for name, value in sorted(environment.flags.items())),
    }


def _record_columns(record: Record) -> dict[str, Any]:
    cell, floor = record.cell, record.floor
    return {
        "cell": cell.id,
        **cell.as_dict(),
        # As in the id: a folder's path would make one series into two.
        "model": cell.model_name,
        "status": record.status.value,
        "reason": record.reason,
        "contender": record.contender,
        "interleaved": record.interleaved,
        "started_at": record.started_at,
        "duration_s": record.duration_s,
        "tokens_per_step": record.tokens_per_step or None,
        "floor_bytes": None if floor is None else floor.hbm_bytes,
        "floor_flops": None if floor is None else floor.flops,
    }


def _metric_columns(name: str, measured: Measured) -> dict[str, Any]:
    declared = METRICS.get(name)  # None for a metric that a later version declares.
    low, high = median_interval(measured.samples)
    known = math.isfinite(low)
    return {
        "metric": name,
        "unit": None if declared is None else declared.unit,
        "kind": None if declared is None else declared.kind.value,
        "version": measured.version,
        "value": measured.value,
        "low": low if known else None,
        "high": high if known else None,
        "sample_count": len(measured.samples),
        "samples": measured.samples,
    }
