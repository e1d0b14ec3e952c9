"""Numbers and cells as readers see them; the table and the page use the same words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from layerbench.cell import Cell

NOTHING = "-"
"""Stands where there is no number."""

_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def significant(number: float | None, digits: int = 3) -> str:
    """The number in so many significant digits and never in exponents: 0.0123, 4.56, 78900."""
    if number is None:
        return NOTHING
    if number == 0:
        return "0"
    rounded = float(f"{number:.{digits - 1}e}")
    exponent = int(f"{rounded:e}".partition("e")[2])
    return f"{rounded:,.{max(0, digits - 1 - exponent)}f}"


def scaled(number: float | None, unit: str) -> str:
    """The number with a decimal prefix before its unit: 1.23 GB."""
    if number is None:
        return NOTHING
    for size, prefix in _PREFIXES:
        if abs(number) >= 0.9995 * size:  # what rounds to 1000 of a prefix is 1 of the next
            return f"{significant(number / size)} {prefix}{unit}"
    return f"{significant(number)} {unit}"


def percent(fraction: float | None) -> str:
    """A fraction as a percentage."""
    return NOTHING if fraction is None else f"{100 * fraction:.1f} %"


def section_title(cell: Cell) -> str:
    """What the groups of a section have in common, depth and layout aside."""
    parts = [
        f"{cell.phase} of {cell.model_name}",
        f"batch {cell.batch}",
        f"seq {cell.seq}",
    ]
    if cell.new_tokens:
        parts.append(f"{cell.new_tokens} new tokens")
    parts += [cell.dtype, cell.target]
    if cell.mesh:
        parts.append(f"mesh {cell.mesh}")
    return ", ".join(parts)


def printable(text: str) -> str:
    """The text without what could move a terminal's cursor: reasons come from foreign programs."""
    return "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text
    )
