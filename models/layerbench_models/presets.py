"""Models by name: the true shapes of released models, and small ones for tests and probes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from layerbench_models.config import Architecture, ModelConfig, RopeScaling
from layerbench_models.errors import UnknownNameError


def _qwen3(  # noqa: PLR0917 - columns of the table below
    hidden_dim: int,
    num_layers: int,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    ffn_dim: int,
    *,
    tied: bool,
    vocab_size: int = 151_936,
) -> ModelConfig:
    return ModelConfig(
        architecture=Architecture.QWEN3,
        vocab_size=vocab_size,
        hidden_dim=hidden_dim,
        ffn_dim=ffn_dim,
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        norm_eps=1e-6,
        rope_theta=1e6,
        tied_embeddings=tied,
        qk_norm=True,
    )


def _llama3(  # noqa: PLR0917 - columns of the table below
    hidden_dim: int,
    num_layers: int,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    ffn_dim: int,
    *,
    tied: bool,
    scaling_factor: float,
    vocab_size: int = 128_256,
) -> ModelConfig:
    return ModelConfig(
        architecture=Architecture.LLAMA,
        vocab_size=vocab_size,
        hidden_dim=hidden_dim,
        ffn_dim=ffn_dim,
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        norm_eps=1e-5,
        rope_theta=5e5,
        rope_scaling=RopeScaling(
            factor=scaling_factor, low_freq_factor=1.0, high_freq_factor=4.0, original_context=8192
        ),
        tied_embeddings=tied,
    )


# Columns: D, L, H, K, h, F. The Llama 3 shapes are those of releases 3.1 (8B, 70B) and 3.2 (1B, 3B).
PRESETS: Mapping[str, ModelConfig] = MappingProxyType(
    {
        "qwen3-tiny": _qwen3(64, 2, 4, 2, 16, 128, tied=True, vocab_size=256),
        # Small enough for seconds on a CPU, large enough to show what a layout costs.
        "qwen3-small": _qwen3(256, 8, 8, 4, 32, 768, tied=True, vocab_size=512),
        "qwen3-0.6b": _qwen3(1024, 28, 16, 8, 128, 3072, tied=True),
        "qwen3-1.7b": _qwen3(2048, 28, 16, 8, 128, 6144, tied=True),
        "qwen3-4b": _qwen3(2560, 36, 32, 8, 128, 9728, tied=True),
        "qwen3-8b": _qwen3(4096, 36, 32, 8, 128, 12288, tied=False),
        "qwen3-14b": _qwen3(5120, 40, 40, 8, 128, 17408, tied=False),
        "qwen3-32b": _qwen3(5120, 64, 64, 8, 128, 25600, tied=False),
        "llama3-tiny": _llama3(
            64, 2, 4, 2, 16, 128, tied=False, scaling_factor=8.0, vocab_size=256
        ),
        "llama3-1b": _llama3(2048, 16, 32, 8, 64, 8192, tied=True, scaling_factor=32.0),
        "llama3-3b": _llama3(3072, 28, 24, 8, 128, 8192, tied=True, scaling_factor=32.0),
        "llama3-8b": _llama3(4096, 32, 32, 8, 128, 14336, tied=False, scaling_factor=8.0),
        "llama3-70b": _llama3(8192, 80, 64, 8, 128, 28672, tied=False, scaling_factor=8.0),
    }
)


def preset(name: str) -> ModelConfig:
    """Returns the model called `name`.

    Raises:
        UnknownNameError: If there is none; the message lists those that exist.
    """
    try:
        return PRESETS[name]
    except KeyError:
        raise UnknownNameError(
            "preset", name, PRESETS, hint=", or a folder with a config.json"
        ) from None
