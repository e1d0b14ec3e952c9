"""`layerbench merge`: takes runs from elsewhere into a results folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from layerbench.cli.saying import say
from layerbench.errors import StoreError, UsageError
from layerbench.store.files import check_writable, encode_json, read_json
from layerbench.store.places import Place
from layerbench.store.pytest_benchmark import import_pytest_benchmark, is_pytest_benchmark
from layerbench.store.runs import Added, add_run, run_files, run_from_document, run_machine

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

EXAMPLE = """\b
Examples:
  layerbench merge pytest-benchmark.json --results results
  layerbench merge downloaded/results-h200 downloaded/results-v5e --results results
"""


def register(app: typer.Typer) -> None:
    """Adds the command to the application."""
    app.command(name="merge", epilog=EXAMPLE)(_command)


def _command(
    sources: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE|DIR",
            help="Runs, results folders, or JSON of pytest-benchmark (--benchmark-json).",
        ),
    ],
    results: Annotated[
        Path, typer.Option(metavar="DIR", help="The results folder that takes them.")
    ],
) -> None:
    """Takes runs and pytest-benchmark files into a results folder; each run is stored once."""
    check_writable(results)
    taken: list[Added] = []
    for path in _files(sources):
        try:
            taken.append(_take(path, results))
        except StoreError as error:
            say(f"refused {path}: {error}")
    if not taken:
        raise UsageError(
            "nothing could be taken: give run files, results folders or JSON of pytest-benchmark"
        )
    stored = taken.count(Added.STORED)
    there = f", {len(taken) - stored} were there already" if stored < len(taken) else ""
    typer.echo(f"{stored} of {len(taken)} runs stored in {results}{there}")


def _files(sources: Sequence[Path]) -> Iterator[Path]:
    for source in sources:
        if source.is_dir():
            found = list(run_files(source))
            if not found:
                say(f"refused {source}: no runs in this folder")
            yield from found
        else:
            yield source


def _take(path: Path, results: Path) -> Added:
    document = read_json(path)
    if is_pytest_benchmark(document):
        imported = import_pytest_benchmark(document, command=f"pytest --benchmark-json {path.name}")
        for line in imported.left_out:
            say(f"{path}: {line}")
        run = imported.run
        document = run.as_dict()
    else:
        run = run_from_document(document)
    return add_run(run, encode_json(document, compact=True), Place(results, run_machine(run)))
