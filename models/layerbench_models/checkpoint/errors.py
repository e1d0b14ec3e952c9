"""The error of checkpoint files, and how a long list of names becomes one line."""

from __future__ import annotations

from collections.abc import Sequence

from layerbench_models.errors import ModelError

SHOWN_NAMES = 4
"""Names that a message shows of each kind; the error's attributes hold all of them."""
SHOWN_LETTERS = 200
"""Letters that a message shows of a name: any real one in full."""


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
        # A file may hold any names; the message is one line all the same.
        super().__init__("\\n".join(message.splitlines()))
        self.missing = tuple(missing)
        self.unexpected = tuple(unexpected)
        self.misshapen = tuple(misshapen)


def listed(names: Sequence[str]) -> str:
    """Returns the first few names, and how many more there are."""
    shown = ", ".join(
        name if len(name) <= SHOWN_LETTERS else f"{name[:SHOWN_LETTERS]}..."
        for name in names[:SHOWN_NAMES]
    )
    rest = len(names) - SHOWN_NAMES
    return f"{shown} and {rest} more" if rest > 0 else shown
