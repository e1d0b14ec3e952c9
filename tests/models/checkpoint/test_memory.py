import math
import tracemalloc

import jax
import pytest
from jax.sharding import AxisType
from safetensors.numpy import save_file

from layerbench_models import Architecture, CheckpointError, ModelConfig, build, load_safetensors
from layerbench_models.checkpoint import load, measured_free_bytes, save

# Large enough that a model weighs more than what else a load allocates.
LARGE = ModelConfig(
    architecture=Architecture.LLAMA,
    vocab_size=1009,
    hidden_dim=256,
    ffn_dim=769,
    num_layers=13,
    num_heads=4,
    num_kv_heads=2,
    head_dim=62,
    norm_eps=1e-6,
    rope_theta=1e4,
)
MODEL_BYTES = 4 * LARGE.parameter_count


@pytest.fixture
def folder(tensors, tmp_path):
    save_file(tensors(LARGE), tmp_path / "model.safetensors")
    return tmp_path


def test_a_checkpoint_that_does_not_fit_is_refused_before_anything_is_allocated(folder):
    asked = []

    def free(device):
        asked.append(device)
        return MODEL_BYTES - 1

    model = build(LARGE, "stacked")
    model.abstract_params()
    tracemalloc.start()
    with pytest.raises(CheckpointError, match=r"needs 0\.\d\d GiB on the host and 0\.\d\d GiB are"):
        load_safetensors(folder, model, free_bytes=free)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert asked == [None]
    assert peak < MODEL_BYTES / 2


def test_a_checkpoint_that_fits_is_loaded_and_so_is_one_where_nobody_knows(folder):
    model = build(LARGE, "stacked")
    for free in (MODEL_BYTES + 5 * load.PIECE_BYTES, None):
        load_safetensors(folder, model, free_bytes=lambda device, free=free: free)


def test_virtual_devices_share_the_memory_of_the_host(folder):
    mesh = jax.make_mesh((4,), ("fsdp",), (AxisType.Auto,))
    model = build(LARGE, "stacked", mesh=mesh)
    with pytest.raises(CheckpointError, match="on the host"):
        load_safetensors(folder, model, free_bytes=lambda device: MODEL_BYTES)


def test_what_is_free_here_is_known():
    free = measured_free_bytes(None)
    assert free is None or 0 < free < 2**50
    assert measured_free_bytes(jax.devices()[0]) is None  # CPU devices have no memory of their own


@pytest.mark.parametrize("layout", ["unrolled", "stacked"])
def test_the_peak_is_the_model_and_a_few_pieces(folder, monkeypatch, layout):
    monkeypatch.setattr(load, "PIECE_BYTES", 2**16)
    monkeypatch.setattr(load, "_MAPPED_BYTES", 2**60)  # tracemalloc sees the heap alone
    model = build(LARGE, layout)
    load_safetensors(folder, model)  # what is compiled and cached stays
    tracemalloc.start()
    params = load_safetensors(folder, model)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sum(math.prod(leaf.shape) * 4 for leaf in jax.tree.leaves(params)) == MODEL_BYTES
    assert MODEL_BYTES < peak < 1.05 * MODEL_BYTES


def test_saving_takes_a_few_pieces_beside_the_model(folder, tmp_path, monkeypatch):
    from layerbench_models import save_safetensors

    monkeypatch.setattr(save, "PIECE_BYTES", 2**16)
    model = build(LARGE, "stacked")
    params = load_safetensors(folder, model)
    tracemalloc.start()
    save_safetensors(params, model, tmp_path / "out")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MODEL_BYTES / 10
