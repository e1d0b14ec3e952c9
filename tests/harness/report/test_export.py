"""The CSV as whole expected text."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from layerbench.report.export import frame_csv
from layerbench.store.frame import runs_frame

GOLDEN = Path(__file__).parent / "golden" / "records.csv"


def test_the_csv_is_as_expected(run):
    assert frame_csv(runs_frame([run])) == GOLDEN.read_text()


def test_every_line_has_every_column_and_failures_have_their_reason(run):
    rows = list(csv.DictReader(io.StringIO(frame_csv(runs_frame([run])))))
    assert {row["status"] for row in rows} == {"ok", "failed", "not-applicable"}
    assert all((row["status"] == "ok") != bool(row["reason"]) for row in rows)
    assert all(None not in row and None not in row.values() for row in rows)
