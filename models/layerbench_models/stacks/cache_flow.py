"""How a cache travels through the layers of a stack, apart from how the layers are run.

A loop over layers (see `forward`) threads three things past each layer: a carry, one item of
per-layer input, and one emitted value. A flow says what of the cache goes into which of them, and
gives each layer the `attend` that reads and writes it. Every flow therefore meets every loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import jax

from layerbench_models.cache import KVCache, write_tokens
from layerbench_models.layers import Attend, AttentionForm, cached_attention, causal_attention
from layerbench_models.positions import Positions
from layerbench_models.stacks.layout import CacheForm

Index = jax.Array | int
"""Which layer: a Python integer in a Python loop, traced in a scan."""


class CacheFlow(Protocol):
    """One phase's way through one form of cache.

    Attributes:
        carry: What the loop carries from layer to layer.
        items: What each layer receives: a list with one entry for each layer, a pytree of arrays
            with a leading axis L, or None.
    """

    carry: Any
    items: Any

    def attend(self, carry: Any, item: Any, index: Index) -> Attend:
        """Returns the attention of layer `index`."""
        ...

    def advance(self, carry: Any, kept: Any, index: Index) -> tuple[Any, Any]:
        """Takes what the layer kept; returns the next carry and what the layer emits."""
        ...

    def finish(self, carry: Any, emitted: Any) -> KVCache | None:
        """Returns the cache after the last layer.

        Args:
            carry: The last carry.
            emitted: A list of what the layers emitted, or their pytree with a leading axis L.
        """
        ...


class NoCache:
    """Training: nothing is kept."""

    def __init__(self, starts_b: jax.Array, form: AttentionForm) -> None:
        """Attends causally within sequences that begin at `starts_b`."""
        self._starts_b, self._form = starts_b, form
        self.carry, self.items = None, None

    def attend(self, carry: Any, item: Any, index: Index) -> Attend:
        """Returns causal attention."""
        del carry, item, index
        return lambda q, k, v: (causal_attention(q, k, v, self._starts_b, self._form), None)

    def advance(self, carry: Any, kept: Any, index: Index) -> tuple[Any, Any]:
        """Passes the empty carry on."""
        del kept, index
        return carry, None

    def finish(self, carry: Any, emitted: Any) -> None:
        """Returns nothing."""
        del carry, emitted


class PromptEmitted:
    """Prefill: the layers emit the prompt's keys and values, which are written at the end."""

    def __init__(self, cache: KVCache, starts_b: jax.Array, form: AttentionForm) -> None:
        """Fills `cache` from slot 0 on with prompts that begin at `starts_b`."""
        self._cache, self._starts_b, self._form = cache, starts_b, form
        self.carry, self.items = None, None

    def attend(self, carry: Any, item: Any, index: Index) -> Attend:
        """Returns causal attention that keeps the keys and values."""
        del carry, item, index
        return lambda q, k, v: (causal_attention(q, k, v, self._starts_b, self._form), (k, v))

    def advance(self, carry: Any, kept: Any, index: Index) -> tuple[Any, Any]:
        """Emits the keys and values."""
        del index
        return carry, kept

    def finish(self, carry: Any, emitted: Any) -> KVCache:
        """Writes each layer's prompt into its array."""
        del carry
        count = len(self._cache.keys)
        fresh = (
            emitted
            if isinstance(emitted, list)
            else [jax.tree.map(lambda x, i=i: x[i], emitted) for i in range(count)]
        )
        order = self._form.order
        return KVCache(
            keys=tuple(
                write_tokens(old, k, 0, order)
                for old, (k, _) in zip(self._cache.keys, fresh, strict=True)
            ),
            values=tuple(
                write_tokens(old, v, 0, order)
                for old, (_, v) in zip(self._cache.values, fresh, strict=True)
            ),
        )


