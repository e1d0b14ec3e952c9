"""`layerbench compare`: measures layouts side by side and says which is fastest."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

import typer

from layerbench.cli.comparing import SAMPLING_S_PER_CELL, Choice, Request, run_comparison
from layerbench.cli.lists import counts, names
from layerbench.cli.saying import say
from layerbench.errors import MeasurementError, UsageError

if TYPE_CHECKING:
    from layerbench.cli.measuring import Invocation

EXAMPLE = """\b
Examples:
  layerbench compare
  layerbench compare --layout unrolled,stacked-scan --phase decode_step --layers 4,16
  layerbench compare --model qwen3-0.6b --dtype bfloat16 --seq 2048 --json -
"""


def register(app: typer.Typer) -> None:
    """Adds the command to the application."""
    app.command(name="compare", epilog=EXAMPLE)(_command)


def _command(  # noqa: PLR0917 - typer reads the options from the signature
    context: typer.Context,
    model: Annotated[
        str | None,
        typer.Option(metavar="A,B|DIR", help="Presets, or a folder with a config.json."),
    ] = None,
    layout: Annotated[str | None, typer.Option(metavar="A,B", help="Layouts by name.")] = None,
    phase: Annotated[
        str | None,
        typer.Option(metavar="P,Q", help="prefill, train_step, decode_step, generate."),
    ] = None,
    layers: Annotated[str | None, typer.Option(metavar="2,4", help="Depths to measure.")] = None,
    batch: Annotated[int | None, typer.Option(metavar="N", help="Sequences in a batch.")] = None,
    seq: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Tokens of the prompt (prefill, train_step) or slots of the cache (decode_step, "
            "generate).",
        ),
    ] = None,
    new_tokens: Annotated[
        int | None, typer.Option(metavar="N", help="Tokens that generate adds.")
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(metavar="NAME", help="float32, bfloat16, ...")
    ] = None,
    target: Annotated[
        str | None, typer.Option(metavar="T,U", help="Where to run: cpu, gpu, tpu.")
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help=f"Sampling time of all cells together; by default {SAMPLING_S_PER_CELL:g} s for "
            "each. Compiling comes on top.",
        ),
    ] = None,
    mesh: Annotated[
        str | None, typer.Option(metavar="fsdp:2,tp:2", help="Device mesh; one device without.")
    ] = None,
    results: Annotated[
        str | None,
        typer.Option(
            metavar="DIR|-",
            help="Where to store: '-' stores nothing; by default the project's results, or their "
            "folder local/ if the machine has no name or the tree has changes.",
        ),
    ] = None,
    json: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|-",
            help="Writes the cells as one JSON array; with '-' stdout holds nothing else.",
        ),
    ] = None,
) -> None:
    """Measures layer layouts side by side: table, plots, a page, and which one is fastest."""
    choice = Choice(
        models=names("--model", model),
        layouts=names("--layout", layout),
        phases=names("--phase", phase),
        layers=counts("--layers", layers),
        batch=batch,
        seq=seq,
        new_tokens=new_tokens,
        dtype=dtype,
        targets=names("--target", target),
        mesh=mesh,
    )
    if budget is not None and not (math.isfinite(budget) and budget > 0):
        message = f"--budget wants seconds, more than 0, not {budget:g}"
        raise UsageError(message)
    invocation: Invocation = context.obj
    request = Request(
        choice=choice,
        budget_s=budget,
        results=results,
        json_file=json,
        command=invocation.command,
    )
    failed = run_comparison(request, invocation.workers)
    if failed:
        first = failed[0]
        more = f" (and {len(failed) - 1} more, see the table)" if len(failed) > 1 else ""
        say(f"{first.cell.id} failed: {first.reason}{more}")
        raise typer.Exit(MeasurementError.exit_code)
