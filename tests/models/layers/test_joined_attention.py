"""Attention over a cache and the current token apart is attention over a cache that holds it."""

from __future__ import annotations

import functools

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

from layerbench_models import CacheOrder, GroupedQuery, Positions
from layerbench_models.cache import write_tokens
from layerbench_models.layers import AttentionForm, cached_attention, joined_attention

B, K, G, h = 3, 2, 5, 4


def both_ways(arrays, fill, starts, form):
    """The context with the token written first, and with the cache as it was."""
    q, k, v, keys, values = arrays
    keys, values = form.order.arrange(keys), form.order.arrange(values)
    positions = Positions(jnp.int32(fill), jnp.asarray(starts, jnp.int32))
    return both_contexts(q, k, v, keys, values, positions, form)


@functools.partial(jax.jit, static_argnums=6)
def both_contexts(q, k, v, keys, values, positions, form):  # noqa: PLR0917
    plain = cached_attention(
        q,
        write_tokens(keys, k, positions.fill, form.order),
        write_tokens(values, v, positions.fill, form.order),
        positions,
        form,
    )
    return plain, joined_attention(q, k, v, keys, values, positions, form)


def shapes_of(slots):
    return (B, 1, K * G, h), (B, 1, K, h), (B, 1, K, h), (B, slots, K, h), (B, slots, K, h)


@st.composite
def cases(draw):
    """Whole numbers, so that every score is exact and no softmax hangs on its last bits."""
    slots = draw(st.sampled_from((7, 1)))
    fill = draw(st.integers(0, slots - 1))
    # Up to the current slot; and one behind it, where a sequence has no token at all.
    starts = draw(st.lists(st.integers(0, fill + 1), min_size=B, max_size=B))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scale = draw(st.sampled_from((1, 2**4, 2**10)))
    q, k, v, keys, values = (rng.integers(-3, 4, shape) for shape in shapes_of(slots))
    arrays = (q, k * scale, v, keys * scale, values)
    form = AttentionForm(
        order=draw(st.sampled_from(CacheOrder)), grouped_query=draw(st.sampled_from(GroupedQuery))
    )
    return [jnp.asarray(a, jnp.float32) for a in arrays], fill, starts, form


@hypothesis.given(case=cases())
@hypothesis.settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(hypothesis.HealthCheck),
)
def test_the_softmax_over_both_is_the_softmax_over_one_array(case):
    plain, joined = both_ways(*case)
    assert bool(jnp.isfinite(joined).all())
    np.testing.assert_allclose(joined, plain, rtol=0, atol=1e-5)


@pytest.mark.parametrize("order", CacheOrder)
@pytest.mark.parametrize("grouped_query", GroupedQuery)
@pytest.mark.parametrize(
    ("fill", "starts"),
    [
        (4, (0, 2, 4)),  # nothing, part and all of the cache is before the sequence
        (0, (0, 0, 0)),  # a single position
        (4, (5, 5, 7)),  # no token at all: both give the mean over every slot
        (6, (0, 6, 3)),  # the cache's last slot
    ],
)
@pytest.mark.parametrize("scale", [1.0, 50.0])
def test_masks_positions_and_large_scores_leave_no_difference(
    order, grouped_query, fill, starts, scale
):
    rng = np.random.default_rng(fill)
    q, k, v, keys, values = (
        jnp.asarray(rng.standard_normal(shape), jnp.float32) for shape in shapes_of(7)
    )
    form = AttentionForm(order=order, grouped_query=grouped_query)
    plain, joined = both_ways((q, k * scale, v, keys * scale, values), fill, starts, form)
    np.testing.assert_allclose(joined, plain, rtol=0, atol=1e-5 if scale == 1 else 1e-3)


def test_what_the_current_slot_held_before_does_not_matter():
    rng = np.random.default_rng(0)
    q, k, v = (jnp.asarray(rng.standard_normal((B, 1, n, h)), jnp.float32) for n in (K * G, K, K))
    keys = jnp.asarray(rng.standard_normal((B, 5, K, h)), jnp.float32)
    positions = Positions(jnp.int32(2), jnp.array([0, 2, 3], jnp.int32))
    form = AttentionForm()
    dirty = keys.at[:, 2].set(1e9)
    expected = joined_attention(q, k, v, keys, keys, positions, form)
    found = joined_attention(q, k, v, dirty, keys, positions, form)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_narrow_types_are_summed_in_float32(dtype):
    q, k, v, keys, values = (
        jnp.ones((B, slots, heads, h), dtype)
        for slots, heads in ((1, K * G), (1, K), (1, K), (7, K), (7, K))
    )
    positions = Positions(jnp.int32(6), jnp.zeros((B,), jnp.int32))
    form = AttentionForm()
    context = jax.jit(joined_attention, static_argnums=6)(q, k, v, keys, values, positions, form)
    assert context.dtype == dtype
    np.testing.assert_allclose(np.asarray(context, np.float32), 1, atol=1e-2)
