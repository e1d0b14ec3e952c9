"""Every layout computes what `unrolled` computes; a drifted one is caught."""

from __future__ import annotations

import contextlib
import dataclasses

import hypothesis
import jax
import jax.numpy as jnp
import pytest
from hypothesis import strategies as st

from layerbench_models import (
    LAYOUTS,
    CacheForm,
    CacheOrder,
    GroupedQuery,
    LayoutError,
    Parameters,
    Remat,
    build,
)
from layerbench_models.stacks import cache_flow, phase, pipelined

# Creation does not matter here: parameters come in, and those of one key are compared elsewhere.
DISTINCT = [name for name in LAYOUTS if not name.startswith("created-")]


def choices(layout, field, values):
    """The values of a field that make sense in a layout, each layout beginning with another."""
    valid = []
    for value in values:
        with contextlib.suppress(LayoutError):
            dataclasses.replace(layout, **{field: value})
            valid.append(value)
    first = list(LAYOUTS).index(layout.name) % len(valid)
    return st.sampled_from(valid[first:] + valid[:first])


@st.composite
def cases(draw, name):
    """Sizes that all differ, so that no two axes can be confused, ragged prompts, and a layout.

    Sizes and prompts are drawn first, so that all layouts get the same ones: what they are held to
    is computed once.
    """
    kv_heads = draw(st.sampled_from((2, 3)))
    group = draw(st.sampled_from([p for p in (2, 3, 5) if p != kv_heads]))
    layers = draw(st.sampled_from([n for n in (5, 7, 6, 4, 2, 3, 1) if n not in (kv_heads, group)]))
    rows = draw(
        st.sampled_from([n for n in (4, 6, 1, 7, 5, 3, 2) if n not in (kv_heads, group, layers)])
    )
    slots = draw(st.sampled_from((11, 13)))
    sizes = {
        "num_layers": layers,
        "num_kv_heads": kv_heads,
        "num_heads": kv_heads * group,
        "head_dim": draw(st.sampled_from((14, 22))),
        "hidden_dim": draw(st.sampled_from((17, 19, 23))),
        "ffn_dim": draw(st.sampled_from((29, 31))),
        "vocab_size": draw(st.sampled_from((37, 41, 43))),
        "tied_embeddings": draw(st.booleans()),
        "qk_norm": draw(st.booleans()),
    }
    lengths = [draw(st.sampled_from((3, 1, *range(4, slots + 1), 2))) for _ in range(rows)]
    layout = LAYOUTS[name]
    for field, values in (
        ("cache_order", CacheOrder),
        ("grouped_query", GroupedQuery),
        ("remat", Remat),
    ):
        layout = dataclasses.replace(layout, **{field: draw(choices(layout, field, values))})
    return sizes, slots, lengths, layout


def check(case, parity):
    sizes, slots, lengths, layout = case
    config = parity.config(**sizes)
    tokens, lengths = parity.batch(config, lengths, slots=slots)
    expected = parity.expected(config, tokens, lengths)
    params = parity.random_params(config)
    parity.assert_same(parity.run(build(config, layout), params, tokens, lengths), expected)


def settings(examples):
    return hypothesis.settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        # A failing case is small already, and each try at a smaller one compiles for seconds.
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )


@pytest.mark.parametrize("name", DISTINCT)
@hypothesis.given(data=st.data())
@settings(1)
def test_a_layout_gives_the_logits_caches_gradients_and_tokens_of_unrolled(name, data, parity):
    check(data.draw(cases(name)), parity)


@hypothesis.given(data=st.data())
@settings(4)
def test_layouts_give_them_on_other_sizes(data, parity):
    check(data.draw(cases(data.draw(st.sampled_from(DISTINCT[::-1])))), parity)


@pytest.mark.slow
@pytest.mark.parametrize("name", DISTINCT)
@hypothesis.given(data=st.data())
@settings(20)
def test_a_layout_gives_them_on_many_more_sizes(name, data, parity):
    check(data.draw(cases(name)), parity)


