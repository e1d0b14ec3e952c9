"""Numbered footnotes: failures' reasons and what else a reader of a row has to know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from layerbench.record import Status
from layerbench.report.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from layerbench.report.comparison import Group, Row

NOT_INTERLEAVED = (
    "The layouts of this group were not sampled in turn, so drift of the machine can differ "
    "between them."
)
TOO_FEW_SAMPLES = "Too few samples for an interval of the median."


class Footnotes:
    """Gives each text one number, however often it is pointed to."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        """The text's number, a new one if it has none yet."""
        return self._numbers.setdefault(printable(text), len(self._numbers) + 1)

    def of_row(self, group: Group, row: Row) -> list[int]:
        """The numbers that a row points to."""
        record = row.record
        texts: list[str] = []
        if record.status is not Status.OK:
            texts.append(record.reason)
        texts += record.notes
        is_timed = record.status is Status.OK and not record.is_compiled_only
        if is_timed and not record.interleaved and len(group.rows) > 1:
            texts.append(NOT_INTERLEAVED)
        if row.step_ms is not None and row.low_ms is None:
            texts.append(TOO_FEW_SAMPLES)
        return sorted(self.number(text) for text in texts)

    @property
    def texts(self) -> Sequence[str]:
        """All texts, by number from 1."""
        return tuple(self._numbers)
