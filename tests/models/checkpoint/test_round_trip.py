import json

import jax
import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax.sharding import AxisType
from safetensors.numpy import load_file, save_file

from layerbench_models import (
    LAYOUTS,
    ModelConfig,
    ParameterError,
    build,
    convert_params,
    holds_weights,
    load_safetensors,
    save_safetensors,
)
from layerbench_models.checkpoint import dotted, load, save

EVERY_LAYOUT = pytest.mark.parametrize("layout", LAYOUTS)


def expected_params(config, tensors):
    """The parameters in a list, by the definition of each tensor, one after the other."""
    d, h = config.hidden_dim, config.head_dim
    flat = {
        "embedding.table": tensors["model.embed_tokens.weight"],
        "norm.scale": tensors["model.norm.weight"],
    }
    if not config.tied_embeddings:
        flat["head.kernel"] = tensors["lm_head.weight"].T
    for layer in range(config.num_layers):
        ours, theirs = f"stack.layers.{layer}.", f"model.layers.{layer}."
        own = {
            "attention_norm.scale": tensors[theirs + "input_layernorm.weight"],
            "mlp_norm.scale": tensors[theirs + "post_attention_layernorm.weight"],
            "attention.o": tensors[theirs + "self_attn.o_proj.weight"].T.reshape(-1, h, d),
            "mlp.gate": tensors[theirs + "mlp.gate_proj.weight"].T,
            "mlp.up": tensors[theirs + "mlp.up_proj.weight"].T,
            "mlp.down": tensors[theirs + "mlp.down_proj.weight"].T,
        }
        for name in "qkv":
            weight = tensors[theirs + f"self_attn.{name}_proj.weight"]
            own[f"attention.{name}"] = weight.T.reshape(d, -1, h)
        if config.qk_norm:
            for name in ("q_norm", "k_norm"):
                own[f"attention.{name}.scale"] = tensors[theirs + f"self_attn.{name}.weight"]
        flat |= {ours + name: value for name, value in own.items()}
    return flat


@EVERY_LAYOUT
@pytest.mark.parametrize("family", ["qwen", "llama"])
def test_every_layout_holds_the_checkpoint_bit_for_bit(request, tensors, tmp_path, layout, family):
    config = request.getfixturevalue(family)
    stored = tensors(config)
    save_file(stored, tmp_path / "model.safetensors")
    params = load_safetensors(tmp_path, build(config, layout))
    in_a_list = convert_params(params, layout, "unrolled")
    found = {dotted(path): leaf for path, leaf in jax.tree.leaves_with_path(in_a_list)}
    expected = expected_params(config, stored)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


@EVERY_LAYOUT
@pytest.mark.parametrize("family", ["qwen", "llama"])
def test_what_was_loaded_is_written_bit_for_bit(request, tensors, tmp_path, layout, family):
    config = request.getfixturevalue(family)
    stored = tensors(config)
    save_file(stored, tmp_path / "model.safetensors")
    model = build(config, layout)
    params = load_safetensors(tmp_path, model)
    (file,) = save_safetensors(params, model, tmp_path / "again")
    written = load_file(file)
    assert written.keys() == stored.keys()
    for name, value in stored.items():
        np.testing.assert_array_equal(written[name], value, err_msg=name)


@EVERY_LAYOUT
def test_what_was_initialised_comes_back_bit_for_bit(qwen, random_params, tmp_path, layout, same):
    model = build(qwen, layout)
    params = random_params(model)
    save_safetensors(params, model, tmp_path / "out")
    same(load_safetensors(tmp_path / "out", model), params)
    assert ModelConfig.from_folder(tmp_path / "out") == qwen


def test_a_written_configuration_is_read_as_the_same_model(llama, random_params, tmp_path):
    model = build(llama, "stacked", dtype="bfloat16")
    save_safetensors(random_params(model), model, tmp_path / "out")
    assert ModelConfig.from_folder(tmp_path / "out") == llama
    settings_ = json.loads((tmp_path / "out" / "config.json").read_text())
    assert settings_["torch_dtype"] == "bfloat16"
    assert holds_weights(tmp_path / "out")
    assert not holds_weights(tmp_path)


@pytest.mark.parametrize("layers", [1, 3])
@EVERY_LAYOUT
def test_one_layer_and_many_are_told_apart_from_all_other_axes(tensors, tmp_path, layout, layers):
    # Sizes equal to the number of layers: an axis guessed by its size would be the wrong one.
    from layerbench_models import Architecture

    config = ModelConfig(
        architecture=Architecture.QWEN3,
        vocab_size=layers + 1,
        hidden_dim=layers,
        ffn_dim=layers,
        num_layers=layers,
        num_heads=layers,
        num_kv_heads=layers,
        head_dim=2,
        norm_eps=1e-6,
        rope_theta=1e4,
        qk_norm=True,
        tied_embeddings=True,
    )
    stored = tensors(config)
    save_file(stored, tmp_path / "model.safetensors")
    model = build(config, layout)
    (file,) = save_safetensors(load_safetensors(tmp_path, model), model, tmp_path / "again")
    written = load_file(file)
    assert all(np.array_equal(written[name], value) for name, value in stored.items())


