"""What is computed again changes no gradient, and how much is stored."""

from __future__ import annotations

import dataclasses
import math

import jax
import numpy as np
import pytest

from layerbench_models import LAYOUTS, Remat, RematScope, build
from layerbench_models.stacks.forward import block_size

LAYERS = 4


@pytest.fixture(scope="module")
def case(parity):
    config = parity.config(num_layers=LAYERS)
    tokens, lengths = parity.batch(config, [5, 2, 7, 1, 3, 4])
    expected = parity.expected(config, tokens, lengths)
    return config, parity.random_params(config), tokens, lengths, expected


@pytest.mark.parametrize(
    ("name", "remat", "scope"),
    [
        ("unrolled", Remat.DOTS, RematScope.LAYER),
        ("unrolled", Remat.NAMED, RematScope.MODEL),
        ("stacked-scan", Remat.NAMED, RematScope.LAYER),
        ("stacked-scan", Remat.FULL, RematScope.MODEL),
        ("nested-scan", Remat.NESTED, RematScope.LAYER),
        ("nested-scan", Remat.DOTS, RematScope.MODEL),
        ("vmap", Remat.DOTS, RematScope.LAYER),
        ("vmap", Remat.FULL, RematScope.MODEL),
        ("scan-closure", Remat.FULL, RematScope.LAYER),
        ("fori", Remat.NAMED, RematScope.LAYER),
        ("nnx-scan", Remat.DOTS, RematScope.LAYER),
        ("hybrid", Remat.FULL, RematScope.LAYER),
        ("inner-jit", Remat.NAMED, RematScope.LAYER),
    ],
)
def test_gradients_are_those_of_unrolled(name, remat, scope, case, parity):
    config, params, tokens, lengths, expected = case
    layout = dataclasses.replace(LAYOUTS[name], remat=remat, remat_scope=scope)
    found = parity.gradients(build(config, layout), params, tokens, lengths)
    parity.assert_same_gradients(found, expected)


def residual_elements(parity, name, layers, **fields):
    """Elements that a forward pass stores for its backward pass, parameters and input left out."""
    config = parity.config(num_layers=layers)
    model = build(config, dataclasses.replace(LAYOUTS[name], **fields))
    tokens, lengths = parity.batch(config, [5, 2, 7, 1, 3, 4])
    params = model.abstract_params()
    _, backward = jax.eval_shape(
        lambda p: jax.vjp(lambda q: model.loss(q, tokens, lengths), p), params
    )
    weights = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(backward)) - weights


def test_more_is_stored_the_less_is_computed_again(parity):
    stored = [
        residual_elements(parity, "stacked-scan", 16, remat=remat)
        for remat in (Remat.FULL, Remat.NAMED, Remat.DOTS, Remat.NONE)
    ]
    assert stored == sorted(stored)
    assert len(set(stored)) == 4


def test_nested_remat_stores_blocks_and_remat_of_the_model_its_input(parity):
    def growth(name, **fields):
        few, many = (residual_elements(parity, name, layers, **fields) for layers in (16, 64))
        return many - few

    by_layer = growth("stacked-scan", remat=Remat.FULL)
    by_block = growth("nested-scan", remat=Remat.NESTED)
    whole = growth("stacked-scan", remat=Remat.FULL, remat_scope=RematScope.MODEL)
    # 48 layers more are 4 blocks more: of 4 blocks at 16 layers, of 8 at 64.
    np.testing.assert_allclose(by_block / by_layer, 4 / 48, rtol=0.1)
    assert whole == 0


@pytest.mark.parametrize(
    ("layers", "wanted", "size"),
    [
        (16, None, 4),
        (28, None, 4),
        (36, None, 6),
        (6, None, 2),
        (7, None, 2),
        (61, None, 7),
        (4, None, 2),
        (3, None, 1),
        (2, None, 1),
        (1, None, 1),
        (12, 5, 5),
        (3, 5, 3),
    ],
)
def test_a_block_is_the_divisor_nearest_to_the_root(layers, wanted, size):
    assert block_size(layers, wanted) == size
