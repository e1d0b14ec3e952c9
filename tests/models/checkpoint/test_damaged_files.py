"""Bad input is one clear line, and the process goes on."""

import json
import pickle
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from layerbench_models import CheckpointError, build, load_safetensors, save_safetensors
from layerbench_models.checkpoint import find_tensors
from layerbench_models.checkpoint.tensor_file import MAX_HEADER_BYTES

INDEX = "model.safetensors.index.json"


def message(source):
    with pytest.raises(CheckpointError) as caught:
        find_tensors(source)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def single(qwen, tensors, tmp_path):
    """A sound checkpoint of one file."""
    save_file(tensors(qwen), tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


@pytest.fixture
def sharded(qwen, random_params, tmp_path):
    """A sound checkpoint of several files."""
    model = build(qwen, "stacked")
    save_safetensors(random_params(model), model, tmp_path / "shards", max_shard_bytes=20_000)
    return tmp_path / "shards"


def test_a_sound_file_is_read_as_its_own_library_reads_it(single):
    with safe_open(single, framework="numpy") as reference:
        found = find_tensors(single)
        assert found.keys() == set(reference.keys())
        raw = single.read_bytes()
        for name, tensor in found.items():
            value = np.frombuffer(raw[tensor.start :][: tensor.size_bytes], np.float32)
            np.testing.assert_array_equal(value.reshape(tensor.shape), reference.get_tensor(name))


def test_an_empty_file(single):
    single.write_bytes(b"")
    assert message(single) == f"{single} is empty: download or write it again"


@pytest.mark.parametrize("kept", [1, 7, 8, 100, 0.5, -1])
def test_a_truncated_file(single, kept):
    raw = single.read_bytes()
    single.write_bytes(raw[: int(len(raw) * kept) if isinstance(kept, float) else kept])
    assert "is truncated" in message(single)


def test_bytes_after_the_last_tensor(single):
    single.write_bytes(single.read_bytes() + b"more")
    assert "4 bytes follow the last tensor" in message(single)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (pickle.dumps({"a": np.zeros(3)}, protocol=2), "a Python pickle"),
        (pickle.dumps({"a": np.zeros(3)}), "a Python pickle"),
        (b"version https://git-lfs/spec/v1\noid sha256:0\nsize 1\n", "a Git LFS pointer"),
        (b"<!doctype html><html></html>", "an HTML or XML page"),
        (b'{"error": "not found"}', "a JSON file"),
        (b"GGUF\x03\x00\x00\x00\x00\x00\x00\x00", "a GGUF file"),
    ],
)
def test_a_foreign_file_is_called_what_it_is(single, content, kind):
    single.write_bytes(content)
    assert f"is {kind}" in message(single)


def test_a_torch_archive_is_called_what_it_is(single):
    with zipfile.ZipFile(single, "w") as archive:
        archive.writestr("archive/data.pkl", b"x")
    assert "PyTorch pickle" in message(single)


def test_noise_is_no_safetensors_file(single):
    single.write_bytes(b"\xff" * 100)
    assert "no safetensors file" in message(single)
    single.write_bytes((MAX_HEADER_BYTES + 1).to_bytes(8, "little") + bytes(100))
    assert "no safetensors file" in message(single)


ONE = {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}


@pytest.mark.parametrize(
    ("header", "data", "said"),
    [
        (b"\xff\xfe{}", b"", "header is not JSON"),
        (b"{" * 100, b"", "header is not JSON"),
        (b"[" * 100_000, b"", "header is not JSON"),
        (b"[]", b"", "no JSON object"),
        (b'{"a": 1}', b"", "its header describes a as 1"),
        ({"a": {"dtype": "F32", "shape": [2]}}, b"", "its header describes a as"),
        ({"a": ONE["a"] | {"shape": [-2]}}, bytes(8), "its header describes a as"),
        ({"a": ONE["a"] | {"shape": 2}}, bytes(8), "its header describes a as"),
        ({"a": ONE["a"] | {"shape": [2.0]}}, bytes(8), "its header describes a as"),
        ({"a": ONE["a"] | {"dtype": 32}}, bytes(8), "its header describes a as"),
        ({"a": ONE["a"] | {"data_offsets": [8, 0]}}, bytes(8), "its header describes a as"),
        ({"a": ONE["a"] | {"data_offsets": [0]}}, bytes(8), "its header describes a as"),
        (
            {"a": ONE["a"] | {"shape": [3]}},
            bytes(8),
            "a takes 8 bytes and its shape (3,) in F32 12",
        ),
        (ONE, bytes(4), "is truncated: a ends at byte"),
        ({"a": ONE["a"] | {"data_offsets": [10**15, 10**15 + 8]}}, bytes(8), "is truncated"),
        ({"a": ONE["a"] | {"data_offsets": [8, 16]}}, bytes(16), "a follows a gap"),
        (ONE | {"b": ONE["a"]}, bytes(8), "b overlaps"),
        (b'{"a": %s, "a": %s}' % ((json.dumps(ONE["a"]).encode(),) * 2), bytes(8), "a twice"),
    ],
)
def test_a_damaged_header(write_raw, header, data, said):
    assert said in message(write_raw(header, data))


