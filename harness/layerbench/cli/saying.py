"""The form of every line that a command says beside its data."""

from __future__ import annotations

import typer


def say(line: str) -> None:
    """Says something on stderr, in one line."""
    typer.echo(f"layerbench: {' '.join(line.split())}", err=True)
