"""The exact metrics of real programs, sound and faulty, with the bytes that they must have."""

import jax.numpy as jnp
import pytest
from jax import lax
from layerbench_tests_programs import (
    CACHE_BYTES,
    LAYER_BYTES,
    LAYERS,
    abstract,
    carried_cache_step,
    module,
    passed_cache_step,
    read,
    read_step,
)

from layerbench import Turns
from layerbench.measure.program.analysis import analyse
from layerbench.measure.program.buffers import Watched
from layerbench.measure.program.figures import Place, collectives, program_figures
from layerbench.measure.program.weights import Weight
from layerbench.metrics import METRICS

TURNS = Turns(short=1, long=9, with_turns=lambda arguments, turns: (*arguments[:-1], turns))


def value(reading, name):
    return reading.metrics[name].value


def test_a_cache_in_the_carry_is_written_in_place():
    reading = read_step(carried_cache_step)
    assert value(reading, "cache_copy_bytes") == 0
    assert value(reading, "layer_update_bytes") == 0
    assert value(reading, "undonated_bytes") == 0
    assert reading.notes == ()


def test_a_cache_passed_through_a_scan_is_written_whole_and_copied():
    reading, sound = read_step(passed_cache_step), read_step(carried_cache_step)
    assert value(reading, "layer_update_bytes") == LAYERS * LAYER_BYTES
    copies = value(reading, "cache_copy_bytes") / CACHE_BYTES
    assert copies == round(copies) >= 1
    extra = value(reading, "hbm_bytes") - value(sound, "hbm_bytes")
    # A copy is read and written.
    assert extra > 2 * value(reading, "cache_copy_bytes")


def test_a_cache_that_is_not_donated_is_copied_once():
    cache = abstract(LAYERS, 2, 61, 17)
    arguments = (cache, abstract(2, 17), abstract(dtype=jnp.int32))
    reading = read(carried_cache_step, arguments, watched={"kv_cache": cache})
    assert value(reading, "cache_copy_bytes") == CACHE_BYTES


def test_a_donated_buffer_without_a_result_of_its_size_is_undonated():
    with pytest.warns(UserWarning, match="donated buffers were not usable"):
        reading = read(lambda x, y: x.sum() + y, (abstract(31, 7), abstract()), donated=(0,))
    assert value(reading, "undonated_bytes") == 31 * 7 * 4


def sliced_in_loop(stack, x, turns):
    def turn(_, x):
        return lax.scan(lambda x, layer: (jnp.tanh(x @ layer), None), x, stack)[0]

    return lax.fori_loop(0, turns, turn, x)


def sliced_before_loop(stack, x, turns):
    layers = [lax.optimization_barrier(stack[index]) for index in range(LAYERS)]

    def turn(_, x):
        for layer in layers:
            x = jnp.tanh(x @ layer)
        return x

    return lax.fori_loop(0, turns, turn, x)


def read_loop(function, **options):
    stack = abstract(LAYERS, 64, 64)
    arguments = (stack, abstract(2, 64), abstract(dtype=jnp.int32))
    return read(function, arguments, watched={"weights": stack}, turns=TURNS, **options)


def test_weights_sliced_in_every_turn_differ_from_those_sliced_once():
    weights = LAYERS * 64 * 64 * 4
    inside, before = read_loop(sliced_in_loop), read_loop(sliced_before_loop)
    assert value(inside, "loop_weight_slice_bytes") == weights
    assert value(before, "loop_weight_slice_bytes") == 0
    # A slice is read and written, and then used; the loop itself moves a little more.
    extra = value(inside, "hbm_bytes") - value(before, "hbm_bytes")
    assert extra == pytest.approx(2 * weights, rel=0.05)
    assert value(before, "hbm_bytes_once") == pytest.approx(2 * weights, rel=0.05)
    assert value(inside, "hbm_bytes_once") < 0.05 * weights


def test_a_step_of_a_loop_is_one_turn():
    reading = read_loop(sliced_before_loop, floor_bytes=LAYERS * 64 * 64 * 4)
    assert value(reading, "flops") == LAYERS * 2 * 2 * 64 * 64
    assert value(reading, "hbm_floor_ratio") == pytest.approx(1, abs=0.15)


