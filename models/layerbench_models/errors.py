"""The errors of this package: `ValueError`s whose one line says what to do."""

from __future__ import annotations

from collections.abc import Iterable


class ModelError(ValueError):
    """Base of every error that this package raises on bad input."""


class ConfigError(ModelError):
    """A model's configuration cannot be read, or describes a model that is not supported."""


class LayoutError(ModelError):
    """A layout's fields do not fit together, or do not fit the model, the batch or the mesh."""


class UnknownNameError(ModelError):
    """No preset, layout or phase has the given name."""

    def __init__(self, kind: str, name: object, known: Iterable[str], *, hint: str = "") -> None:
        """Says which `kind` of name is unknown and lists the `known` ones.

        Args:
            kind: What is named, such as "preset".
            name: The name that was given.
            known: The names that exist.
            hint: What else would be accepted, in a few words.
        """
        listed = ", ".join(known)
        super().__init__(f"unknown {kind} {str(name)!r}: choose one of {listed}{hint}")


class ParameterError(ModelError):
    """Parameters were given in another form than the called phase runs on."""


class BackendError(ModelError):
    """The chosen attention implementation does not exist on the backend."""
