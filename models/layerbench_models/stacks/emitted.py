"""What layers emitted in a loop: a list with an entry for each, or arrays with a leading axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp


def stacked(emitted: Any) -> Any:
    """Returns what layers emitted as arrays with a leading axis."""
    if isinstance(emitted, list):
        return jax.tree.map(lambda *layers: jnp.stack(layers), *emitted)
    return emitted


def listed(emitted: Any, count: int) -> list[Any]:
    """Returns what `count` layers emitted as a list with an entry for each."""
    if isinstance(emitted, list):
        return emitted
    return [jax.tree.map(lambda a, i=i: a[i], emitted) for i in range(count)]


def joined(parts: Sequence[Any]) -> Any:
    """Returns what adjoining layers emitted in several loops as if it had been one."""
    if all(isinstance(part, list) for part in parts):
        return [layer for part in parts for layer in part]
    return jax.tree.map(lambda *arrays: jnp.concatenate(arrays), *map(stacked, parts))
