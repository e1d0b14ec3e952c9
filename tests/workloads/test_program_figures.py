"""What the compiled programs of real layouts show, on the cpu target."""

import jax
import pytest
from jax import lax

from layerbench import Cell
from layerbench.measure.program.executable import Capacity, read_executable


def read(workload, function=None):
    jitted = jax.jit(function or workload.function, donate_argnums=workload.donated)
    traced = jitted.trace(*workload.abstract_arguments)
    lowered = traced.lower()
    reading = read_executable(workload, traced, lowered, lowered.compile(), capacity=Capacity())
    return {name: measured.value for name, measured in reading.metrics.items()}


def cache_bytes(workload):
    return sum(
        leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(workload.watched["kv_cache"])
    )


@pytest.mark.parametrize("model", ["qwen3-tiny", "qwen3-small"])
def test_a_scanned_decode_step_writes_its_cache_in_place(suite, model):
    figures = read(suite.build(Cell(model, "stacked-scan", "decode_step", 3, 2, 128)))
    assert figures["cache_copy_bytes"] == 0
    assert figures["layer_update_bytes"] == 0
    assert figures["undonated_bytes"] == 0
    assert figures["hbm_floor_ratio"] > 1


def test_a_cache_that_goes_through_a_scan_as_inputs_and_outputs_is_written_whole(suite):
    """The faulty form, made of the sound one: every layer's keys and values in and out again."""
    workload = suite.build(Cell("qwen3-tiny", "stacked-scan", "decode_step", 3, 2, 128))

    def passed_through(params, cache, tokens_b, positions):
        first = workload.function(params, cache, tokens_b, positions)
        _, cache = lax.scan(
            lambda total, layer: (
                total + layer.keys[0, 0, 0, 0],
                jax.tree.map(lambda x: x * 1.5, layer),
            ),
            0.0,
            first[1],
        )
        return first[0], cache

    figures, sound = read(workload, passed_through), read(workload)
    size = cache_bytes(workload)
    assert figures["layer_update_bytes"] == size
    assert figures["hbm_bytes"] - sound["hbm_bytes"] >= 2 * size


def test_the_layouts_of_one_step_have_the_operations_of_its_floor(suite):
    for layout in ("unrolled", "stacked-scan", "stacked"):
        workload = suite.build(Cell("qwen3-tiny", layout, "decode_step", 3, 2, 128))
        assert read(workload)["flops"] == workload.floor.flops


def test_weights_that_are_unstacked_once_cost_bytes_once_and_not_in_each_turn(suite):
    turns = {
        layout: read(suite.build(Cell("qwen3-tiny", layout, "generate", 3, 2, 64, new_tokens=8)))
        for layout in ("stacked", "stacked-scan")
    }
    assert turns["stacked"]["loop_weight_slice_bytes"] == 0
    assert turns["stacked-scan"]["loop_weight_slice_bytes"] > 0
    assert turns["stacked"]["hbm_bytes"] < turns["stacked-scan"]["hbm_bytes"]
    assert turns["stacked"]["hbm_bytes_once"] > turns["stacked-scan"]["hbm_bytes_once"]
