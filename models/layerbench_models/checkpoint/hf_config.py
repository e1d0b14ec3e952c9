"""The `config.json` that goes with a saved checkpoint."""

from __future__ import annotations

from typing import Any

from layerbench_models.config import Architecture, ModelConfig

_CLASS_NAMES = {
    Architecture.QWEN3: "Qwen3ForCausalLM",
    Architecture.LLAMA: "LlamaForCausalLM",
}

_CONTEXT = 32_768
"""Tokens of context where a configuration does not say: it bounds nothing here."""


def to_hf(config: ModelConfig, dtype: str) -> dict[str, Any]:
    """Returns the settings from which `ModelConfig.from_hf` and transformers read the same model.

    Args:
        config: The model.
        dtype: Type of the saved weights, such as "bfloat16".
    """
    scaling = config.rope_scaling
    rope: dict[str, Any] = {"rope_theta": config.rope_theta, "rope_scaling": None}
    context = _CONTEXT
    if scaling is not None:
        context = int(scaling.factor * scaling.original_context)
        rope["rope_scaling"] = {
            "rope_type": "llama3",
            "factor": scaling.factor,
            "low_freq_factor": scaling.low_freq_factor,
            "high_freq_factor": scaling.high_freq_factor,
            "original_max_position_embeddings": scaling.original_context,
        }
    return {
        "architectures": [_CLASS_NAMES[config.architecture]],
        "model_type": config.architecture.value,
        "torch_dtype": dtype,
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_dim,
        "intermediate_size": config.ffn_dim,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "rms_norm_eps": config.norm_eps,
        "max_position_embeddings": context,
        "tie_word_embeddings": config.tied_embeddings,
        "use_cache": True,
        # A model here has no tokens of its own: the defaults of transformers could be out of range.
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
        **rope,
    }
