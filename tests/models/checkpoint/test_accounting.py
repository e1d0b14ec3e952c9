"""Every tensor of a checkpoint and every parameter of a model is accounted for."""

import dataclasses

import numpy as np
import pytest
from safetensors.numpy import save_file

from layerbench_models import CheckpointError, ParameterError, build, load_safetensors
from layerbench_models.checkpoint import places
from layerbench_models.checkpoint.errors import listed

NORM = "model.norm.weight"
QUERY = "model.layers.1.self_attn.q_proj.weight"
FREQUENCIES = "model.layers.0.self_attn.rotary_emb.inv_freq"


def refused(stored, folder, model, **options):
    """The error of loading these tensors; its message is one line."""
    save_file(stored, folder / "model.safetensors")
    with pytest.raises(CheckpointError) as caught:
        load_safetensors(folder, model, **options)
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.fixture
def model(qwen):
    return build(qwen, "stacked")


@pytest.mark.parametrize("layout", ["unrolled", "stacked"])
def test_each_tensor_that_is_left_out_is_named_as_missing(qwen, tensors, tmp_path, layout):
    stored = tensors(qwen)
    model = build(qwen, layout)
    for name in stored:
        rest = {other: value for other, value in stored.items() if other != name}
        assert refused(rest, tmp_path, model).missing == (name,)


def test_one_error_names_everything_that_is_wrong(model, qwen, tensors, tmp_path):
    stored = tensors(qwen)
    del stored[NORM]
    stored["model.layers.0.mlp.experts.0.up_proj.weight"] = np.zeros((2, 2), np.float32)
    stored[QUERY] = stored[QUERY].T.copy()
    error = refused(stored, tmp_path, model)
    assert error.missing == (NORM,)
    assert error.unexpected == ("model.layers.0.mlp.experts.0.up_proj.weight",)
    assert error.misshapen == (QUERY,)
    assert str(error) == (
        f"{tmp_path} does not fit the model: 1 missing ({NORM}); 1 unexpected "
        "(model.layers.0.mlp.experts.0.up_proj.weight); 1 of a wrong shape or type "
        f"({QUERY} is (19, 140) and not (140, 19)): give the checkpoint of this model, or name what "
        "may be left out in ignore"
    )


def test_a_line_stays_short_and_the_attribute_is_whole(model, tmp_path):
    error = refused({NORM: np.zeros(19, np.float32)}, tmp_path, model)
    assert len(error.missing) == 11 * 3 + 1
    assert "and 30 more" in str(error)
    assert len(str(error)) < 400 + len(str(tmp_path))


def test_a_list_of_names_is_cut_only_where_it_is_longer():
    assert listed("abcd") == "a, b, c, d"
    assert listed("abcdef") == "a, b, c, d and 2 more"


def test_what_may_be_left_out_is_said_by_name(model, qwen, tensors, tmp_path):
    stored = tensors(qwen) | {"extra.bias": np.zeros(2, np.float32)}
    assert refused(stored, tmp_path, model).unexpected == ("extra.bias",)
    load_safetensors(tmp_path, model, ignore=["extra.*"])
    assert refused(stored, tmp_path, model, ignore=["extra"]).unexpected == ("extra.bias",)


def test_old_tables_of_frequencies_are_left_out_unless_asked_for(model, qwen, tensors, tmp_path):
    stored = tensors(qwen) | {FREQUENCIES: np.zeros(7, np.float32)}
    save_file(stored, tmp_path / "model.safetensors")
    load_safetensors(tmp_path, model)
    assert refused(stored, tmp_path, model, ignore=()).unexpected == (FREQUENCIES,)


def test_a_needed_tensor_is_never_left_out_by_a_pattern(model, qwen, tensors, tmp_path, same):
    save_file(tensors(qwen), tmp_path / "model.safetensors")
    same(load_safetensors(tmp_path, model, ignore=["*"]), load_safetensors(tmp_path, model))


def test_a_tied_head_must_equal_the_table(model, qwen, tensors, tmp_path, same):
    stored = tensors(qwen)
    save_file(stored, tmp_path / "model.safetensors")
    expected = load_safetensors(tmp_path, model)
    table = stored["model.embed_tokens.weight"]
    save_file(stored | {"lm_head.weight": table.copy()}, tmp_path / "model.safetensors")
    same(load_safetensors(tmp_path, model), expected)
    other = table.copy()
    other[-1, -1] += 1
    error = refused(stored | {"lm_head.weight": other}, tmp_path, model)
    assert error.unexpected == ("lm_head.weight",)
    assert "tie_word_embeddings" in str(error)
    error = refused(stored | {"lm_head.weight": table.T.copy()}, tmp_path, model)
    assert error.misshapen == ("lm_head.weight",)


def test_an_untied_model_refuses_a_checkpoint_without_a_head(llama, tensors, tmp_path):
    stored = tensors(llama)
    del stored["lm_head.weight"]
    error = refused(stored, tmp_path, build(llama, "unrolled"))
    assert error.missing == ("lm_head.weight",)
    assert "embeddings are tied" in str(error)


