"""What a command needs of the measuring side, as an interface that tests can stand in for."""

from __future__ import annotations

import dataclasses
import shlex
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from layerbench.cell import Cell
    from layerbench.measure.events import Event, SuiteDescription
    from layerbench.measure.timing.sampling import SamplingPlan
    from layerbench.suite import Project


class WorkersLike(Protocol):
    """The part of `layerbench.measure.workers.Workers` that commands use."""

    harness_digest: str

    def __enter__(self) -> Self:
        """Starts nothing yet."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        """Ends all processes."""

    def describe(self, target: str = "cpu") -> SuiteDescription:
        """What the suite offers."""

    def validate(self, cells: Sequence[Cell]) -> None:
        """Raises `UsageError` for a cell that cannot be measured."""

    def measure(self, cells: Sequence[Cell], plan: SamplingPlan) -> Iterator[Event]:
        """Measures the cells; one record for each."""


class WorkersFactory(Protocol):
    """Makes workers for a project on a machine."""

    def __call__(self, project: Project, machine: str = "") -> WorkersLike:
        """The workers, not yet started."""


@dataclasses.dataclass(frozen=True, slots=True)
class Invocation:
    """What `main` hands to a command.

    Attributes:
        arguments: Of the command line.
        make_workers: What measures, or None for the worker processes.
    """

    arguments: tuple[str, ...]
    make_workers: WorkersFactory | None = None

    @property
    def command(self) -> str:
        """The command line, ready to be pasted."""
        return shlex.join(["layerbench", *self.arguments])

    @property
    def workers(self) -> WorkersFactory:
        """What measures."""
        return self.make_workers or _default_workers()


def _default_workers() -> WorkersFactory:
    """The real ones; imported when something is measured, so that `--help` is quick."""
    from layerbench.measure.workers import Workers  # noqa: PLC0415

    return Workers
