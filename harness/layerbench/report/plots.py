"""Plots of a comparison: step time and compile time against depth, one figure for each phase.

Figures are made without pyplot, so no display is needed and no global state is left behind.
"""

from __future__ import annotations

import dataclasses
import io
import math
import statistics
from typing import TYPE_CHECKING, Literal

from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from layerbench.metrics import PRIMARY_TIMED
from layerbench.record import Status
from layerbench.report.text import section_title, significant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from matplotlib.axes import Axes

    from layerbench.report.comparison import Comparison, Group, Row

_INK, _FAINT, _PAPER = "#222222", "#dddddd", "#ffffff"
_DPI = 130


@dataclasses.dataclass(frozen=True, slots=True)
class Style:
    """How a layout looks in every plot."""

    color: str
    marker: str


# Okabe and Ito's palette: told apart with any colour vision; the marker says it again. Yellow is
# left out, being too pale on white. Layouts keep their style for ever: append, never reorder.
_KNOWN = {
    "unrolled": Style("#0072B2", "o"),
    "stacked-scan": Style("#D55E00", "s"),
    "vmap": Style("#009E73", "^"),
    "stacked": Style("#CC79A7", "D"),
}
_SPARE = (
    Style("#56B4E9", "v"),
    Style("#E69F00", "P"),
    Style("#555555", "X"),
    Style("#0072B2", "<"),
    Style("#D55E00", ">"),
    Style("#009E73", "p"),
    Style("#CC79A7", "h"),
    Style("#000000", "*"),
)


def layout_styles(layouts: Iterable[str]) -> dict[str, Style]:
    """A style for each layout: fixed for the known ones, by alphabet for others."""
    names = dict.fromkeys(layouts)
    others = sorted(name for name in names if name not in _KNOWN)
    spare = {name: _SPARE[index % len(_SPARE)] for index, name in enumerate(others)}
    return {name: _KNOWN.get(name) or spare[name] for name in names}


def plot_name(section: Sequence[Group]) -> str:
    """A file's name, without suffix, for the figure of a section; stable over runs."""
    cell = section[0].cell
    parts = [cell.target, cell.mesh, cell.model_name, cell.phase, cell.dtype]
    parts += [f"B{cell.batch}", f"S{cell.seq}"]
    text = "-".join(part for part in parts if part)
    return "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in text)


def plot_comparison(
    comparison: Comparison, image_format: Literal["png", "svg"] = "png"
) -> dict[str, bytes]:
    """The figures of all sections that hold a number, by `plot_name`."""
    return {
        plot_name(section): plot_section(section, image_format)
        for section in comparison.sections()
        if any(row.step_ms is not None for group in section for row in group.rows)
    }


def plot_section(section: Sequence[Group], image_format: Literal["png", "svg"] = "png") -> bytes:
    """One figure, two panels: step time with the floor, and compile time, against layers."""
    with rc_context(
        {
            "font.family": "DejaVu Sans",  # comes with matplotlib: the same on every machine
            "font.size": 10.0,
            "svg.hashsalt": "layerbench",  # an SVG's ids, and so its bytes, do not change by chance
            "axes.edgecolor": _INK,
            "text.color": _INK,
            "axes.labelcolor": _INK,
            "xtick.color": _INK,
            "ytick.color": _INK,
        }
    ):
        figure = Figure(figsize=(9.6, 4.6), facecolor=_PAPER, layout="constrained")
        FigureCanvasAgg(figure)
        figure.suptitle(section_title(section[0].cell), x=0.01, ha="left", weight="bold")
        step_axes, compile_axes = figure.subplots(1, 2)
        styles = layout_styles(row.layout for group in section for row in group.rows)
        _draw_steps(step_axes, section, styles)
        _draw_compile_times(compile_axes, section, styles)
        # The legend's own colours are those of the lines, in both panels: once is enough.
        handles, labels = step_axes.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
        file = io.BytesIO()
        # No date: the same numbers give the same file.
        metadata = {"Date": None} if image_format == "svg" else {"Software": None}
        figure.savefig(file, format=image_format, dpi=_DPI, metadata=metadata)
    return file.getvalue()


