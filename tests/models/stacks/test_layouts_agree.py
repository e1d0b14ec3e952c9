"""Every layout computes what `unrolled` computes; a drifted one is caught."""

from __future__ import annotations

import dataclasses
import functools

import hypothesis
import jax
import jax.numpy as jnp
import pytest
from hypothesis import strategies as st

from layerbench_models import LAYOUTS, CacheOrder, GroupedQuery, Remat, build
from layerbench_models.stacks import cache_flow, pipelined


@st.composite
def cases(draw):
    """Sizes that all differ, so that no two axes can be confused, and ragged prompts."""
    kv_heads = draw(st.sampled_from((2, 3)))
    group = draw(st.sampled_from([p for p in (2, 3, 5) if p != kv_heads]))
    layers = draw(st.sampled_from([n for n in range(1, 8) if n not in (kv_heads, group)]))
    rows = draw(st.sampled_from([n for n in range(1, 8) if n not in (kv_heads, group, layers)]))
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
    lengths = draw(st.lists(st.integers(1, slots), min_size=rows, max_size=rows))
    fields = {
        "cache_order": draw(st.sampled_from(CacheOrder)),
        "grouped_query": draw(st.sampled_from(GroupedQuery)),
        "remat": draw(st.sampled_from(Remat)),
    }
    return sizes, slots, lengths, fields


def check(name, case, parity):
    sizes, slots, lengths, fields = case
    config = parity.config(**sizes)
    model = build(config, dataclasses.replace(LAYOUTS[name], **fields))
    tokens, lengths = parity.batch(config, lengths, slots=slots)
    params = parity.random_params(config)
    expected = parity.run(build(config, "unrolled"), params, tokens, lengths)
    parity.assert_same(parity.run(model, params, tokens, lengths), expected)


def settings(examples):
    return hypothesis.settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        # A failing case is small already, and each try at a smaller one compiles for seconds.
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )


@pytest.mark.parametrize("name", LAYOUTS)
@hypothesis.given(case=cases())
@settings(2)
def test_a_layout_gives_the_logits_caches_gradients_and_tokens_of_unrolled(name, case, parity):
    check(name, case, parity)


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYOUTS)
@hypothesis.given(case=cases())
@settings(40)
def test_a_layout_gives_them_on_many_more_sizes(name, case, parity):
    check(name, case, parity)


@pytest.fixture(scope="module")
def by_unrolled(parity):
    """What `unrolled` gives for a number of layers; computed once."""

    @functools.cache
    def outcome(layers):
        config = parity.config(num_layers=layers)
        tokens, lengths = parity.batch(config, [5, 2, 7, 1, 3, 4])
        params = parity.random_params(config)
        with jax.default_matmul_precision("highest"):
            expected = parity.run(build(config, "unrolled"), params, tokens, lengths)
        return config, params, tokens, lengths, expected

    return outcome


# (layout, fields, layers): what the drawn cases need not reach. The batch is 6.
CORNERS = [
    ("unrolled", {"cache_order": CacheOrder.HEAD_MAJOR, "remat": Remat.FULL}, 4),
    ("unrolled", {"grouped_query": GroupedQuery.REPEATED}, 4),
    ("stacked-scan", {"cache_order": CacheOrder.TOKEN_MAJOR, "remat": Remat.FULL}, 4),
    ("stacked-scan", {"grouped_query": GroupedQuery.REPEATED}, 1),
    ("stacked", {"cache_order": CacheOrder.HEAD_MAJOR, "remat": Remat.FULL}, 4),
    ("vmap", {"microbatches": 1}, 4),
    ("vmap", {"microbatches": 6, "remat": Remat.FULL}, 4),
    ("vmap", {"microbatches": 3, "cache_order": CacheOrder.HEAD_MAJOR}, 4),
    ("vmap", {"grouped_query": GroupedQuery.REPEATED}, 1),
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
    right = cache_flow.TokenInCarry.attend

    def attend(self, carry, item, index):
        return right(self, carry, item, jnp.maximum(index, 1))

    monkeypatch.setattr(cache_flow.TokenInCarry, "attend", attend)


def drift_by_one_slot(monkeypatch):
    right = cache_flow.TokenInList.__init__

    def init(self, cache, positions, form):
        right(self, cache, dataclasses.replace(positions, starts=positions.starts + 1), form)

    monkeypatch.setattr(cache_flow.TokenInList, "__init__", init)


@pytest.mark.parametrize(
    ("name", "drift"),
    [
        ("vmap", drift_in_stages),
        ("stacked-scan", drift_in_one_layer),
        ("stacked", drift_by_one_slot),
    ],
)
def test_a_layout_that_drifts_is_caught(name, drift, parity, by_unrolled, monkeypatch):
    config, params, tokens, lengths, expected = by_unrolled(4)
    drift(monkeypatch)
    with pytest.raises(AssertionError):
        parity.assert_same(parity.run(build(config, name), params, tokens, lengths), expected)
