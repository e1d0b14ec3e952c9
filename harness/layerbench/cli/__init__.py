"""The command line: a module for each command, which never call each other."""

from layerbench.cli.app import main

__all__ = ["main"]
