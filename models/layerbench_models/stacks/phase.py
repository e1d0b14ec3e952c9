"""What the layers attend to in a phase, and which slots they write, apart from where it is kept."""

from __future__ import annotations

import dataclasses
from typing import Protocol

import jax

from layerbench_models.cache import KVCache, write_tokens
from layerbench_models.layers import (
    AttentionForm,
    cached_attention,
    causal_attention,
    joined_attention,
)
from layerbench_models.positions import Positions


class Phase(Protocol):
    """A phase with a cache.

    Attributes:
        reads_cache: Whether the cache holds anything that is attended to.
    """

    @property
    def reads_cache(self) -> bool:
        """Whether the cache holds anything that is attended to."""
        ...

    def write(
        self, cache: KVCache, k: jax.Array, v: jax.Array, *, layer: jax.Array | int | None = None
    ) -> KVCache:
        """Writes new keys and values into one layer's arrays.

        Args:
            cache: One layer's arrays, or stacked ones when `layer` is given.
            k: New keys (B, T, K, h), or those of N layers (N, B, T, K, h).
            v: New values likewise.
            layer: The first layer that is written.
        """
        ...

    def over_written(self, q: jax.Array, k: jax.Array, v: jax.Array, layer: KVCache) -> jax.Array:
        """Returns the context (B, T, H, h), the new keys and values being in the layer's arrays."""
        ...

    def over_unwritten(
        self, q: jax.Array, k: jax.Array, v: jax.Array, layer: KVCache | None
    ) -> jax.Array:
        """Returns the same context, the new keys and values not being in the layer's arrays."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Training:
    """Whole sequences, nothing cached.

    Attributes:
        starts_b: int32 (B,), the slot of each sequence's first token.
        form: How attention is computed.
    """

    starts_b: jax.Array
    form: AttentionForm

    def among_fresh(self, q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        """Returns causal attention among the given keys and values."""
        return causal_attention(q, k, v, self.starts_b, self.form)


@dataclasses.dataclass(frozen=True, slots=True)
class Prompt(Training):
    """Whole prompts, written to slots 0 to T-1; nothing is read."""

    @property
    def reads_cache(self) -> bool:
        """Nothing stands before a prompt."""
        return False

    def write(
        self, cache: KVCache, k: jax.Array, v: jax.Array, *, layer: jax.Array | int | None = None
    ) -> KVCache:
        """See `Phase.write`."""
        return _write(cache, k, v, slot=0, form=self.form, layer=layer)

    def over_written(self, q: jax.Array, k: jax.Array, v: jax.Array, layer: KVCache) -> jax.Array:
        """See `Phase.over_written`."""
        del layer
        return self.among_fresh(q, k, v)

    def over_unwritten(
        self, q: jax.Array, k: jax.Array, v: jax.Array, layer: KVCache | None
    ) -> jax.Array:
        """See `Phase.over_unwritten`."""
        del layer
        return self.among_fresh(q, k, v)


@dataclasses.dataclass(frozen=True, slots=True)
class Token:
    """One token of each sequence, behind all that is cached.

    Attributes:
        positions: The slot that is written and where the sequences begin.
        form: How attention is computed.
    """

    positions: Positions
    form: AttentionForm

    @property
    def reads_cache(self) -> bool:
        """The tokens before are cached."""
        return True

    def write(
        self, cache: KVCache, k: jax.Array, v: jax.Array, *, layer: jax.Array | int | None = None
    ) -> KVCache:
        """See `Phase.write`."""
        return _write(cache, k, v, slot=self.positions.fill, form=self.form, layer=layer)

    def over_written(self, q: jax.Array, k: jax.Array, v: jax.Array, layer: KVCache) -> jax.Array:
        """See `Phase.over_written`."""
        del k, v
        return cached_attention(q, layer.keys, layer.values, self.positions, self.form)

    def over_unwritten(
        self, q: jax.Array, k: jax.Array, v: jax.Array, layer: KVCache | None
    ) -> jax.Array:
        """See `Phase.over_unwritten`."""
        assert layer is not None
        return joined_attention(q, k, v, layer.keys, layer.values, self.positions, self.form)


def _write(
    cache: KVCache,
    k: jax.Array,
    v: jax.Array,
    *,
    slot: jax.Array | int,
    form: AttentionForm,
    layer: jax.Array | int | None,
) -> KVCache:
    return KVCache(
        keys=write_tokens(cache.keys, k, slot, form.order, layer=layer),
        values=write_tokens(cache.values, v, slot, form.order, layer=layer),
    )
