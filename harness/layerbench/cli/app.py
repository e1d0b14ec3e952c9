"""The application and its one boundary: every error becomes one line and an exit code here."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, cast

import typer

import layerbench
from layerbench.cli import compare, merge, show
from layerbench.cli.measuring import Invocation
from layerbench.cli.saying import say
from layerbench.errors import LayerbenchError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from layerbench.cli.measuring import WorkersFactory

DEBUG_VARIABLE = "LAYERBENCH_DEBUG"
INTERRUPTED = 130
BROKEN_PIPE = 141  # 128 + SIGPIPE, as a shell would report it

# typer has its usage errors from click, or from a copy of click inside it since click is no longer
# a dependency; the base of an exception that it has always exported is the right one in both.
_TYPER_USAGE_ERROR = cast("type[Exception]", typer.BadParameter.__bases__[0])

app = typer.Typer(
    name="layerbench",
    add_completion=False,
    pretty_exceptions_enable=False,  # an error is one line, and a traceback never shows locals
    rich_markup_mode=None,  # plain help: fast, and the same in a pipe
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
compare.register(app)
merge.register(app)
show.register(app)


def _show_version(*, on: bool) -> None:
    if on:
        typer.echo(f"layerbench {layerbench.__version__}")
        raise typer.Exit


@app.callback(epilog="\b\nExample:\n  layerbench compare --phase decode_step --layers 2,16\n")
def _root(
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Show the version and exit.",
            is_eager=True,
            callback=lambda on: _show_version(on=on),
        ),
    ] = False,
) -> None:
    """Which layer layout of a JAX model is fastest here, and what made it slower?"""


def main(arguments: Sequence[str] | None = None, *, workers: WorkersFactory | None = None) -> int:
    """Runs a command.

    Args:
        arguments: Of the command line; those of the process by default.
        workers: What measures; the worker processes of `layerbench.measure` by default.

    Returns:
        The exit code: 0, 4 where a measurement failed, 2 for wrong usage, 130 after an interrupt.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # not so where a test has put its own
            # A terminal that cannot show a sign gets a question mark, not a failed command.
            stream.reconfigure(errors="replace")
    if threading.current_thread() is threading.main_thread():
        # `timeout` and CI ask with SIGTERM: as orderly an end as with Ctrl-C, workers included.
        signal.signal(signal.SIGTERM, _interrupt)
    given = tuple(sys.argv[1:] if arguments is None else arguments)
    try:
        code = typer.main.get_command(app).main(
            given,
            prog_name="layerbench",
            standalone_mode=False,
            obj=Invocation(arguments=given, make_workers=workers),
        )
        if code == INTERRUPTED:  # typer's own word for a KeyboardInterrupt
            say("interrupted")
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit):
        # Whoever read the output has gone, as `head` does; typer exits with 1 then, which is ours
        # for "slower". The interpreter flushes once more when it ends, which must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the boundary
        if os.environ.get(DEBUG_VARIABLE):
            traceback.print_exception(error)
        line, code = _outcome(error)
        say(line)
    return int(code or 0)


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _outcome(error: BaseException) -> tuple[str, int]:
    """The one line that is said of an error, and the exit code."""
    if isinstance(error, LayerbenchError):
        return str(error), error.exit_code
    if isinstance(error, _TYPER_USAGE_ERROR):
        return _usage_line(error), UsageError.exit_code
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return "interrupted", INTERRUPTED
    line = (
        f"unexpected {type(error).__name__}: {error}: this is a bug in layerbench; "
        f"{DEBUG_VARIABLE}=1 shows where, CONTRIBUTING.md how to report it"
    )
    return line, LayerbenchError.exit_code


def _usage_line(error: Any) -> str:
    text = str(error.format_message()).rstrip(".")
    path = error.ctx.command_path if error.ctx is not None else "layerbench"
    return f"{text[:1].lower()}{text[1:]}: see {path} --help"
