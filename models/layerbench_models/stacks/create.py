"""Creating the layers of a stack, the same numbers in every layout."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import nnx

from layerbench_models.config import ModelConfig
from layerbench_models.layers import DecoderLayer
from layerbench_models.stacks.layout import Creation, Forward, Layout
from layerbench_models.stacks.pipelined import PipelinedDecoderLayers
from layerbench_models.stacks.protocol import DecoderStack
from layerbench_models.stacks.stacked import StackedDecoderLayers
from layerbench_models.stacks.unrolled import UnrolledDecoderLayers


def create_stack(
    config: ModelConfig, layout: Layout, *, key: jax.Array, dtype: jnp.dtype
) -> DecoderStack:
    """Returns the decoder layers of a model; layer i is keyed by `fold_in(key, i)`.

    Args:
        config: The model.
        layout: How its layers are laid out.
        key: Random key of the whole stack.
        dtype: Type of the parameters.
    """
    return _CREATORS[layout.creation](config, layout, key, dtype)


def _by_loop(config: ModelConfig, layout: Layout, key: jax.Array, dtype: jnp.dtype) -> DecoderStack:
    layers = [
        DecoderLayer(config, key=jax.random.fold_in(key, index), dtype=dtype)
        for index in range(config.num_layers)
    ]
    return UnrolledDecoderLayers(layers, layout)


def _by_vmap(config: ModelConfig, layout: Layout, key: jax.Array, dtype: jnp.dtype) -> DecoderStack:
    keys = jax.vmap(lambda index: jax.random.fold_in(key, index))(jnp.arange(config.num_layers))
    # The new axis is named, with no mesh axis, so that each parameter's metadata gains an entry
    # with the axis; without it the recorded mesh axes are off by one.
    create = nnx.vmap(
        lambda layer_key: DecoderLayer(config, key=layer_key, dtype=dtype),
        transform_metadata={nnx.PARTITION_NAME: None},
    )
    pipelined = layout.forward is Forward.PIPELINE
    family = PipelinedDecoderLayers if pipelined else StackedDecoderLayers
    return family(create(keys), config.num_layers, layout)


_CREATORS: dict[Creation, Callable[[ModelConfig, Layout, jax.Array, jnp.dtype], DecoderStack]] = {
    Creation.LOOP: _by_loop,
    Creation.VMAP: _by_vmap,
}
