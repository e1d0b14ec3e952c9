"""Adding, moving and removing the layer axis of parameters, values and metadata alike.

A parameter's metadata holds one mesh axis for each of its axes. Where the two get out of step,
optimizers and conversions fail late or shard the wrong axis, so both change here together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

Variable = nnx.Variable[Any]

_SPEC = "out_sharding"


def _without(stacked: Variable, axis: int) -> dict[str, Any]:
    spec = tuple(stacked.get_metadata(_SPEC))
    return {_SPEC: spec[:axis] + spec[axis + 1 :]}


def _with(single: Variable, axis: int) -> dict[str, Any]:
    spec = tuple(single.get_metadata(_SPEC))
    return {_SPEC: (*spec[:axis], None, *spec[axis:])}


def layer_of(stacked: Variable, index: jax.Array | int, axis: int = 0) -> Variable:
    """Returns one layer's parameter out of one that is stacked on `axis`."""
    array = stacked.get_value()
    if isinstance(index, int):
        layer = array[(*[slice(None)] * axis, index)]
    else:
        layer = lax.dynamic_index_in_dim(array, index, axis, keepdims=False)
    return stacked.replace(layer, **_without(stacked, axis))


def layers_of(stacked: Variable, layers: range, axis: int = 0) -> Variable:
    """Returns the parameter of adjoining layers, stacked as it was; all of them are not copied."""
    array = stacked.get_value()
    if layers == range(array.shape[axis]):
        return stacked
    part = lax.slice_in_dim(array, layers.start, layers.stop, axis=axis)
    return stacked.replace(part)


def stack(layers: Sequence[Variable], axis: int = 0) -> Variable:
    """Returns the parameter of all layers on a new axis, which no mesh axis splits."""
    first = layers[0]
    # Not jnp.concatenate of expanded ones: this is one operation in a program too.
    values = jnp.stack([layer.get_value() for layer in layers], axis)
    return first.replace(values, **_with(first, axis))


def named(values: Variable, axis: int = 0) -> Variable:
    """Returns stacked values under one layer's metadata with the layer axis in it."""
    return values.replace(values.get_value(), **_with(values, axis))


def moved(stacked: Variable, source: int, target: int) -> Variable:
    """Returns a stacked parameter with its layer axis elsewhere; a copy, where it is moved."""
    if source == target:
        return stacked
    array = jnp.moveaxis(stacked.get_value(), source, target)
    bare = stacked.replace(array, **_without(stacked, source))
    return named(bare, target)


def without_layer_axis(stacked: Variable, axis: int = 0) -> Variable:
    """Returns stacked values under one layer's metadata, the layer axis first.

    This is what a scan or vmap wants: inside its body the leading axis is gone and the metadata
    fits the values.
    """
    first = moved(stacked, axis, 0)
    return first.replace(first.get_value(), **_without(first, 0))


def map_parameters(function: Any, *trees: Any) -> Any:
    """Maps over the parameters of equal trees, each with its metadata."""
    return jax.tree.map(function, *trees, is_leaf=lambda node: isinstance(node, nnx.Variable))
