"""KV caches: only buffers, since they are donated; positions travel apart."""

from __future__ import annotations

import dataclasses
from enum import StrEnum

import jax
import jax.numpy as jnp
from jax import lax

from layerbench_models.config import ModelConfig


class CacheOrder(StrEnum):
    """The order of a layer's cache axes."""

    TOKEN_MAJOR = "token-major"  # noqa: S105 - a token of text, no secret
    """(B, S, K, h): a token's heads lie together."""
    HEAD_MAJOR = "head-major"
    """(B, K, S, h): a head's tokens lie together."""

    @property
    def axes(self) -> str:
        """The axis letters of one layer's keys or values, for an einsum."""
        return "bskh" if self is CacheOrder.TOKEN_MAJOR else "bksh"

    @property
    def token_axis(self) -> int:
        """The index of axis S in one layer's keys or values."""
        return self.axes.index("s")

    def arrange(self, fresh_btkh: jax.Array) -> jax.Array:
        """Brings new keys or values (..., B, T, K, h) into this order."""
        return fresh_btkh if self is CacheOrder.TOKEN_MAJOR else jnp.swapaxes(fresh_btkh, -3, -2)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, slots=True)
class KVCache:
    """The keys and values of all layers.

    Attributes:
        keys: A tuple with one array for each layer, or one array with a leading axis L.
        values: The same for the values.
    """

    keys: tuple[jax.Array, ...] | jax.Array
    values: tuple[jax.Array, ...] | jax.Array

    @property
    def is_stacked(self) -> bool:
        """Whether all layers share one array."""
        return not isinstance(self.keys, tuple)


def layer_shape(
    config: ModelConfig, batch: int, capacity: int, order: CacheOrder
) -> tuple[int, int, int, int]:
    """Returns the shape of one layer's keys (or values).

    Args:
        config: The model.
        batch: Number of sequences, B.
        capacity: Tokens that fit, S.
        order: The order of the axes.
    """
    sizes = {"b": batch, "s": capacity, "k": config.num_kv_heads, "h": config.head_dim}
    b, second, third, h = (sizes[letter] for letter in order.axes)
    return b, second, third, h


def empty_cache(
    config: ModelConfig,
    batch: int,
    capacity: int,
    *,
    order: CacheOrder,
    stacked: bool,
    dtype: jnp.dtype,
) -> KVCache:
    """Returns a cache of zeros.

    Args:
        config: The model.
        batch: Number of sequences, B.
        capacity: Tokens that fit, S.
        order: The order of the axes within a layer.
        stacked: One array for all layers, or one for each.
        dtype: Type of the elements.
    """
    shape = layer_shape(config, batch, capacity, order)

    def buffers() -> tuple[jax.Array, ...] | jax.Array:
        if stacked:
            return jnp.zeros((config.num_layers, *shape), dtype)
        return tuple(jnp.zeros(shape, dtype) for _ in range(config.num_layers))

    return KVCache(keys=buffers(), values=buffers())


def write_tokens(
    buffer: jax.Array,
    fresh_btkh: jax.Array,
    slot: jax.Array | int,
    order: CacheOrder,
    *,
    row: jax.Array | int = 0,
    layer: jax.Array | int | None = None,
) -> jax.Array:
    """Writes T tokens of new keys or values from `slot` on.

    Args:
        buffer: One layer's buffer, or the stacked buffer when `layer` is given.
        fresh_btkh: The new keys or values (B, T, K, h); or those of adjoining layers
            (N, B, T, K, h), when `layer` is given.
        slot: First slot that is written.
        order: The order of the buffer's axes within a layer.
        row: First batch row that is written.
        layer: Index into the stacked buffer's leading axis, of the first layer that is written.

    Returns:
        The buffer with the tokens in it; in place where the compiler can.
    """
    fresh = order.arrange(fresh_btkh)
    start: list[jax.Array | int] = [row, 0, 0, 0]
    start[order.token_axis] = slot
    if layer is not None:
        fresh, start = fresh if fresh.ndim > len(start) else fresh[None], [layer, *start]
    indices = [jnp.asarray(index, jnp.int32) for index in start]
    return lax.dynamic_update_slice(buffer, fresh, indices)
