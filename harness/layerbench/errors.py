"""The errors a user can cause, each one clear line that says what to do."""

from __future__ import annotations


class LayerbenchError(Exception):
    """A failure with one line for the user; commands print it and exit with `exit_code`."""

    exit_code = 4


class UsageError(LayerbenchError):
    """The command, a name or a file it was given is wrong."""

    exit_code = 2


class StoreError(LayerbenchError):
    """A result file or folder cannot be read or written."""

    exit_code = 2


class MeasurementError(LayerbenchError):
    """A cell could not be measured; stored as that cell's result."""


class WrongAnswerError(MeasurementError):
    """A timed program computed something else than it should."""
