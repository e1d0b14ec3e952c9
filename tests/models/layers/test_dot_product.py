"""All forms of attention give the same context; rows with nothing to see stay finite."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu

from layerbench_models import AttentionImplementation, CacheOrder, GroupedQuery, Positions
from layerbench_models.layers import AttentionForm, cached_attention, causal_attention

B, T, K, G, h = 3, 11, 2, 5, 14


def arrays(*shapes, seed=0):
    rng = np.random.default_rng(seed)
    return [jnp.asarray(rng.standard_normal(shape), jnp.float32) for shape in shapes]


def plain_attention(q, k, v, visible):
    """q (B,T,H,h), k and v (B,S,K,h), visible (B,T,S), in float64."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    k, v = (np.repeat(x, q.shape[2] // k.shape[2], axis=2) for x in (k, v))
    scores = np.einsum("btnh,bsnh->bnts", q, k) / np.sqrt(q.shape[-1])
    scores = np.where(visible[:, None], scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("bnts,bsnh->btnh", weights / weights.sum(-1, keepdims=True), v)


@pytest.mark.parametrize("grouped_query", GroupedQuery)
def test_causal_attention_sees_its_own_sequence_up_to_itself(grouped_query):
    q, k, v = arrays((B, T, K * G, h), (B, T, K, h), (B, T, K, h))
    starts = np.array([0, 4, 10], np.int32)
    found = causal_attention(
        q, k, v, jnp.asarray(starts), AttentionForm(grouped_query=grouped_query)
    )
    slots = np.arange(T)
    causal = slots[:, None] >= slots[None, :]
    visible = causal[None] & (slots[None, None] >= starts[:, None, None])
    for row, start in enumerate(starts):
        expected = plain_attention(
            q[row : row + 1, start:],
            k[row : row + 1],
            v[row : row + 1],
            visible[row : row + 1, start:],
        )
        np.testing.assert_allclose(found[row, start:], expected[0], atol=1e-5)


@pytest.mark.parametrize("order", CacheOrder)
@pytest.mark.parametrize("grouped_query", GroupedQuery)
def test_cached_attention_sees_the_filled_slots_of_its_sequence(order, grouped_query):
    q, k, v = arrays((B, 1, K * G, h), (B, T, K, h), (B, T, K, h))
    positions = Positions(jnp.int32(7), jnp.array([0, 3, 7], jnp.int32))
    form = AttentionForm(order=order, grouped_query=grouped_query)
    found = cached_attention(q, order.arrange(k), order.arrange(v), positions, form)
    slots = np.arange(T)[None, None]
    visible = (slots >= np.asarray(positions.starts)[:, None, None]) & (slots <= 7)
    np.testing.assert_allclose(found, plain_attention(q, k, v, visible), atol=1e-5)


@pytest.mark.parametrize("grouped_query", GroupedQuery)
def test_a_sequence_without_tokens_gives_finite_numbers_and_gradients(grouped_query):
    q, k, v = arrays((1, T, K * G, h), (1, T, K, h), (1, T, K, h))
    form = AttentionForm(grouped_query=grouped_query)
    empty = jnp.array([T], jnp.int32)
    gradients = jax.grad(lambda *qkv: causal_attention(*qkv, empty, form).sum(), (0, 1, 2))(q, k, v)
    assert all(bool(jnp.isfinite(x).all()) for x in gradients)
    nothing = Positions(jnp.int32(2), jnp.array([5], jnp.int32))
    assert bool(jnp.isfinite(cached_attention(q[:, :1], k, v, nothing, form)).all())


@pytest.mark.parametrize("tokens", [11, 128])
def test_pallas_flash_attention_gives_the_context_of_xla(tokens):
    """On TPU; here through jax's interpreter of TPU kernels."""
    q, k, v = arrays((1, tokens, 4, 128), (1, tokens, 2, 128), (1, tokens, 2, 128))
    starts = jnp.array([4], jnp.int32)
    expected = causal_attention(q, k, v, starts, AttentionForm())
    form = AttentionForm(implementation=AttentionImplementation.PALLAS)
    # The kernel's own arithmetic mixes types and ranks.
    with (
        pltpu.force_tpu_interpret_mode(),
        jax.numpy_rank_promotion("allow"),
        jax.numpy_dtype_promotion("standard"),
    ):
        found = causal_attention(q, k, v, starts, form)
    np.testing.assert_allclose(found[:, 4:], expected[:, 4:], atol=1e-5)
    assert bool(jnp.isfinite(found).all())
