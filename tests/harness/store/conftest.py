"""A run that holds every kind of record."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from layerbench.record import Run

GOLDEN = Path(__file__).parent / "golden" / "run-schema-1.json"


@pytest.fixture
def golden() -> Path:
    return GOLDEN


@pytest.fixture
def run() -> Run:
    return Run.from_dict(json.loads(GOLDEN.read_text()))
