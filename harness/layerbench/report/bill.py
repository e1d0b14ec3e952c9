"""One program's bill as text: where each byte of a step goes, against the floor."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from layerbench.cell import Cell
from layerbench.report.text import NOTHING, percent, printable, scaled, section_title

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_WIDTH = 110
_PLACES = ("outside loops", "in a loop", "in 2 loops", "in 3 loops")
_ROLES = {"kv_cache": "KV cache", "weights": "weights", "other": "everything else"}
_ALSO = (
    "cache_copy_bytes",
    "layer_update_bytes",
    "loop_weight_slice_bytes",
    "collective_bytes",
    "opaque_bytes",
    "temp_bytes",
    "undonated_bytes",
    "over_capacity_bytes",
)


def render_bill(answer: Mapping[str, Any], *, top: int) -> str:
    """The bill as text.

    Args:
        answer: What `layerbench.measure.program.process` told of the cell.
        top: Rows of instructions to show.
    """
    cell, metrics = Cell.from_dict(answer["cell"]), answer["metrics"]
    lines = io.StringIO()
    console = Console(file=lines, width=_WIDTH, color_system=None)
    title = f"{section_title(cell)}, {cell.layout}, {cell.layers} layers"
    console.print(Text(title, style="bold"))
    console.print(Text(_summary(answer)))
    for name in _ALSO:
        if metrics.get(name):
            console.print(Text(f"  {name} {scaled(metrics[name], 'B')}"))
    console.print(
        Text(
            f"  {_count(metrics.get('launches'))} launches, {_count(metrics.get('loops'))} loops, "
            f"{scaled(metrics.get('flops'), 'FLOP')} (floor {scaled(answer['floor_flops'], 'FLOP')})"
        )
    )
    fingerprint = answer["fingerprint"]
    if fingerprint is not None and "hbm_bytes" in metrics:
        suffix = "_per_turn" if answer["has_turns"] else ""
        total = metrics["hbm_bytes"]
        console.print(_flow_table(fingerprint["flows"], suffix, total))
        console.print(_mover_table(fingerprint, suffix, total, top))
    for note in answer["notes"]:
        console.print(Text(printable(note)))
    return "\n".join(line.rstrip() for line in lines.getvalue().splitlines()) + "\n"


def _summary(answer: Mapping[str, Any]) -> str:
    metrics = answer["metrics"]
    if "hbm_bytes" not in metrics:
        return "  the bytes of a step are not known"
    ratio = metrics.get("hbm_floor_ratio")
    said = f"  hbm_bytes {scaled(metrics['hbm_bytes'], 'B')} per step"
    said += f", floor {scaled(answer['floor_bytes'], 'B')}"
    said += f", ratio {ratio:.3f}" if ratio is not None else ""
    if "hbm_bytes_once" in metrics:
        said += f"; {scaled(metrics['hbm_bytes_once'], 'B')} once"
    return said


def _flow_table(flows: Sequence[Mapping[str, Any]], suffix: str, total: float) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for head, justify in (("what", "left"), ("bytes", "right"), ("share", "right")):
        table.add_column(head, justify=justify)  # type: ignore[arg-type]
    for flow in flows:
        size = flow.get(f"bytes{suffix}", 0)
        if size:
            what = f"{_ROLES.get(flow['role'], flow['role'])} {flow['direction']}"
            table.add_row(what, scaled(size, "B"), _share(size, total))
    return table


def _mover_table(fingerprint: Mapping[str, Any], suffix: str, total: float, top: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for head, justify in (
        ("bytes", "right"),
        ("share", "right"),
        ("runs", "right"),
        ("instruction", "left"),
        ("result", "left"),
        ("where", "left"),
        ("purpose", "left"),
    ):
        table.add_column(head, justify=justify)  # type: ignore[arg-type]
    size = f"bytes{suffix}"
    movers = [mover for mover in fingerprint["movers"] if size in mover]
    movers.sort(key=lambda mover: -mover[size])
    for mover in movers[:top]:
        depth = mover.get("loop_depth", 0)
        table.add_row(
            scaled(mover[size], "B"),
            _share(mover[size], total),
            _count(mover[f"runs{suffix}"]),
            printable(mover["kind"]),
            mover["shape"],
            _PLACES[depth] if depth < len(_PLACES) else f"in {depth} loops",
            mover.get("purpose", ""),
        )
    shown = sum(mover[size] for mover in movers[:top])
    if shown < total:
        table.add_row(scaled(total - shown, "B"), _share(total - shown, total), "", "all others")
    return table


def _count(number: float | None) -> str:
    return NOTHING if number is None else f"{number:,.0f}"


def _share(size: float, total: float) -> str:
    return percent(size / total) if total else percent(None)
