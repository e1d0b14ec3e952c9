"""The next-token loss and the optimizer."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax

from layerbench_models.positions import sequence_starts

LEARNING_RATE = 1e-3
WEIGHT_DECAY = 1e-2


def default_optimizer() -> optax.GradientTransformation:
    """Returns AdamW with constant settings: what a step costs does not depend on them."""
    return optax.adamw(LEARNING_RATE, weight_decay=WEIGHT_DECAY)


def next_token_loss(logits_btv: jax.Array, tokens_bt: jax.Array, lengths_b: jax.Array) -> jax.Array:
    """Returns the mean cross-entropy of each token given those before it, float32 scalar.

    Args:
        logits_btv: float32 (B, T, V), the scores after each token.
        tokens_bt: int32 (B, T), left-padded.
        lengths_b: int32 (B,). A sequence of one token or none has nothing to predict; with
            nothing to predict at all the loss is zero.
    """
    slots = tokens_bt.shape[1]
    losses = optax.softmax_cross_entropy_with_integer_labels(logits_btv[:, :-1], tokens_bt[:, 1:])
    starts_b = sequence_starts(slots, lengths_b)
    predicts = jnp.arange(slots - 1, dtype=jnp.int32)[None, :] >= starts_b[:, None]
    count = jnp.maximum(jnp.sum(predicts.astype(jnp.float32)), 1.0)
    return jnp.sum(jnp.where(predicts, losses, 0.0)) / count
