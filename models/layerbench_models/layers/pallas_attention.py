"""Flash attention for TPUs, through the Pallas kernel that ships with jax."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

BLOCK = 128
"""Tokens in a block: the kernel takes whole blocks only."""


def causal_flash_attention(
    q_bthh: jax.Array, k_bthh: jax.Array, v_bthh: jax.Array, starts_b: jax.Array
) -> jax.Array:
    """Causal attention of left-padded sequences.

    Args:
        q_bthh: Queries (B, T, H, h).
        k_bthh: Keys, repeated to the query heads (B, T, H, h).
        v_bthh: Values, repeated likewise.
        starts_b: int32 (B,), the slot of each sequence's first token.

    Returns:
        The context (B, T, H, h); finite and without meaning in the padding.
    """
    # Pallas is slow to import and few programs use it.
    from jax.experimental.pallas.ops.tpu import flash_attention as flash  # noqa: PLC0415

    tokens = q_bthh.shape[1]
    padding = -tokens % BLOCK
    q, k, v = (
        jnp.pad(x, ((0, 0), (0, padding), (0, 0), (0, 0))).swapaxes(1, 2)
        for x in (q_bthh, k_bthh, v_bthh)
    )
    slots = jnp.arange(tokens + padding, dtype=jnp.int32)
    # Padding is a segment of its own, so each row of it still attends to itself: no empty softmax.
    # The slots behind the last token need none, since causality hides them.
    segments = (slots[None, :] >= starts_b[:, None]).astype(jnp.int32)
    context = flash.flash_attention(
        q,
        k,
        v,
        segment_ids=flash.SegmentIds(q=segments, kv=segments),
        causal=True,
        sm_scale=1 / math.sqrt(q_bthh.shape[-1]),
    )
    return context.swapaxes(1, 2)[:, :tokens]
