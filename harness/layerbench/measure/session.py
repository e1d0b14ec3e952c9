"""Measures the cells of one group in this process: compile, first call, check, sample in turn."""

from __future__ import annotations

import dataclasses
import datetime as dt
import time
from typing import TYPE_CHECKING

import psutil

from layerbench.errors import MeasurementError
from layerbench.measure.absent import measure_absent
from layerbench.measure.events import Progress
from layerbench.measure.timing.sampling import (
    SamplingPlan,
    StepTimer,
    sample_in_turn,
)
from layerbench.measure.timing.stages import (
    Program,
    compile_program,
    device_memory_stats,
    synchronise,
    warm_up_compiler,
)
from layerbench.record import Measured, Record, Status
from layerbench.statistics import median
from layerbench.targets import parse_target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from layerbench.cell import Cell
    from layerbench.suite import Suite
    from layerbench.workload import Workload

# Of the memory that is free, what arguments and temporaries may take; the rest is for the runtime.
_USABLE_MEMORY = 0.8


@dataclasses.dataclass(slots=True)
class _Candidate:
    """A cell on its way to a record."""

    cell: Cell
    workload: Workload
    program: Program
    started_at: str
    busy_s: float
    notes: list[str]
    timer: StepTimer | None = None
    first_call_ms: float = 0.0


def measure_group(
    cells: Sequence[Cell],
    suite: Suite,
    plan: SamplingPlan,
    *,
    tell: Callable[[Progress], None] = lambda _: None,
    clock: Callable[[], int] = time.perf_counter_ns,
    usable_bytes: int | None = None,
) -> Iterator[Record]:
    """Measures cells that differ in their layout alone, and yields a record for each.

    Args:
        cells: One group (see `Cell.group`).
        suite: Builds the workloads.
        plan: For the sampling of the whole group.
        tell: Is told of every stage before it is entered.
        clock: Monotonic nanoseconds.
        usable_bytes: Memory that arguments and temporaries may take together; asked of the device
            when it is not given.

    Yields:
        A record for each cell, failures as soon as they are known. Nothing is raised for a cell.
    """
    chip = parse_target(cells[0].target).chip if cells else None
    if chip is not None:
        yield from measure_absent(cells, suite, chip, tell=tell, clock=clock)
        return
    candidates = []
    for cell in cells:
        try:
            candidates.append(_prepare(cell, suite, tell=tell, clock=clock))
        except _NotApplicableError as absent:
            yield Record(cell=cell, status=Status.NOT_APPLICABLE, reason=str(absent))
        except Exception as error:  # noqa: BLE001 - whatever a cell does is that cell's result
            yield Record.failure(cell, describe_failure(error), started_at=_now())
    if usable_bytes is None:
        usable_bytes = _usable_bytes()
    for together in _fitting_sets(candidates, usable_bytes):
        share = dataclasses.replace(
            plan, budget_s=plan.budget_s * len(together) / max(1, len(candidates))
        )
        yield from _measure_together(together, share, len(candidates), tell=tell, clock=clock)


class _NotApplicableError(Exception):
    """What the cell asks for does not exist in the models that are installed."""


def describe_failure(error: BaseException) -> str:
    """One line for a record: what went wrong, in the error's own words."""
    text = " ".join(str(error).split())
    if isinstance(error, MeasurementError) and text:
        return text
    return f"{type(error).__name__}: {text}"[:500] if text else type(error).__name__


def _prepare(
    cell: Cell,
    suite: Suite,
    *,
    tell: Callable[[Progress], None],
    clock: Callable[[], int],
) -> _Candidate:
    started_at, start_ns = _now(), clock()
    tell(Progress(cell, "build"))
    try:
        workload = suite.build(cell)
    except NotImplementedError as error:
        raise _NotApplicableError(str(error) or "not in the installed models") from error
    tell(Progress(cell, "compile"))
    warm_up_compiler()
    program = compile_program(workload, clock=clock)
    notes = [*([workload.note] if workload.note else []), *program.notes]
    return _Candidate(
        cell, workload, program, started_at, busy_s=(clock() - start_ns) / 1e9, notes=notes
    )


