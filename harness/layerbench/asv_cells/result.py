"""From a cell and a metric to what asv takes from one of its processes."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerbench.asv_cells.measuring import CellMeasurement
from layerbench.asv_cells.shared import SharedCell
from layerbench.errors import LayerbenchError
from layerbench.metrics import METRICS, Kind
from layerbench.record import Status

if TYPE_CHECKING:
    from layerbench.cell import Cell
    from layerbench.measure.timing.sampling import SamplingPlan
    from layerbench.record import Record


def metric_for_asv(
    cell: Cell, metric: str, *, suite_folder: Path, plan: SamplingPlan
) -> dict[str, Any] | float:
    """One metric of a cell, measured here or by an earlier process of this asv command.

    Args:
        cell: The cell.
        metric: Name of the metric.
        suite_folder: A folder of the repository that declares the suite.
        plan: For the sampling, if this process measures.

    Returns:
        Samples of a timed metric, the value of an exact one, NaN for what does not apply.

    Raises:
        SystemExit: With one line, for a cell that failed.
    """
    try:
        measurement = CellMeasurement(cell, suite_folder, plan)
        # asv starts the process in the run's working folder.
        shared = SharedCell(Path.cwd(), cell)
        record = shared.take(metric, measure=measurement.measure, keep=measurement.keep)
    except LayerbenchError as error:
        raise SystemExit(f"layerbench: {error}") from error
    return _for_asv(record, metric)


def _for_asv(record: Record, metric: str) -> dict[str, Any] | float:
    if record.status is Status.FAILED:
        raise SystemExit(f"layerbench: {record.cell.id}: {record.reason}")
    measured = record.metrics.get(metric)
    if measured is None:
        line = f"layerbench: n/a: {record.cell.id}: {record.reason or f'it has no {metric}'}"
        print(line, file=sys.stderr)  # noqa: T201 - asv shows what its processes print
        return math.nan
    if METRICS[metric].kind is Kind.EXACT:
        # A single sample would get an interval without ends, which strict JSON cannot say.
        return measured.value
    return {"samples": list(measured.samples or (measured.value,)), "number": 1}