@given(sizes=st.tuples(st.integers(1, 5000), st.integers(1, 120_000)))
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_pieces_and_shards_of_any_size_hold_the_same_checkpoint(
    tmp_path_factory, qwen, random_params, same, sizes
):
    piece_bytes, max_shard_bytes = sizes
    folder = tmp_path_factory.mktemp("sizes") / "out"
    model = build(qwen, "stacked")
    params = random_params(model)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(load, "PIECE_BYTES", piece_bytes)
        patch.setattr(save, "PIECE_BYTES", piece_bytes)
        files = save_safetensors(params, model, folder, max_shard_bytes=max_shard_bytes)
        same(load_safetensors(folder, model), params)
    names = [name for file in files for name in load_file(file)]
    assert len(names) == len(set(names)) == 11 * 3 + 2
    for file in files:
        sizes = [tensor.nbytes for tensor in load_file(file).values()]
        assert sum(sizes) <= max_shard_bytes or len(sizes) == 1
    if len(files) > 1:
        index = json.loads((folder / "model.safetensors.index.json").read_text())
        assert index["weight_map"] == {n: f.name for f in files for n in load_file(f)}
        assert index["metadata"]["total_size"] == 4 * qwen.parameter_count


@pytest.mark.parametrize("stored", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("wanted", ["float32", "bfloat16"])
def test_values_are_cast_to_the_models_type(qwen, tensors, tmp_path, stored, wanted):
    dtype = ml_dtypes.bfloat16 if stored == "bfloat16" else np.dtype(stored)
    given_tensors = tensors(qwen, dtype=dtype)
    save_file(given_tensors, tmp_path / "model.safetensors")
    params = load_safetensors(tmp_path, build(qwen, "stacked", dtype=wanted))
    found = params["stack"]["layers"]["mlp"]["up"].get_value()
    assert found.dtype == wanted
    expected = np.stack(
        [given_tensors[f"model.layers.{i}.mlp.up_proj.weight"].T for i in range(3)]
    ).astype(found.dtype)
    np.testing.assert_array_equal(found, expected)


@EVERY_LAYOUT
def test_parameters_are_split_over_the_mesh_as_init_splits_them(
    random_params, tmp_path, layout, same
):
    mesh = jax.make_mesh((2, 2), ("fsdp", "tp"), (AxisType.Auto,) * 2)
    plain = build("llama3-tiny", layout)
    params = random_params(plain)
    save_safetensors(params, plain, tmp_path / "plain", max_shard_bytes=50_000)
    model = build("llama3-tiny", layout, mesh=mesh)
    placed = load_safetensors(tmp_path / "plain", model)
    same(placed, params)
    abstract = jax.tree.leaves(model.abstract_params())
    for leaf, like in zip(jax.tree.leaves(placed), abstract, strict=True):
        assert leaf.sharding == like.sharding
        assert len(leaf.sharding.device_set) == 4
    matrix = max(jax.tree.leaves(placed), key=lambda leaf: leaf.size)
    assert matrix.addressable_shards[0].data.size == matrix.size // 4
    # And back, from four devices.
    save_safetensors(placed, model, tmp_path / "split", max_shard_bytes=50_000)
    for file in sorted((tmp_path / "plain").iterdir()):
        assert (tmp_path / "split" / file.name).read_bytes() == file.read_bytes()


def test_saving_wants_parameters_in_the_models_own_layout(qwen, random_params, tmp_path):
    stacked, listed = build(qwen, "stacked"), build(qwen, "unrolled")
    params = random_params(stacked)
    with pytest.raises(ParameterError, match="not in the form of layout 'unrolled'"):
        save_safetensors(params, listed, tmp_path / "out")
    with pytest.raises(ParameterError, match="not in the form of layout 'stacked'"):
        save_safetensors(stacked.prepare_decode(params), stacked, tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_loaded_parameters_may_be_donated(qwen, tensors, tmp_path):
    stored = tensors(qwen)
    save_file(stored, tmp_path / "model.safetensors")
    params = load_safetensors(tmp_path, build(qwen, "stacked"))
    halve = jax.jit(lambda tree: jax.tree.map(lambda x: x / 2, tree), donate_argnums=0)
    halved = halve(halve(params))
    found = halved["embedding"]["table"].get_value()
    np.testing.assert_array_equal(found, stored["model.embed_tokens.weight"] / 4)