def _fitting_sets(
    candidates: Sequence[_Candidate], usable_bytes: int
) -> Iterator[list[_Candidate]]:
    """Splits candidates, in order, into sets whose memory fits at the same time."""
    together: list[_Candidate] = []
    resident = 0
    for candidate in candidates:
        needed = candidate.program.resident_bytes
        if together and resident + needed > usable_bytes:
            yield together
            together, resident = [], 0
        together.append(candidate)
        resident += needed
    if together:
        yield together


def _measure_together(
    together: Sequence[_Candidate],
    plan: SamplingPlan,
    group_size: int,
    *,
    tell: Callable[[Progress], None],
    clock: Callable[[], int],
) -> Iterator[Record]:
    ready = []
    for candidate in together:
        start_ns = clock()
        tell(Progress(candidate.cell, "sample"))
        try:
            _call_first(candidate, clock=clock)
        except Exception as error:  # noqa: BLE001 - whatever a cell does is that cell's result
            yield Record.failure(candidate.cell, describe_failure(error), started_at=_now())
            continue
        candidate.busy_s += (clock() - start_ns) / 1e9
        ready.append(candidate)
    start_ns = clock()
    samples: list[list[float]] = []
    while ready:
        at = [0]

        def before_sample(index: int, at: list[int] = at) -> None:
            at[0] = index
            tell(Progress(ready[index].cell, "sample"))

        timers = [_timer(candidate) for candidate in ready]
        try:
            samples = sample_in_turn(timers, plan, clock=clock, before_sample=before_sample)
            break
        except Exception as error:  # noqa: BLE001 - whatever a cell does is that cell's result
            culprit = ready.pop(at[0])
            culprit.timer = None
            yield Record.failure(culprit.cell, describe_failure(error), started_at=_now())
    sampling_s = (clock() - start_ns) / 1e9 / max(1, len(ready))
    for candidate, step_ms in zip(ready, samples, strict=True):
        candidate.busy_s += sampling_s
        yield _finish(candidate, step_ms, rivals=group_size - 1, fit=len(together) == group_size)
        candidate.timer = None  # Frees the arguments before the next set allocates its own.


def _call_first(candidate: _Candidate, *, clock: Callable[[], int]) -> None:
    workload = candidate.workload
    timer = StepTimer(
        candidate.program.call,
        synchronise(workload.make_arguments()),
        thread=workload.thread,
        clock=clock,
        synchronise=synchronise,
        turns=workload.turns,
    )
    candidate.first_call_ms = timer.first_call_ms()
    workload.check(timer.outputs, 0)
    candidate.timer = timer


def _finish(
    candidate: _Candidate,
    step_ms: Sequence[float],
    *,
    rivals: int,
    fit: bool,
) -> Record:
    cell, workload, timer = candidate.cell, candidate.workload, _timer(candidate)
    # Six digits are more than a clock can tell, and keep the stored files small.
    samples = tuple(float(f"{sample:.6g}") for sample in step_ms)
    median_ms = median(samples)
    if median_ms <= 0:
        reason = f"the step drowns in noise: median {median_ms:.3g} ms of {len(step_ms)} samples"
        return Record.failure(cell, reason, started_at=candidate.started_at)
    try:
        workload.check(timer.outputs, timer.calls_made - 1)
    except Exception as error:  # noqa: BLE001 - whatever a cell does is that cell's result
        return Record.failure(cell, describe_failure(error), started_at=candidate.started_at)
    notes = list(candidate.notes)
    if not fit:
        notes.append("Not sampled in turn with all layouts: they do not fit in memory together.")
    return Record(
        cell=cell,
        status=Status.OK,
        metrics={
            "step_ms": Measured(median_ms, samples),
            "first_call_ms": Measured(candidate.first_call_ms),
            **candidate.program.metrics,
        },
        floor=workload.floor,
        tokens_per_step=workload.tokens_per_step,
        interleaved=fit and rivals > 0,
        notes=tuple(notes),
        contender=workload.contender,
        started_at=candidate.started_at,
        duration_s=round(candidate.busy_s, 3),
        program=candidate.program.fingerprint,
    )


def _timer(candidate: _Candidate) -> StepTimer:
    assert candidate.timer is not None, "sampled before its first call"
    return candidate.timer


def _usable_bytes() -> int:
    stats = device_memory_stats()
    if "bytes_limit" in stats:
        free = stats["bytes_limit"] - stats.get("bytes_in_use", 0)
    else:
        free = psutil.virtual_memory().available
    return int(free * _USABLE_MEMORY)


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
