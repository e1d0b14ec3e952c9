"""The unrolled layout is held to the definition, without a cache and in numpy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from layerbench_models import Architecture, Positions, RopeScaling, build

LENGTHS = (7, 3, 5)


@pytest.fixture(scope="module", params=["qwen3", "llama3"])
def case(request, parity):
    """An unrolled model, its parameters and ragged prompts."""
    sizes = {
        "qwen3": {"tied_embeddings": True},
        "llama3": {
            "architecture": Architecture.LLAMA,
            "qk_norm": False,
            # Short enough that some wavelengths are stretched, some blended and some left alone.
            "rope_scaling": RopeScaling(
                factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context=64
            ),
        },
    }[request.param]
    config = parity.config(num_layers=2, **sizes)
    return build(config, "unrolled"), parity.random_params(config), parity.batch(config, LENGTHS)


def sequences(tokens):
    return [row[len(row) - length :] for row, length in zip(tokens, LENGTHS, strict=True)]


def test_logits_are_those_of_the_definition(case, oracle, parity):
    model, params, (tokens, lengths) = case
    weights = oracle.weights_of(params, "unrolled")
    logits = jax.jit(model.logits)(params, tokens, lengths)
    assert logits.dtype == jnp.float32
    for row, sequence in enumerate(sequences(tokens)):
        expected = oracle.logits(model.config, weights, sequence)
        np.testing.assert_allclose(
            logits[row, -len(sequence) :], expected, rtol=0, atol=parity.LOGITS_ATOL
        )


def test_decoding_continues_as_if_the_prompt_had_been_longer(case, oracle, parity):
    model, params, (tokens, lengths) = case
    weights = oracle.weights_of(params, "unrolled")
    cache = model.init_cache(3, 12)
    logits, cache = jax.jit(model.prefill)(params, cache, tokens, lengths)
    positions = Positions.after_prompt(tokens.shape[1], lengths)
    grown, step = sequences(tokens), jax.jit(model.decode_step)
    for _ in range(4):
        expected = [oracle.logits(model.config, weights, sequence)[-1] for sequence in grown]
        np.testing.assert_allclose(logits, expected, rtol=0, atol=parity.LOGITS_ATOL)
        chosen = np.array([scores.argmax() for scores in expected], np.int32)
        grown = [np.append(sequence, token) for sequence, token in zip(grown, chosen, strict=True)]
        logits, cache = step(params, cache, chosen, positions)
        positions = positions.next()


def test_the_loss_is_that_of_the_definition(case, oracle, parity):
    model, params, (tokens, lengths) = case
    weights = oracle.weights_of(params, "unrolled")
    loss = jax.jit(model.loss)(params, tokens, lengths)
    expected = oracle.loss(model.config, weights, sequences(tokens))
    np.testing.assert_allclose(loss, expected, atol=parity.LOSS_ATOL)


def test_what_stands_in_the_padding_does_not_matter(parity):
    config = parity.config(num_layers=2)
    params, model = parity.random_params(config), build(config, "vmap")
    tokens, lengths = parity.batch(config, [7, 3, 5, 1])
    other = np.where(np.arange(7)[None] >= 7 - lengths[:, None], tokens, (tokens + 1) % 37)
    first = parity.run(model, params, tokens, lengths)
    second = parity.run(model, params, other.astype(np.int32), lengths)
    np.testing.assert_array_equal(first.logits, second.logits)
    assert first.loss == second.loss


def test_an_empty_prompt_gives_finite_numbers(parity):
    config = parity.config(num_layers=1)
    tokens, lengths = parity.batch(config, [0, 5])
    for name in ("unrolled", "vmap"):
        outcome = parity.run(build(config, name), parity.random_params(config), tokens, lengths)
        assert np.isfinite(outcome.logits).all()
        assert np.isfinite(outcome.loss)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(outcome.gradients))