def test_a_deeper_checkpoint_is_refused_or_its_first_layers_are_taken(
    qwen, tensors, tmp_path, same
):
    shallow = build(qwen.with_layers(2), "stacked")
    stored = tensors(qwen)
    error = refused(stored, tmp_path, shallow)
    assert len(error.unexpected) == 11
    assert "num_layers=3" in str(error)
    taken = load_safetensors(tmp_path, shallow, first_layers=True)
    first = {name: value for name, value in stored.items() if ".layers.2." not in name}
    save_file(first, tmp_path / "model.safetensors")
    same(load_safetensors(tmp_path, shallow), taken)
    # What no layer has is no deeper layer.
    odd = stored | {"model.layers.2.mlp.bias": np.zeros(2, np.float32)}
    assert refused(odd, tmp_path, shallow, first_layers=True).unexpected == (
        "model.layers.2.mlp.bias",
    )


def test_a_shallower_checkpoint_says_so(qwen, tensors, tmp_path):
    error = refused(tensors(qwen.with_layers(2)), tmp_path, build(qwen, "unrolled"))
    assert len(error.missing) == 11
    assert "it has 2 layers and the model 3" in str(error)


@pytest.mark.parametrize("layout", ["unrolled", "stacked"])
def test_a_checkpoint_with_stacked_layers_is_told_from_a_foreign_one(
    qwen, tensors, tmp_path, layout
):
    stacked = {}
    for name, value in tensors(qwen).items():
        if ".layers." not in name:
            stacked[name] = value
        elif ".layers.0." in name:
            stacked[name.replace(".0.", ".")] = np.stack([value] * 3)
    error = refused(stacked, tmp_path, build(qwen, layout))
    assert "stacked (scanned)" in str(error)
    assert len(error.unexpected) == 11


def test_a_checkpoint_with_this_packages_names_says_how_to_write_it_again(qwen, tmp_path):
    stored = {
        "stack.layers.0.attention.q": np.zeros((19, 10, 14), np.float32),
        "norm.scale": np.zeros(19, np.float32),
    }
    assert "save_safetensors" in str(refused(stored, tmp_path, build(qwen, "unrolled")))
    stored = {"stack.layers.attention.q": np.zeros((3, 19, 10, 14), np.float32)}
    assert "stacked (scanned)" in str(refused(stored, tmp_path, build(qwen, "stacked")))


@pytest.mark.parametrize("dtype", [np.int32, np.int8, np.bool_, np.uint16])
def test_a_type_that_weights_cannot_have_is_named(model, qwen, tensors, tmp_path, dtype):
    stored = tensors(qwen)
    stored[NORM] = stored[NORM].astype(dtype)
    error = refused(stored, tmp_path, model)
    assert error.misshapen == (NORM,)
    assert "not one of F64, F32, F16, BF16" in str(error)


def test_values_beyond_float16_are_refused_and_infinities_are_kept(qwen, tensors, tmp_path):
    model = build(qwen, "stacked", dtype="float16")
    stored = tensors(qwen)
    stored[NORM][3] = 1e6
    assert NORM in str(refused(stored, tmp_path, model))
    stored[NORM][3] = np.inf
    save_file(stored, tmp_path / "model.safetensors")
    norm = load_safetensors(tmp_path, model)["norm"]["scale"].get_value()
    assert np.isinf(norm).tolist() == [index == 3 for index in range(19)]


def test_a_conversion_that_loses_or_repeats_a_layer_is_found(qwen, tensors, tmp_path, monkeypatch):
    save_file(tensors(qwen), tmp_path / "model.safetensors")
    convert = places.convert_params

    def first_layer_everywhere(params, source, target):
        converted = convert(params, source, target)
        keys = converted["stack"]["layers"]["attention"]["k"]
        keys.set_value(np.repeat(np.asarray(keys.get_value())[:1], 3, axis=0))
        return converted

    monkeypatch.setattr(places, "convert_params", first_layer_everywhere)
    with pytest.raises(ParameterError, match="does not hold every parameter once"):
        load_safetensors(tmp_path, build(qwen, "stacked"))


def test_a_layer_axis_may_stand_anywhere():
    assert places._layer_axes((3, 5, 7), (3, 1, 1), (5, 7)) == (0,)
    assert places._layer_axes((5, 3, 7), (1, 3, 1), (5, 7)) == (1,)
    assert places._layer_axes((5, 5, 5), (1, 5, 1), (5, 5)) == (1,)
    assert places._layer_axes((2, 3, 5), (2, 3, 1), (5,)) == (0, 1)
    assert places._layer_axes((5,), (1,), (5,)) == ()
    assert places._layer_axes((3, 5), (3, 1), (7,)) is None
    assert places._layer_axes((5,), (1, 1), (5,)) is None


def test_another_architecture_is_refused_by_its_tensors(qwen, tensors, tmp_path):
    without_norms = dataclasses.replace(qwen, qk_norm=False)
    error = refused(tensors(qwen), tmp_path, build(without_norms, "stacked"))
    assert len(error.unexpected) == 6
    error = refused(tensors(without_norms), tmp_path, build(qwen, "stacked"))
    assert len(error.missing) == 6
