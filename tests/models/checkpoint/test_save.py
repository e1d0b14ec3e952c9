import jax
import numpy as np
import pytest

from layerbench_models import CheckpointError, build, load_safetensors, save_safetensors
from layerbench_models.checkpoint import save


@pytest.fixture
def model(qwen):
    return build(qwen, "stacked")


@pytest.fixture
def params(model, random_params):
    return random_params(model)


def test_a_folder_that_holds_anything_is_left_alone(model, params, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(CheckpointError, match="is not empty: choose another folder"):
        save_safetensors(params, model, tmp_path / "out")
    with pytest.raises(CheckpointError, match="is not empty"):
        save_safetensors(params, model, tmp_path / "out" / "notes.txt")
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["notes.txt"]
    assert [file.name for file in tmp_path.iterdir()] == ["out"]


def test_an_empty_folder_and_missing_parents_will_do(model, params, tmp_path, same):
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "empty", tmp_path / "a" / "b" / "c"):
        save_safetensors(params, model, folder)
        same(load_safetensors(folder, model), params)


def test_a_write_that_fails_leaves_nothing(model, params, tmp_path, monkeypatch):
    def full(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(save, "_write_json", full)
    with pytest.raises(CheckpointError, match=r"cannot be written \(No space left on device\)"):
        save_safetensors(params, model, tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_an_interrupt_leaves_nothing(model, params, tmp_path, monkeypatch):
    def interrupt(path, content):
        raise KeyboardInterrupt

    monkeypatch.setattr(save, "_write_json", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save_safetensors(params, model, tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_one_line(model, params, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot be written"):
        save_safetensors(params, model, tmp_path / "file" / "out")


def test_files_have_the_permissions_that_are_usual_here(model, params, tmp_path):
    (file,) = save_safetensors(params, model, tmp_path / "out")
    (tmp_path / "usual").write_text("")
    assert file.stat().st_mode == (tmp_path / "usual").stat().st_mode
    (tmp_path / "folder").mkdir()
    assert file.parent.stat().st_mode == (tmp_path / "folder").stat().st_mode


def test_tensors_stand_in_the_order_of_a_forward_pass(model, params, tmp_path):
    (file,) = save_safetensors(params, model, tmp_path / "out")
    from layerbench_models.checkpoint import find_tensors

    names = sorted(find_tensors(file).values(), key=lambda tensor: tensor.start)
    kinds = [
        tensor.name.split(".")[2] if ".layers." in tensor.name else tensor.name for tensor in names
    ]
    assert kinds[0] == "model.embed_tokens.weight"
    assert kinds[1:-1] == sorted(kinds[1:-1], key=int)
    assert kinds[-1] == "model.norm.weight"


def test_parameters_in_numpy_arrays_are_written_too(model, params, tmp_path):
    save_safetensors(params, model, tmp_path / "jax")
    save_safetensors(jax.tree.map(np.asarray, params), model, tmp_path / "numpy")
    for file in (tmp_path / "jax").iterdir():
        assert file.read_bytes() == (tmp_path / "numpy" / file.name).read_bytes()


def test_a_type_without_a_name_in_the_format_is_refused(model, params, tmp_path):
    wrong = jax.tree.map(lambda leaf: np.asarray(leaf).astype(np.int32), params)
    with pytest.raises(CheckpointError, match="has type int32: cast it"):
        save_safetensors(wrong, model, tmp_path / "out")


@pytest.mark.parametrize("size", [0, -1])
def test_a_shard_size_is_positive(model, params, tmp_path, size):
    with pytest.raises(ValueError, match="give a positive number"):
        save_safetensors(params, model, tmp_path / "out", max_shard_bytes=size)
