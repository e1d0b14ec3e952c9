"""What the compiled decode step must not contain: a copy of the cache."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import pytest

from layerbench_models import Positions, build

BATCH, CAPACITY, LAYERS = 3, 64, 5


@pytest.fixture(scope="module")
def decode_programs(parity):
    """The compiled decode step of each sequential layout, its cache donated."""
    row = jax.ShapeDtypeStruct((BATCH,), jnp.int32)
    positions = Positions(jax.ShapeDtypeStruct((), jnp.int32), row)
    programs = {}
    for name in ("unrolled", "stacked-scan", "stacked"):
        model = build(parity.config(num_layers=LAYERS), name)
        arguments = (model.abstract_decode_params(), model.abstract_cache(BATCH, CAPACITY))
        step = jax.jit(model.decode_step, donate_argnums=1)
        programs[name] = (model, step.lower(*arguments, row, positions).compile())
    return programs


@pytest.mark.parametrize("name", ["unrolled", "stacked-scan", "stacked"])
def test_a_donated_decode_step_reuses_the_cache_and_never_copies_it(name, decode_programs):
    model, program = decode_programs[name]
    cache = jax.tree.leaves(model.abstract_cache(BATCH, CAPACITY))
    assert program.memory_analysis().alias_size_in_bytes == sum(a.size * 4 for a in cache)
    shapes = {"f32\\[" + ",".join(map(str, a.shape)) + "\\]" for a in cache}
    assert any(re.search(shape, program.as_text()) for shape in shapes)
    for shape in shapes:
        assert not re.search(rf"= {shape}\S* copy\(", program.as_text())


def test_the_scanned_program_does_not_grow_with_the_layers(parity):
    def lines(layers):
        model = build(parity.config(num_layers=layers), "stacked-scan")
        tokens = jax.ShapeDtypeStruct((2, 5), jnp.int32)
        row = jax.ShapeDtypeStruct((2,), jnp.int32)
        lowered = jax.jit(jax.grad(model.loss)).lower(model.abstract_params(), tokens, row)
        return lowered.as_text().count("\n")

    assert lines(3) == lines(11)
