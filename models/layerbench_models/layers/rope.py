"""Rotary position embedding, with Llama 3's stretched wavelengths."""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np

from layerbench_models.config import ModelConfig, RopeScaling


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, slots=True)
class Rope:
    """The rotation of each token, the same for all layers and heads.

    Attributes:
        cos: float32 (B, T, h/2).
        sin: float32 (B, T, h/2).
    """

    cos: jax.Array
    sin: jax.Array

    def rotate(self, x_btnh: jax.Array) -> jax.Array:
        """Rotates queries or keys (B, T, heads, h); returns the same shape and type.

        Element i of the first half is paired with element i of the second half.
        """
        first, second = jnp.split(x_btnh.astype(jnp.float32), 2, axis=-1)
        cos, sin = self.cos[:, :, None, :], self.sin[:, :, None, :]
        rotated = (first * cos - second * sin, second * cos + first * sin)
        return jnp.concatenate(rotated, axis=-1).astype(x_btnh.dtype)


def rope_table(config: ModelConfig, positions_bt: jax.Array) -> Rope:
    """Returns the rotations at the given positions.

    Args:
        config: The model.
        positions_bt: int32 (B, T), each token's place in its own sequence. Padding may be
            negative: its rotation is finite and nobody attends to it.
    """
    frequencies = jnp.asarray(inverse_frequencies(config), jnp.float32)
    angles = positions_bt.astype(jnp.float32)[:, :, None] * frequencies[None, None, :]
    return Rope(cos=jnp.cos(angles), sin=jnp.sin(angles))


def inverse_frequencies(config: ModelConfig) -> np.ndarray:
    """Returns the radians per position of each pair, float64 (h/2,)."""
    exponents = np.arange(0, config.head_dim, 2) / config.head_dim
    frequencies = config.rope_theta**-exponents
    if config.rope_scaling is None:
        return frequencies
    return _stretched(frequencies, config.rope_scaling)


def _stretched(frequencies: np.ndarray, scaling: RopeScaling) -> np.ndarray:
    """Divides low frequencies by the factor, leaves high ones, blends linearly in between."""
    turns = scaling.original_context * frequencies / (2 * math.pi)
    span = scaling.high_freq_factor - scaling.low_freq_factor
    kept = np.clip((turns - scaling.low_freq_factor) / span, 0, 1)
    return frequencies * (kept + (1 - kept) / scaling.factor)
