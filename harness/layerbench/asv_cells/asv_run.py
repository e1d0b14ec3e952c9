"""One asv command, as the processes that it starts know it.

asv starts a process for each benchmark and parameter set, and hands none of them a name of the
command they belong to. They have one thing in common: the process that started them. The first of
them writes down which harness it found, beside asv's environments; the others hold theirs against
it, also those of another commit and another class.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import hashlib
import json
import os
import shlex
import tempfile
from pathlib import Path
from typing import Any

import psutil

from layerbench.digest import ruler_digest
from layerbench.errors import MeasurementError

_PREFIX = "layerbench-run-"
# Two processes with one id within this time are one: ids are not given anew so fast, and a clock
# that is set while asv runs must not look like another asv.
_SAME_PROCESS_S = 300.0


@dataclasses.dataclass(frozen=True, slots=True)
class AsvRun:
    """A running asv command.

    Attributes:
        started_at: When asv was started, in UTC.
        command: Its command line, without the folders of its program.
        harness_digest: Content digest of the harness, the same for all its measurements.
        commit: The commit that is installed in this process's environment; empty where asv does
            not say (an environment of the type `existing`).
        environment: asv's name of that environment; empty likewise.
    """

    started_at: dt.datetime
    command: str
    harness_digest: str
    commit: str
    environment: str

    @property
    def id(self) -> str:
        """Names the stored run: one for each command, commit and environment."""
        text = f"{self.started_at.timestamp()} {self.command} {self.commit} {self.environment}"
        suffix = hashlib.sha256(text.encode()).hexdigest()[:8]
        return f"{self.started_at:%Y%m%dT%H%M%SZ}-{suffix}"

    @property
    def keeps_results(self) -> bool:
        """Whether asv itself stores what this command measures."""
        arguments = shlex.split(self.command)
        return bool(self.environment) and not {"--dry-run", "-n"} & set(arguments)


def current_run(workloads: Path) -> AsvRun:
    """The asv command that this process belongs to.

    Args:
        workloads: The file that says what is measured; a part of the ruler.

    Raises:
        MeasurementError: The harness is not the one that the command began with.
    """
    parent = psutil.Process(os.getppid())
    digest = ruler_digest(workloads)
    folder = _folder()
    path = folder / f"{_PREFIX}{parent.pid}.json"
    known = _read(path)
    if known is None or abs(known["started"] - parent.create_time()) > _SAME_PROCESS_S:
        _remove_finished(folder)
        known = {"started": parent.create_time(), "harness_digest": digest}
        _write(path, known)
    if digest != known["harness_digest"]:
        raise MeasurementError(
            "the harness or the workloads were edited while asv ran, so its numbers would be of two rulers: what was "
            "measured before is stored; start asv again"
        )
    return AsvRun(
        started_at=dt.datetime.fromtimestamp(known["started"], dt.UTC),
        command=_command(parent),
        harness_digest=digest,
        commit=os.environ.get("ASV_COMMIT", ""),
        environment=os.environ.get("ASV_ENV_NAME", ""),
    )


def _folder() -> Path:
    """Common to all environments of a run; asv does not tell it for a foreign environment."""
    environment = os.environ.get("ASV_ENV_DIR")
    return Path(environment).parent if environment else Path(tempfile.gettempdir())


def _command(process: psutil.Process) -> str:
    words = process.cmdline()
    # `python .../bin/asv run` and `python -m asv run` alike; where asv lies is nobody's business.
    for index, word in enumerate(words):
        if Path(word).name in ("asv", "asv.exe") or Path(word).parts[-2:] == ("asv", "__main__.py"):
            return shlex.join(["asv", *words[index + 1 :]])
    return shlex.join([Path(word).name for word in words[:1]] + words[1:])


def _read(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) and "started" in content else None


def _write(path: Path, content: dict[str, Any]) -> None:
    partial = path.with_suffix(f".{os.getpid()}.tmp")
    partial.write_text(json.dumps(content), encoding="utf-8")
    partial.replace(path)


def _remove_finished(folder: Path) -> None:
    for path in folder.glob(f"{_PREFIX}*.json"):
        pid = path.stem.removeprefix(_PREFIX)
        if pid.isdecimal() and not psutil.pid_exists(int(pid)):
            path.unlink(missing_ok=True)
