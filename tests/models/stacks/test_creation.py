"""Every way to create stacked layers gives the same numbers and, but for one, the same metadata."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
from flax import nnx
from jax.sharding import AxisType

from layerbench_models import LAYOUTS, Creation, LayoutError, Parameters, build, convert_params

LAYERS = 2
STACKED = [creation for creation in Creation if creation is not Creation.LOOP]
NAMED = [creation for creation in STACKED if creation is not Creation.VMAP_UNNAMED]
KEY = 7


def created_by(creation, parameters=Parameters.STACKED, mesh=None):
    layout = dataclasses.replace(LAYOUTS["stacked"], creation=creation, parameters=parameters)
    return build("llama3-tiny", layout, num_layers=LAYERS, mesh=mesh)


@pytest.fixture(scope="module")
def from_a_loop(parity):
    """The parameters that a loop creates, in a list."""
    return parity.fast_jit(build("llama3-tiny", "unrolled", num_layers=LAYERS).init)(
        jax.random.key(KEY)
    )


def assert_same_bits(actual, expected):
    for a, e in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(a, e)


@pytest.mark.parametrize("creation", NAMED)
@pytest.mark.parametrize("parameters", [Parameters.STACKED, Parameters.STACKED_ON_1])
def test_every_creation_gives_the_bits_and_the_metadata_of_a_loop(
    creation, parameters, from_a_loop, parity
):
    model = created_by(creation, parameters)
    expected = convert_params(from_a_loop, "unrolled", model.layout)
    created = parity.fast_jit(model.init)(jax.random.key(KEY))
    assert jax.tree.structure(created) == jax.tree.structure(expected)
    assert_same_bits(created, expected)


@pytest.fixture(scope="module")
def by_an_optimised_program():
    """The same: what runs once elsewhere here is compiled in haste, and its bits are others."""
    return jax.jit(build("llama3-tiny", "unrolled", num_layers=LAYERS).init)(jax.random.key(KEY))


@pytest.mark.parametrize("creation", STACKED)
def test_without_jit_they_are_the_same_bits(creation, by_an_optimised_program):
    model = created_by(creation)
    expected = convert_params(by_an_optimised_program, "unrolled", model.layout)
    assert_same_bits(model.init(jax.random.key(KEY)), expected)


def test_an_unnamed_axis_shifts_the_recorded_mesh_axes_and_with_them_the_split(parity):
    mesh = jax.make_mesh((2, 2), ("fsdp", "tp"), (AxisType.Auto,) * 2)
    model = created_by(Creation.VMAP_UNNAMED, mesh=mesh)
    up = model.abstract_params()["stack"]["layers"]["mlp"]["up"]
    assert up.get_metadata("out_sharding") == ("fsdp", "tp")  # and the array has three axes
    params = parity.fast_jit(model.init)(jax.random.key(KEY))
    up = params["stack"]["layers"]["mlp"]["up"].get_value()
    split = up.addressable_shards[0].data.shape
    assert split == (up.shape[0] // 2, up.shape[1] // 2, up.shape[2])


def test_an_unnamed_axis_demands_layers_that_split():
    mesh = jax.make_mesh((4,), ("fsdp",), (AxisType.Auto,))
    layout = created_by(Creation.VMAP_UNNAMED).layout
    with pytest.raises(LayoutError, match="an axis of size 3 does not split over 4 devices"):
        build("llama3-tiny", layout, num_layers=3, mesh=mesh).abstract_params()


@pytest.mark.parametrize("creation", NAMED)
def test_parameters_are_created_split_as_their_metadata_says(creation, parity, from_a_loop):
    mesh = jax.make_mesh((2, 2), ("fsdp", "tp"), (AxisType.Auto,) * 2)
    model = created_by(creation, mesh=mesh)
    params = parity.fast_jit(model.init)(jax.random.key(KEY))
    for (path, parameter), (_, abstract) in zip(
        nnx.to_flat_state(params), nnx.to_flat_state(model.abstract_params()), strict=True
    ):
        array = parameter.get_value()
        assert array.sharding.is_equivalent_to(abstract.get_value().sharding, array.ndim), path
    assert_same_bits(params, convert_params(from_a_loop, "unrolled", model.layout))


def test_writing_into_empty_stacks_needs_each_layer_once():
    """Traced with a layer's write as a call of its own, whose first argument is donated."""
    model = created_by(Creation.PREALLOCATED)
    text = str(jax.make_jaxpr(model.init)(jax.random.key(KEY)))
    assert text.count("name=_write_layer") == LAYERS


@pytest.mark.parametrize("creation", [Creation.SCAN_KEYS, Creation.VMAP])
def test_a_creation_without_a_python_loop_does_not_grow_with_the_layers(creation):
    def lines(layers):
        layout = dataclasses.replace(LAYOUTS["stacked"], creation=creation)
        model = build("llama3-tiny", layout, num_layers=layers)
        return jax.jit(model.init).lower(jax.random.key(KEY)).as_text().count("\n")

    assert lines(3) == lines(11)
