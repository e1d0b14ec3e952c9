"""What the stacks that run one layer after the other share."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import jax
from flax import nnx

from layerbench_models.cache import KVCache
from layerbench_models.layers import DecoderLayer, Rope
from layerbench_models.positions import Positions
from layerbench_models.stacks.cache_flow import DECODE_FLOWS, PREFILL_FLOWS, CacheFlow, NoCache
from layerbench_models.stacks.forward import FORWARDS
from layerbench_models.stacks.layout import Forward, Layout, Remat


class SequentialLayers(nnx.Module):
    """The phases of a stack, put together from a loop over layers and a flow of the cache."""

    layout: Layout
    num_layers: int

    @abstractmethod
    def split_layer(self, index: int) -> tuple[nnx.GraphDef[Any], nnx.State]:
        """Returns one layer's definition and parameters."""

    @abstractmethod
    def split_stacked(self) -> tuple[nnx.GraphDef[Any], nnx.State]:
        """Returns one layer's definition and all layers' parameters on a leading axis."""

    def train(self, x_btd: jax.Array, rope: Rope, starts_b: jax.Array) -> jax.Array:
        """See `DecoderStack.train`."""
        flow = NoCache(starts_b, self.layout.attention_form)
        x_btd, _ = self._run(self.layout.forward, x_btd, rope, flow, self.layout.remat)
        return x_btd

    def prefill(
        self, x_btd: jax.Array, rope: Rope, starts_b: jax.Array, cache: KVCache
    ) -> tuple[jax.Array, KVCache]:
        """See `DecoderStack.prefill`."""
        flow = PREFILL_FLOWS[self.layout.cache](cache, starts_b, self.layout.attention_form)
        return self._run(self.layout.forward, x_btd, rope, flow)

    def decode(
        self, x_b1d: jax.Array, rope: Rope, positions: Positions, cache: KVCache
    ) -> tuple[jax.Array, KVCache]:
        """See `DecoderStack.decode`."""
        flow = DECODE_FLOWS[self.layout.cache](cache, positions, self.layout.attention_form)
        return self._run(self.layout.decode, x_b1d, rope, flow)

    def layer(self, index: int) -> DecoderLayer:
        """Returns one layer, for tests and for loading weights only; see `DecoderStack.layer`."""
        return nnx.merge(*self.split_layer(index))

    def _run(
        self,
        forward: Forward,
        x_btd: jax.Array,
        rope: Rope,
        flow: CacheFlow,
        remat: Remat = Remat.NONE,
    ) -> tuple[jax.Array, Any]:
        return FORWARDS[forward](self, x_btd, rope, flow, remat)
