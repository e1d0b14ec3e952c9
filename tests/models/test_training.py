"""Gradients are real and a step of AdamW learns from them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from layerbench_models import LAYOUTS, build, convert_params
from layerbench_models.training import next_token_loss


def test_gradients_agree_with_finite_differences(oracle, parity):
    """The differences are the numpy oracle's, in float64."""
    config = parity.config(num_layers=1, vocab_size=11)
    params = parity.random_params(config)
    tokens, lengths = parity.batch(config, [5, 3])
    gradients = jax.jit(jax.grad(build(config, "unrolled").loss))(params, tokens, lengths)
    weights = oracle.weights_of(params, "unrolled")
    sequences = [tokens[0], tokens[1, 2:]]
    rng = np.random.default_rng(0)
    for path, parameter in nnx.to_flat_state(gradients):
        name, gradient = ".".join(map(str, path)), np.asarray(parameter.get_value())
        direction = rng.standard_normal(gradient.shape)
        step = 1e-5
        losses = [
            oracle.loss(
                config, weights | {name: weights[name] + sign * step * direction}, sequences
            )
            for sign in (1, -1)
        ]
        slope = (losses[0] - losses[1]) / (2 * step)
        np.testing.assert_allclose((gradient * direction).sum(), slope, rtol=1e-3, atol=1e-5)


# One layout for each way to run the layers and to store them.
TRAINED = {
    (layout.forward, layout.parameters): name for name, layout in reversed(LAYOUTS.items())
}.values()


@pytest.mark.parametrize("name", sorted(TRAINED, key="unrolled".__ne__))
def test_steps_on_one_batch_lower_its_loss_as_in_unrolled(name, parity):
    config = parity.config(num_layers=2)
    model = build(config, name, remat="full")
    params = convert_params(parity.random_params(config), "unrolled", name)
    tokens, lengths = parity.batch(config, [7, 3, 5])
    losses = []
    with jax.numpy_dtype_promotion("standard"):  # optax mixes types
        state = model.init_optimizer(params)
        step = parity.fast_jit(model.train_step)
        for _ in range(3):
            loss, params, state = step(params, state, tokens, lengths)
            losses.append(float(loss))
    assert losses[2] < losses[1] < losses[0]
    assert jax.tree.structure(params) == jax.tree.structure(model.abstract_params())
    reference = test_steps_on_one_batch_lower_its_loss_as_in_unrolled.__dict__.setdefault(
        "losses", losses
    )
    np.testing.assert_allclose(losses, reference, rtol=0, atol=1e-3)


def test_only_tokens_with_one_before_them_count():
    logits = jnp.asarray(np.random.default_rng(0).standard_normal((2, 4, 5)), jnp.float32)
    tokens = jnp.array([[1, 2, 3, 4], [0, 0, 0, 2]], jnp.int32)
    lengths = jnp.array([3, 1], jnp.int32)
    logs = jax.nn.log_softmax(logits[0])
    expected = -(logs[1, 3] + logs[2, 4]) / 2
    np.testing.assert_allclose(next_token_loss(logits, tokens, lengths), expected, rtol=1e-6)


def test_a_batch_with_nothing_to_predict_has_no_loss():
    logits = jnp.zeros((2, 4, 5))
    tokens = jnp.zeros((2, 4), jnp.int32)
    assert next_token_loss(logits, tokens, jnp.array([1, 0], jnp.int32)) == 0
