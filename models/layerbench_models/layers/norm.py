"""Root-mean-square normalisation."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from layerbench_models.layers import parameter


class RMSNorm(nnx.Module):
    """Scales the last axis to a root mean square of one, in float32, then by a learned weight."""

    def __init__(self, size: int, *, eps: float, dtype: jnp.dtype) -> None:
        """Creates the norm.

        Args:
            size: Length of the last axis.
            eps: Added to the mean square.
            dtype: Type of the weight.
        """
        self.eps = eps
        self.scale = parameter.ones((size,), (None,), dtype=dtype)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Normalises `x` (..., size) and returns the same shape and type."""
        x32 = x.astype(jnp.float32)
        mean_square = jnp.mean(jnp.square(x32), axis=-1, keepdims=True)
        normalised = x32 * lax.rsqrt(mean_square + self.eps)
        scale = self.scale[...].astype(jnp.float32)
        return (normalised * jnp.expand_dims(scale, range(x.ndim - 1))).astype(x.dtype)
