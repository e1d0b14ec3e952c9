"""HLO text to keep: without source lines, compressed, equal bytes for equal programs."""

from __future__ import annotations

import gzip
from pathlib import Path

from layerbench.measure.program.parser import without_metadata


def archived(text: str) -> bytes:
    """The compressed text, with neither metadata nor a time stamp."""
    return gzip.compress(without_metadata(text).encode(), mtime=0)


def read_archive(path: Path) -> str:
    """The text of an archive."""
    return gzip.decompress(path.read_bytes()).decode()
