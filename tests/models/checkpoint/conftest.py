"""Small checkpoints, and files that are wrong in one way each."""

from __future__ import annotations

import json

import jax
import numpy as np
import pytest

from layerbench_models import Architecture, ModelConfig, RopeScaling

SIZES = {
    "vocab_size": 37,
    "hidden_dim": 19,
    "ffn_dim": 29,
    "num_layers": 3,
    "num_heads": 10,
    "num_kv_heads": 2,
    "head_dim": 14,
    "norm_eps": 1e-6,
    "rope_theta": 1e4,
}


@pytest.fixture
def qwen():
    """A tied model with per-head norms; no two axes of one size."""
    return ModelConfig(architecture=Architecture.QWEN3, qk_norm=True, tied_embeddings=True, **SIZES)


@pytest.fixture
def llama():
    """An untied model without per-head norms, with stretched wavelengths."""
    scaling = RopeScaling(
        factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context=16
    )
    return ModelConfig(architecture=Architecture.LLAMA, rope_scaling=scaling, **SIZES)


def random_tensors(config, *, dtype=np.float32, seed=0):
    """A checkpoint of the config in numpy arrays, under the names that Hugging Face gives."""
    d, f, h = config.hidden_dim, config.ffn_dim, config.head_dim
    heads, kv = config.num_heads, config.num_kv_heads
    shapes = {"model.embed_tokens.weight": (config.vocab_size, d), "model.norm.weight": (d,)}
    if not config.tied_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, d)
    for layer in range(config.num_layers):
        own = {
            "input_layernorm": (d,),
            "post_attention_layernorm": (d,),
            "self_attn.q_proj": (heads * h, d),
            "self_attn.k_proj": (kv * h, d),
            "self_attn.v_proj": (kv * h, d),
            "self_attn.o_proj": (d, heads * h),
            "mlp.gate_proj": (f, d),
            "mlp.up_proj": (f, d),
            "mlp.down_proj": (d, f),
        }
        if config.qk_norm:
            own |= {"self_attn.q_norm": (h,), "self_attn.k_norm": (h,)}
        shapes |= {f"model.layers.{layer}.{name}.weight": shape for name, shape in own.items()}
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}


@pytest.fixture
def tensors():
    """Makes the tensors of a configuration."""
    return random_tensors


@pytest.fixture
def same():
    """Tells whether two parameter trees are equal in structure, types and every bit."""

    def compare(actual, expected):
        assert jax.tree.structure(actual) == jax.tree.structure(expected)
        for a, e in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
            assert a.dtype == e.dtype
            assert np.asarray(a).tobytes() == np.asarray(e).tobytes()

    return compare


@pytest.fixture(scope="session")
def random_params():
    """Random parameters of a model, in arrays of numpy; nothing is compiled."""

    def make(model, seed=0):
        rng = np.random.default_rng(seed)
        return jax.tree.map(
            lambda leaf: jax.device_put(
                rng.standard_normal(leaf.shape, np.float32).astype(leaf.dtype), leaf.sharding
            ),
            model.abstract_params(),
        )

    return make


@pytest.fixture
def write_raw(tmp_path):
    """Writes a file from a header given as JSON or bytes, and data."""

    def write(header, data=b"", name="model.safetensors"):
        raw = header if isinstance(header, bytes) else json.dumps(header).encode()
        path = tmp_path / name
        path.write_bytes(len(raw).to_bytes(8, "little") + raw + data)
        return path

    return write
