"""The table as whole expected text, with failed, tied, unranked and inapplicable rows."""

from __future__ import annotations

import dataclasses
import unicodedata
from pathlib import Path

import pytest

from layerbench.record import Record
from layerbench.report.comparison import compare_records
from layerbench.report.table import render_table

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize(
    ("width", "name"), [(None, "table.txt"), (120, "table-120.txt"), (80, "table-80.txt")]
)
def test_the_table_is_as_expected(comparison, width, name):
    assert render_table(comparison, width=width) == (GOLDEN / name).read_text()


@pytest.mark.parametrize("width", [20, 40, 80, 100, 120, 160])
def test_no_line_is_wider_than_the_terminal(comparison, width):
    lines = render_table(comparison, width=width).splitlines()
    assert max(map(len, lines)) <= width


def test_colours_are_for_terminals_only(comparison):
    assert "\x1b[" in render_table(comparison, width=160, color=True)
    assert "\x1b[" not in render_table(comparison, width=160)


def test_a_reason_cannot_move_the_cursor(make_record):
    failed = Record.failure(make_record().cell, "red \x1b[31m and [bold]markup[/bold] \x07")
    text = render_table(compare_records([failed]))
    assert "[1] red \N{REPLACEMENT CHARACTER}[31m and [bold]markup[/bold]" in text
    assert not any(unicodedata.category(letter) == "Cc" for letter in text.replace("\n", ""))


def test_a_floor_that_differs_within_a_group_is_shown_again(make_record):
    other = make_record("b")
    other = dataclasses.replace(other, floor=dataclasses.replace(other.floor, hbm_bytes=7_000_000))
    text = render_table(compare_records([make_record("a"), other, make_record("c")]))
    shown = [line.count("MB ") for line in text.splitlines() if " prefill" not in line]
    assert "7.00 MB" in text
    assert sum(shown) == 3


def test_nothing_measured_is_an_empty_text():
    assert render_table(compare_records([])) == ""
