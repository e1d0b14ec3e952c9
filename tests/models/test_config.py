"""Configurations are read from Hugging Face settings, and refused in one clear line."""

from __future__ import annotations

import dataclasses
import json

import pytest

from layerbench_models import Architecture, ConfigError, ModelConfig, RopeScaling

QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "attention_bias": False,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_attention_heads": 16,
    "num_hidden_layers": 28,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "tie_word_embeddings": True,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
LLAMA3_ROPE = {
    "factor": 32.0,
    "high_freq_factor": 4.0,
    "low_freq_factor": 1.0,
    "original_max_position_embeddings": 8192,
    "rope_type": "llama3",
}
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "mlp_bias": False,
    "num_attention_heads": 32,
    "num_hidden_layers": 16,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05,
    "rope_scaling": LLAMA3_ROPE,
    "rope_theta": 500000.0,
    "tie_word_embeddings": True,
    "vocab_size": 128256,
}


def without(settings, *keys):
    return {key: found for key, found in settings.items() if key not in keys}


def test_qwen3_settings_are_read():
    assert ModelConfig.from_hf(QWEN3) == ModelConfig(
        architecture=Architecture.QWEN3,
        vocab_size=151936,
        hidden_dim=1024,
        ffn_dim=3072,
        num_layers=28,
        num_heads=16,
        num_kv_heads=8,
        head_dim=128,
        norm_eps=1e-6,
        rope_theta=1e6,
        tied_embeddings=True,
        qk_norm=True,
    )


def test_llama3_settings_are_read_with_their_rope_scaling():
    config = ModelConfig.from_hf(LLAMA)
    assert config.architecture is Architecture.LLAMA
    assert not config.qk_norm
    assert config.head_dim == 64
    assert config.rope_scaling == RopeScaling(
        factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context=8192
    )


def test_newer_rope_parameters_mean_the_same():
    newer = without(LLAMA, "rope_theta", "rope_scaling") | {
        "rope_parameters": LLAMA3_ROPE | {"rope_theta": 500000.0}
    }
    assert ModelConfig.from_hf(newer) == ModelConfig.from_hf(LLAMA)
    plain = without(QWEN3, "rope_theta", "rope_scaling") | {
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0}
    }
    assert ModelConfig.from_hf(plain) == ModelConfig.from_hf(QWEN3)


def test_the_model_type_serves_where_no_architecture_is_named():
    assert ModelConfig.from_hf(without(QWEN3, "architectures")).qk_norm


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            QWEN3 | {"architectures": ["MistralForCausalLM"]},
            (
                "architecture MistralForCausalLM is not supported: use one of Qwen3ForCausalLM "
                "(model_type qwen3), LlamaForCausalLM (model_type llama)"
            ),
        ),
        (
            {"model_type": "gpt2"},
            (
                "model_type gpt2 is not supported: use one of Qwen3ForCausalLM (model_type qwen3), "
                "LlamaForCausalLM (model_type llama)"
            ),
        ),
        (
            {},
            (
                "config.json without an architecture is not supported: use one of Qwen3ForCausalLM "
                "(model_type qwen3), LlamaForCausalLM (model_type llama)"
            ),
        ),
        (
            QWEN3 | {"num_key_value_heads": 3},
            (
                "16 query heads cannot share 3 key/value heads evenly: make num_attention_heads a "
                "multiple of num_key_value_heads"
            ),
        ),
        (
            LLAMA | {"num_attention_heads": 24},
            (
                "hidden_size 2048 is not divisible by num_attention_heads 24: add head_dim to "
                "config.json or correct one of them"
            ),
        ),
        (QWEN3 | {"num_hidden_layers": 0}, "num_layers is 0: give a positive int"),
        (LLAMA | {"num_attention_heads": 0}, "num_heads is 0: give a positive int"),
        (QWEN3 | {"head_dim": 127}, "head_dim is 127: rotary embedding needs an even head_dim"),
        (without(QWEN3, "vocab_size"), "config.json has no vocab_size: add it"),
        (without(QWEN3, "rope_theta"), "config.json has no rope_theta: add it"),
        (
            QWEN3 | {"hidden_size": "1024"},
            "config.json sets hidden_size to '1024': give one int",
        ),
        (
            QWEN3 | {"attention_bias": True},
            (
                "config.json sets attention_bias to True, which is not supported: use a model with "
                "attention_bias false"
            ),
        ),
        (
            QWEN3 | {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
            "rope scaling of type 'yarn' is not supported: use a model with llama3 or none",
        ),
        (
            LLAMA | {"rope_scaling": without(LLAMA3_ROPE, "factor")},
            "config.json has no factor: add it",
        ),
        (
            LLAMA | {"rope_scaling": LLAMA3_ROPE | {"low_freq_factor": 5.0}},
            (
                "rope scaling has low_freq_factor 5.0 and high_freq_factor 4.0: give a low factor "
                "below the high one"
            ),
        ),
        (QWEN3 | {"rope_theta": float("nan")}, "rope_theta is nan: give a positive float"),
    ],
)
def test_unusable_settings_are_refused_in_one_line(settings, message):
    with pytest.raises(ConfigError) as caught:
        ModelConfig.from_hf(settings)
    assert str(caught.value) == message


def test_a_folder_is_read(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    assert ModelConfig.from_folder(tmp_path) == ModelConfig.from_hf(LLAMA)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "does not exist: give a folder that holds a Hugging Face config.json"),
        (b"{", "is not valid JSON"),
        (b"\xff\xfe{}", "is not valid JSON"),
        (b"[1]", "holds no JSON object: give a Hugging Face config.json"),
    ],
)
def test_an_unusable_file_is_refused_in_one_line(tmp_path, content, message):
    if content is not None:
        (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        ModelConfig.from_folder(tmp_path)
    assert str(tmp_path / "config.json") in str(caught.value)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_number_of_layers_can_be_replaced():
    config = ModelConfig.from_hf(QWEN3)
    assert config.with_layers(4) == dataclasses.replace(config, num_layers=4)
    with pytest.raises(ConfigError, match="num_layers is 0: give a positive int"):
        config.with_layers(0)
