"""How a cache travels through the layers of a stack, apart from how the layers are run.

A loop over layers (see `forward`) threads three things past each layer: a carry, one item of
per-layer input, and one emitted value. A flow says what of the cache goes into which of them, and
gives each layer the `attend` that reads and writes it. What a phase attends to is apart from both
(see `phase`). Every flow therefore meets every loop and every phase.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import jax
from jax import lax

from layerbench_models.cache import KVCache
from layerbench_models.layers import Attend
from layerbench_models.stacks.choices import CacheForm
from layerbench_models.stacks.emitted import listed, stacked
from layerbench_models.stacks.phase import Phase, Training

Index = jax.Array | int
"""Which layer: a Python integer in a Python loop, traced in a compiled one."""


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

    def __init__(self, phase: Training) -> None:
        """Attends as the phase does."""
        self._phase = phase
        self.carry, self.items = None, None

    def attend(self, carry: Any, item: Any, index: Index) -> Attend:
        """Returns causal attention."""
        del carry, item, index
        return lambda q, k, v: (self._phase.among_fresh(q, k, v), None)

    def advance(self, carry: Any, kept: Any, index: Index) -> tuple[Any, Any]:
        """Passes the empty carry on."""
        del kept, index
        return carry, None

    def finish(self, carry: Any, emitted: Any) -> None:
        """Returns nothing."""
        del carry, emitted


class OwnArrays:
    """Each layer receives arrays of its own, writes into them and emits them.

    They are the entries of a list, which a loop over it updates in place, or slices of stacked
    arrays. A scan writes those into new stacked arrays.
    """

    def __init__(self, cache: KVCache, phase: Phase) -> None:
        """Writes `cache` as the phase does."""
        self._cache, self._phase = cache, phase
        self.carry = None
        self.items: Any = cache
        if not cache.is_stacked:
            pairs = zip(cache.keys, cache.values, strict=True)
            self.items = [KVCache(keys=keys, values=values) for keys, values in pairs]

    def attend(self, carry: Any, item: KVCache, index: Index) -> Attend:
        """Returns attention over the layer's arrays, which it keeps, written."""
        del carry, index

        def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> tuple[jax.Array, KVCache]:
            written = self._phase.write(item, k, v)
            return self._phase.over_written(q, k, v, written), written

        return attend

    def advance(self, carry: Any, kept: KVCache, index: Index) -> tuple[Any, KVCache]:
        """Emits the layer's arrays."""
        del index
        return carry, kept

    def finish(self, carry: Any, emitted: Any) -> KVCache:
        """Collects the layers' arrays."""
        del carry
        if self._cache.is_stacked:
            return stacked(emitted)
        return KVCache(
            keys=tuple(layer.keys for layer in emitted),
            values=tuple(layer.values for layer in emitted),
        )


class Deferred:
    """The layers only read the cache and emit new keys and values, which are written at the end."""

    def __init__(self, cache: KVCache, phase: Phase) -> None:
        """Writes `cache` as the phase does."""
        self._cache, self._phase = cache, phase
        self.carry = None
        self.items = cache if phase.reads_cache else None

    def attend(self, carry: Any, item: KVCache | None, index: Index) -> Attend:
        """Returns attention over the layer's arrays and the new keys and values, which it keeps."""
        del carry, index
        return lambda q, k, v: (self._phase.over_unwritten(q, k, v, item), (k, v))

    def advance(self, carry: Any, kept: Any, index: Index) -> tuple[Any, Any]:
        """Emits the new keys and values."""
        del index
        return carry, kept

    def finish(self, carry: Any, emitted: Any) -> KVCache:
        """Writes all layers' keys and values: at once, or each into its own array."""
        del carry
        if self._cache.is_stacked:
            return self._phase.write(self._cache, *stacked(emitted), layer=0)
        layers = [
            self._phase.write(KVCache(keys=keys, values=values), k, v)
            for keys, values, (k, v) in zip(
                self._cache.keys,
                self._cache.values,
                listed(emitted, len(self._cache.keys)),
                strict=True,
            )
        ]
        return KVCache(
            keys=tuple(layer.keys for layer in layers),
            values=tuple(layer.values for layer in layers),
        )


class InCarry:
    """The whole cache is carried; each layer writes its tokens into it and then reads."""

    def __init__(self, cache: KVCache, phase: Phase) -> None:
        """Writes `cache` as the phase does."""
        self._phase = phase
        self.carry, self.items = cache, None

    def attend(self, carry: KVCache, item: Any, index: Index) -> Attend:
        """Returns attention over the layer's slice; it keeps the cache with the tokens in it."""
        del item

        def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> tuple[jax.Array, KVCache]:
            # Written before it is read: the other order makes compilers keep two caches.
            written = self._phase.write(carry, k, v, layer=index)
            return self._phase.over_written(q, k, v, _layer(written, index)), written

        return attend

    def advance(self, carry: KVCache, kept: KVCache, index: Index) -> tuple[KVCache, None]:
        """Carries the written cache on."""
        del carry, index
        return kept, None

    def finish(self, carry: KVCache, emitted: Any) -> KVCache:
        """Returns the carried cache."""
        del emitted
        return carry


class LayerInCarry(InCarry):
    """The whole cache is carried; each layer is taken out, written, and put back whole."""

    def attend(self, carry: KVCache, item: Any, index: Index) -> Attend:
        """Returns attention over the layer's slice; it keeps the cache with the slice put back."""
        del item

        def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> tuple[jax.Array, KVCache]:
            layer = self._phase.write(_layer(carry, index), k, v)
            put_back = jax.tree.map(
                lambda whole, part: lax.dynamic_update_index_in_dim(whole, part, index, 0),
                carry,
                layer,
            )
            return self._phase.over_written(q, k, v, layer), put_back

        return attend


class ReadThenWrite(InCarry):
    """The whole cache is carried; each layer reads its slice and then writes its tokens."""

    def attend(self, carry: KVCache, item: Any, index: Index) -> Attend:
        """Returns attention over the unwritten slice and the new keys and values."""
        del item

        def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> tuple[jax.Array, KVCache]:
            context = self._phase.over_unwritten(q, k, v, _layer(carry, index))
            written = self._phase.write(carry, k, v, layer=index)
            return context, written

        return attend


def _layer(cache: KVCache, index: Index) -> KVCache:
    return jax.tree.map(lambda a: a[index], cache)


FLOWS: dict[CacheForm, Callable[[KVCache, Phase], CacheFlow]] = {
    CacheForm.LIST: OwnArrays,
    CacheForm.XS_YS: OwnArrays,
    CacheForm.CARRY_LAYER: LayerInCarry,
    CacheForm.CARRY_TOKEN: InCarry,
    CacheForm.READ_THEN_WRITE: ReadThenWrite,
    CacheForm.DEFERRED_WRITE: Deferred,
}
"""The flow of each form of cache; a pipeline has its own."""


def flow_of(form: CacheForm, cache: KVCache, phase: Phase) -> CacheFlow:
    """Returns the way of a phase through a cache."""
    # A prompt is read nowhere: a scan can leave it behind for separate arrays too.
    if form is CacheForm.LIST and not phase.reads_cache:
        return Deferred(cache, phase)
    return FLOWS[form](cache, phase)
