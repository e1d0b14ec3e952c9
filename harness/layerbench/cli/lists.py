"""Options that take several values, separated by commas."""

from __future__ import annotations

from layerbench.errors import UsageError


def names(option: str, text: str | None) -> tuple[str, ...] | None:
    """The names in an option's text, each once; None where the option was not given.

    Raises:
        UsageError: A name is empty.
    """
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        message = f"{option} wants names separated by commas, not '{text}'"
        raise UsageError(message)
    return tuple(dict.fromkeys(parts))


def counts(option: str, text: str | None) -> tuple[int, ...] | None:
    """As `names`, for whole numbers of at least 1."""
    parts = names(option, text)
    if parts is None:
        return None
    # isdecimal alone accepts digits of every script.
    if not all(part.isascii() and part.isdecimal() and int(part) >= 1 for part in parts):
        message = f"{option} wants whole numbers of at least 1 separated by commas, not '{text}'"
        raise UsageError(message)
    return tuple(dict.fromkeys(int(part) for part in parts))
