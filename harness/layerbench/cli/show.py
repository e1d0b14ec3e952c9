"""`layerbench show`: one program's bill, where each byte of a step goes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from layerbench.cell import Cell
from layerbench.errors import LayerbenchError, UsageError
from layerbench.report.bill import render_bill
from layerbench.store.files import encode_json, write_text
from layerbench.suite import find_project
from layerbench.targets import parse_target

if TYPE_CHECKING:
    from layerbench.suite import Project

EXAMPLE = """\b
Examples:
  layerbench show qwen3-tiny/decode_step/stacked-scan/L4/B2/S64/float32/cpu
  layerbench show qwen3-small/generate/stacked/L4/B4/S1024/N16/float32/cpu --hlo program.hlo.gz
"""

_SIZES = re.compile(
    r"(?P<model>[^/]+)/(?P<phase>[^/]+)/(?P<layout>[^/]+)/L(?P<layers>\d+)/B(?P<batch>\d+)"
    r"/S(?P<seq>\d+)(?:/N(?P<new_tokens>\d+))?/(?P<dtype>[^/]+)/(?P<target>[^/]+)(?:/(?P<mesh>[^/]+))?"
)
_AXIS = re.compile(r"([a-z]+)(\d+)")


def register(app: typer.Typer) -> None:
    """Adds the command to the application."""
    app.command(name="show", epilog=EXAMPLE)(_command)


def _command(
    cell: Annotated[str, typer.Argument(metavar="CELL", help="A cell's id, as tables name it.")],
    *,
    top: Annotated[
        int, typer.Option(metavar="N", min=1, help="Rows of instructions to show.")
    ] = 15,
    json_file: Annotated[
        str, typer.Option("--json", metavar="FILE|-", help="Write the bill as JSON.")
    ] = "",
    hlo: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Keep the program's text, compressed (.hlo.gz)."),
    ] = None,
) -> None:
    """Shows where each byte of a cell's step goes, the largest first, against the floor."""
    project = find_project(Path.cwd())
    answer = _read(project, cell_of(cell), hlo)
    if json_file:
        text = encode_json(answer)
        if json_file == "-":
            typer.echo(text, nl=False)
            return
        write_text(Path(json_file), text)
    typer.echo(render_bill(answer, top=top), nl=False)


def cell_of(text: str) -> Cell:
    """The cell of an id.

    Raises:
        UsageError: The text has another form.
    """
    match = _SIZES.fullmatch(text)
    if match is None:
        raise UsageError(
            f"'{text}' names no cell: write MODEL/PHASE/LAYOUT/L4/B2/S64/DTYPE/TARGET, and N16 "
            "after S for generate"
        )
    fields: dict[str, Any] = match.groupdict()
    for name in ("layers", "batch", "seq", "new_tokens"):
        fields[name] = int(fields[name] or 0)
    fields["mesh"] = _mesh(fields["mesh"] or "")
    return Cell(**fields)


def _mesh(text: str) -> str:
    axes = []
    for part in text.split("-") if text else ():
        axis = _AXIS.fullmatch(part)
        if axis is None:
            raise UsageError(f"cannot read the mesh '{text}': write axes such as fsdp2-tp2")
        axes.append(f"{axis[1]}:{axis[2]}")
    return ",".join(axes)


def _read(project: Project, cell: Cell, hlo: Path | None) -> dict[str, Any]:
    """Compiles the cell in a process of its own, since a target decides how jax starts."""
    target = parse_target(cell.target, cell.mesh)
    target.require_compiler()
    command = [
        sys.executable,
        "-m",
        "layerbench.measure.program.process",
        str(project.workloads),
        json.dumps(cell.as_dict()),
        "" if hlo is None else str(hlo.resolve()),
    ]
    done = subprocess.run(
        command,
        env=target.process_environment(os.environ),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if not done.stdout:
        raise ShowError(f"the process that compiles ended with {done.returncode} and no answer")
    answer: dict[str, Any] = json.loads(done.stdout)
    if "error" in answer:
        error = ShowError(answer["error"])
        error.exit_code = answer["exit_code"]
        raise error
    return answer


class ShowError(LayerbenchError):
    """The cell could not be compiled or read."""
