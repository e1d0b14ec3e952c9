"""One decoder layer."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

from layerbench_models.config import ModelConfig
from layerbench_models.layers.attention import Attend, GroupedQueryAttention
from layerbench_models.layers.mlp import GatedMLP
from layerbench_models.layers.norm import RMSNorm
from layerbench_models.layers.rope import Rope

__all__ = ["SAVED_NAMES", "Attend", "DecoderLayer"]

SAVED_NAMES = ("attention_output", "mlp_output")
"""Names of the values in a layer that rematerialisation by name stores."""


class DecoderLayer(nnx.Module):
    """Attention and feed-forward network, each behind a norm and around a residual.

    A layer knows nothing of phases and caches: the stack passes in `attend`. That is what lets
    every way to run the layers meet every way to keep the cache.
    """

    def __init__(self, config: ModelConfig, *, key: jax.Array, dtype: jnp.dtype) -> None:
        """Creates one layer's parameters.

        Args:
            config: The model.
            key: Random key of this layer.
            dtype: Type of the parameters.
        """
        attention_key, mlp_key = jax.random.split(key)
        d, eps = config.hidden_dim, config.norm_eps
        self.attention_norm = RMSNorm(d, eps=eps, dtype=dtype)
        self.attention = GroupedQueryAttention(config, key=attention_key, dtype=dtype)
        self.mlp_norm = RMSNorm(d, eps=eps, dtype=dtype)
        self.mlp = GatedMLP(config, key=mlp_key, dtype=dtype)

    def __call__(self, x_btd: jax.Array, rope: Rope, attend: Attend) -> tuple[jax.Array, Any]:
        """Returns the hidden states (B, T, D) after this layer, and what `attend` keeps."""
        attended, kept = self.attention(self.attention_norm(x_btd), rope, attend)
        attention_name, mlp_name = SAVED_NAMES
        x_btd = x_btd + checkpoint_name(attended, attention_name)
        return x_btd + checkpoint_name(self.mlp(self.mlp_norm(x_btd)), mlp_name), kept
