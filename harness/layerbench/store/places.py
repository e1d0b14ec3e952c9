"""Which folder results belong to: the machine's name and the rule for where runs are stored."""

from __future__ import annotations

import dataclasses
import os
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from layerbench.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from layerbench.environment import Source
    from layerbench.suite import Project

MACHINE_VARIABLE = "LAYERBENCH_MACHINE"
UNNAMED = "unnamed"
"""Folder of the runs of a machine that has no name."""
LOCAL = "local"
"""Folder, ignored by git, of runs that are not part of the shared history."""
NOWHERE = "-"
"""What `--results` is given to store nothing."""

# Names become folders on every system; a leading dot would hide one.
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where the runs of one machine are stored.

    Attributes:
        results: The results folder.
        machine: The machine's folder in it.
    """

    results: Path
    machine: str

    @property
    def records(self) -> Path:
        """The folder of the runs."""
        return self.results / "records" / self.machine

    def comparison(self, run_id: str) -> Path:
        """The folder of a comparison's page, plots and tables; all can be made again."""
        return self.results / "compare" / run_id


def machine_name(project: Project, environ: Mapping[str, str] = os.environ) -> str:
    """The machine's name from configuration, never guessed; empty where there is none.

    `LAYERBENCH_MACHINE` wins over `machine` in the `[tool.layerbench]` table.

    Raises:
        UsageError: The name cannot be a folder's.
    """
    name = environ.get(MACHINE_VARIABLE, "") or _configured(project.root / "pyproject.toml")
    if name and not NAME.fullmatch(name):
        message = (
            f"the machine name '{name}' cannot name a folder: use letters, digits, '.', '_' and "
            f"'-' in {MACHINE_VARIABLE} or in [tool.layerbench]"
        )
        raise UsageError(message)
    return name


def choose_place(
    project: Project, source: Source, *, machine: str, results: str | None
) -> Place | None:
    """Where a comparison's run is stored.

    Without `results`, a run joins the project's results only if it can be told which machine and
    which commit it is of; any other one goes to the folder that git ignores.

    Args:
        project: Gives the default folder.
        source: What is measured.
        machine: The machine's name, or empty.
        results: A folder, `-` for nowhere, or None for the default.
    """
    if results == NOWHERE:
        return None
    folder = machine or UNNAMED
    if results is not None:
        return Place(results=Path(results), machine=folder)
    attributable = bool(machine and source.commit and not source.dirty)
    return Place(
        results=project.results if attributable else project.results / LOCAL, machine=folder
    )


def _configured(pyproject: Path) -> str:
    try:
        settings = tomllib.loads(pyproject.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""  # Whoever found the project has read the file; it is not this part's to judge.
    name = settings.get("tool", {}).get("layerbench", {}).get("machine", "")
    if not isinstance(name, str):
        message = f"machine in [tool.layerbench] of {pyproject} must be a string"
        raise UsageError(message)
    return name
