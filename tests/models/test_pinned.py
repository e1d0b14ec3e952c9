"""A cache whose storage on the device is pinned enters and leaves a program as it is stored."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType

from layerbench_models import Positions, build, convert_cache, convert_params

BATCH, CAPACITY = 4, 8


def stepped(model, formats, parity):
    """One decode step on the same random cache: its program, logits and cache."""
    rng = np.random.default_rng(0)
    plain = build(model.config, "unrolled")
    params = parity.random_params(model.config)
    filled = jax.tree.map(
        lambda a: jnp.asarray(rng.standard_normal(a.shape), jnp.float32),
        plain.abstract_cache(BATCH, CAPACITY),
    )
    cache = convert_cache(filled, "unrolled", model.layout)
    positions = Positions(jnp.int32(5), jnp.array([0, 2, 5, 1], jnp.int32))
    arguments = (
        convert_params(params, "unrolled", model.layout),
        cache if formats is None else jax.device_put(cache, formats),
        jnp.array([1, 2, 3, 4], jnp.int32),
        positions,
    )
    options = {}
    if formats is not None:
        options = {
            "in_shardings": (None, formats, None, None),
            "out_shardings": (None, formats),
        }
    step = parity.fast_jit(model.decode_step, donate_argnums=1, **options)
    program = step.lower(*arguments).compile()
    logits, cache = program(*arguments)
    return program, logits, convert_cache(cache, model.layout, "unrolled")


def test_only_a_layout_that_pins_has_formats(parity):
    assert build(parity.config(), "scan-token-major").cache_formats(BATCH, CAPACITY) is None


def test_a_pinned_cache_keeps_its_order_in_and_out_and_is_reused(parity):
    model = build(parity.config(), "scan-pinned")
    formats = model.cache_formats(BATCH, CAPACITY)
    program, logits, cache = stepped(model, formats, parity)
    # Layers, slots, heads, sequences: the minor axes are the batch and a head's elements.
    for tree in (program.input_formats[0][1], program.output_formats[1]):
        for form in jax.tree.leaves(tree):
            assert form.layout.major_to_minor == (0, 2, 3, 1, 4)
    cache_bytes = sum(4 * a.size for a in jax.tree.leaves(model.abstract_cache(BATCH, CAPACITY)))
    assert program.memory_analysis().alias_size_in_bytes == cache_bytes
    _, expected, expected_cache = stepped(build(model.config, "unrolled"), None, parity)
    np.testing.assert_allclose(logits, expected, rtol=0, atol=parity.LOGITS_ATOL)
    jax.tree.map(
        lambda a, e: np.testing.assert_allclose(a, e, rtol=0, atol=parity.CACHE_ATOL),
        cache,
        expected_cache,
    )


@pytest.mark.parametrize("axis", ["fsdp", "tp"])
def test_formats_split_the_cache_as_the_mesh_does(axis, parity):
    mesh = jax.make_mesh((2,), (axis,), (AxisType.Auto,))
    model = build(parity.config(), "scan-pinned", mesh=mesh)
    for form, abstract in zip(
        jax.tree.leaves(model.cache_formats(BATCH, CAPACITY)),
        jax.tree.leaves(model.abstract_cache(BATCH, CAPACITY)),
        strict=True,
    ):
        assert form.sharding == abstract.sharding
        assert form.layout.major_to_minor == (0, 2, 3, 1, 4)