def test_a_loop_that_is_not_there_leaves_its_figures_out_and_says_so():
    reading = read(jnp.tanh, (abstract(3),), turns=TURNS)
    assert "hbm_bytes" not in reading.metrics
    assert "decode loop was not found" in reading.notes[0]


def test_a_loop_of_unknown_trips_counts_one_and_is_named():
    reading = read(
        lambda x: lax.while_loop(lambda x: x.sum() < 9, lambda x: jnp.tanh(x) + 1, x),
        (abstract(4),),
    )
    assert "count one trip each: while" in reading.notes[0]


def test_every_figure_is_declared():
    readings = [read_step(passed_cache_step), read_loop(sliced_in_loop)]
    assert {name for reading in readings for name in reading.metrics} <= set(METRICS)


def test_arguments_that_the_program_drops_do_not_shift_the_others():
    cache = abstract(LAYERS, 2, 61, 17)
    arguments = (abstract(5), cache, abstract(2, 17), abstract(dtype=jnp.int32))
    reading = read(
        lambda _, *rest: carried_cache_step(*rest), arguments, watched={"kv_cache": cache}
    )
    assert value(reading, "cache_copy_bytes") == CACHE_BYTES
    assert reading.notes == ()


def test_buffers_that_are_no_argument_are_told_by_their_shape_and_the_record_says_so():
    arguments = (abstract(LAYERS, 2, 61, 17), abstract(2, 17), abstract(dtype=jnp.int32))
    reading = read(carried_cache_step, arguments, watched={"kv_cache": abstract(LAYERS, 2, 61, 17)})
    assert value(reading, "cache_copy_bytes") == CACHE_BYTES
    assert "told by their shape" in reading.notes[0]


def test_two_watched_buffers_of_one_abstract_array_are_both_followed():
    each = abstract(31, 7)
    reading = read(
        lambda keys, values: (keys.at[0].add(1), values.at[0].add(1)),
        (each, each),
        watched={"kv_cache": (each, each)},
    )
    assert value(reading, "cache_copy_bytes") == 2 * 31 * 7 * 4


COPY = module(
    "%p = f32[7,64]{1,0} parameter(0)",
    "%q = f32[7,64]{1,0} parameter(1)",
    "%c = f32[7,64]{0,1} copy(%p)",
    "%d = f32[7,64]{0,1} copy(%q)",
    "%s = f32[7,64]{1,0:S(1)} copy(%p)",
    "ROOT %t = (f32[7,64]{0,1}, f32[7,64]{0,1}, f32[7,64]{1,0:S(1)}) tuple(%c, %d, %s)",
    entry="(p: f32[7,64], q: f32[7,64]) -> f32[7,64]",
)


def test_only_the_watched_buffer_counts_among_equal_shapes_and_only_in_main_memory():
    watched = (Watched("kv_cache", (0,), (("f32", (7, 64)),)),)
    figures = program_figures(analyse(COPY, "tpu", watched=watched), with_turns=False)
    assert figures["cache_copy_bytes"] == 7 * 64 * 4


def test_by_shape_both_count():
    watched = (Watched("kv_cache", (), (("f32", (7, 64)),)),)
    analysis = analyse(COPY, "tpu", watched=watched)
    assert program_figures(analysis, with_turns=False)["cache_copy_bytes"] == 2 * 7 * 64 * 4
    assert analysis.followed_by_shape == ("kv_cache",)


def test_collectives_are_told_by_kind_and_place():
    text = module(
        "%p = f32[8]{0} parameter(0)",
        "%s = (f32[8]{0}, f32[32]{0}) all-gather-start(%p), dimensions={0}",
        "%g = f32[32]{0} all-gather-done(%s)",
        "ROOT %r = f32[8]{0} reduce-scatter(%g), to_apply=%f",
        entry="(p: f32[8]) -> f32[8]",
        computations="%f (a: f32[]) -> f32[] {\n  ROOT %a = f32[] parameter(0)\n}\n",
    )
    analysis = analyse(text, "tpu")
    assert collectives(analysis) == {
        Place("all-gather", in_loop=False): Weight(128, 0),
        Place("reduce-scatter", in_loop=False): Weight(128, 0),
    }
    assert program_figures(analysis, with_turns=False)["collective_bytes"] == 256
