"""The gated feed-forward network."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from layerbench_models.config import ModelConfig
from layerbench_models.layers import parameter
from layerbench_models.layers.parameter import FSDP, TP


class GatedMLP(nnx.Module):
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, config: ModelConfig, *, key: jax.Array, dtype: jnp.dtype) -> None:
        """Creates the parameters of one layer's network.

        Args:
            config: The model.
            key: Random key.
            dtype: Type of the parameters.
        """
        d, f = config.hidden_dim, config.ffn_dim
        gate_key, up_key, down_key = jax.random.split(key, 3)
        self.gate = parameter.normal(gate_key, (d, f), (FSDP, TP), fan_in=d, dtype=dtype)
        self.up = parameter.normal(up_key, (d, f), (FSDP, TP), fan_in=d, dtype=dtype)
        self.down = parameter.normal(down_key, (f, d), (TP, FSDP), fan_in=f, dtype=dtype)

    def __call__(self, x_btd: jax.Array) -> jax.Array:
        """Maps hidden states (B, T, D) to (B, T, D)."""
        gate = jnp.einsum("btd,df->btf", x_btd, self.gate[...])
        up = jnp.einsum("btd,df->btf", x_btd, self.up[...])
        return jnp.einsum("btf,fd->btd", jax.nn.silu(gate) * up, self.down[...])
