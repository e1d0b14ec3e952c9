"""Layers that run all at once, vmapped, on different micro-batches.

The layers of a stack depend on each other, so a vmap over layers alone is not a forward pass.
Here each layer is a stage of a pipeline. A buffer (L, b, T, D) holds the input of each stage. In
every tick all stages run at once, then the buffer shifts by one: stage i works on micro-batch
t - i in tick t, and L + M - 1 ticks bring M micro-batches through L stages. Outside its M busy
ticks a stage computes on values that nobody reads, and its cache writes are masked: that is the
bubble. With the stage axis sharded this is pipeline parallelism; on one device the bubble is part
of what it costs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from layerbench_models.cache import CacheOrder, KVCache, write_tokens
from layerbench_models.errors import LayoutError
from layerbench_models.layers import Attend, Rope, cached_attention, causal_attention
from layerbench_models.positions import Positions
from layerbench_models.stacks.choices import Remat
from layerbench_models.stacks.remat import checkpointed
from layerbench_models.stacks.stacked import StackedDecoderLayers


def microbatch_count(batch: int, num_layers: int, wanted: int | None) -> int:
    """Returns the number of micro-batches M.

    Args:
        batch: Number of sequences, B.
        num_layers: Number of stages, L.
        wanted: A fixed M, or None for the largest divisor of the batch up to L.

    Raises:
        LayoutError: If the wanted number does not divide the batch.
    """
    if wanted is None:
        return max(m for m in range(1, min(batch, num_layers) + 1) if batch % m == 0)
    if batch % wanted:
        raise LayoutError(
            f"a batch of {batch} does not split into {wanted} micro-batches: "
            "give a number that divides the batch"
        )
    return wanted


class PipelinedDecoderLayers(StackedDecoderLayers):
    """Stacked layers as stages of a pipeline in all phases."""

    def train(self, x_btd: jax.Array, rope: Rope, starts_b: jax.Array) -> jax.Array:
        """See `DecoderStack.train`."""
        form = self.layout.attention_form

        def attention(stage: _Stage) -> Attend:
            return lambda q, k, v: (causal_attention(q, k, v, stage.starts_b, form), None)

        x_btd, _ = self._pipeline(
            x_btd, rope, starts_b, cache=None, attention=attention, remat=self.layout.layer_remat
        )
        return x_btd

    def prefill(
        self, x_btd: jax.Array, rope: Rope, starts_b: jax.Array, cache: KVCache
    ) -> tuple[jax.Array, KVCache]:
        """See `DecoderStack.prefill`."""
        form = self.layout.attention_form

        def attention(stage: _Stage) -> Attend:
            def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> tuple[jax.Array, KVCache]:
                written = stage.write(k, v, 0, form.order)
                return causal_attention(q, k, v, stage.starts_b, form), written

            return attend

        return self._pipeline(x_btd, rope, starts_b, cache=cache, attention=attention)

    def decode(
        self, x_b1d: jax.Array, rope: Rope, positions: Positions, cache: KVCache
    ) -> tuple[jax.Array, KVCache]:
        """See `DecoderStack.decode`."""
        form = self.layout.attention_form

        def attention(stage: _Stage) -> Attend:
            def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> tuple[jax.Array, KVCache]:
                written = stage.write(k, v, positions.fill, form.order)
                rows = stage.rows(written, q.shape[0])
                here = dataclasses.replace(positions, starts=stage.starts_b)
                return cached_attention(q, rows.keys, rows.values, here, form), written

            return attend

        return self._pipeline(x_b1d, rope, positions.starts, cache=cache, attention=attention)

    def _pipeline(
        self,
        x_btd: jax.Array,
        rope: Rope,
        starts_b: jax.Array,
        *,
        cache: KVCache | None,
        attention: Callable[[_Stage], Attend],
        remat: Remat = Remat.NONE,
    ) -> tuple[jax.Array, Any]:
        """Runs all ticks; returns hidden states (B, T, D) and the cache."""
        stages, batch = self.num_layers, x_btd.shape[0]
        count = microbatch_count(batch, stages, self.layout.microbatches)
        rows = batch // count
        graphdef, state = self.split_stacked(range(stages))
        x_mbtd, rope_m, starts_mb = jax.tree.map(
            lambda a: a.reshape(count, rows, *a.shape[1:]), (x_btd, rope, starts_b)
        )

        def run_stage(
            state: nnx.State, x: jax.Array, micro: jax.Array, live: jax.Array, cache: Any
        ) -> tuple[jax.Array, Any]:
            # One micro-batch needs no row offset, and a constant one keeps the writes simple.
            first_row = micro * rows if count > 1 else 0
            stage = _Stage(starts_mb[micro], first_row, live, cache)
            rope = jax.tree.map(lambda a: a[micro], rope_m)
            return nnx.merge(graphdef, state)(x, rope, attention(stage))

        run_stages = jax.vmap(checkpointed(run_stage, remat, in_loop=True))
        stage_ids = jnp.arange(stages, dtype=jnp.int32)

        def tick(carry: tuple[jax.Array, Any], t: jax.Array) -> tuple[Any, jax.Array]:
            buffer, cache = carry
            entering = lax.dynamic_index_in_dim(x_mbtd, jnp.minimum(t, count - 1), keepdims=True)
            inputs = jnp.concatenate([entering, buffer[:-1]])
            micro = t - stage_ids
            live = (micro >= 0) & (micro < count)
            buffer, cache = run_stages(state, inputs, jnp.clip(micro, 0, count - 1), live, cache)
            return (buffer, cache), buffer[-1]

        empty = jnp.zeros((stages, *x_mbtd.shape[1:]), x_btd.dtype)
        ticks = jnp.arange(stages + count - 1, dtype=jnp.int32)
        (_, cache), leaving = lax.scan(tick, (empty, cache), ticks)
        return leaving[stages - 1 :].reshape(x_btd.shape), cache


@dataclasses.dataclass(frozen=True, slots=True)
class _Stage:
    """What one stage works on in one tick.

    Attributes:
        starts_b: int32 (b,), the first slots of its micro-batch's sequences.
        first_row: The batch row where its micro-batch begins.
        live: Whether the micro-batch is real; in the bubble nothing may be written.
        cache: The layer's keys and values for the whole batch.
    """

    starts_b: jax.Array
    first_row: jax.Array | int
    live: jax.Array
    cache: KVCache

    def rows(self, cache: KVCache, count: int) -> KVCache:
        """Returns `count` rows of the batch, those of this micro-batch."""
        return jax.tree.map(
            lambda a: lax.dynamic_slice_in_dim(a, self.first_row, count, axis=0), cache
        )

    def write(
        self, k: jax.Array, v: jax.Array, slot: jax.Array | int, order: CacheOrder
    ) -> KVCache:
        """Returns the cache with new keys and values (b, T, K, h) from `slot` on, if live."""

        def masked(buffer: jax.Array, fresh: jax.Array) -> jax.Array:
            start: list[Any] = [self.first_row, 0, 0, 0]
            start[order.token_axis] = slot
            indices = [jnp.asarray(index, jnp.int32) for index in start]
            old = order.arrange(lax.dynamic_slice(buffer, indices, order.arrange(fresh).shape))
            fresh = jnp.where(self.live, fresh, old)
            return write_tokens(buffer, fresh, slot, order, row=self.first_row)

        return KVCache(keys=masked(self.cache.keys, k), values=masked(self.cache.values, v))
