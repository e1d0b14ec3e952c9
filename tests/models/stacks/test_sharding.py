"""Parameters and caches know their mesh axes and are really split over them."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest
from flax import nnx
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from layerbench_models import LAYOUTS, LayoutError, Parameters, build, convert_params
from layerbench_models.partitioning import param_specs

LAYER_SPECS = {
    ("attention_norm", "scale"): (None,),
    ("attention", "q"): ("fsdp", "tp", None),
    ("attention", "k"): ("fsdp", "tp", None),
    ("attention", "v"): ("fsdp", "tp", None),
    ("attention", "o"): ("tp", None, "fsdp"),
    ("mlp_norm", "scale"): (None,),
    ("mlp", "gate"): ("fsdp", "tp"),
    ("mlp", "up"): ("fsdp", "tp"),
    ("mlp", "down"): ("tp", "fsdp"),
}
OTHER_SPECS = {
    ("embedding", "table"): ("tp", "fsdp"),
    ("norm", "scale"): (None,),
    ("head", "kernel"): ("fsdp", "tp"),
}


STORING_PARAMETERS = {
    layout.parameters: name for name, layout in reversed(LAYOUTS.items())
}.values()


def expected_specs(layout, layers):
    axis = layout.parameters.layer_axis
    apart = layout.parameters is Parameters.ENDS_APART
    specs = {path: PartitionSpec(*axes) for path, axes in OTHER_SPECS.items()}
    for path, axes in LAYER_SPECS.items():
        if axis is not None:
            specs["stack", "layers", *path] = PartitionSpec(*axes[:axis], None, *axes[axis:])
        elif apart and layers > 2:
            specs |= {("stack", "layers", i, *path): PartitionSpec(*axes) for i in (0, 2)}
            specs["stack", "layers", 1, *path] = PartitionSpec(None, *axes)
        else:
            specs |= {("stack", "layers", i, *path): PartitionSpec(*axes) for i in range(layers)}
    return specs


def specs_of(params):
    return {path: spec.get_value() for path, spec in nnx.to_flat_state(param_specs(params))}


def mesh_of(**axes):
    return jax.make_mesh(tuple(axes.values()), tuple(axes), (AxisType.Auto,) * len(axes))


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_parameter_has_its_mesh_axes(name):
    model = build("llama3-tiny", name, num_layers=3)
    assert specs_of(model.abstract_params()) == expected_specs(model.layout, 3)
    assert {
        path: spec.get_value() for path, spec in nnx.to_flat_state(model.partition_specs())
    } == expected_specs(model.layout, 3)


@pytest.mark.parametrize(("source", "target"), list(itertools.permutations(STORING_PARAMETERS, 2)))
def test_conversion_carries_the_mesh_axes_along(source, target):
    model = build("llama3-tiny", source, num_layers=3)
    converted = jax.eval_shape(
        lambda params: convert_params(params, source, target), model.abstract_params()
    )
    assert specs_of(converted) == expected_specs(LAYOUTS[target], 3)


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_optimizer_and_decode_parameters_have_them_too(name):
    model = build("llama3-tiny", name, num_layers=3)
    with jax.numpy_dtype_promotion("standard"):  # optax mixes types
        moments = jax.eval_shape(model.init_optimizer, model.abstract_params())[0]
    assert specs_of(moments.mu) == specs_of(moments.nu) == expected_specs(model.layout, 3)
    decode = specs_of(model.abstract_decode_params())
    assert decode in (expected_specs(LAYOUTS["unrolled"], 3), expected_specs(model.layout, 3))


@pytest.mark.parametrize("axis", ["fsdp", "tp"])
@pytest.mark.parametrize("name", [*STORING_PARAMETERS, "vmap"])
def test_parameters_and_caches_are_split_over_two_devices(name, axis, parity):
    model = build("llama3-tiny", name, num_layers=3, mesh=mesh_of(**{axis: 2}))
    params = parity.fast_jit(model.init)(jax.random.key(0))
    for (path, parameter), (_, abstract) in zip(
        nnx.to_flat_state(params), nnx.to_flat_state(model.abstract_params()), strict=True
    ):
        array, spec = parameter.get_value(), parameter.get_metadata("out_sharding")
        wanted = [
            size // 2 if a == axis else size for size, a in zip(array.shape, spec, strict=True)
        ]
        assert list(array.addressable_shards[0].data.shape) == wanted, path
        assert array.sharding.is_equivalent_to(abstract.get_value().sharding, array.ndim), path
    cache = jax.jit(lambda: model.init_cache(2, 8))()
    for buffer, abstract in zip(
        jax.tree.leaves(cache), jax.tree.leaves(model.abstract_cache(2, 8)), strict=True
    ):
        assert buffer.addressable_shards[0].data.size == buffer.size // 2
        assert buffer.sharding.is_equivalent_to(abstract.sharding, buffer.ndim)


@pytest.fixture(scope="module")
def on_one_device(parity):
    """A model whose sizes split over two devices, and what `unrolled` gives on one."""
    config = parity.config(
        hidden_dim=20, ffn_dim=28, vocab_size=38, num_layers=2, tied_embeddings=False
    )
    params = parity.random_params(config)
    tokens, lengths = parity.batch(config, [5, 2, 3, 4])
    with jax.default_matmul_precision("highest"):
        expected = parity.run(build(config, "unrolled"), params, tokens, lengths)
    return config, params, tokens, lengths, expected


@pytest.mark.parametrize("name", ["unrolled", "stacked-scan", "vmap"])
def test_a_model_on_four_devices_gives_the_numbers_of_one(name, parity, on_one_device):
    config, params, tokens, lengths, expected = on_one_device
    mesh = mesh_of(fsdp=2, tp=2)
    model = build(config, name, mesh=mesh)
    reference = build(config, "unrolled", mesh=mesh)
    spread = jax.tree.map(
        lambda a, like: jax.device_put(a, like.sharding), params, reference.abstract_params()
    )
    parity.assert_same(parity.run(model, spread, tokens, lengths), expected)


def test_an_axis_that_does_not_split_evenly_is_refused():
    model = build("llama3-tiny", "unrolled", mesh=mesh_of(tp=4))
    with pytest.raises(LayoutError) as caught:
        model.abstract_cache(2, 8)
    assert str(caught.value) == (
        "an axis of size 2 does not split over 4 devices of mesh axis 'tp': "
        "choose a mesh whose tp divides it"
    )


def test_a_mesh_of_explicit_axes_serves_as_well(parity):
    mesh = jax.make_mesh((2,), ("fsdp",), (AxisType.Explicit,))
    params = parity.fast_jit(build("llama3-tiny", "stacked-scan", mesh=mesh).init)(
        jax.random.key(0)
    )
    table = params["embedding"]["table"].get_value()
    assert isinstance(table.sharding, NamedSharding)
    np.testing.assert_equal(table.addressable_shards[0].data.shape, (256, 32))
