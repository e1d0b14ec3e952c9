"""The comparison as a table in text."""

from __future__ import annotations

import dataclasses
import io
from typing import TYPE_CHECKING, Literal

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from layerbench.record import Status
from layerbench.report.comparison import Mark
from layerbench.report.footnotes import Footnotes
from layerbench.report.text import NOTHING, percent, scaled, section_title, significant

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from layerbench.report.comparison import Comparison, Group, Row

_UNLIMITED = 10_000


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """A column of numbers.

    Attributes:
        title: Head of the column.
        show: The cell's text.
        keep: Columns with the smallest number go first when the terminal is narrow.
        once: Whether the text is left out where it repeats that of the row above in its group.
    """

    title: str
    show: Callable[[Row], str]
    keep: int
    once: bool = False


COLUMNS: Sequence[Column] = (
    Column("step ms", lambda row: significant(row.step_ms, 4), 9),
    Column("±", lambda row: percent(row.spread), 6),
    Column("vs best", lambda row: f"{row.ratio:.2f}x" if row.ratio is not None else "-", 8),
    Column("", lambda row: row.mark.value, 9),
    Column("tokens/s", lambda row: significant(row.tokens_per_s), 4),
    Column("floor bytes", lambda row: scaled(_floor(row, "hbm_bytes"), "B"), 3, once=True),
    Column("at", lambda row: scaled(_times_1e9(row.achieved_gb_s), "B/s"), 3),
    Column("floor FLOPs", lambda row: scaled(_floor(row, "flops"), "FLOP"), 2, once=True),
    Column("at", lambda row: scaled(_times_1e9(row.achieved_gflop_s), "FLOP/s"), 2),
    Column("compile ms", lambda row: significant(row.record.value("compile_ms")), 7),
    Column("temp memory", lambda row: scaled(row.record.value("temp_bytes"), "B"), 5),
)
"""Rates are the floor's bytes or operations over the step time: what was achieved of the work that
cannot be avoided. How far that is from the machine's limit is not said, since no peak is measured.
"""

EXACT_COLUMNS: Sequence[Column] = (
    Column("hbm bytes", lambda row: scaled(row.record.value("hbm_bytes"), "B"), 9),
    Column("over floor", lambda row: _times(row.record.value("hbm_floor_ratio")), 9),
    Column("once", lambda row: scaled(row.record.value("hbm_bytes_once"), "B"), 8),
    Column("floor bytes", lambda row: scaled(_floor(row, "hbm_bytes"), "B"), 8, once=True),
    Column("cache copies", lambda row: scaled(row.record.value("cache_copy_bytes"), "B"), 8),
    Column("weights cut", lambda row: scaled(row.record.value("loop_weight_slice_bytes"), "B"), 8),
    Column("temp memory", lambda row: scaled(row.record.value("temp_bytes"), "B"), 8),
    Column("beyond memory", lambda row: scaled(row.record.value("over_capacity_bytes"), "B"), 8),
)
"""Of cells that were compiled and not run: targets that are not there."""


def render_table(comparison: Comparison, *, width: int | None = None, color: bool = False) -> str:
    """The tables of all sections, footnotes and the summary.

    Args:
        comparison: What to show.
        width: Of the terminal: columns that do not fit are left out, least important first, and
            sentences are wrapped. None shows everything, a sentence on one line.
        color: Whether to use terminal colours.
    """
    console = Console(
        file=io.StringIO(),
        width=width or _UNLIMITED,
        force_terminal=color,
        color_system="standard" if color else None,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    footnotes = Footnotes()
    columns, tables = list(COLUMNS), []
    while True:
        tables = [_table(section, columns, footnotes) for section in comparison.sections()]
        needed = max(
            (
                console.measure(table, options=console.options.update(max_width=_UNLIMITED)).maximum
                for table in tables
            ),
            default=0,
        )
        if needed <= console.width or not any(column.keep < 8 for column in columns):
            break
        least = min(column.keep for column in columns)
        columns = [column for column in columns if column.keep != least]
    for table in tables:
        console.print(table)
        console.print()
    if len(columns) < len(COLUMNS):
        console.print("Columns are left out: this terminal is narrower than the table.")
    for number, text in enumerate(footnotes.texts, start=1):
        console.print(f"[{number}] {text}")
    if footnotes.texts:
        console.print()
    for line in comparison.summary:
        console.print(Text(line, style="bold"))
    output = console.file
    assert isinstance(output, io.StringIO)
    # Rich pads to the width; a golden file and a pipe are better off without.
    return "".join(f"{line.rstrip()}\n" for line in output.getvalue().splitlines())


def _table(section: Sequence[Group], columns: Sequence[Column], footnotes: Footnotes) -> Table:
    columns = section_columns(section, columns)
    table = Table(
        title=section_title(section[0].cell),
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE,
        pad_edge=False,
        padding=(0, 1),
    )
    table.add_column("layers", justify="right", no_wrap=True)
    table.add_column("layout", no_wrap=True)
    for column in columns:
        table.add_column(column.title, justify="right" if column.title else "left", no_wrap=True)
    for group in section:
        above = [""] * len(columns)
        for index, row in enumerate(group.rows):
            numbers = "".join(f" [{number}]" for number in footnotes.of_row(group, row))
            texts = [_cell_text(column, row) for column in columns]
            shown = [
                "" if column.once and text == before else text
                for column, text, before in zip(columns, texts, above, strict=True)
            ]
            above = [text or before for text, before in zip(texts, above, strict=True)]
            table.add_row(
                str(group.cell.layers) if index == 0 else "",
                Text(f"{row.layout}{numbers}"),
                *map(Text, shown),
                style=_style(row),
            )
        table.add_section()
    return table


def _cell_text(column: Column, row: Row) -> str:
    if row.record.status is Status.OK:
        return column.show(row)
    is_first = column.title in (COLUMNS[0].title, EXACT_COLUMNS[0].title)
    return row.record.status.value if is_first else ""


def section_columns(
    section: Sequence[Group], timed: Sequence[Column] = COLUMNS
) -> Sequence[Column]:
    """The columns of a section: those given, or the exact ones where nothing was run."""
    return EXACT_COLUMNS if _is_exact(section) else timed


def _is_exact(section: Sequence[Group]) -> bool:
    """Whether nothing of a section was timed, and something was compiled."""
    records = [row.record for group in section for row in group.rows]
    return any(record.is_compiled_only for record in records) and not any(
        row.step_ms is not None for group in section for row in group.rows
    )


def _style(row: Row) -> str:
    if row.record.status is not Status.OK:
        return "red"
    return "green" if row.mark is not Mark.NONE else ""


def _floor(row: Row, of: Literal["hbm_bytes", "flops"]) -> int | None:
    return None if row.floor is None else int(getattr(row.floor, of))


def _times(ratio: float | None) -> str:
    return NOTHING if ratio is None else f"{ratio:.2f}x"


def _times_1e9(number: float | None) -> float | None:
    return None if number is None else 1e9 * number