@pytest.fixture(scope="module")
def by_unrolled(parity):
    """What `unrolled` gives for a number of layers."""

    def outcome(layers):
        config = parity.config(num_layers=layers)
        tokens, lengths = parity.batch(config, [5, 2, 7, 1, 3, 4])
        params = parity.random_params(config)
        return config, params, tokens, lengths, parity.expected(config, tokens, lengths)

    return outcome


# (layout, fields, layers): what the drawn cases need not reach. The batch is 6.
CORNERS = [
    ("stacked-scan", {"grouped_query": GroupedQuery.REPEATED}, 1),
    ("vmap", {"microbatches": 1}, 1),
    ("vmap", {"microbatches": 6, "remat": Remat.FULL}, 4),
    ("vmap", {"microbatches": 3, "cache_order": CacheOrder.HEAD_MAJOR}, 4),
    ("vmap", {"parameters": Parameters.STACKED_ON_1}, 4),
    # Layers that are left over behind the last whole turn or block, and the smallest hybrids.
    ("scan-unroll-4", {"cache": CacheForm.XS_YS}, 1),
    ("nested-scan", {"block": 3, "cache": CacheForm.DEFERRED_WRITE}, 4),
    ("hybrid", {"cache": CacheForm.XS_YS}, 4),
    ("hybrid", {}, 1),
    # Stacked caches meet a Python loop.
    ("unrolled", {"cache": CacheForm.XS_YS}, 1),
    ("unrolled", {"cache": CacheForm.DEFERRED_WRITE}, 1),
    ("inner-jit", {"cache": CacheForm.CARRY_LAYER}, 4),
    # Each loop by index emits from one cache and carries another.
    ("fori", {"cache": CacheForm.XS_YS, "parameters": Parameters.STACKED_ON_1}, 4),
    ("scan-closure", {"cache": CacheForm.DEFERRED_WRITE}, 4),
    ("nnx-scan", {"cache": CacheForm.XS_YS, "parameters": Parameters.STACKED_ON_1}, 4),
]


@pytest.mark.parametrize(("name", "fields", "layers"), CORNERS)
def test_every_field_of_a_layout_leaves_the_numbers_alone(
    name, fields, layers, parity, by_unrolled
):
    config, params, tokens, lengths, expected = by_unrolled(layers)
    model = build(config, dataclasses.replace(LAYOUTS[name], **fields))
    parity.assert_same(parity.run(model, params, tokens, lengths), expected)


def drift_in_stages(monkeypatch):
    monkeypatch.setattr(
        pipelined._Stage,
        "rows",
        lambda self, cache, count: jax.tree.map(lambda a: a[:count], cache),
    )


def drift_in_one_layer(monkeypatch):
    right = cache_flow.InCarry.attend

    def attend(self, carry, item, index):
        return right(self, carry, item, jnp.maximum(index, 1))

    monkeypatch.setattr(cache_flow.InCarry, "attend", attend)


def drift_by_one_slot(monkeypatch):
    right = phase.cached_attention

    def attention(q, keys, values, positions, form):
        later = dataclasses.replace(positions, starts=positions.starts + 1)
        return right(q, keys, values, later, form)

    monkeypatch.setattr(phase, "cached_attention", attention)


def drift_by_the_current_token(monkeypatch):
    right = phase.joined_attention

    def attention(q, k, v, *rest):
        return right(q, k, jnp.zeros_like(v), *rest)

    monkeypatch.setattr(phase, "joined_attention", attention)


@pytest.mark.parametrize(
    ("name", "drift"),
    [
        ("vmap", drift_in_stages),
        ("stacked-scan", drift_in_one_layer),
        ("stacked", drift_by_one_slot),
        ("scan-deferred-write", drift_by_the_current_token),
    ],
)
def test_a_layout_that_drifts_is_caught(name, drift, parity, by_unrolled, monkeypatch):
    config, params, tokens, lengths, expected = by_unrolled(4)
    drift(monkeypatch)
    with pytest.raises(AssertionError):
        parity.assert_same(parity.run(build(config, name), params, tokens, lengths), expected)
