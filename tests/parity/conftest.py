"""Checkpoints that transformers itself writes, with what it computes from them.

`nox -s parity` installs torch and runs this folder; where torch is not installed, as in the
ordinary sessions, nothing here is collected.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path

import jax
import numpy as np
import pytest

collect_ignore_glob = [] if importlib.util.find_spec("torch") else ["test_*.py"]

PROMPTS = (5, 11)
"""Tokens in each prompt; transformers runs each alone and without padding."""
NEW_TOKENS = 6

_SIZES = {
    "qwen3": {
        "vocab_size": 131,
        "hidden_size": 37,
        "intermediate_size": 53,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 14,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
    },
    "llama": {
        "vocab_size": 127,
        "hidden_size": 44,  # transformers wants a multiple of the heads
        "intermediate_size": 59,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 10,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1e4,
        # So short an original context that the prompts feel the stretching.
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16,
        },
        "max_position_embeddings": 128,
    },
}


@dataclasses.dataclass(frozen=True)
class Reference:
    """A checkpoint and what transformers computes from it.

    Attributes:
        folder: Where transformers wrote it.
        module: The model it was written from.
        prompts: int64 (T,) token ids of each prompt.
        hidden: For each prompt, the embedded tokens, then the hidden states after each layer,
            (T, D) each; the last ones after the final norm.
        logits: For each prompt, (T, V).
        greedy: For each prompt, the tokens that follow, (N,).
    """

    folder: Path
    module: object
    prompts: list[np.ndarray]
    hidden: list[list[np.ndarray]]
    logits: list[np.ndarray]
    greedy: list[np.ndarray]


@pytest.fixture(autouse=True)
def strict_jax():
    """Exact float32 products; no implicit promotion of types or ranks."""
    with (
        jax.default_matmul_precision("highest"),
        jax.numpy_rank_promotion("raise"),
        jax.numpy_dtype_promotion("strict"),
    ):
        yield


@pytest.fixture(scope="session")
def torch_module():
    """Makes a random model of a family; none of its weights is a constant."""
    import torch
    import transformers

    # One thread: the models are tiny, and sums then have one order.
    torch.set_num_threads(1)
    classes = {
        "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
        "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
    }

    def make(family, *, tied, dtype="float32"):
        configuration, model = classes[family]
        torch.manual_seed(20_26)
        settings = configuration(
            **_SIZES[family],
            tie_word_embeddings=tied,
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=None,
            initializer_range=0.2,
        )
        settings._attn_implementation = "eager"
        module = model(settings).eval()
        with torch.no_grad():
            for parameter in module.parameters():  # the norms' too, which are ones by default
                parameter.add_(0.1 * torch.randn_like(parameter))
        return module.to(getattr(torch, dtype))

    return make


@pytest.fixture(scope="session")
def references(torch_module, tmp_path_factory):
    """Returns the reference of a family, tied or not; each is made once."""
    made = {}

    def of(family, *, tied):
        if (family, tied) not in made:
            folder = tmp_path_factory.mktemp(f"{family}-{'tied' if tied else 'untied'}")
            module = torch_module(family, tied=tied)
            # Tied ones in shards, the others in one file.
            module.save_pretrained(folder, max_shard_size="40KB" if tied else "5GB")
            made[family, tied] = _reference(folder, module)
        return made[family, tied]

    return of


def _reference(folder, module):
    import torch

    rng = np.random.default_rng(0)
    prompts = [rng.integers(0, module.config.vocab_size, length) for length in PROMPTS]
    hidden, logits, greedy = [], [], []
    for prompt in prompts:
        tokens = torch.tensor(prompt)[None]
        with torch.no_grad():
            out = module(tokens, output_hidden_states=True, use_cache=False)
            hidden.append([states[0].numpy() for states in out.hidden_states])
            logits.append(out.logits[0].numpy())
            for _ in range(NEW_TOKENS):
                scores = module(tokens, use_cache=False).logits[:, -1:]
                tokens = torch.cat([tokens, scores.argmax(-1)], dim=1)
        greedy.append(tokens[0, len(prompt) :].numpy())
    return Reference(folder, module, prompts, hidden, logits, greedy)
