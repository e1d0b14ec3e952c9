"""Adding and removing the leading layer axis of parameters, values and metadata alike.

A parameter's metadata holds one mesh axis for each of its axes. Where the two get out of step,
optimizers and conversions fail late or shard the wrong axis, so both change here together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

Variable = nnx.Variable[Any]

_SPEC = "out_sharding"


def layer_of(stacked: Variable, index: jax.Array | int) -> Variable:
    """Returns one layer's parameter out of a stacked one."""
    return stacked.replace(stacked.get_value()[index], **{_SPEC: stacked.get_metadata(_SPEC)[1:]})


def stack(layers: Sequence[Variable]) -> Variable:
    """Returns the parameter of all layers on a new leading axis, which no mesh axis splits."""
    first = layers[0]
    return first.replace(
        jnp.stack([layer.get_value() for layer in layers]),
        **{_SPEC: (None, *first.get_metadata(_SPEC))},
    )


def without_layer_axis(stacked: Variable) -> Variable:
    """Returns stacked values under one layer's metadata.

    This is what a scan or vmap wants: inside its body the leading axis is gone and the metadata
    fits the values.
    """
    return stacked.replace(stacked.get_value(), **{_SPEC: stacked.get_metadata(_SPEC)[1:]})


def map_parameters(function: Any, *trees: Any) -> Any:
    """Maps over the parameters of equal trees, each with its metadata."""
    return jax.tree.map(function, *trees, is_leaf=lambda node: isinstance(node, nnx.Variable))
