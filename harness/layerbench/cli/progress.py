"""How far a comparison is, on stderr and only on a terminal."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from layerbench.record import Record, Status

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from layerbench.cell import Cell

COMPILE_S_PER_LAYER = 0.1
"""A guess; it only shapes the time left, which is corrected by what is seen."""
_STAGE_SHARE = {"build": 0.05, "compile": 0.1, "sample": 0.5}
_SPEED_WINDOW_S = 3600.0


class ComparisonProgress:
    """A bar with the time left.

    Cells of a group are sampled in turn and so end together; the bar moves with their stages, so
    that it does not stand still meanwhile.

    Args:
        cells: All that will be measured.
        sampling_s: Sampling time expected for one cell.
        console: Where to draw; stderr by default.
    """

    def __init__(
        self, cells: Sequence[Cell], sampling_s: float, console: Console | None = None
    ) -> None:
        self._console = console or Console(stderr=True)
        self._weights = {cell: sampling_s + COMPILE_S_PER_LAYER * cell.layers for cell in cells}
        self._done: dict[Cell, float] = {}
        self._finished = 0
        self._bar = Progress(
            TextColumn("{task.fields[finished]}/{task.fields[cells]} cells"),
            BarColumn(bar_width=30),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.description}", markup=False),
            console=self._console,
            transient=True,
            speed_estimate_period=_SPEED_WINDOW_S,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task(
            "starting", total=sum(self._weights.values()), finished=0, cells=len(cells)
        )

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # A terminal that has gone away must not hide why the command ends.
        with contextlib.suppress(OSError):
            self._bar.stop()

    def stage(self, cell: Cell, stage: str) -> None:
        """A cell has entered a stage."""
        words = f"{cell.phase} {cell.layout}, {cell.layers} layers: {stage}"
        self._show(cell, _STAGE_SHARE.get(stage, 0.0), words)

    def finish(self, record: Record) -> None:
        """A cell is done; a failure stays on the screen."""
        self._finished += 1
        if record.status is Status.FAILED and self._console.is_terminal:
            self._console.print(
                f"failed: {record.cell.id}: {record.reason}",
                style="red",
                markup=False,
                highlight=False,
            )
        self._show(record.cell, 1.0, f"{record.cell.phase} {record.cell.layout}")

    def _show(self, cell: Cell, share: float, words: str) -> None:
        self._done[cell] = max(share, self._done.get(cell, 0.0))
        completed = sum(self._weights[each] * done for each, done in self._done.items())
        self._bar.update(
            self._task, completed=completed, description=words, finished=self._finished
        )
