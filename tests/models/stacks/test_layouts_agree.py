"""Every layout computes what `unrolled` computes; a drifted one is caught."""

from __future__ import annotations

import dataclasses

import hypothesis
import jax
import pytest
from hypothesis import strategies as st
from layerbench_models import LAYOUTS, CacheOrder, GroupedQuery, Remat, build
from layerbench_models.errors import LayoutError
from layerbench_models.stacks import cache_flow, pipelined

PRIME = dict(enumerate((2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43)))


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


@pytest.mark.parametrize("name", LAYOUTS)
@hypothesis.given(case=cases())
@hypothesis.settings(
    max_examples=5,
    deadline=None,
    derandomize=True,
    phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
    suppress_health_check=list(hypothesis.HealthCheck),
)
def test_a_layout_gives_the_logits_caches_gradients_and_tokens_of_unrolled(name, case, parity):
    sizes, slots, lengths, fields = case
    config = parity.config(**sizes)
    unrolled = build(config, "unrolled")
    model = build(config, dataclasses.replace(LAYOUTS[name], **fields))
    tokens, lengths = parity.batch(config, lengths, slots=slots)
    expected = parity.run(unrolled, parity.random_params(unrolled), tokens, lengths)
    actual = parity.run(model, parity.random_params(model), tokens, lengths)
    parity.assert_same(actual, expected)
