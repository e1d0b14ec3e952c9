"""Parameters and caches survive every conversion bit for bit, metadata and all."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest

from layerbench_models import LAYOUTS, build, convert_cache, convert_params
from layerbench_models.cache import KVCache

# One layout for each way to store parameters, and one for each way to store a cache.
STORING_PARAMETERS = {
    layout.parameters: name for name, layout in reversed(LAYOUTS.items())
}.values()
STORING_CACHES = {
    (layout.cache.is_stacked, layout.cache_order): name
    for name, layout in reversed(LAYOUTS.items())
}.values()
LAYERS = 3


def assert_identical(actual, expected):
    # The structure holds the metadata of every parameter, its mesh axes among them.
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    jax.tree.map(np.testing.assert_array_equal, actual, expected)


@pytest.fixture(scope="module")
def params(parity):
    """The parameters that each layout creates itself, from one key."""
    key = jax.random.key(7)
    return {
        name: parity.fast_jit(build("llama3-tiny", name, num_layers=LAYERS).init)(key)
        for name in STORING_PARAMETERS
    }


@pytest.mark.parametrize(("source", "target"), list(itertools.permutations(STORING_PARAMETERS, 2)))
def test_parameters_convert_into_those_that_the_other_layout_creates(source, target, params):
    assert_identical(convert_params(params[source], source, target), params[target])


def test_parameters_created_without_jit_are_the_same_bits():
    """Against an optimised program: what runs once elsewhere here is compiled in haste."""
    key = jax.random.key(7)
    scanned = build("llama3-tiny", "stacked-scan", num_layers=2)
    expected = jax.jit(scanned.init)(key)
    assert_identical(scanned.init(key), expected)
    unrolled = build("llama3-tiny", "unrolled", num_layers=2)
    assert_identical(convert_params(unrolled.init(key), "unrolled", "stacked-scan"), expected)
    assert_identical(
        convert_params(jax.jit(unrolled.init)(key), "unrolled", "stacked-scan"), expected
    )


def test_layers_differ_from_each_other(params):
    q = params["stacked-scan"]["stack"]["layers"]["attention"]["q"].get_value()
    assert not np.array_equal(q[0], q[1])


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("name", STORING_PARAMETERS)
def test_few_layers_convert_and_come_back(name, layers):
    model = build("llama3-tiny", name, num_layers=layers)
    rng = np.random.default_rng(0)
    params = jax.tree.map(
        lambda a: rng.standard_normal(a.shape).astype(np.float32), model.abstract_params()
    )
    in_a_list = convert_params(params, name, "unrolled")
    expected = build("llama3-tiny", "unrolled", num_layers=layers).abstract_params()
    assert jax.tree.structure(in_a_list) == jax.tree.structure(expected)
    assert jax.tree.map(np.shape, in_a_list) == jax.tree.map(np.shape, expected)
    assert_identical(convert_params(in_a_list, "unrolled", name), params)


@pytest.mark.parametrize(("source", "target"), list(itertools.permutations(STORING_CACHES, 2)))
def test_caches_convert_and_come_back(source, target):
    model = build("qwen3-tiny", source, num_layers=2)
    rng = np.random.default_rng(0)
    cache = jax.tree.map(
        lambda a: rng.standard_normal(a.shape).astype(np.float32), model.abstract_cache(5, 7)
    )
    there = convert_cache(cache, source, target)
    expected = build("qwen3-tiny", target, num_layers=2).abstract_cache(5, 7)
    assert jax.tree.structure(there) == jax.tree.structure(expected)
    assert jax.tree.map(np.shape, there) == jax.tree.map(np.shape, expected)
    assert_identical(convert_cache(there, target, source), cache)
    assert isinstance(there, KVCache)
