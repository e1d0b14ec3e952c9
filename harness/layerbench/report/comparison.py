"""The layouts side by side, as plain data: what the table, its JSON, the plots and the page show.

Two layouts are told apart only on evidence. Samples taken in turn are compared round by round, so
that what slows the machine down in a round counts for both: the interval of the median ratio must
not hold 1. Samples taken apart have only their own intervals, which must not overlap. Of a layout
that was too slow for an interval no sample may be among the other's. Otherwise layouts are tied.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from typing import TYPE_CHECKING, Any

from layerbench.cell import Cell, group_cells
from layerbench.metrics import PRIMARY_TIMED
from layerbench.record import Record, Status
from layerbench.report.text import scaled
from layerbench.statistics import CONFIDENCE, median_interval

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from layerbench.floor import Floor

_NEARLY = 1.05
"""Compile times, of one sample each, that differ by less are not worth a sentence."""


class Mark(enum.StrEnum):
    """What is said of a layout within its group."""

    FASTEST = "fastest"
    TIED = "tied"
    NONE = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One cell of a group.

    Attributes:
        record: What was measured.
        mark: Fastest of its group, not told apart from the fastest, or neither.
        ratio: Its step time over the fastest's; None where either is missing.
        low_ms: Lower end of the interval of the step time's median; None without one.
        high_ms: Upper end.
    """

    record: Record
    mark: Mark
    ratio: float | None
    low_ms: float | None
    high_ms: float | None

    @property
    def layout(self) -> str:
        """The layout's name."""
        return self.record.cell.layout

    @property
    def step_ms(self) -> float | None:
        """Median step time; None for a cell that failed."""
        return step_ms(self.record)

    @property
    def spread(self) -> float | None:
        """Half the interval's width over the median."""
        middle = self.step_ms
        if self.low_ms is None or self.high_ms is None or not middle or middle < 0:
            return None
        return (self.high_ms - self.low_ms) / 2 / middle

    @property
    def achieved_gb_s(self) -> float | None:
        """The floor's bytes over the step time, in 1e9 bytes a second."""
        return self._per_second(None if self.floor is None else self.floor.hbm_bytes / 1e9)

    @property
    def achieved_gflop_s(self) -> float | None:
        """The floor's operations over the step time, in 1e9 a second."""
        return self._per_second(None if self.floor is None else self.floor.flops / 1e9)

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens that go in (prefill, training) or come out (decode) in a second."""
        return self._per_second(self.record.tokens_per_step or None)

    @property
    def floor(self) -> Floor | None:
        """What no implementation of the step can do without."""
        return self.record.floor

    def as_dict(self) -> dict[str, Any]:
        """Strict JSON's types; the samples stay in the records."""
        floor = self.floor
        return {
            "layout": self.layout,
            "status": self.record.status.value,
            "reason": self.record.reason or None,
            "mark": self.mark.value or None,
            "contender": self.record.contender,
            "step_ms": self.step_ms,
            "step_ms_low": self.low_ms,
            "step_ms_high": self.high_ms,
            "ratio": self.ratio,
            "floor_bytes": None if floor is None else floor.hbm_bytes,
            "floor_flops": None if floor is None else floor.flops,
            "achieved_gb_s": self.achieved_gb_s,
            "achieved_gflop_s": self.achieved_gflop_s,
            "tokens_per_s": self.tokens_per_s,
            "compile_ms": self.record.value("compile_ms"),
            "temp_bytes": self.record.value("temp_bytes"),
            "notes": list(self.record.notes),
        }

    def _per_second(self, amount: float | None) -> float | None:
        middle = self.step_ms
        return None if amount is None or not middle or middle < 0 else amount / (middle / 1e3)


@dataclasses.dataclass(frozen=True, slots=True)
class Group:
    """Cells that differ in nothing but their layout.

    Attributes:
        cell: What they have in common; its layout is empty.
        rows: In order of measurement.
    """

    cell: Cell
    rows: tuple[Row, ...]

    @property
    def leaders(self) -> tuple[Row, ...]:
        """The fastest layout and those not told apart from it, fastest first."""
        leaders = [row for row in self.rows if row.mark is not Mark.NONE]
        return tuple(sorted(leaders, key=lambda row: row.step_ms or math.inf))

    def as_dict(self) -> dict[str, Any]:
        """Strict JSON's types."""
        cell = self.cell.as_dict()
        del cell["layout"]
        return {"group": cell, "rows": [row.as_dict() for row in self.rows]}


@dataclasses.dataclass(frozen=True, slots=True)
class Comparison:
    """All groups of a run, and a sentence for each phase.

    Attributes:
        groups: In order of appearance.
        summary: One line for each target, model and phase, for its deepest measured depth.
    """

    groups: tuple[Group, ...]
    summary: tuple[str, ...]

    def sections(self) -> list[tuple[Group, ...]]:
        """Groups that differ only in depth, together and shallowest first."""
        sections: dict[Cell, list[Group]] = {}
        for group in self.groups:
            sections.setdefault(_without_depth(group.cell), []).append(group)
        return [
            tuple(sorted(section, key=lambda group: group.cell.layers))
            for section in sections.values()
        ]

    def as_dict(self) -> dict[str, Any]:
        """Strict JSON's types."""
        return {
            "groups": [group.as_dict() for group in self.groups],
            "summary": list(self.summary),
        }


def step_ms(record: Record) -> float | None:
    """The record's median step time; None where it failed."""
    return record.value(PRIMARY_TIMED) if record.status is Status.OK else None


