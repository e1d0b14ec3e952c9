"""The error of checkpoint files, and how a long list of names becomes one line."""

from __future__ import annotations

from collections.abc import Sequence

from layerbench_models.errors import ModelError

SHOWN_NAMES = 4
"""Names that a message shows of each kind; the error's attributes hold all of them."""


class CheckpointError(ModelError):
    """A checkpoint cannot be read, does not fit the model, or cannot be written.

    Attributes:
        missing: Names of tensors that the model needs and the checkpoint does not have.
        unexpected: Names of tensors that the checkpoint has and the model has no place for.
        misshapen: Names of tensors whose shape or type is not what the model needs.
    """

    def __init__(
        self,
        message: str,
        *,
        missing: Sequence[str] = (),
        unexpected: Sequence[str] = (),
        misshapen: Sequence[str] = (),
    ) -> None:
        super().__init__(message)
        self.missing = tuple(missing)
        self.unexpected = tuple(unexpected)
        self.misshapen = tuple(misshapen)


def listed(names: Sequence[str]) -> str:
    """Returns the first few names, and how many more there are."""
    shown = ", ".join(names[:SHOWN_NAMES])
    rest = len(names) - SHOWN_NAMES
    return f"{shown} and {rest} more" if rest > 0 else shown
