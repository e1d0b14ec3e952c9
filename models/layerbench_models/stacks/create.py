"""Creating the layers of a stack, the same numbers in every layout."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax
from jax.sharding import Mesh

from layerbench_models import partitioning
from layerbench_models.config import ModelConfig
from layerbench_models.layers import DecoderLayer
from layerbench_models.stacks.choices import Creation, Forward, Parameters
from layerbench_models.stacks.hybrid import HybridDecoderLayers
from layerbench_models.stacks.layer_axis import Variable, map_parameters, moved, named, stack
from layerbench_models.stacks.layout import Layout
from layerbench_models.stacks.pipelined import PipelinedDecoderLayers
from layerbench_models.stacks.protocol import DecoderStack
from layerbench_models.stacks.stacked import StackedDecoderLayers
from layerbench_models.stacks.unrolled import UnrolledDecoderLayers


def create_stack(
    config: ModelConfig,
    layout: Layout,
    *,
    key: jax.Array,
    dtype: jnp.dtype,
    mesh: Mesh | None = None,
) -> DecoderStack:
    """Returns the decoder layers of a model; layer i is keyed by `fold_in(key, i)`.

    Args:
        config: The model.
        layout: How its layers are laid out.
        key: Random key of the whole stack.
        dtype: Type of the parameters.
        mesh: Devices that a sharded creation spreads the layers over.
    """
    recipe = _Recipe(config, key, dtype, layout.parameters.layer_axis or 0, mesh)
    if layout.creation is Creation.LOOP:
        layers = [recipe.layer(recipe.key_of(index)) for index in range(config.num_layers)]
        apart = layout.parameters is Parameters.ENDS_APART
        return (HybridDecoderLayers if apart else UnrolledDecoderLayers)(layers, layout)
    pipelined = layout.forward is Forward.PIPELINE
    family = PipelinedDecoderLayers if pipelined else StackedDecoderLayers
    return family(_STACKED_CREATORS[layout.creation](recipe), config.num_layers, layout)


@dataclasses.dataclass(frozen=True, slots=True)
class _Recipe:
    """What every way to create layers needs.

    Attributes:
        config: The model.
        key: Random key of the whole stack.
        dtype: Type of the parameters.
        axis: The axis on which layers are stacked.
        mesh: Devices that a sharded creation spreads the layers over.
    """

    config: ModelConfig
    key: jax.Array
    dtype: jnp.dtype
    axis: int
    mesh: Mesh | None

    def key_of(self, index: jax.Array | int) -> jax.Array:
        return jax.random.fold_in(self.key, index)

    def keys(self) -> jax.Array:
        return jax.vmap(self.key_of)(jnp.arange(self.config.num_layers))

    def layer(self, key: jax.Array) -> DecoderLayer:
        return DecoderLayer(self.config, key=key, dtype=self.dtype)

    def split_layer(self, key: jax.Array) -> tuple[nnx.GraphDef[Any], nnx.State]:
        return nnx.split(self.layer(key))


def _by_stack(recipe: _Recipe) -> DecoderLayer:
    split = [recipe.split_layer(recipe.key_of(i)) for i in range(recipe.config.num_layers)]
    states = [state for _, state in split]
    return nnx.merge(split[0][0], map_parameters(lambda *p: stack(p, recipe.axis), *states))


def _by_writing(recipe: _Recipe) -> DecoderLayer:
    count, axis = recipe.config.num_layers, recipe.axis
    graphdef, abstract = nnx.split(nnx.eval_shape(lambda: recipe.layer(recipe.key)))

    def empty(like: Variable) -> Variable:
        shape, dtype = like.get_value().shape, like.get_value().dtype
        return like.replace(jnp.zeros((*shape[:axis], count, *shape[axis:]), dtype))

    stacked = map_parameters(empty, abstract)
    for index in range(count):
        _, layer = recipe.split_layer(recipe.key_of(index))
        stacked = _write_layer(stacked, layer, jnp.int32(index), axis=axis)
    return nnx.merge(graphdef, map_parameters(lambda p: named(p, axis), stacked))


# Donated, so that every layer is written in place and no second stack is there.
@partial(jax.jit, donate_argnums=0, static_argnames="axis")
def _write_layer(stacked: Any, layer: Any, index: jax.Array, *, axis: int) -> Any:
    return jax.tree.map(
        lambda whole, part: lax.dynamic_update_index_in_dim(whole, part, index, axis),
        stacked,
        layer,
    )


def _by_vmap(recipe: _Recipe, *, is_named: bool = True) -> DecoderLayer:
    # The new axis is named, with no mesh axis, so that each parameter's metadata gains an entry
    # with the axis; without it the recorded mesh axes are off by one.
    metadata = {nnx.PARTITION_NAME: None} if is_named else {}
    create = nnx.vmap(recipe.layer, out_axes=recipe.axis, transform_metadata=metadata)
    return create(recipe.keys())


def _by_scan(recipe: _Recipe) -> DecoderLayer:
    graphdef, _ = nnx.split(nnx.eval_shape(lambda: recipe.layer(recipe.key)))

    def body(_: None, key: jax.Array) -> tuple[None, nnx.State]:
        return None, recipe.split_layer(key)[1]

    _, stacked = lax.scan(body, None, recipe.keys())
    return nnx.merge(graphdef, map_parameters(lambda p: moved(named(p), 0, recipe.axis), stacked))


def _by_sharded_jit(recipe: _Recipe) -> DecoderLayer:
    def create(key: jax.Array) -> nnx.State:
        return nnx.split(_by_vmap(dataclasses.replace(recipe, key=key)))[1]

    graphdef, abstract = nnx.split(nnx.eval_shape(lambda: _by_vmap(recipe)))
    shardings = None
    if recipe.mesh is not None:
        specs = partitioning.param_specs(abstract)
        shardings = partitioning.tree_shardings(recipe.mesh, specs, abstract)
    return nnx.merge(graphdef, jax.jit(create, out_shardings=shardings)(recipe.key))


_STACKED_CREATORS: dict[Creation, Callable[[_Recipe], DecoderLayer]] = {
    Creation.LOOP_STACKED: _by_stack,
    Creation.PREALLOCATED: _by_writing,
    Creation.VMAP: _by_vmap,
    Creation.VMAP_UNNAMED: partial(_by_vmap, is_named=False),
    Creation.SCAN_KEYS: _by_scan,
    Creation.JIT_SHARDED: _by_sharded_jit,
}
"""Each creates one layer object whose parameters have an axis for all layers."""
