"""The token table and the output head."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from layerbench_models.config import ModelConfig
from layerbench_models.layers import parameter
from layerbench_models.layers.parameter import FSDP, TP


class Embedding(nnx.Module):
    """A table of V vectors; it is the output head too where the model ties them."""

    def __init__(self, config: ModelConfig, *, key: jax.Array, dtype: jnp.dtype) -> None:
        """Creates the table (V, D)."""
        v, d = config.vocab_size, config.hidden_dim
        self.table = parameter.normal(key, (v, d), (TP, FSDP), fan_in=d, dtype=dtype)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Looks up token ids of any shape; adds an axis D."""
        return jnp.take(self.table[...], tokens, axis=0)

    def logits(self, x: jax.Array) -> jax.Array:
        """Scores hidden states (..., D) against every token, float32 (..., V)."""
        return jnp.einsum("...d,vd->...v", x, self.table[...], preferred_element_type=jnp.float32)


class OutputHead(nnx.Module):
    """The projection to the vocabulary of a model that does not tie it to the table."""

    def __init__(self, config: ModelConfig, *, key: jax.Array, dtype: jnp.dtype) -> None:
        """Creates the projection (D, V)."""
        v, d = config.vocab_size, config.hidden_dim
        self.kernel = parameter.normal(key, (d, v), (FSDP, TP), fan_in=d, dtype=dtype)

    def logits(self, x: jax.Array) -> jax.Array:
        """Scores hidden states (..., D) against every token, float32 (..., V)."""
        return jnp.einsum("...d,dv->...v", x, self.kernel[...], preferred_element_type=jnp.float32)
