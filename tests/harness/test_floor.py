"""The floor: counted again in another way, and laws that any lower bound obeys."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerbench.floor import DecoderShape, decode_floor, prefill_floor, train_floor

SIZES = st.integers(1, 40)
SHAPES = st.builds(
    DecoderShape,
    layers=SIZES,
    layer_weights=st.integers(100, 10_000),
    layer_matmul_weights=st.integers(1, 100),
    hidden=SIZES,
    vocabulary=SIZES,
    heads=SIZES,
    kv_heads=SIZES,
    head_dim=SIZES,
    tied=st.booleans(),
    itemsize=st.sampled_from([2, 4]),
)
TINY = DecoderShape(
    layers=2,
    layer_weights=100,
    layer_matmul_weights=90,
    hidden=5,
    vocabulary=7,
    heads=4,
    kv_heads=2,
    head_dim=3,
    tied=False,
    itemsize=2,
)


def test_decode_bytes_are_those_counted_by_hand():
    # Weights: 2 layers, final norm, head, embedding rows of 3 tokens. Cache: keys and values.
    weights = (2 * 100 + 5 + 7 * 5 + 3 * 5) * 2
    cache = 2 * 2 * 2 * 3 * 2 * (3 * 11)
    assert decode_floor(TINY, batch=3, context=11).hbm_bytes == weights + cache


def test_a_tied_table_is_read_once():
    tied = dataclasses.replace(TINY, tied=True)
    untied_floor, tied_floor = (prefill_floor(s, batch=1, seq=4) for s in (TINY, tied))
    assert untied_floor.hbm_bytes - tied_floor.hbm_bytes == 4 * 5 * 2


def test_training_bytes_are_those_counted_by_hand():
    weights = 2 * 100 + 5 + 2 * 7 * 5
    moved = weights * 2 * (2 + 2 + 2) + 4 * weights * 4
    assert train_floor(TINY, batch=1, seq=8, optimizer_itemsize=4).hbm_bytes == moved


@given(SHAPES, st.integers(1, 9), st.integers(1, 99))
def test_a_longer_context_never_needs_less(shape, batch, context):
    shorter, longer = (decode_floor(shape, batch=batch, context=c) for c in (context, context + 1))
    assert longer.hbm_bytes > shorter.hbm_bytes
    assert longer.flops > shorter.flops


@given(SHAPES, st.integers(1, 9), st.integers(1, 9))
def test_a_batch_needs_no_more_than_its_sequences_one_by_one(shape, batch, seq):
    whole = prefill_floor(shape, batch=batch, seq=seq)
    single = prefill_floor(shape, batch=1, seq=seq)
    assert whole.hbm_bytes <= batch * single.hbm_bytes
    assert whole.flops == batch * single.flops


@given(SHAPES, st.integers(1, 9))
def test_a_prompt_of_one_token_does_the_work_of_a_first_decode_step(shape, batch):
    assert prefill_floor(shape, batch=batch, seq=1) == decode_floor(shape, batch=batch, context=1)


@pytest.mark.parametrize("seq", [2, 16])
def test_a_products_operations_are_what_xla_counts(seq):
    """A decoder without attention is a matrix product: XLA's own count of it is the oracle."""
    weights = jax.ShapeDtypeStruct((5, 18), jnp.float32)
    tokens = jax.ShapeDtypeStruct((3 * seq, 5), jnp.float32)
    counted = jax.jit(jnp.matmul).lower(tokens, weights).compile().cost_analysis()["flops"]
    assert TINY.projection_flops(3 * seq) == 2 * counted
