"""What a comparison gives out at its end: table, JSON, page, plots and CSV.

Imports pandas and matplotlib, so commands import it when they have something to show.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from layerbench.report.comparison import compare_records
from layerbench.report.export import frame_csv
from layerbench.report.page import render_page
from layerbench.report.plots import plot_comparison
from layerbench.report.table import render_table
from layerbench.store.files import encode_json, write_bytes, write_text
from layerbench.store.frame import runs_frame
from layerbench.store.runs import run_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from layerbench.record import Run
    from layerbench.report.comparison import Comparison
    from layerbench.store.places import Place

STDOUT = "-"
"""What `--json` is given to write to stdout."""


def deliver(run: Run, *, place: Place | None, json_file: str | None) -> None:
    """Shows the table first: whatever happens to a file afterwards, the answer has been seen.

    Args:
        run: What was measured.
        place: Where it is stored, or None.
        json_file: A file, `-` for stdout, or None. With `-`, words go to stderr.

    Raises:
        StoreError: A file cannot be written.
    """
    comparison = compare_records(run.records)
    to_stderr = json_file == STDOUT
    terminal = (sys.stderr if to_stderr else sys.stdout).isatty()
    width = shutil.get_terminal_size().columns if terminal else None
    typer.echo(render_table(comparison, width=width, color=terminal), err=to_stderr, nl=False)
    if json_file is not None:
        document = encode_json([record.as_dict() for record in run.records])
        if to_stderr:
            typer.echo(document, nl=False)
        else:
            write_text(Path(json_file), document)
    if place is not None:
        written = [run_path(place, run.id), *_write_report(run, comparison, place)]
        lines = ["", "Written:", *(f"  {path}" for path in written)]
        typer.echo("\n".join(lines), err=to_stderr)


def _write_report(run: Run, comparison: Comparison, place: Place) -> Sequence[Path]:
    folder = place.comparison(run.id)
    plots = plot_comparison(comparison)
    files = {
        "index.html": render_page(run, comparison, plots).encode(),
        "records.csv": frame_csv(runs_frame([run])).encode(),
        "table.json": encode_json(comparison.as_dict()).encode(),
        **{f"{name}.png": image for name, image in plots.items()},
    }
    for name, content in files.items():
        write_bytes(folder / name, content)
    return [folder / name for name in files]
