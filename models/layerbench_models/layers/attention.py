"""Grouped-query attention: projections, per-head norms and rotation around a given `attend`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from layerbench_models.config import ModelConfig
from layerbench_models.layers import parameter
from layerbench_models.layers.norm import RMSNorm
from layerbench_models.layers.parameter import FSDP, TP
from layerbench_models.layers.rope import Rope

Attend = Callable[[jax.Array, jax.Array, jax.Array], tuple[jax.Array, Any]]
"""(q (B,T,H,h), k (B,T,K,h), v (B,T,K,h)) -> (context (B,T,H,h), whatever the phase keeps)."""


class GroupedQueryAttention(nnx.Module):
    """Attention with K key/value heads, each shared by G query heads."""

    def __init__(self, config: ModelConfig, *, key: jax.Array, dtype: jnp.dtype) -> None:
        """Creates the parameters of one layer's attention.

        Args:
            config: The model.
            key: Random key.
            dtype: Type of the parameters.
        """
        d, h = config.hidden_dim, config.head_dim
        heads, kv_heads = config.num_heads, config.num_kv_heads
        q_key, k_key, v_key, o_key = jax.random.split(key, 4)
        into = (FSDP, TP, None)
        self.q = parameter.normal(q_key, (d, heads, h), into, fan_in=d, dtype=dtype)
        self.k = parameter.normal(k_key, (d, kv_heads, h), into, fan_in=d, dtype=dtype)
        self.v = parameter.normal(v_key, (d, kv_heads, h), into, fan_in=d, dtype=dtype)
        self.o = parameter.normal(
            o_key, (heads, h, d), (TP, None, FSDP), fan_in=heads * h, dtype=dtype
        )
        if config.qk_norm:
            self.q_norm = RMSNorm(h, eps=config.norm_eps, dtype=dtype)
            self.k_norm = RMSNorm(h, eps=config.norm_eps, dtype=dtype)
        self.qk_norm = config.qk_norm

    def __call__(self, x_btd: jax.Array, rope: Rope, attend: Attend) -> tuple[jax.Array, Any]:
        """Returns the attention's output (B, T, D) and what `attend` keeps.

        Args:
            x_btd: Normalised hidden states (B, T, D).
            rope: The tokens' rotations.
            attend: Supplied by the stack for the phase; the layer knows nothing of caches.
        """
        q = jnp.einsum("btd,dnh->btnh", x_btd, self.q[...])
        k = jnp.einsum("btd,dkh->btkh", x_btd, self.k[...])
        v = jnp.einsum("btd,dkh->btkh", x_btd, self.v[...])
        if self.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        context, kept = attend(rope.rotate(q), rope.rotate(k), v)
        return jnp.einsum("btnh,nhd->btd", context, self.o[...]), kept
