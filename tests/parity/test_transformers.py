"""What transformers computes from a checkpoint, computed from it here in every layout."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from transformers import AutoModelForCausalLM

from layerbench_models import (
    LAYOUTS,
    Positions,
    build,
    left_pad,
    load_safetensors,
    save_safetensors,
)
from layerbench_models.causal_lm import CausalLM
from layerbench_models.layers import causal_attention, rope_table

# Largest error over the largest value, float32. The errors seen are a quarter of these or less.
HIDDEN_TOLERANCE = 1e-5
LOGITS_TOLERANCE = 1e-5

KINDS = [(family, tied) for family in ("qwen3", "llama") for tied in (True, False)]
KIND = pytest.mark.parametrize("kind", KINDS)
FAMILY = pytest.mark.parametrize("family", ["qwen3", "llama"])
# Two layouts meet every kind of checkpoint; each of the others meets one kind, in turn.
EVERY_LAYOUT = [
    (layout, *kind)
    for index, layout in enumerate(LAYOUTS)
    for kind in (KINDS if layout in ("unrolled", "stacked-scan") else [KINDS[index % len(KINDS)]])
]


def assert_close(actual, expected, tolerance):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * np.abs(expected).max())


def loaded(reference, layout):
    model = build(reference.folder, layout)
    return model, load_safetensors(reference.folder, model)


def padded(reference):
    """All prompts in one batch, left-padded: (B, T) and their lengths."""
    tokens, lengths = left_pad([prompt.tolist() for prompt in reference.prompts])
    return np.asarray(tokens), np.asarray(lengths)


@FAMILY
@pytest.mark.parametrize("layout", ["unrolled", "stacked"])
def test_hidden_states_after_every_layer_are_those_of_transformers(references, family, layout):
    reference = references(family, tied=False)
    model, params = loaded(reference, layout)
    module = CausalLM(model.config, model.layout, key=jax.random.key(0), dtype=model.dtype)
    nnx.update(module, params)
    graphdef, state = nnx.split(module)

    @jax.jit
    def hidden_states(state, tokens):
        module = nnx.merge(graphdef, state)
        starts = jnp.zeros(1, jnp.int32)
        rope = rope_table(model.config, jnp.arange(tokens.shape[1], dtype=jnp.int32)[None])

        def attend(q, k, v):
            return causal_attention(q, k, v, starts, model.layout.attention_form), None

        states = [module.embedding(tokens)]
        for layer in range(model.config.num_layers):
            states.append(module.stack.layer(layer)(states[-1], rope, attend)[0])
        return [*states[:-1], module.norm(states[-1])]

    for prompt, hidden in zip(reference.prompts, reference.hidden, strict=True):
        found = hidden_states(state, jnp.asarray(prompt, jnp.int32)[None])
        assert len(found) == len(hidden) == model.config.num_layers + 1
        np.testing.assert_array_equal(found[0][0], hidden[0])
        for actual, expected in zip(found[1:], hidden[1:], strict=True):
            assert_close(actual[0], expected, HIDDEN_TOLERANCE)


@pytest.mark.parametrize(("layout", "family", "tied"), EVERY_LAYOUT)
def test_logits_and_greedy_tokens_are_those_of_transformers_in_every_layout(
    references, layout, family, tied
):
    reference = references(family, tied=tied)
    model, params = loaded(reference, layout)
    count = len(reference.greedy[0])

    @jax.jit
    def run(params, tokens, lengths):
        cache = model.init_cache(tokens.shape[0], tokens.shape[1] + count)
        scores, cache = model.prefill(params, cache, tokens, lengths)
        first = jnp.argmax(scores, axis=-1).astype(jnp.int32)
        positions = Positions.after_prompt(tokens.shape[1], lengths)
        rest, _ = model.generate(
            params, cache, first, positions, count - 1, -1, max_new_tokens=count - 1
        )
        greedy = jnp.concatenate([first[:, None], rest.tokens], axis=1)
        return model.logits(params, tokens, lengths), greedy

    logits, greedy = run(params, *padded(reference))
    for row, expected in zip(np.asarray(logits), reference.logits, strict=True):
        assert_close(row[-len(expected) :], expected, LOGITS_TOLERANCE)
    np.testing.assert_array_equal(greedy, np.stack(reference.greedy))


@KIND
@pytest.mark.parametrize(
    ("layout", "max_shard_bytes"), [("unrolled", 10**9), ("stacked-scan", 30_000)]
)
def test_transformers_computes_the_same_from_what_is_saved_here(
    references, tmp_path, kind, layout, max_shard_bytes
):
    reference = references(kind[0], tied=kind[1])
    model, params = loaded(reference, layout)
    files = save_safetensors(params, model, tmp_path / "saved", max_shard_bytes=max_shard_bytes)
    assert (len(files) > 1) == (max_shard_bytes < 10**9)
    module, report = AutoModelForCausalLM.from_pretrained(
        tmp_path / "saved", attn_implementation="eager", output_loading_info=True
    )
    assert not any(report.values()), report
    saved, original = module.state_dict(), reference.module.state_dict()
    assert saved.keys() == original.keys()
    assert all(torch.equal(saved[name], original[name]) for name in original)
    for prompt, expected in zip(reference.prompts, reference.logits, strict=True):
        with torch.no_grad():
            actual = module(torch.tensor(prompt)[None], use_cache=False).logits[0].numpy()
        np.testing.assert_array_equal(actual, expected)


@FAMILY
def test_a_saved_configuration_means_the_same_to_transformers(references, tmp_path, family):
    reference = references(family, tied=False)
    model, params = loaded(reference, "unrolled")
    save_safetensors(params, model, tmp_path / "saved")
    settings = json.loads((tmp_path / "saved" / "config.json").read_text())
    assert settings["architectures"] == reference.module.config.architectures
    read = type(reference.module.config).from_pretrained(tmp_path / "saved")
    for key in ("rope_parameters", "rms_norm_eps", "head_dim", "tie_word_embeddings"):
        assert getattr(read, key) == getattr(reference.module.config, key), key


@FAMILY
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_bfloat16_checkpoint_is_read_bit_for_bit(torch_module, tmp_path, family, dtype):
    module = torch_module(family, tied=False, dtype="bfloat16")
    module.save_pretrained(tmp_path)
    model = build(tmp_path, "stacked", dtype=dtype)
    params = load_safetensors(tmp_path, model)
    weights = module.state_dict()
    found = params["head"]["kernel"].get_value()
    assert found.dtype == dtype
    np.testing.assert_array_equal(
        np.asarray(found, np.float32), weights["lm_head.weight"].float().numpy().T
    )
    keys = np.asarray(params["stack"]["layers"]["attention"]["k"].get_value(), np.float32)
    for layer, held in enumerate(keys):
        stored = weights[f"model.layers.{layer}.self_attn.k_proj.weight"].float().numpy()
        np.testing.assert_array_equal(held.reshape(len(held), -1), stored.T)