@given(data=st.data())
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_file_with_changed_bytes_is_read_or_refused_and_nothing_else(single, qwen, data):
    original = single.read_bytes()
    header = 8 + int.from_bytes(original[:8], "little")
    damaged = bytearray(original)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, header - 1))] = data.draw(st.integers(0, 255))
    damaged = damaged[: data.draw(st.sampled_from([len(damaged), header, header // 2]))]
    single.write_bytes(damaged)
    refusal = ""
    try:
        load_safetensors(single, build(qwen, "stacked"))
    except CheckpointError as error:
        refusal = str(error)
    if refusal:
        assert "\n" not in refusal
    else:
        # What is accepted here is accepted by the format's own library too.
        with safe_open(single, framework="numpy") as reference:
            assert set(reference.keys()) == set(find_tensors(single))
    single.write_bytes(original)


def test_names_with_line_breaks_or_without_end_stay_one_short_line(write_raw, qwen):
    entry = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    names = ["a\nb\r\u2028c", "x" * 10**6]
    path = write_raw(dict.fromkeys(names, entry))
    with pytest.raises(CheckpointError) as caught:
        load_safetensors(path, build(qwen, "stacked"))
    assert set(caught.value.unexpected) == set(names)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 2000


def test_the_formats_own_library_refuses_what_is_refused_here(single):
    single.write_bytes(single.read_bytes()[:-1])
    with pytest.raises(SafetensorError):
        safe_open(single, framework="numpy").__enter__()


def test_a_file_that_shrinks_while_it_is_read(single, qwen, monkeypatch):
    from layerbench_models.checkpoint import load

    def shrink(*arguments):
        single.write_bytes(single.read_bytes()[:-1000])

    monkeypatch.setattr(load, "require_free", shrink)
    with pytest.raises(CheckpointError, match="another process changed it"):
        load_safetensors(single, build(qwen, "stacked"))


def test_no_checkpoint_at_all(tmp_path):
    assert "holds no safetensors files" in message(tmp_path)
    assert "does not exist" in message(tmp_path / "nothing")
    assert "does not exist" in message(tmp_path / INDEX)
    (tmp_path / "part-1.safetensors").write_bytes(b"")
    assert "holds part-1.safetensors and neither" in message(tmp_path)


def test_an_index_may_be_given_itself(sharded):
    assert find_tensors(sharded / INDEX).keys() == find_tensors(sharded).keys()


def test_a_folder_with_two_checkpoints_is_ambiguous(sharded, single):
    single.rename(sharded / "model.safetensors")
    assert "holds both" in message(sharded)
    find_tensors(sharded / "model.safetensors")
    find_tensors(sharded / INDEX)


def test_an_index_that_names_missing_files_lists_them(sharded):
    first, second = sorted(sharded.glob("*.safetensors"))[:2]
    first.unlink()
    second.unlink()
    found = message(sharded)
    assert "names 2 files that do not exist" in found
    assert first.name in found
    assert second.name in found


def test_an_index_that_promises_more_than_the_files_hold(sharded):
    index = json.loads((sharded / INDEX).read_text())
    file = next(iter(index["weight_map"].values()))
    index["weight_map"]["model.ghost.weight"] = file
    (sharded / INDEX).write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=r"promises 1 tensors.*model\.ghost") as caught:
        find_tensors(sharded)
    assert caught.value.missing == ("model.ghost.weight",)


def test_a_tensor_in_two_shards(sharded, qwen, tensors):
    name = "model.norm.weight"
    index = json.loads((sharded / INDEX).read_text())
    save_file(
        {name: tensors(qwen)[name], "model.other": np.zeros(2, np.float32)},
        sharded / "more.safetensors",
    )
    index["weight_map"]["model.other"] = "more.safetensors"
    (sharded / INDEX).write_text(json.dumps(index))
    assert f"{name} is stored twice" in message(sharded)


def test_a_tensor_that_the_index_forgets_is_unexpected_and_not_left_out(sharded, qwen):
    index = json.loads((sharded / INDEX).read_text())
    file = sharded / index["weight_map"].pop("model.norm.weight")
    (sharded / INDEX).write_text(json.dumps(index))
    assert "model.norm.weight" in find_tensors(sharded)
    save_file({name: np.zeros(2, np.float32) for name in ("model.norm.weight", "stray")}, file)
    index["weight_map"] = {n: f for n, f in index["weight_map"].items() if f != file.name}
    index["weight_map"]["model.norm.weight"] = file.name
    (sharded / INDEX).write_text(json.dumps(index))
    with pytest.raises(CheckpointError) as caught:
        load_safetensors(sharded, build(qwen, "stacked"))
    assert "stray" in caught.value.unexpected


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is not JSON"),
        (b"\xff", "is not JSON"),
        (b"[]", "has no weight_map"),
        (b"{}", "has no weight_map"),
        (b'{"weight_map": {}}', "has no weight_map"),
        (b'{"weight_map": {"a": 1}}', "shards are named by their file name alone"),
        (b'{"weight_map": {"a": "../x.safetensors"}}', "named by their file name alone"),
        (b'{"weight_map": {"a": "/etc/passwd"}}', "named by their file name alone"),
        (b'{"weight_map": {"a": "x.bin"}}', "do not exist (x.bin)"),
    ],
)
def test_a_damaged_index(tmp_path, content, said):
    (tmp_path / INDEX).write_bytes(content)
    assert said in message(tmp_path)


def test_a_damaged_shard_is_named(sharded):
    shard = sorted(sharded.glob("*.safetensors"))[1]
    shard.write_bytes(shard.read_bytes()[:-3])
    assert str(shard) in message(sharded)
