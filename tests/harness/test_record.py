"""Records and runs: what they insist on, and their way through JSON."""

import json
import math

import pytest

from layerbench import Cell, Floor, Record, Run
from layerbench.environment import Environment, Source
from layerbench.errors import StoreError
from layerbench.record import SCHEMA_VERSION, Measured, Status

CELL = Cell("m", "x", "prefill", 1, 2, 3)
ENVIRONMENT = Environment(
    machine="a-machine", python="3.11.7", system="Linux-x86_64", cpu="a cpu", cpu_count=2,
    memory_bytes=1, backend="cpu", device_kind="cpu", device_count=1, platform_version="cpu",
    packages={"jax": "0.10.2"}, flags={}, matmul_precision="default", prng="threefry2x32",
)  # fmt: skip
RUN = Run(
    id="20261201T000000Z-0badcafe",
    command="layerbench compare",
    source=Source("a" * 40, dirty=True, branch="main"),
    harness_digest="0123456789abcdef",
    environments={"cpu": ENVIRONMENT},
    records=(
        Record(
            cell=CELL,
            status=Status.OK,
            metrics={"step_ms": Measured(2.0, (1.0, 2.0, 3.0)), "temp_bytes": Measured(7)},
            floor=Floor(hbm_bytes=10, flops=20),
            tokens_per_step=6,
            interleaved=True,
            notes=("one",),
        ),
        Record.failure(CELL, "it\n  broke"),
    ),
)


def test_a_run_survives_strict_json():
    text = json.dumps(RUN.as_dict(), allow_nan=False)
    read = Run.from_dict(json.loads(text))
    assert read.as_dict() == RUN.as_dict()
    assert read.records[0].metrics["step_ms"].samples == (1.0, 2.0, 3.0)


def test_a_failure_has_one_line_of_reason():
    assert RUN.records[1].reason == "it broke"
    assert Record.failure(CELL, " \n ").reason == "failed without a word"


@pytest.mark.parametrize(("status", "reason"), [(Status.OK, "why"), (Status.FAILED, "")])
def test_a_reason_belongs_to_what_is_not_ok_and_to_nothing_else(status, reason):
    with pytest.raises(ValueError, match="needs a reason if and only if"):
        Record(cell=CELL, status=status, reason=reason)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_none_is_not_stored(number):
    with pytest.raises(ValueError, match="must be finite"):
        Measured(number)
    with pytest.raises(ValueError, match="must be finite"):
        Measured(1.0, (1.0, number))


def test_a_metric_that_a_cell_lacks_has_no_value():
    assert RUN.records[0].value("step_ms") == 2.0
    assert RUN.records[0].value("compile_ms") is None


def test_a_newer_schema_is_refused_in_one_line():
    with pytest.raises(StoreError, match=f"schema {SCHEMA_VERSION + 1} is newer") as caught:
        Run.from_dict({**RUN.as_dict(), "schema_version": SCHEMA_VERSION + 1})
    assert "\n" not in str(caught.value)


def test_a_metric_of_a_later_version_is_left_out():
    stored = RUN.as_dict()
    stored["records"][0]["metrics"]["hats"] = {"value": 1, "samples": [], "version": "1"}
    assert set(Run.from_dict(stored).records[0].metrics) == {"step_ms", "temp_bytes"}


@pytest.mark.parametrize(
    "damage",
    [
        {"environments": []},
        {"records": 3},
        {"records": [{"cell": {"layers": 0}}]},
        {"source": {"colour": "blue"}},
        {"id": None, "records": [None]},
    ],
)
def test_a_damaged_run_is_one_error(damage):
    with pytest.raises(StoreError, match="a damaged run"):
        Run.from_dict({**RUN.as_dict(), **damage})
