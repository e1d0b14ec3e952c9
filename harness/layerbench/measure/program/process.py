"""The process that compiles one cell to be read: `python -m ... WORKLOADS CELL HLO`.

CELL is a cell as JSON; HLO the file that the program's text is archived in, or empty. One JSON
object goes to standard output; what the workload prints goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import jax

from layerbench.cell import Cell
from layerbench.errors import LayerbenchError, MeasurementError, UsageError
from layerbench.measure.absent import DoesNotFitError, read_absent
from layerbench.measure.program.archive import archived
from layerbench.measure.program.executable import Capacity, Reading, read_executable
from layerbench.measure.program.fingerprint import take_fingerprint
from layerbench.suite import load_suite
from layerbench.targets import parse_target
from layerbench.workload import Workload

SHOWN_MOVERS = 100
"""More than a person reads."""


def main() -> None:
    """Compiles, reads and answers."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    workloads, cell, archive = sys.argv[1:]
    try:
        answer = _read(Path(workloads), Cell.from_dict(json.loads(cell)), archive)
    except LayerbenchError as error:
        answer = {"error": str(error), "exit_code": error.exit_code}
    except Exception as error:  # noqa: BLE001 - told to the command, which has the user's ear
        text = " ".join(str(error).split())
        answer = {"error": f"{type(error).__name__}: {text}"[:500], "exit_code": 4}
    with answers:
        json.dump(answer, answers, allow_nan=False)


def _read(workloads: Path, cell: Cell, archive: str) -> dict[str, Any]:
    try:
        jax.devices()
    except Exception as error:
        raise UsageError(f"no device for the target {cell.target} here") from error
    suite = load_suite(workloads)
    suite.validate(cell)
    workload = suite.build(cell)
    chip = parse_target(cell.target).chip
    try:
        reading = _compile(workload) if chip is None else read_absent(workload, chip)
    except DoesNotFitError as refusal:
        raise MeasurementError(f"{cell.id} does not fit: {refusal}") from refusal
    if archive:
        Path(archive).write_bytes(archived(reading.text))
    fingerprint = None
    if reading.analysis is not None:
        fingerprint = take_fingerprint(reading.analysis, kept_movers=SHOWN_MOVERS).as_dict()
    return {
        "cell": cell.as_dict(),
        "floor_bytes": workload.floor.hbm_bytes,
        "floor_flops": workload.floor.flops,
        "has_turns": workload.turns is not None,
        "metrics": {name: measured.value for name, measured in reading.metrics.items()},
        "notes": [*([workload.note] if workload.note else []), *reading.notes],
        "fingerprint": fingerprint,
    }


def _compile(workload: Workload) -> Reading:
    traced = jax.jit(workload.function, donate_argnums=workload.donated).trace(
        *workload.abstract_arguments
    )
    lowered = traced.lower()
    return read_executable(workload, traced, lowered, lowered.compile(), capacity=Capacity())


if __name__ == "__main__":
    main()
