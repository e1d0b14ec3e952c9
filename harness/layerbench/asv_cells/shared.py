"""One measurement of a cell, shared by the asv benchmarks that each want one metric of it.

The file of a cell lies in the working folder that asv makes for a run. The first benchmark that
asks measures the whole cell, the others read it. A benchmark that asks again (another round, more
samples) wants new numbers: the cell is then measured anew, for all of them.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from layerbench.record import Record
from layerbench.store.files import read_json, write_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from layerbench.cell import Cell

UNFINISHED = (
    "the process that measured this cell ended before it was done: it crashed, or asv ended it at "
    "its timeout"
)


class SharedCell:
    """The latest measurement of a cell, and who has seen it.

    Args:
        folder: The working folder that the processes share.
        cell: The cell.
    """

    def __init__(self, folder: Path, cell: Cell) -> None:
        # The id leaves out the folder of a model, which two cells may differ in.
        key = json.dumps(cell.as_dict(), sort_keys=True)
        self._path = folder / f"cell-{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"
        self._cell = cell

    def take(
        self,
        metric: str,
        *,
        measure: Callable[[], Record],
        keep: Callable[[Record], None],
    ) -> Record:
        """The record for one metric.

        Args:
            metric: Gets every measurement at most once.
            measure: Measures the cell; called if there is nothing that the metric has not seen.
            keep: Stores a record; called once for each measurement, unless this process dies in
                it: then by the next one, with a failure.
        """
        state = self._read()
        if state is None or metric in state["taken"]:
            # Written first: if this process dies in the middle, the others know, and do not each
            # die in the same way.
            unfinished = Record.failure(self._cell, UNFINISHED)
            self._write(unfinished, taken=[metric], kept=False)
            record, taken, kept = measure(), [metric], False
        else:
            record = Record.from_dict(state["record"])
            taken, kept = [*state["taken"], metric], state["kept"]
        self._write(record, taken=taken, kept=True)
        if not kept:
            keep(record)
        return record

    def _read(self) -> dict[str, Any] | None:
        if not self._path.exists():
            return None
        state: dict[str, Any] = read_json(self._path)
        return state

    def _write(self, record: Record, *, taken: list[str], kept: bool) -> None:
        state = {"record": record.as_dict(), "taken": taken, "kept": kept}
        write_text(self._path, json.dumps(state, allow_nan=False))
