"""A worker process for each target, and what happens when one dies.

The parent never imports jax: it starts the workers, hands them groups of cells and passes on what
they tell. A worker that dies takes only the cell with it that it was busy with; that cell becomes a
failed record with the reason, and the rest goes on in a new worker.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
from typing import IO, TYPE_CHECKING, Any, Self

from layerbench.cell import Cell, group_cells
from layerbench.digest import ruler_digest
from layerbench.errors import LayerbenchError, MeasurementError, UsageError
from layerbench.measure.events import (
    Event,
    Progress,
    SuiteDescription,
    decode,
    decode_description,
)
from layerbench.record import Record
from layerbench.targets import parse_target

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from layerbench.measure.timing.sampling import SamplingPlan
    from layerbench.suite import Project

_STDERR_TAIL_BYTES = 4000


class Workers:
    """Measures cells in worker processes; leaving the context ends them all.

    Args:
        project: Where the workloads are.
        machine: Name of this machine from configuration, or empty.
        digest: Gives the content digest of harness and workloads as they are now; read from the
            files when it is not given.

    Attributes:
        harness_digest: The digest that all measurements of these workers belong to.
    """

    def __init__(
        self,
        project: Project,
        machine: str = "",
        *,
        digest: Callable[[], str] | None = None,
    ) -> None:
        self._project = project
        self._machine = machine
        self._workers: dict[tuple[str, str], _Worker] = {}
        self._digest = digest or (lambda: ruler_digest(project.workloads))
        self.harness_digest = self._digest()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers.values():
            worker.kill()
        self._workers.clear()

    def describe(self, target: str = "cpu") -> SuiteDescription:
        """What the suite offers.

        Raises:
            UsageError: The suite cannot be loaded, or the target has no device here.
        """
        (answer,) = self._worker(target, "").request({"op": "describe"})
        return decode_description(answer)

    def validate(self, cells: Sequence[Cell]) -> None:
        """Checks every cell without building it.

        Raises:
            UsageError: One line for the first cell that cannot be measured.
        """
        for (target, mesh), members in _by_process(cells).items():
            worker = self._worker(target, mesh)
            list(worker.request({"op": "validate", "cells": [each.as_dict() for each in members]}))

    def measure(self, cells: Sequence[Cell], plan: SamplingPlan) -> Iterator[Event]:
        """Measures all cells, group by group.

        Args:
            cells: In any order; groups are taken in order of appearance.
            plan: For the sampling of each group.

        Yields:
            Progress, environments and records as they come; one record for each cell.

        Raises:
            MeasurementError: The harness was edited meanwhile, so that its numbers are of two
                rulers.
        """
        for group in group_cells(cells):
            remaining = group
            while remaining:
                self._refuse_changed_harness()
                remaining = yield from self._measure_once(remaining, plan)
        self._refuse_changed_harness()

    def _measure_once(
        self, cells: Sequence[Cell], plan: SamplingPlan
    ) -> Generator[Event, None, list[Cell]]:
        """One attempt; returns the cells that are left over after a worker's death."""
        first = cells[0]
        worker = self._worker(first.target, first.mesh)
        request = {
            "op": "measure",
            "target": first.target,
            "cells": [cell.as_dict() for cell in cells],
            "plan": dataclasses.asdict(plan),
        }
        left = list(cells)
        busy = first
        try:
            for message in worker.request(request):
                event = decode(message)
                if isinstance(event, Progress):
                    busy = event.cell
                elif isinstance(event, Record):
                    left.remove(event.cell)
                yield event
        except _WorkerDiedError as death:
            del self._workers[first.target, first.mesh]
            culprit = busy if busy in left else left[0]
            left.remove(culprit)
            yield Record.failure(culprit, str(death))
        return left

    def _worker(self, target: str, mesh: str) -> _Worker:
        key = (target, mesh)
        if key not in self._workers:
            parsed = parse_target(target, mesh)
            parsed.require_compiler()
            environment = parsed.process_environment(os.environ)
            self._workers[key] = _Worker(self._project, self._machine, environment)
        return self._workers[key]

    def _refuse_changed_harness(self) -> None:
        if self._digest() != self.harness_digest:
            raise MeasurementError(
                "the harness or the workloads were edited while they measured, so its numbers are of two rulers: "
                "what was measured before is stored; start the command again"
            )


class _WorkerDiedError(MeasurementError):
    """The process ended before it had answered; the text says how."""


class _Worker:
    """A process that answers one request at a time."""

    def __init__(self, project: Project, machine: str, environment: dict[str, str]) -> None:
        debug = bool(environment.get("LAYERBENCH_DEBUG"))
        self._stderr: IO[bytes] | None = (
            None if debug else tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        )
        self._process = subprocess.Popen(
            [
                sys.executable, "-m", "layerbench.measure.worker",
                str(project.workloads), machine,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            cwd=project.root,
            env=environment,
            text=True,
            # An interrupt is the command's to handle; it ends its workers when it leaves.
            start_new_session=True,
        )  # fmt: skip

    def request(self, message: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Sends a request and passes on the answers until it is done.

        Raises:
            LayerbenchError: The worker refused, with its exit code.
            _WorkerDiedError: The process ended in the middle.
        """
        process = self._process
        if process.stdin is None or process.stdout is None:
            raise AssertionError("the worker's pipes are made with it")
        try:
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            raise _WorkerDiedError(self._death()) from None
        for line in process.stdout:
            answer = json.loads(line)
            if answer["event"] == "done":
                return
            if answer["event"] == "error":
                error = (
                    UsageError if answer["exit_code"] == UsageError.exit_code else LayerbenchError
                )
                raise error(answer["message"])
            yield answer
        raise _WorkerDiedError(self._death())

    def kill(self) -> None:
        """Ends the process and whatever it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._stderr):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def _death(self) -> str:
        code = self._process.wait()
        if code < 0:
            name = signal.Signals(-code).name
            hint = " (is there enough memory?)" if name == "SIGKILL" else ""
            how = f"the worker was ended by {name}{hint}"
        else:
            how = f"the worker ended with exit code {code}"
        last_line = self._last_line_of_stderr()
        self.kill()
        return f"{how}; its last words: {last_line}" if last_line else how

    def _last_line_of_stderr(self) -> str:
        if self._stderr is None:
            return ""
        size = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, size - _STDERR_TAIL_BYTES))
        lines = self._stderr.read().decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")[:300]


def _by_process(cells: Sequence[Cell]) -> dict[tuple[str, str], list[Cell]]:
    processes: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        processes.setdefault((cell.target, cell.mesh), []).append(cell)
    return processes
