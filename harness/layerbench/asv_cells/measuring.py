"""Measures one cell in the process that asv started, and adds its record to the stored runs."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from layerbench.asv_cells.asv_run import current_run
from layerbench.environment import Environment, Source, capture_environment
from layerbench.errors import LayerbenchError, StoreError
from layerbench.record import Record, Run
from layerbench.store.places import Place, choose_place, machine_name
from layerbench.store.runs import load_run, run_path, save_run
from layerbench.suite import find_project, load_suite
from layerbench.targets import parse_target

if TYPE_CHECKING:
    from pathlib import Path

    from layerbench.asv_cells.asv_run import AsvRun
    from layerbench.cell import Cell
    from layerbench.measure.timing.sampling import SamplingPlan
    from layerbench.suite import Project


class CellMeasurement:
    """Measures a cell of the suite that a folder belongs to.

    Args:
        cell: What is measured.
        folder: A folder of the repository that declares the suite.
        plan: For the sampling.

    Raises:
        MeasurementError: The harness was edited since asv was started.
        UsageError: The folder belongs to no repository with a suite.
    """

    def __init__(self, cell: Cell, folder: Path, plan: SamplingPlan) -> None:
        self._cell = cell
        self._plan = plan
        self._project: Project = find_project(folder)
        self._machine = machine_name(self._project)
        self._run: AsvRun = current_run(self._project.workloads)
        self._environment: Environment | None = None

    def measure(self) -> Record:
        """The cell's record; whatever the cell does is its result."""
        if "jax" in sys.modules:
            return Record.failure(
                self._cell,
                "jax was imported before its target was chosen: the suite's modules must not import "
                'it, and asv must start its processes anew ("launch_method": "spawn")',
            )
        target = parse_target(self._cell.target, self._cell.mesh)
        os.environ.update(target.process_environment(os.environ))
        # jax reads its environment once, when it is imported.
        from layerbench.measure.session import describe_failure, measure_group  # noqa: PLC0415

        try:
            suite = load_suite(self._project.workloads)
            self._environment = capture_environment(self._machine)
            (record,) = measure_group([self._cell], suite, self._plan)
        except Exception as error:  # noqa: BLE001 - a broken suite is the result of each of its cells
            reason = str(error) if isinstance(error, LayerbenchError) else describe_failure(error)
            record = Record.failure(self._cell, reason)
        current_run(self._project.workloads)  # An edit during the measurement counts as well.
        return record

    def keep(self, record: Record) -> None:
        """Adds the record to the run that is stored for this asv command and commit.

        A quick look (`--quick`, `--dry-run`) leaves nothing behind. A folder that cannot be written
        to is told and passed over: asv still has the values.
        """
        if not self._run.keeps_results or self._plan.max_samples == 1:
            return
        source = Source(commit=self._run.commit)
        place = choose_place(self._project, source, machine=self._machine, results=None)
        if place is None:
            return
        try:
            save_run(self._extended_run(place, source, record), place)
        except StoreError as error:
            line = f"layerbench: the record of {record.cell.id} is not kept: {error}"
            print(line, file=sys.stderr)  # noqa: T201 - asv shows what its processes print

    def _extended_run(self, place: Place, source: Source, record: Record) -> Run:
        path = run_path(place, self._run.id)
        earlier = load_run(path) if path.exists() else None
        environments = dict(earlier.environments) if earlier else {}
        if self._environment is not None:
            environments.setdefault(self._cell.target, self._environment)
        return Run(
            id=self._run.id,
            command=self._run.command,
            source=source,
            harness_digest=self._run.harness_digest,
            environments=environments,
            records=[*(earlier.records if earlier else ()), record],
        )
