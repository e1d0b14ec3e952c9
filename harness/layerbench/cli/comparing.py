"""The course of a comparison: refuse early, measure, save after each record, report."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerbench.cell import Cell, group_cells
from layerbench.cli.progress import ComparisonProgress
from layerbench.environment import Environment, capture_source
from layerbench.errors import LayerbenchError, UsageError
from layerbench.measure.events import Progress, TargetReady
from layerbench.measure.timing.sampling import SamplingPlan
from layerbench.record import Record, Run, Status
from layerbench.store.files import check_writable
from layerbench.store.places import Place, choose_place, machine_name
from layerbench.store.runs import new_run_id, run_path, save_run
from layerbench.suite import find_project

if TYPE_CHECKING:
    from collections.abc import Sequence

    from layerbench.cell import Matrix
    from layerbench.cli.measuring import WorkersFactory, WorkersLike

SAMPLING_S_PER_CELL = 2.0
"""Default sampling time: the default matrix of 48 cells then ends within 5 minutes on 2 cores."""


class InterruptedComparisonError(LayerbenchError):
    """Ctrl-C in the middle; the text says what is stored where."""

    exit_code = 130


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """Which cells were asked for; None where the suite's default holds."""

    models: tuple[str, ...] | None = None
    layouts: tuple[str, ...] | None = None
    phases: tuple[str, ...] | None = None
    layers: tuple[int, ...] | None = None
    batch: int | None = None
    seq: int | None = None
    new_tokens: int | None = None
    dtype: str | None = None
    targets: tuple[str, ...] | None = None
    mesh: str | None = None

    def with_folders(self, presets: Sequence[str]) -> Choice:
        """The same choice with model folders as absolute paths: workers run in another folder.

        Raises:
            UsageError: Two folders have one name, which is all of them that a cell's id tells.
        """
        if self.models is None:
            return self
        models = tuple(
            model if model in presets or not Path(model).is_dir() else str(Path(model).resolve())
            for model in self.models
        )
        names = [Path(model).name for model in models]
        for name in names:
            if names.count(name) > 1:
                raise UsageError(f"two models are called '{name}': rename one of the folders")
        return dataclasses.replace(self, models=models)

    def cells(self, default: Matrix) -> list[Cell]:
        """The cells of the matrix that comes out."""
        given: dict[str, Any] = {
            field.name: value
            for field in dataclasses.fields(self)
            if (value := getattr(self, field.name)) is not None
        }
        if self.seq is not None:
            given["phase_seq"] = {}  # What is asked for holds for every phase.
        return dataclasses.replace(default, **given).cells()


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """A comparison as it was asked for.

    Attributes:
        choice: The cells.
        budget_s: Sampling time of all cells together, or None for the default.
        results: A folder, `-` for nowhere, or None for the default.
        json_file: A file, `-` for stdout, or None.
        command: The command line, stored with the run.
    """

    choice: Choice
    budget_s: float | None
    results: str | None
    json_file: str | None
    command: str


def run_comparison(request: Request, make_workers: WorkersFactory) -> list[Record]:
    """Measures, stores and reports.

    Returns:
        The records of the cells that failed.

    Raises:
        LayerbenchError: Wrong usage, a folder that cannot be written to, or an interrupt.
    """
    project = find_project(Path.cwd())
    machine = machine_name(project)
    source = capture_source(project.root)
    place = choose_place(project, source, machine=machine, results=request.results)
    # All that can be refused is refused before anything is measured.
    if place is not None:
        check_writable(place.records)
    if request.json_file not in {None, "-"}:
        check_writable(Path(str(request.json_file)).absolute().parent)
    with make_workers(project, machine) as workers:
        run = Run(
            id=new_run_id(),
            command=request.command,
            source=source,
            harness_digest=workers.harness_digest,
            environments={},
            records=(),
        )
        recorder = _Recorder(run, place)
        try:
            _measure(request, workers, recorder)
        except KeyboardInterrupt:
            raise InterruptedComparisonError(recorder.after_interrupt()) from None
    run = recorder.run
    # Not at the top: pandas and matplotlib would be imported before the first measurement.
    from layerbench.cli.delivering import deliver  # noqa: PLC0415

    deliver(run, place=place, json_file=request.json_file)
    return [record for record in run.records if record.status is Status.FAILED]


class _Recorder:
    """Keeps the run and writes it after each record, so that nothing measured is lost."""

    def __init__(self, run: Run, place: Place | None) -> None:
        self.run = run
        self.cell_count = 0
        self._place = place

    def add_environment(self, target: str, environment: Environment) -> None:
        environments = {**self.run.environments, target: environment}
        self.run = dataclasses.replace(self.run, environments=environments)

    def add_record(self, record: Record) -> None:
        self.run = dataclasses.replace(self.run, records=(*self.run.records, record))
        if self._place is not None:
            save_run(self.run, self._place)

    def after_interrupt(self) -> str:
        count = len(self.run.records)
        if not count or self._place is None:
            return "interrupted: nothing was stored"
        path = run_path(self._place, self.run.id)
        return f"interrupted: {count} of {self.cell_count} cells are stored in {path}"


def _measure(request: Request, workers: WorkersLike, recorder: _Recorder) -> None:
    choice = request.choice
    # A process of the target itself can go on to measure; with a mesh it could not, and would only
    # hold the devices' memory.
    target = choice.targets[0] if choice.targets and not choice.mesh else "cpu"
    offer = workers.describe(target)
    cells = choice.with_folders(offer.models).cells(offer.default)
    workers.validate(cells)
    recorder.cell_count = len(cells)
    budget_s = request.budget_s or SAMPLING_S_PER_CELL * len(cells)
    plan = SamplingPlan(budget_s=budget_s / len(group_cells(cells)))
    with ComparisonProgress(cells, budget_s / len(cells)) as progress:
        for event in workers.measure(cells, plan):
            match event:
                case TargetReady():
                    recorder.add_environment(event.target, event.environment)
                case Progress():
                    progress.stage(event.cell, event.stage)
                case Record():
                    recorder.add_record(event)
                    progress.finish(event)
