"""Softmax attention over fresh keys (prefill, training) and over a cache (decode).

The order of the cache's axes, the form of grouped-query attention and the implementation are
data: they can outweigh the stacking of the layers.
"""

from __future__ import annotations

import dataclasses
import math
from enum import StrEnum

import jax
import jax.numpy as jnp

from layerbench_models.cache import CacheOrder
from layerbench_models.layers import pallas_attention
from layerbench_models.positions import Positions

# Finite, so that a row with nothing to attend to (padding) gives a mean and not NaN.
MASKED_SCORE = -1e30


class GroupedQuery(StrEnum):
    """How H query heads meet K key/value heads."""

    GROUPED = "grouped"
    """Queries are reshaped to (K, G): every cached element is read once."""
    GROUPED_KEYS_FIRST = "grouped-keys-first"
    """The same, with the cache as the first operand of a decode step's contraction.

    The scores come out as (B, K, S, G). XLA's CPU compiler then reads a layer's slice of a carried
    cache without the slow transposing copy that it makes otherwise.
    """
    REPEATED = "repeated"
    """Keys and values are repeated to H heads first."""


class AttentionImplementation(StrEnum):
    """What computes the attention."""

    XLA = "xla"
    """Two contractions and a softmax, left to the compiler."""
    CUDNN = "cudnn"
    """cuDNN's fused attention, on NVIDIA GPUs, in all phases."""
    PALLAS = "pallas"
    """Pallas flash attention for prefill and training on TPUs; decode as `xla`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AttentionForm:
    """How attention is computed.

    Attributes:
        order: The order of the cache's axes.
        grouped_query: How query heads meet key/value heads.
        implementation: What computes it.
    """

    order: CacheOrder = CacheOrder.TOKEN_MAJOR
    grouped_query: GroupedQuery = GroupedQuery.GROUPED
    implementation: AttentionImplementation = AttentionImplementation.XLA


def causal_attention(
    q_bthh: jax.Array,
    k_btkh: jax.Array,
    v_btkh: jax.Array,
    starts_b: jax.Array,
    form: AttentionForm,
) -> jax.Array:
    """Attends from each token to itself and the tokens before it in its own sequence.

    Args:
        q_bthh: Queries (B, T, H, h).
        k_btkh: Keys (B, T, K, h).
        v_btkh: Values (B, T, K, h).
        starts_b: int32 (B,), the slot of each sequence's first token; what is before is padding.
        form: How it is computed.

    Returns:
        The context (B, T, H, h); finite and without meaning in the padding.
    """
    if form.implementation is AttentionImplementation.PALLAS:
        group = q_bthh.shape[2] // k_btkh.shape[2]
        return pallas_attention.causal_flash_attention(
            q_bthh, jnp.repeat(k_btkh, group, axis=2), jnp.repeat(v_btkh, group, axis=2), starts_b
        )
    slots = jnp.arange(q_bthh.shape[1], dtype=jnp.int32)
    causal = slots[None, :, None] >= slots[None, None, :]
    valid = slots[None, None, :] >= starts_b[:, None, None]
    return _masked_attention(
        q_bthh,
        k_btkh,
        v_btkh,
        causal & valid,
        dataclasses.replace(form, order=CacheOrder.TOKEN_MAJOR),
    )


def cached_attention(
    q_b1hh: jax.Array,
    keys: jax.Array,
    values: jax.Array,
    positions: Positions,
    form: AttentionForm,
) -> jax.Array:
    """Attends from one token of each sequence to everything cached up to it.

    Args:
        q_b1hh: Queries (B, 1, H, h).
        keys: One layer's cached keys, in the form's order, the current token among them.
        values: One layer's cached values.
        positions: The current slot and each sequence's first one.
        form: How it is computed.

    Returns:
        The context (B, 1, H, h).
    """
    slots = jnp.arange(keys.shape[form.order.token_axis], dtype=jnp.int32)
    valid = (slots[None, :] >= positions.starts[:, None]) & (slots[None, :] <= positions.fill)
    if (
        form.grouped_query is GroupedQuery.GROUPED_KEYS_FIRST
        and form.implementation is not AttentionImplementation.CUDNN
    ):
        return _keys_first_attention(q_b1hh, keys, values, valid, form.order)
    return _masked_attention(q_b1hh, keys, values, valid[:, None, :], form)


def joined_attention(  # noqa: PLR0917 - queries, keys and values by place, as everywhere
    q_b1hh: jax.Array,
    k_b1kh: jax.Array,
    v_b1kh: jax.Array,
    keys: jax.Array,
    values: jax.Array,
    positions: Positions,
    form: AttentionForm,
) -> jax.Array:
    """Attends from one token of each sequence to everything cached before it, and to itself.

    The same as `cached_attention` over a cache with the current token in it, but the cache need not
    be written first. Scores over the cache and the token's own meet in one softmax, through the
    maximum of both.

    Args:
        q_b1hh: Queries (B, 1, H, h).
        k_b1kh: The current token's keys (B, 1, K, h).
        v_b1kh: Its values (B, 1, K, h).
        keys: One layer's cached keys, in the form's order; whatever the current slot holds.
        values: One layer's cached values.
        positions: The current slot and each sequence's first one.
        form: How it is computed; cuDNN cannot.

    Returns:
        The context (B, 1, H, h).
    """
    b, _, heads, h = q_b1hh.shape
    kv = form.order.axes
    kv_heads = k_b1kh.shape[2]
    if form.grouped_query is GroupedQuery.REPEATED:
        group = heads // kv_heads
        keys, values = (jnp.repeat(x, group, axis=kv.index("k")) for x in (keys, values))
        k_b1kh, v_b1kh = (jnp.repeat(x, group, axis=2) for x in (k_b1kh, v_b1kh))
        kv_heads = heads
    q_bkgh = q_b1hh.reshape(b, kv_heads, heads // kv_heads, h)
    slots = jnp.arange(keys.shape[form.order.token_axis], dtype=jnp.int32)
    # The cached scores' axes, and which operand of their contraction comes first.
    if form.grouped_query is GroupedQuery.GROUPED_KEYS_FIRST:
        axes, operands = "bksg", (f"{kv},bkgh", keys, q_bkgh)
        over, broadcast = 2, (slice(None), None, slice(None), None)
    else:
        axes, operands = "bkgs", (f"bkgh,{kv}", q_bkgh, keys)
        over, broadcast = 3, (slice(None), None, None, slice(None))
    scale = 1 / math.sqrt(h)
    inputs, first, second = operands
    cached = jnp.einsum(f"{inputs}->{axes}", first, second, preferred_element_type=jnp.float32)
    fresh = jnp.einsum("bkgh,bkh->bkg", q_bkgh, k_b1kh[:, 0], preferred_element_type=jnp.float32)
    before = (slots[None, :] >= positions.starts[:, None]) & (slots[None, :] < positions.fill)
    cached = jnp.where(before[broadcast], cached * scale, MASKED_SCORE)
    # What the cache holds at the current slot takes part in nothing, not even where all is masked.
    is_current = jnp.broadcast_to((slots == positions.fill)[None, :], before.shape)
    cached = jnp.where(is_current[broadcast], -jnp.inf, cached)
    is_token = (positions.fill >= positions.starts)[:, None, None]
    fresh = jnp.expand_dims(jnp.where(is_token, fresh * scale, MASKED_SCORE), over)
    highest = jnp.maximum(jnp.max(cached, axis=over, keepdims=True), fresh)
    cached, fresh = jnp.exp(cached - highest), jnp.exp(fresh - highest)
    total = jnp.sum(cached, axis=over, keepdims=True) + fresh
    cached_weights = (cached / total).astype(values.dtype)
    fresh_weights = jnp.squeeze(fresh / total, over).astype(values.dtype)
    context_bkgh = jnp.einsum(f"{axes},{kv}->bkgh", cached_weights, values)
    context_bkgh += fresh_weights[..., None] * v_b1kh[:, 0, :, None, :]
    return context_bkgh.reshape(b, 1, heads, h)


def _masked_attention(
    q_bthh: jax.Array, keys: jax.Array, values: jax.Array, mask_bts: jax.Array, form: AttentionForm
) -> jax.Array:
    if form.implementation is AttentionImplementation.CUDNN:
        return jax.nn.dot_product_attention(
            q_bthh, keys, values, mask=mask_bts[:, None], implementation="cudnn"
        )
    b, t, heads, h = q_bthh.shape
    kv = form.order.axes
    kv_heads = keys.shape[kv.index("k")]
    if form.grouped_query is GroupedQuery.REPEATED:
        keys, values = (
            jnp.repeat(x, heads // kv_heads, axis=kv.index("k")) for x in (keys, values)
        )
        kv_heads = heads
    q_btkgh = q_bthh.reshape(b, t, kv_heads, heads // kv_heads, h)
    scores = jnp.einsum(f"btkgh,{kv}->bkgts", q_btkgh, keys, preferred_element_type=jnp.float32) * (
        1 / math.sqrt(h)
    )
    scores = jnp.where(mask_bts[:, None, None], scores, MASKED_SCORE)
    weights = jax.nn.softmax(scores, axis=-1).astype(values.dtype)
    context_btkgh = jnp.einsum(f"bkgts,{kv}->btkgh", weights, values)
    return context_btkgh.reshape(b, t, heads, h)


def _keys_first_attention(
    q_b1hh: jax.Array, keys: jax.Array, values: jax.Array, mask_bs: jax.Array, order: CacheOrder
) -> jax.Array:
    b, _, heads, h = q_b1hh.shape
    kv = order.axes
    kv_heads = keys.shape[kv.index("k")]
    q_bkgh = q_b1hh.reshape(b, kv_heads, heads // kv_heads, h)
    scores = jnp.einsum(f"{kv},bkgh->bksg", keys, q_bkgh, preferred_element_type=jnp.float32) * (
        1 / math.sqrt(h)
    )
    scores = jnp.where(mask_bs[:, None, :, None], scores, MASKED_SCORE)
    weights = jax.nn.softmax(scores, axis=2).astype(values.dtype)
    return jnp.einsum(f"bksg,{kv}->bkgh", weights, values).reshape(b, 1, heads, h)
