"""The pipeline runs all layers at once and writes nothing in its bubble."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from layerbench_models import LayoutError, Positions, build
from layerbench_models.stacks.pipelined import microbatch_count


@pytest.mark.parametrize(
    ("batch", "layers", "wanted", "count"),
    [
        (8, 4, None, 4),
        (6, 4, None, 3),
        (5, 4, None, 1),
        (1, 4, None, 1),
        (8, 4, 8, 8),
        (8, 4, 2, 2),
    ],
)
def test_the_largest_divisor_of_the_batch_up_to_the_layers_is_taken(batch, layers, wanted, count):
    assert microbatch_count(batch, layers, wanted) == count


def test_micro_batches_that_do_not_divide_the_batch_are_refused():
    with pytest.raises(LayoutError) as caught:
        microbatch_count(8, 4, 3)
    assert str(caught.value) == (
        "a batch of 8 does not split into 3 micro-batches: give a number that divides the batch"
    )


def test_slots_outside_the_written_ones_keep_their_bits(parity):
    model = build(parity.config(num_layers=3), "vmap")
    params = jax.tree.map(lambda a: jnp.full(a.shape, 0.1), model.abstract_params())
    cache = jax.tree.map(lambda a: jnp.full(a.shape, 7.0), model.abstract_cache(4, 6))
    positions = Positions(jnp.int32(2), jnp.zeros((4,), jnp.int32))
    _, cache = parity.fast_jit(model.decode_step)(
        params, cache, jnp.zeros((4,), jnp.int32), positions
    )
    for buffer in (cache.keys, cache.values):
        assert not np.any(np.asarray(buffer[:, :, 2]) == 7.0)
        assert np.all(np.delete(np.asarray(buffer), 2, axis=2) == 7.0)


@pytest.mark.parametrize("phase", ["prefill", "decode_step", "loss"])
def test_the_program_does_not_grow_with_the_layers(phase, parity):
    def lines(layers):
        model = build(parity.config(), "vmap", num_layers=layers)
        params, cache = model.abstract_params(), model.abstract_cache(2, 8)
        row = jax.ShapeDtypeStruct((2,), jnp.int32)
        tokens = jax.ShapeDtypeStruct((2, 5), jnp.int32)
        arguments = {
            "prefill": (params, cache, tokens, row),
            "decode_step": (
                params,
                cache,
                row,
                Positions(jax.ShapeDtypeStruct((), jnp.int32), row),
            ),
            "loss": (params, tokens, row),
        }[phase]
        return jax.jit(getattr(model, phase)).lower(*arguments).as_text().count("\n")

    assert lines(3) == lines(11)
