"""How a parameter is created and which mesh axes shard it."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from flax import nnx

FSDP = "fsdp"
"""Mesh axis over which parameters and the batch are split."""
TP = "tp"
"""Mesh axis over which heads, hidden feed-forward units and the vocabulary are split."""

MeshAxes = tuple[str | None, ...]


def normal(
    key: jax.Array, shape: tuple[int, ...], mesh_axes: MeshAxes, *, fan_in: int, dtype: jnp.dtype
) -> nnx.Param[jax.Array]:
    """Returns a parameter drawn from a normal distribution of variance about 1 / `fan_in`.

    The standard deviation is rounded to a power of two. Such a product is exact, so the numbers
    are the same however the compiler arranges the factors: jitted or not, vmapped or not.

    Args:
        key: Random key.
        shape: Shape of the parameter.
        mesh_axes: The mesh axis that splits each axis, or None.
        fan_in: Number of inputs summed into one output.
        dtype: Type of the elements.
    """
    scale = 2.0 ** round(-math.log2(fan_in) / 2)
    return _param(jax.random.normal(key, shape, dtype) * jnp.asarray(scale, dtype), mesh_axes)


def ones(shape: tuple[int, ...], mesh_axes: MeshAxes, *, dtype: jnp.dtype) -> nnx.Param[jax.Array]:
    """Returns a parameter of ones."""
    return _param(jnp.ones(shape, dtype), mesh_axes)


def _param(array: jax.Array, mesh_axes: MeshAxes) -> nnx.Param[jax.Array]:
    # Eager sharding places the array when the variable is made and so demands a mesh. Here the
    # axes are only recorded: the caller's jit places the parameters, with or without a mesh.
    return nnx.Param(array, out_sharding=mesh_axes, eager_sharding=False)