class PromptInCarry:
    """Prefill: each layer writes its prompt's keys and values into the carried cache."""

    def __init__(self, cache: KVCache, starts_b: jax.Array, form: AttentionForm) -> None:
        """Fills `cache` from slot 0 on with prompts that begin at `starts_b`."""
        self._starts_b, self._form = starts_b, form
        self.carry, self.items = cache, None

    def attend(self, carry: KVCache, item: Any, index: Index) -> Attend:
        """Returns causal attention that keeps the cache with the keys and values in it."""
        del item
        order = self._form.order

        def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> tuple[jax.Array, KVCache]:
            written = KVCache(
                keys=write_tokens(carry.keys, k, 0, order, layer=index),
                values=write_tokens(carry.values, v, 0, order, layer=index),
            )
            return causal_attention(q, k, v, self._starts_b, self._form), written

        return attend

    def advance(self, carry: KVCache, kept: KVCache, index: Index) -> tuple[KVCache, None]:
        """Carries the written cache on."""
        del carry, index
        return kept, None

    def finish(self, carry: KVCache, emitted: Any) -> KVCache:
        """Returns the carried cache."""
        del emitted
        return carry


class TokenInList:
    """Decode: each layer has arrays of its own and writes one token in place."""

    def __init__(self, cache: KVCache, positions: Positions, form: AttentionForm) -> None:
        """Writes slot `positions.fill` of each layer's arrays."""
        self._positions, self._form = positions, form
        self.carry = None
        self.items = list(zip(cache.keys, cache.values, strict=True))

    def attend(self, carry: Any, item: tuple[jax.Array, jax.Array], index: Index) -> Attend:
        """Returns attention over the layer's arrays, which it keeps with the token in them."""
        del carry, index
        order, slot = self._form.order, self._positions.fill

        def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> tuple[jax.Array, Any]:
            keys = write_tokens(item[0], k, slot, order)
            values = write_tokens(item[1], v, slot, order)
            return cached_attention(q, keys, values, self._positions, self._form), (keys, values)

        return attend

    def advance(self, carry: Any, kept: Any, index: Index) -> tuple[Any, Any]:
        """Emits the layer's arrays."""
        del index
        return carry, kept

    def finish(self, carry: Any, emitted: list[tuple[jax.Array, jax.Array]]) -> KVCache:
        """Collects the layers' arrays."""
        del carry
        return KVCache(keys=tuple(k for k, _ in emitted), values=tuple(v for _, v in emitted))


class TokenInCarry:
    """Decode: the whole cache is carried and each layer writes one token of it."""

    def __init__(self, cache: KVCache, positions: Positions, form: AttentionForm) -> None:
        """Writes slot `positions.fill` of each layer of the stacked arrays."""
        self._positions, self._form = positions, form
        self.carry, self.items = cache, None

    def attend(self, carry: KVCache, item: Any, index: Index) -> Attend:
        """Returns attention over the layer's slice; it keeps the cache with the token in it."""
        del item
        order, slot = self._form.order, self._positions.fill

        def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> tuple[jax.Array, KVCache]:
            # Written before it is read: the other order makes compilers keep two caches.
            keys = write_tokens(carry.keys, k, slot, order, layer=index)
            values = write_tokens(carry.values, v, slot, order, layer=index)
            context = cached_attention(q, keys[index], values[index], self._positions, self._form)
            return context, KVCache(keys=keys, values=values)

        return attend

    def advance(self, carry: KVCache, kept: KVCache, index: Index) -> tuple[KVCache, None]:
        """Carries the written cache on."""
        del carry, index
        return kept, None

    def finish(self, carry: KVCache, emitted: Any) -> KVCache:
        """Returns the carried cache."""
        del emitted
        return carry


PREFILL_FLOWS: dict[CacheForm, Callable[[KVCache, jax.Array, AttentionForm], CacheFlow]] = {
    CacheForm.LIST: PromptEmitted,
    CacheForm.CARRY_TOKEN: PromptInCarry,
}
"""The flow of prefill for each form of cache; a pipeline has its own."""

DECODE_FLOWS: dict[CacheForm, Callable[[KVCache, Positions, AttentionForm], CacheFlow]] = {
    CacheForm.LIST: TokenInList,
    CacheForm.CARRY_TOKEN: TokenInCarry,
}
"""The flow of a decode step for each form of cache; a pipeline has its own."""
