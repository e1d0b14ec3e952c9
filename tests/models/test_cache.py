"""Caches are buffers in one of two orders; tokens are written where they belong."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from layerbench_models import LAYOUTS, CacheOrder, build
from layerbench_models.cache import write_tokens


@pytest.mark.parametrize("order", CacheOrder)
@pytest.mark.parametrize("layer", [None, 1])
def test_only_the_named_slots_rows_and_layer_are_written(order, layer):
    shape = (5, 7, 3, 2) if order is CacheOrder.TOKEN_MAJOR else (5, 3, 7, 2)
    buffer = jnp.zeros(shape if layer is None else (4, *shape))
    fresh = 1 + jnp.arange(2 * 2 * 3 * 2, dtype=jnp.float32).reshape(2, 2, 3, 2)
    written = np.array(write_tokens(buffer, fresh, 4, order, row=3, layer=layer))
    here = written if layer is None else written[layer]
    token_major = here if order is CacheOrder.TOKEN_MAJOR else here.swapaxes(1, 2)
    np.testing.assert_array_equal(token_major[3:5, 4:6], fresh)
    assert np.count_nonzero(written) == fresh.size


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_abstract_cache_is_the_real_one(name):
    model = build("qwen3-tiny", name, num_layers=3, dtype="bfloat16")
    real, abstract = model.init_cache(5, 7), model.abstract_cache(5, 7)
    assert real.is_stacked == abstract.is_stacked == model.layout.cache.is_stacked
    for buffers, expected in ((real.keys, abstract.keys), (real.values, abstract.values)):
        assert [(a.shape, a.dtype) for a in buffers] == (
            [(expected.shape[1:], expected.dtype)] * 3
            if real.is_stacked
            else [(e.shape, e.dtype) for e in expected]
        )
