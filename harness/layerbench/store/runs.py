"""Runs as files: `<results>/records/<machine>/<run id>.json`, one run each."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import secrets
from typing import TYPE_CHECKING, Any

from layerbench.errors import StoreError
from layerbench.record import Run
from layerbench.store.files import encode_json, read_json, write_text
from layerbench.store.places import NAME, UNNAMED, Place

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclasses.dataclass(frozen=True, slots=True)
class Problem:
    """A file that could not be taken, and why, in one line."""

    path: Path
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


def new_run_id(now: dt.datetime | None = None) -> str:
    """Starting time and a random suffix: sorts by time, and two at once do not collide."""
    moment = now or dt.datetime.now(tz=dt.UTC)
    return f"{moment:%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"


def run_machine(run: Run) -> str:
    """The folder that a run belongs to by its own word."""
    names = {environment.machine for environment in run.environments.values()} - {""}
    name = names.pop() if len(names) == 1 else UNNAMED
    return name if NAME.fullmatch(name) else UNNAMED


def run_path(place: Place, run_id: str) -> Path:
    """The run's file.

    Raises:
        StoreError: The id cannot be a file's name.
    """
    if not NAME.fullmatch(run_id):
        message = f"the run id '{run_id}' cannot name a file"
        raise StoreError(message)
    return place.records / f"{run_id}.json"


def save_run(run: Run, place: Place) -> Path:
    """Writes the run, in place of an earlier state of the same run.

    Raises:
        StoreError: It cannot be written; what was stored is untouched.
    """
    path = run_path(place, run.id)
    write_text(path, encode_run(run))
    return path


def encode_run(run: Run) -> str:
    """The run's file: strict JSON with a line for each record, so that it is small and diffs well."""
    document = run.as_dict()
    records = [encode_json(each, compact=True).rstrip() for each in document.pop("records")]
    head = encode_json(document, compact=True).rstrip().removesuffix("}")
    return head + ',"records":[\n' + ",\n".join(records) + "\n]}\n"


class Added(enum.Enum):
    """What became of a run that was offered."""

    STORED = "stored"
    ALREADY_THERE = "already there"


def add_run(run: Run, text: str, place: Place) -> Added:
    """Takes a run from elsewhere, as it is written; a run that is there already is not doubled.

    A run is saved after each record, so the file of a run may hold an earlier state of it: the
    state with more records wins.

    Args:
        run: The run.
        text: Its file's content, kept as it is, with whatever a later version wrote beside.
        place: Where it belongs.

    Raises:
        StoreError: Another run has the same id, or the run cannot be written.
    """
    path = run_path(place, run.id)
    if path.exists():
        stored = load_run(path)
        if _continues(stored, run):
            return Added.ALREADY_THERE
        if not _continues(run, stored):
            message = f"another run has the same id, in {path}"
            raise StoreError(message)
    write_text(path, text)
    return Added.STORED


def load_run(path: Path) -> Run:
    """One run.

    Raises:
        StoreError: The file is not a readable run; the message leaves the path out.
    """
    return run_from_document(read_json(path))


def run_from_document(document: Any) -> Run:
    """A run from decoded JSON.

    Raises:
        StoreError: It is not one, or is of a newer schema.
    """
    if not isinstance(document, dict):
        message = f"not a layerbench run: a JSON {_json_type(document)}, not an object"
        raise StoreError(message)
    run = Run.from_dict(document)
    if not NAME.fullmatch(str(run.id)):
        message = f"a damaged run: its id {run.id!r} cannot name a file"
        raise StoreError(message)
    return run


def load_runs(folder: Path) -> tuple[list[Run], list[Problem]]:
    """All runs of a results folder, and a line for each file that is none.

    Args:
        folder: A results folder, or any folder that holds runs directly or in folders.

    Returns:
        The runs, oldest id first, and the problems by path. A run found twice counts once.
    """
    runs: dict[str, Run] = {}
    problems: list[Problem] = []
    for path in run_files(folder):
        try:
            run = load_run(path)
        except StoreError as error:
            problems.append(Problem(path, str(error)))
            continue
        other = runs.get(run.id)
        if other is not None and other != run:
            problems.append(Problem(path, f"another run has the same id {run.id}"))
            continue
        runs[run.id] = run
    return [runs[run_id] for run_id in sorted(runs)], problems


def run_files(folder: Path) -> Iterator[Path]:
    """The files of a results folder that should be runs, sorted by path."""
    records = folder / "records"
    root = records if records.is_dir() else folder
    for path in sorted(root.rglob("*.json")):
        if not any(part.startswith(".") for part in path.relative_to(root).parts):
            yield path


def _continues(later: Run, earlier: Run) -> bool:
    """Whether `later` is `earlier` with records, or what came with them, added."""
    same = dataclasses.replace(earlier, records=later.records, environments=later.environments)
    return (
        same == later
        and list(later.records[: len(earlier.records)]) == list(earlier.records)
        and earlier.environments.items() <= later.environments.items()
    )


def _json_type(document: Any) -> str:
    names = {list: "array", str: "string", bool: "boolean", type(None): "null"}
    return names.get(type(document), "number")
