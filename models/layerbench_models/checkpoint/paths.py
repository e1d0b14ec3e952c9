"""A parameter's path as strings: the one place where keys of any kind become names.

Trees spell one path in many ways: plain strings and integers (`nnx.to_flat_state`), or key objects
(`jax.tree.leaves_with_path`). A rule that compares a string with a key object is never met, and
what it was to change or to refuse passes by in silence. So every rule of this package works on what
`path_strings` returns, and a key that it does not know is an error.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterable

from jax.tree_util import DictKey, FlattenedIndexKey, GetAttrKey, SequenceKey

VARIABLE_VALUE = "value"
"""The attribute through which a tree path enters an NNX variable; no part of the name."""


def path_strings(path: Iterable[object]) -> tuple[str, ...]:
    """Returns a parameter's path as strings, whatever its keys are.

    Args:
        path: The path of a parameter as any of the libraries writes it.

    Raises:
        TypeError: If a key is of an unknown kind, so that no rule could be meant for it.
    """
    keys = tuple(path)
    if keys and isinstance(keys[-1], GetAttrKey) and keys[-1].name == VARIABLE_VALUE:
        keys = keys[:-1]
    return tuple(_string(key) for key in keys)


def dotted(path: Iterable[object]) -> str:
    """Returns a parameter's path as one name, such as `stack.layers.3.attention.q`."""
    return ".".join(path_strings(path))


def _string(key: object) -> str:
    match key:
        case str():
            return key
        case DictKey(key=inner) | FlattenedIndexKey(key=inner):
            return _string(inner)
        case GetAttrKey(name=name):
            return name
        case SequenceKey(idx=index):
            return str(index)
        case numbers.Integral() if not isinstance(key, bool):
            return str(int(key))
    raise TypeError(
        f"a parameter's path holds {key!r}, a key of type {type(key).__name__}: "
        "teach path_strings what its name is"
    )
