"""A suite: what a repository declares to be measured, loaded from the file it names.

The file is named in the repository's `pyproject.toml`::

    [tool.layerbench]
    workloads = "benchmarks/workloads.py"
    results = "results"

It is loaded by its path, so no package around it is imported, and holds one object `SUITE`.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
import tomllib
from typing import TYPE_CHECKING, Any

from layerbench.errors import LayerbenchError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from layerbench.cell import Cell, Matrix
    from layerbench.workload import Workload

MODULE_NAME = "layerbench_suite"


@dataclasses.dataclass(frozen=True, slots=True)
class Suite:
    """What can be measured.

    Attributes:
        models: Names of presets; a model may also be a folder, if `check` accepts it.
        layouts: Names, the reference first.
        phases: Names.
        default: The matrix of a comparison when nothing is asked for.
        check: Raises `ValueError` or `UsageError`, in one line, for a cell that cannot be built.
        build: Makes the workload of a cell; called in the process that measures.
    """

    models: Sequence[str]
    layouts: Sequence[str]
    phases: Sequence[str]
    default: Matrix
    check: Callable[[Cell], None]
    build: Callable[[Cell], Workload]

    def validate(self, cell: Cell) -> None:
        """Checks the cell's names and then the cell itself.

        Raises:
            UsageError: One line that says what is wrong and what there is.
        """
        for kind, name, known in (
            ("phase", cell.phase, self.phases),
            ("layout", cell.layout, self.layouts),
        ):
            if name not in known:
                raise UsageError(f"unknown {kind} '{name}': choose from {', '.join(known)}")
        try:
            self.check(cell)
        except LayerbenchError:
            raise
        except ValueError as error:
            raise UsageError(" ".join(str(error).split())) from error


@dataclasses.dataclass(frozen=True, slots=True)
class Project:
    """The settings of a repository that has a suite.

    Attributes:
        root: The folder of its `pyproject.toml`.
        workloads: The file that holds the suite.
        results: The folder of its results.
    """

    root: Path
    workloads: Path
    results: Path


def find_project(start: Path) -> Project:
    """The nearest `pyproject.toml` at or above `start` that has a `[tool.layerbench]` table.

    Raises:
        UsageError: There is none, or its table names no workloads.
    """
    start = start.resolve()
    for folder in (start, *start.parents):
        settings = _tool_table(folder / "pyproject.toml")
        if settings is None:
            continue
        if not isinstance(settings.get("workloads"), str):
            raise UsageError(
                f"[tool.layerbench] in {folder / 'pyproject.toml'} names no workloads file"
            )
        return Project(
            root=folder,
            workloads=folder / settings["workloads"],
            results=folder / str(settings.get("results", "results")),
        )
    raise UsageError(
        f"no pyproject.toml with a [tool.layerbench] table at or above {start}: run the command "
        'inside a repository that has one, such as workloads = "benchmarks/workloads.py"'
    )


def load_suite(workloads: Path) -> Suite:
    """Imports the file and returns its `SUITE`.

    Raises:
        UsageError: The file is missing, fails to import or holds no suite.
    """
    specification = importlib.util.spec_from_file_location(MODULE_NAME, workloads)
    if specification is None or specification.loader is None or not workloads.is_file():
        raise UsageError(f"the workloads file {workloads} does not exist or is no Python file")
    module = importlib.util.module_from_spec(specification)
    # Dataclasses and pickles defined in the file look their module up by name.
    sys.modules[MODULE_NAME] = module
    try:
        specification.loader.exec_module(module)
    except Exception as error:
        del sys.modules[MODULE_NAME]
        raise UsageError(
            f"{workloads} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    suite = getattr(module, "SUITE", None)
    if not isinstance(suite, Suite):
        raise UsageError(f"{workloads} holds no SUITE of type layerbench.Suite")
    return suite


def _tool_table(path: Path) -> dict[str, Any] | None:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {}).get("layerbench")
    except OSError:
        return None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from error
    return table if isinstance(table, dict) else None
