"""Reads pytest-benchmark's `--benchmark-json` into a run.

A benchmark says which cell it measured in `benchmark.extra_info["cell"]`, the dictionary of
`Cell.as_dict()`. It may add `extra_info["environment"]` (`Environment.as_dict()`), which knows the
versions of jax and its runtime that pytest-benchmark's own file leaves out.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import hashlib
from typing import TYPE_CHECKING, Any

from layerbench.cell import Cell
from layerbench.environment import Environment, Source
from layerbench.errors import LayerbenchError, StoreError
from layerbench.metrics import METRICS, PRIMARY_TIMED
from layerbench.record import Measured, Record, Run, Status
from layerbench.statistics import median
from layerbench.store.files import encode_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_DAMAGED = (AttributeError, KeyError, TypeError, ValueError, LayerbenchError)


@dataclasses.dataclass(frozen=True, slots=True)
class Imported:
    """What was taken from a file.

    Attributes:
        run: The run.
        left_out: A line for each benchmark that is not in it.
    """

    run: Run
    left_out: tuple[str, ...]


def is_pytest_benchmark(document: Any) -> bool:
    """Whether a JSON document looks like one that pytest-benchmark wrote."""
    return isinstance(document, dict) and {"benchmarks", "machine_info"} <= document.keys()


def import_pytest_benchmark(document: Mapping[str, Any], *, command: str) -> Imported:
    """Makes a run of a file's benchmarks.

    The run's id comes from the content, so that a file that is taken twice is stored once.

    Args:
        document: The decoded file.
        command: What is stored as the command that reproduces it.

    Raises:
        StoreError: No benchmark in it can be taken.
    """
    left_out: list[str] = []
    records: list[Record] = []
    environments: dict[str, Environment] = {}
    try:
        started_at = _utc(document.get("datetime"))
        for name, entry in _named(document["benchmarks"]):
            try:
                record = _record(entry, started_at)
                environment = _environment(entry, document["machine_info"])
            except _DAMAGED as error:
                left_out.append(f"{name}: {_line(error)}")
                continue
            records.append(record)
            environments.setdefault(record.cell.target, environment)
        source = _source(document.get("commit_info") or {})
    except _DAMAGED as error:
        message = f"a damaged pytest-benchmark file: {_line(error)}"
        raise StoreError(message) from error
    if not records:
        reasons = "; ".join(left_out) or "it holds no benchmarks"
        message = f"nothing in this pytest-benchmark file can be taken: {reasons}"
        raise StoreError(message)
    digest = hashlib.sha256(encode_json(document).encode()).hexdigest()
    run = Run(
        id=f"{started_at.replace('-', '').replace(':', '')}-{digest[:8]}",
        command=command,
        source=source,
        harness_digest=f"pytest-benchmark-{document.get('version', 'unknown')}",
        environments=environments,
        records=records,
    )
    return Imported(run=run, left_out=tuple(left_out))


def _named(entries: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    if not isinstance(entries, list):
        raise StoreError("its benchmarks are not a list")
    for entry in entries:
        if not isinstance(entry, dict):
            raise StoreError("one of its benchmarks is not an object")
        yield str(entry.get("fullname") or entry.get("name") or "a benchmark without a name"), entry


def _record(entry: dict[str, Any], started_at: str) -> Record:
    fields = (entry.get("extra_info") or {}).get("cell")
    if fields is None:
        raise StoreError('left out, since its extra_info has no "cell"')
    cell = Cell.from_dict(fields)
    seconds = entry["stats"].get("data")
    if not seconds:
        raise StoreError("left out, since it has no samples: write them with --benchmark-json")
    samples = tuple(1e3 * float(second) for second in seconds)
    return Record(
        cell=cell,
        status=Status.OK,
        metrics={
            PRIMARY_TIMED: Measured(
                value=median(samples), samples=samples, version=METRICS[PRIMARY_TIMED].version
            )
        },
        notes=("Measured by pytest-benchmark: its answer was checked by the test alone.",),
        started_at=started_at,
        duration_s=sum(samples) / 1e3,
    )


def _environment(entry: dict[str, Any], machine_info: Mapping[str, Any]) -> Environment:
    told = entry["extra_info"].get("environment")
    if told is not None:
        return Environment.from_dict(told)
    cpu = machine_info.get("cpu") or {}
    return Environment(
        machine="",
        python=str(machine_info.get("python_version", "")),
        system=f"{machine_info.get('system', '')}-{machine_info.get('machine', '')}",
        cpu=str(cpu.get("brand_raw", "")),
        cpu_count=int(cpu.get("count") or 0),
        memory_bytes=0,
        backend="",
        device_kind="",
        device_count=0,
        platform_version="",
        packages={},
        flags={},
        matmul_precision="",
        prng="",
    )


def _source(commit_info: Mapping[str, Any]) -> Source:
    return Source(
        commit=str(commit_info.get("id") or ""),
        dirty=bool(commit_info.get("dirty")),
        branch=str(commit_info.get("branch") or ""),
    )


def _utc(moment: Any) -> str:
    """ISO 8601 to the second; pytest-benchmark writes UTC, with or without saying so."""
    parsed = dt.datetime.fromisoformat(str(moment))
    if parsed.tzinfo is not None:
        parsed = parsed.astimezone(dt.UTC)
    return f"{parsed:%Y-%m-%dT%H:%M:%SZ}"


def _line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, LayerbenchError) else f"{type(error).__name__}: {text}"
