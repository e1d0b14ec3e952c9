"""A folder with weights is measured with its own weights."""

import sys

import jax
import numpy as np
import pytest

import layerbench_models
from layerbench import Cell
from layerbench.measure.session import measure_group
from layerbench.measure.timing.sampling import SamplingPlan
from layerbench.record import Status
from layerbench.suite import MODULE_NAME

PLAN = SamplingPlan(min_samples=2, max_samples=2, min_sample_ms=0.1)


@pytest.fixture(scope="module")
def model():
    return layerbench_models.build("qwen3-tiny", "stacked")


@pytest.fixture(scope="module")
def params(model):
    rng = np.random.default_rng(0)
    return jax.tree.map(
        lambda leaf: (0.1 * rng.standard_normal(leaf.shape)).astype(leaf.dtype),
        model.abstract_params(),
    )


@pytest.fixture
def folder(model, params, tmp_path):
    layerbench_models.save_safetensors(params, model, tmp_path / "tiny")
    return tmp_path / "tiny"


def cell(folder, layout="unrolled", layers=2):
    settings = {"model": str(folder), "phase": "prefill", "batch": 2, "seq": 8}
    return Cell(layout=layout, layers=layers, **settings)


def workload_params(suite, cell):
    return suite.build(cell).make_arguments()[0]


@pytest.mark.parametrize("layout", ["unrolled", "stacked-scan", "vmap", "stacked"])
def test_the_weights_of_the_folder_are_what_is_measured(suite, folder, params, layout):
    found = workload_params(suite, cell(folder, layout))
    found = layerbench_models.convert_params(found, layout, "stacked")
    jax.tree.map(np.testing.assert_array_equal, found, params)


def test_fewer_layers_are_the_first_ones(suite, folder, params):
    found = workload_params(suite, cell(folder, "stacked", layers=1))
    up = found["stack"]["layers"]["mlp"]["up"].get_value()
    expected = params["stack"]["layers"]["mlp"]["up"].get_value()
    np.testing.assert_array_equal(up, expected[:1])


def test_a_folder_with_a_configuration_alone_gets_random_weights(suite, folder):
    (folder / "model.safetensors").unlink()
    sys.modules[MODULE_NAME].host_params.cache_clear()
    workload_params(suite, cell(folder))


def test_damaged_weights_are_the_cells_reason(suite, folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-10])
    (record,) = measure_group([cell(folder)], suite, PLAN)
    assert record.status is Status.FAILED
    assert "is truncated" in record.reason


def test_more_layers_than_the_folder_has_are_the_cells_reason(suite, folder):
    (record,) = measure_group([cell(folder, layers=3)], suite, PLAN)
    assert record.status is Status.FAILED
    assert "it has 2 layers and the model 3" in record.reason
