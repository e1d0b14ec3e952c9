"""The loops over the layers of a stack, apart from what the layers do with a cache."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from layerbench_models.layers import Rope
from layerbench_models.stacks.cache_flow import CacheFlow
from layerbench_models.stacks.layer_axis import map_parameters, without_layer_axis
from layerbench_models.stacks.layout import Forward, Remat


class LayerSource(Protocol):
    """Parameters of layers, for a loop to take them in the form it wants."""

    num_layers: int

    def split_layer(self, index: int) -> tuple[nnx.GraphDef[Any], nnx.State]:
        """Returns one layer's definition and parameters."""
        ...

    def split_stacked(self) -> tuple[nnx.GraphDef[Any], nnx.State]:
        """Returns one layer's definition and the parameters of all with a leading axis L."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class LayerStep:
    """One layer's turn in a loop over layers.

    Attributes:
        graphdef: One layer's definition.
        rope: The tokens' rotations.
        flow: How the cache travels.
    """

    graphdef: nnx.GraphDef[Any]
    rope: Rope
    flow: CacheFlow

    def __call__(
        self, state: nnx.State, x_btd: jax.Array, carry: Any, item: Any, index: jax.Array | int
    ) -> tuple[jax.Array, Any, Any]:
        """Runs one layer; returns its hidden states, the next carry and what it emits."""
        layer = nnx.merge(self.graphdef, state)
        x_btd, kept = layer(x_btd, self.rope, self.flow.attend(carry, item, index))
        carry, emitted = self.flow.advance(carry, kept, index)
        return x_btd, carry, emitted


def _remat(step: Callable[..., Any], remat: Remat, *, in_loop: bool) -> Callable[..., Any]:
    if remat is Remat.NONE:
        return step
    # Inside a compiled loop nothing can be merged with the forward pass, and the barriers that
    # prevent it would only cost.
    return jax.checkpoint(step, prevent_cse=not in_loop)


def loop(
    source: LayerSource, x_btd: jax.Array, rope: Rope, flow: CacheFlow, remat: Remat
) -> tuple[jax.Array, Any]:
    """A Python loop: every layer is in the program."""
    carry, emitted = flow.carry, []
    for index in range(source.num_layers):
        graphdef, state = source.split_layer(index)
        step = functools.partial(LayerStep(graphdef, rope, flow), index=index)
        item = _item(flow.items, index)
        x_btd, carry, out = _remat(step, remat, in_loop=False)(state, x_btd, carry, item)
        emitted.append(out)
    return x_btd, flow.finish(carry, emitted)


def _item(items: Any, index: int) -> Any:
    """Returns one layer's entry of a list, or its slices of a pytree with a leading axis L."""
    return items[index] if isinstance(items, list) else jax.tree.map(lambda x: x[index], items)


def scan(
    source: LayerSource, x_btd: jax.Array, rope: Rope, flow: CacheFlow, remat: Remat
) -> tuple[jax.Array, Any]:
    """`lax.scan`: one layer is in the program, its parameters are the scanned input."""
    graphdef, stacked = source.split_stacked()
    run_layer = LayerStep(graphdef, rope, flow)

    def step(loop_carry: Any, inputs: Any) -> tuple[Any, Any]:
        x_btd, carry = loop_carry
        state, item, index = inputs
        x_btd, carry, out = run_layer(state, x_btd, carry, item, index)
        return (x_btd, carry), out

    indices = jnp.arange(source.num_layers, dtype=jnp.int32)
    (x_btd, carry), emitted = lax.scan(
        _remat(step, remat, in_loop=True),
        (x_btd, flow.carry),
        (map_parameters(without_layer_axis, stacked), flow.items, indices),
    )
    return x_btd, flow.finish(carry, emitted)


FORWARDS: dict[
    Forward, Callable[[LayerSource, jax.Array, Rope, CacheFlow, Remat], tuple[jax.Array, Any]]
] = {Forward.LOOP: loop, Forward.SCAN: scan}
"""The loop of each form; a pipeline is a stack of its own."""
