"""What the stacks that run one layer after the other share."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import jax
from flax import nnx

from layerbench_models.cache import KVCache
from layerbench_models.layers import DecoderLayer, Rope
from layerbench_models.positions import Positions
from layerbench_models.stacks.cache_flow import CacheFlow, Index, NoCache, flow_of
from layerbench_models.stacks.choices import Forward, Remat
from layerbench_models.stacks.forward import FORWARDS, Pass
from layerbench_models.stacks.layout import Layout
from layerbench_models.stacks.phase import Prompt, Token, Training


class SequentialLayers(nnx.Module):
    """The phases of a stack, put together from a loop over layers and a flow of the cache."""

    layout: Layout
    num_layers: int

    @abstractmethod
    def split_layer(self, index: Index) -> tuple[nnx.GraphDef[Any], nnx.State]:
        """Returns one layer's definition and parameters."""

    @abstractmethod
    def split_stacked(self, layers: range) -> tuple[nnx.GraphDef[Any], nnx.State]:
        """Returns one layer's definition and several layers' parameters on a leading axis."""

    def train(self, x_btd: jax.Array, rope: Rope, starts_b: jax.Array) -> jax.Array:
        """See `DecoderStack.train`."""
        flow = NoCache(Training(starts_b, self.layout.attention_form))
        x_btd, _ = self._run(self.layout.forward, x_btd, rope, flow, self.layout.layer_remat)
        return x_btd

    def prefill(
        self, x_btd: jax.Array, rope: Rope, starts_b: jax.Array, cache: KVCache
    ) -> tuple[jax.Array, KVCache]:
        """See `DecoderStack.prefill`."""
        phase = Prompt(starts_b, self.layout.attention_form)
        flow = flow_of(self.layout.cache, cache, phase)
        return self._run(self.layout.forward, x_btd, rope, flow)

    def decode(
        self, x_b1d: jax.Array, rope: Rope, positions: Positions, cache: KVCache
    ) -> tuple[jax.Array, KVCache]:
        """See `DecoderStack.decode`."""
        phase = Token(positions, self.layout.attention_form)
        flow = flow_of(self.layout.cache, cache, phase)
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
        run = Pass(self, rope, flow, self.layout, remat)
        x_btd, carry, emitted = FORWARDS[forward](run, x_btd, flow.carry, range(self.num_layers))
        return x_btd, flow.finish(carry, emitted)
