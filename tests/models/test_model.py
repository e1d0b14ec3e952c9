"""`build` and what it returns: one door, clear refusals."""

from __future__ import annotations

import dataclasses
import json

import jax
import jax.numpy as jnp
import pytest

from layerbench_models import (
    LAYOUTS,
    AttentionImplementation,
    BackendError,
    CacheOrder,
    ConfigError,
    DecodeWeights,
    ModelConfig,
    ModelError,
    ParameterError,
    Positions,
    Remat,
    RematScope,
    UnknownNameError,
    build,
    phase,
)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "gpt-2"}, "unknown preset 'gpt-2': choose one of qwen3-tiny, "),
        (
            {"layout": "scan"},
            "unknown layout 'scan': choose one of unrolled, stacked-scan, vmap, stacked",
        ),
        (
            {"dtype": "int8"},
            "unknown dtype 'int8': choose one of float32, bfloat16, float16",
        ),
        (
            {"remat": "half"},
            "unknown remat 'half': choose one of none, full, dots, named, nested",
        ),
        ({"remat_scope": "all"}, "unknown remat_scope 'all': choose one of layer, model"),
        (
            {"remat_scope": "model"},
            "layout 'unrolled' makes no sense: nothing is computed again, of no scope",
        ),
        (
            {"remat": "nested"},
            "layout 'unrolled' makes no sense: nested remat goes by blocks of layers",
        ),
        ({"num_layers": 0}, "num_layers is 0: give a positive int"),
        (
            {"microbatches": 2},
            (
                "layout 'unrolled' makes no sense: only a pipeline has micro-batches: leave "
                "microbatches out"
            ),
        ),
    ],
)
def test_what_cannot_be_built_is_refused_in_one_line(options, message):
    arguments = {"model": "qwen3-tiny", "layout": "unrolled"} | options
    with pytest.raises(ModelError) as caught:
        build(**arguments)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_a_phase_is_named_as_it_is_called():
    assert phase("decode_step") == "decode_step"
    with pytest.raises(UnknownNameError) as caught:
        phase("decode")
    assert str(caught.value) == (
        "unknown phase 'decode': choose one of init, prefill, decode_step, generate, train_step"
    )


def test_a_folder_serves_as_a_model(tmp_path):
    settings = {
        "model_type": "qwen3",
        "head_dim": 14,
        "hidden_size": 20,
        "intermediate_size": 28,
        "num_attention_heads": 4,
        "num_hidden_layers": 3,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-06,
        "rope_theta": 10000,
        "vocab_size": 37,
    }
    (tmp_path / "config.json").write_text(json.dumps(settings))
    for folder in (tmp_path, str(tmp_path)):
        assert build(folder, "stacked", num_layers=2).config == dataclasses.replace(
            ModelConfig.from_hf(settings), num_layers=2
        )
    with pytest.raises(ConfigError, match="does not exist: give a folder"):
        build(tmp_path / "nothing", "stacked")


def test_options_become_fields_of_the_layout():
    model = build(
        "qwen3-tiny", "vmap", remat="full", remat_scope="model", microbatches=2, dtype="bfloat16"
    )
    assert (model.layout.remat, model.layout.remat_scope) == (Remat.FULL, RematScope.MODEL)
    assert model.layout.microbatches == 2
    assert {leaf.dtype for leaf in jax.tree.leaves(model.abstract_params())} == {
        jnp.dtype("bfloat16")
    }


@pytest.mark.parametrize(
    ("name", "dtype"), [*((name, "bfloat16") for name in LAYOUTS), ("unrolled", "float16")]
)
def test_every_phase_keeps_the_dtype_and_scores_in_float32(name, dtype):
    model = build("llama3-tiny", name, dtype=dtype)
    params, cache = model.abstract_params(), model.abstract_cache(4, 8)
    row = jax.ShapeDtypeStruct((4,), jnp.int32)
    tokens = jax.ShapeDtypeStruct((4, 5), jnp.int32)
    positions = Positions(jax.ShapeDtypeStruct((), jnp.int32), row)
    logits, filled = jax.eval_shape(model.prefill, params, cache, tokens, row)
    assert (logits.shape, logits.dtype) == ((4, 256), jnp.float32)
    assert filled == cache
    decode_params = jax.eval_shape(model.prepare_decode, params)
    assert jax.tree.leaves(decode_params) == jax.tree.leaves(model.abstract_decode_params())
    logits, filled = jax.eval_shape(model.decode_step, decode_params, cache, row, positions)
    assert (logits.shape, logits.dtype) == ((4, 256), jnp.float32)
    assert filled == cache
    with jax.numpy_dtype_promotion("standard"):  # optax mixes types
        state = jax.eval_shape(model.init_optimizer, params)
        loss, new, new_state = jax.eval_shape(model.train_step, params, state, tokens, row)
    assert loss.dtype == jnp.float32
    assert jax.tree.leaves(new) == jax.tree.leaves(params)
    assert jax.tree.leaves(new_state) == jax.tree.leaves(state)


def test_only_the_layout_that_says_so_decodes_on_other_parameters():
    for name, layout in LAYOUTS.items():
        model = build("qwen3-tiny", name)
        before = jax.tree.structure(model.abstract_params())
        changes = layout.decode_weights is DecodeWeights.UNSTACKED_ONCE
        assert (jax.tree.structure(model.abstract_decode_params()) != before) == changes, name


def test_unprepared_parameters_are_refused_before_they_are_sliced_in_every_step():
    model = build("qwen3-tiny", "stacked")
    row = jax.ShapeDtypeStruct((2,), jnp.int32)
    positions = Positions(jax.ShapeDtypeStruct((), jnp.int32), row)
    with pytest.raises(ParameterError) as caught:
        jax.eval_shape(
            model.decode_step, model.abstract_params(), model.abstract_cache(2, 4), row, positions
        )
    assert str(caught.value) == (
        "the parameters are not in the form of layout 'stacked': decode_step takes those of "
        "prepare_decode"
    )


def test_parameters_of_another_layout_are_refused():
    params = build("qwen3-tiny", "unrolled").abstract_params()
    tokens = jax.ShapeDtypeStruct((2, 5), jnp.int32)
    row = jax.ShapeDtypeStruct((2,), jnp.int32)
    with pytest.raises(ParameterError, match="form of layout 'stacked-scan'"):
        jax.eval_shape(build("qwen3-tiny", "stacked-scan").loss, params, tokens, row)


@pytest.mark.parametrize(
    ("implementation", "needed"),
    [(AttentionImplementation.CUDNN, "gpu"), (AttentionImplementation.PALLAS, "tpu")],
)
def test_an_attention_that_the_platform_lacks_is_refused(implementation, needed):
    layout = dataclasses.replace(
        LAYOUTS["stacked-scan"], attention=implementation, cache_order=CacheOrder.TOKEN_MAJOR
    )
    model = build("qwen3-tiny", layout, platform="cpu")
    tokens = jax.ShapeDtypeStruct((2, 5), jnp.int32)
    row = jax.ShapeDtypeStruct((2,), jnp.int32)
    with pytest.raises(BackendError) as caught:
        jax.eval_shape(model.loss, model.abstract_params(), tokens, row)
    assert str(caught.value) == (
        f"attention {implementation.value!r} needs a {needed} and the platform is cpu: "
        "use a layout with attention 'xla'"
    )
