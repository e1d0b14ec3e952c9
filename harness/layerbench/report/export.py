"""The tidy frame as CSV."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def frame_csv(frame: pd.DataFrame) -> str:
    """The frame of `runs_frame` as CSV; samples stay in the records, their count is here."""
    return frame.drop(columns="samples").to_csv(index=False, lineterminator="\n")
