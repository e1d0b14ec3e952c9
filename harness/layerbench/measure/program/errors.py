"""What can go wrong with the text of a program."""

from __future__ import annotations

from layerbench.errors import MeasurementError


class ProgramError(MeasurementError):
    """The text of a compiled program cannot be read, or contradicts itself."""