def compare_records(records: Iterable[Record]) -> Comparison:
    """Sets the records of one run side by side; of two for one cell the later counts."""
    latest = {record.cell: record for record in records}
    groups = tuple(_group([latest[cell] for cell in cells]) for cells in group_cells(latest))
    unsummed = Comparison(groups=groups, summary=())
    lines = tuple(line for section in unsummed.sections() if (line := _summary(section)))
    return dataclasses.replace(unsummed, summary=lines)


def _group(records: Sequence[Record]) -> Group:
    contenders = [record for record in records if record.contender and step_ms(record) is not None]
    best = min(contenders, key=lambda record: step_ms(record) or 0.0, default=None)
    tied = [
        record
        for record in contenders
        if best is not None and record is not best and not _told_apart(best, record)
    ]
    rows = []
    for record in records:
        mark = Mark.NONE
        if record is best:
            mark = Mark.TIED if tied else Mark.FASTEST
        elif any(record is each for each in tied):
            mark = Mark.TIED
        low, high = _interval(record)
        finite = math.isfinite(low)
        rows.append(
            Row(
                record=record,
                mark=mark,
                ratio=None if best is None else _ratio(step_ms(record), step_ms(best)),
                low_ms=low if finite else None,
                high_ms=high if finite else None,
            )
        )
    return Group(cell=records[0].cell.group, rows=tuple(rows))


def _samples(record: Record) -> tuple[float, ...]:
    measured = record.metrics.get(PRIMARY_TIMED)
    return () if measured is None else measured.samples


def _interval(record: Record) -> tuple[float, float]:
    return median_interval(_samples(record))


def _told_apart(faster: Record, slower: Record) -> bool:
    if faster.interleaved and slower.interleaved:
        rounds = zip(_samples(faster), _samples(slower), strict=False)
        ratios = [slow / fast for fast, slow in rounds if fast > 0]
        if math.isfinite(median_interval(ratios)[0]):
            return median_interval(ratios)[0] > 1
    return _interval(faster)[1] < _interval(slower)[0] or _lie_apart(faster, slower)


def _lie_apart(faster: Record, slower: Record) -> bool:
    """Whether no sample of one is among the other's, and there are enough for that to mean something.

    If both were drawn from one distribution, all orders of the samples would be equally likely, and
    two of them keep the sides apart (the extreme case of the Mann-Whitney test).
    """
    fast, slow = _samples(faster), _samples(slower)
    if not fast or not slow or max(fast) >= min(slow):
        return False
    return 2 / math.comb(len(fast) + len(slow), len(slow)) <= 1 - CONFIDENCE


def _ratio(numerator: float | None, denominator: float | None) -> float | None:
    if numerator is None or not denominator or denominator < 0:
        return None
    return numerator / denominator


def _without_depth(cell: Cell) -> Cell:
    return dataclasses.replace(cell, layers=1)


def _bytes_verdict(where: str, group: Group) -> str:
    """Of cells that were compiled and not run: who moves the fewest bytes; empty without any."""
    moved = sorted(
        (size, row.layout)
        for row in group.rows
        if (size := row.record.value("hbm_bytes")) is not None and row.record.contender
    )
    if not moved:
        return ""
    least, *others = (f"{layout} {scaled(size, 'B')}" for size, layout in moved)
    rest = f", then {', '.join(others)}" if others else ""
    return f"{where}, {_count(group.cell.layers, 'layer')}: fewest bytes a step: {least}{rest}."


def _summary(section: Sequence[Group]) -> str:
    """Who is fastest at the deepest depth at which anything could be measured, and by how much."""
    measured = [group for group in section if group.leaders]
    if not measured:
        cell = section[-1].cell
        where = f"{cell.phase} of {cell.model_name} on {cell.target}"
        return _bytes_verdict(where, section[-1]) or f"{where}: no layout could be measured."
    group = measured[-1]
    cell = group.cell
    where = f"{cell.phase} of {cell.model_name} on {cell.target}, {_count(cell.layers, 'layer')}"
    return f"{where}: {_verdict(group)}{_compile_verdict(group)}"


def _verdict(group: Group) -> str:
    leaders = group.leaders
    names = [row.layout for row in leaders]
    others = sorted(
        (
            row
            for row in group.rows
            if row not in leaders and row.record.contender and row.step_ms is not None
        ),
        key=lambda row: row.step_ms or 0.0,
    )
    rest = [f"{row.layout} takes {_times(row.ratio)}" for row in others if row.ratio is not None]
    if len(names) > 1:
        text = f"{_join(names)} are not told apart"
        return f"{text}; {_join(rest)} as long as {names[0]}." if rest else f"{text}."
    if not others:
        return f"{names[0]} is the only layout that was measured."
    text = f"{names[0]} is the fastest"
    return f"{text}; {_join(rest)} as long." if rest else f"{text}."


def _compile_verdict(group: Group) -> str:
    times = sorted(
        (value, row.layout)
        for row in group.rows
        if row.record.contender
        and row.record.status is Status.OK
        and (value := row.record.value("compile_ms")) is not None
    )
    if len(times) < 2:
        return ""
    (shortest, quick), (longest, slow) = times[0], times[-1]
    if longest <= _NEARLY * shortest:
        return f" All compile in about {longest / 1e3:.2f} s."
    text = f" {quick} compiles in {shortest / 1e3:.2f} s, {slow} in {longest / 1e3:.2f} s"
    return f"{text}, {_times(longest / shortest)} as long." if shortest > 0 else f"{text}."


def _times(ratio: float | None) -> str:
    return "?" if ratio is None else f"{ratio:.2f} times"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _join(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
