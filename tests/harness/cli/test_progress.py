"""The bar: drawn on a terminal, silent elsewhere."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from layerbench.cell import Cell
from layerbench.cli.progress import ComparisonProgress
from layerbench.record import Record, Status

CELLS = [Cell("toy", layout, "prefill", layers=2, batch=1, seq=3) for layout in ("a", "b")]


def drive(*, terminal):
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=120)
    with ComparisonProgress(CELLS, 2.0, console) as progress:
        for stage in ("build", "compile", "sample", "a stage of a later version"):
            for cell in CELLS:
                progress.stage(cell, stage)
        progress.finish(Record(CELLS[0], Status.OK))
        progress.finish(Record.failure(CELLS[1], "out of [memory]"))
    return file.getvalue()


def test_a_pipe_gets_nothing():
    assert drive(terminal=False) == ""


@pytest.mark.parametrize("text", ["2/2 cells", "failed: toy/prefill/b/L2/B1/S3", "out of [memory]"])
def test_a_terminal_gets_the_bar_and_each_failure(text):
    assert text in drive(terminal=True)