def _draw_steps(axes: Axes, section: Sequence[Group], styles: dict[str, Style]) -> None:
    _draw_lines(axes, section, styles, lambda row: row.step_ms)
    for layout, style in styles.items():
        spans = [
            (group.cell.layers, *span)
            for group in section
            for row in group.rows
            if row.layout == layout and (span := _sample_span(row)) is not None
        ]
        if spans:
            depths, lows, highs = zip(*spans, strict=True)
            axes.fill_between(depths, lows, highs, color=style.color, alpha=0.18, linewidth=0)
            if len(depths) == 1:  # No band without a second depth.
                axes.vlines(depths, lows, highs, color=style.color, linewidth=1.2)
    title = "step time (ms), shaded: 5th to 95th percentile of the samples"
    rate = _draw_floor(axes, section)
    if rate is not None:
        title += f"\ndashed: bytes floor at the best rate seen here, {significant(rate)} GB/s"
    _finish(axes, section, title)


def _draw_floor(axes: Axes, section: Sequence[Group]) -> float | None:
    """Draws the floor's bytes at the best rate that any layout of the figure reached.

    That is a line to compare with, not the machine's limit, which is not measured.

    Returns:
        The rate in GB/s; None where nothing could be drawn.
    """
    rates = [rate for group in section for row in group.rows if (rate := row.achieved_gb_s)]
    floors = {
        group.cell.layers: row.floor.hbm_bytes
        for group in section
        for row in group.rows
        if row.floor is not None and row.floor.hbm_bytes > 0
    }
    if not rates or not floors:
        return None
    depths = sorted(floors)
    axes.plot(
        depths,
        [floors[depth] / max(rates) / 1e6 for depth in depths],
        color=_INK,
        linestyle=(0, (4, 3)),
        linewidth=1.2,
        marker="_",
        zorder=1,
    )
    return max(rates)


def _draw_compile_times(axes: Axes, section: Sequence[Group], styles: dict[str, Style]) -> None:
    _draw_lines(axes, section, styles, lambda row: row.record.value("compile_ms"))
    _finish(axes, section, "compile time (ms)")


def _draw_lines(
    axes: Axes,
    section: Sequence[Group],
    styles: dict[str, Style],
    number: Callable[[Row], float | None],
) -> None:
    for order, (layout, style) in enumerate(styles.items()):
        points = [
            (group.cell.layers, value)
            for group in section
            for row in group.rows
            if row.layout == layout and row.record.status is Status.OK
            # A marginal turn can come out as zero or less, which no log axis can show.
            if (value := number(row)) is not None and value > 0
        ]
        depths, values = zip(*points, strict=True) if points else ((), ())
        pipeline = any(
            row.layout == layout and not row.record.contender
            for group in section
            for row in group.rows
        )
        axes.plot(
            depths,
            values,
            color=style.color,
            marker=style.marker,
            # Ever thinner: where lines lie on each other, those below stay visible.
            markersize=max(4.0, 8.5 - 1.4 * order),
            linewidth=max(1.2, 2.8 - 0.5 * order),
            linestyle=":" if pipeline else "-",
            label=f"{layout} (not ranked)" if pipeline else layout,
        )


def _finish(axes: Axes, section: Sequence[Group], label: str) -> None:
    depths = sorted({group.cell.layers for group in section})
    axes.set_facecolor(_PAPER)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("layers")
    axes.set_title(label, loc="left", fontsize=10)
    axes.set_xlim(depths[0] / 1.25, depths[-1] * 1.25)
    axes.set_xticks(depths, [str(depth) for depth in depths])
    axes.xaxis.set_minor_locator(NullLocator())
    low, high = axes.get_ylim()
    decades = math.log10(high / low)
    # Few decades need ticks between the powers of ten, or an axis may show none at all.
    between = (1.0, 2.0, 5.0) if decades > 1.5 else (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0)
    axes.yaxis.set_major_locator(LogLocator(subs=between if decades < 3 else (1.0,)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.12g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.grid(visible=True, which="major", color=_FAINT, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _sample_span(row: Row) -> tuple[float, float] | None:
    """The 5th and the 95th percentile of the samples, or all of them where they are few."""
    measured = row.record.metrics.get(PRIMARY_TIMED)
    if row.step_ms is None or measured is None or len(measured.samples) < 2:
        return None
    cuts = statistics.quantiles(measured.samples, n=20, method="inclusive")
    return (cuts[0], cuts[-1]) if cuts[0] > 0 else None
