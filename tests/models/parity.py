"""Runs every phase of a model and compares the results with those of another layout."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from layerbench_models import (
    LAYOUTS,
    Architecture,
    ModelConfig,
    Positions,
    build,
    convert_cache,
    convert_params,
)

# Layouts differ only in the order of float32 sums. The errors seen are a tenth of these.
LOGITS_ATOL = 1e-4
CACHE_ATOL = 1e-4
GRADIENT_ATOL = 1e-5
LOSS_ATOL = 1e-5


@dataclasses.dataclass
class Outcome:
    """What the phases returned, caches and gradients as `unrolled` stores them."""

    logits: np.ndarray  # (steps, B, V): after the prompt, then after each decode step
    cache: Any
    loss: float
    gradients: Any


def config(**sizes):
    """A small model; sizes by the names of `ModelConfig`."""
    defaults = {
        "architecture": Architecture.QWEN3,
        "vocab_size": 37,
        "hidden_dim": 19,
        "ffn_dim": 29,
        "num_layers": 3,
        "num_heads": 10,
        "num_kv_heads": 2,
        "head_dim": 14,
        "norm_eps": 1e-6,
        "rope_theta": 1e4,
        "qk_norm": True,
    }
    return ModelConfig(**(defaults | sizes))


def random_params(model_config, seed=0):
    """Parameters as `unrolled` stores them, none of which is a constant: norms are around one."""
    rng = np.random.default_rng(seed)

    def draw(leaf):
        scale = 0.1 if len(leaf.shape) == 1 else leaf.shape[0] ** -0.5
        return jnp.asarray(
            (len(leaf.shape) == 1) + scale * rng.standard_normal(leaf.shape), "float32"
        )

    return jax.tree.map(draw, build(model_config, "unrolled").abstract_params())


def batch(model_config, lengths, *, slots=None, seed=0):
    """Left-padded random prompts; the padding holds tokens that must not matter."""
    rng = np.random.default_rng(seed)
    width = slots or max(lengths)
    tokens = rng.integers(0, model_config.vocab_size, (len(lengths), width)).astype(np.int32)
    return tokens, np.array(lengths, np.int32)


def run(model, params, tokens, lengths, *, steps=2, spare=1):
    """Prefills, decodes given tokens, and takes the gradient of the loss, in one program.

    Parameters come in as `unrolled` stores them, and are converted in the program.
    """
    program = _program(model, *tokens.shape, steps, spare)
    logits, cache, loss, gradients = program(params, tokens, lengths)
    return Outcome(np.asarray(logits), cache, float(loss), gradients)


def expected(model_config, tokens, lengths):
    """What `unrolled` gives, with the random parameters; computed once for the same numbers."""
    return _expected(model_config, tokens.tobytes(), tokens.shape, tuple(lengths.tolist()))


@functools.cache
def _expected(model_config, tokens, shape, lengths):
    tokens = np.frombuffer(tokens, np.int32).reshape(shape)
    model = build(model_config, "unrolled")
    with jax.default_matmul_precision("highest"):
        return run(model, random_params(model_config), tokens, np.array(lengths, np.int32))


def gradients(model, params, tokens, lengths):
    """The loss and its gradients, parameters and gradients as `unrolled` stores them."""
    unrolled = LAYOUTS["unrolled"]

    def training(params, tokens, lengths):
        params = convert_params(params, unrolled, model.layout)
        loss, gradients = jax.value_and_grad(model.loss)(params, tokens, lengths)
        return loss, convert_params(gradients, model.layout, unrolled)

    return fast_jit(training)(params, tokens, lengths)


@functools.cache
def _program(model, rows, slots, steps, spare):
    rng = np.random.default_rng(1)
    forced = rng.integers(0, model.config.vocab_size, (steps, rows)).astype(np.int32)
    unrolled = LAYOUTS["unrolled"]

    def everything(params, tokens, lengths):
        params = convert_params(params, unrolled, model.layout)
        cache = model.init_cache(rows, slots + steps + spare)
        scores, cache = model.prefill(params, cache, tokens, lengths)
        decode_params = model.prepare_decode(params)

        def step(state, tokens_b):
            scores, cache = model.decode_step(decode_params, state[0], tokens_b, state[1])
            return (cache, state[1].next()), scores

        start = (cache, Positions.after_prompt(slots, lengths))
        (cache, _), stepped = lax.scan(step, start, jnp.asarray(forced))
        loss, gradients = jax.value_and_grad(model.loss)(params, tokens, lengths)
        return (
            jnp.concatenate([scores[None], stepped]),
            convert_cache(cache, model.layout, unrolled),
            loss,
            convert_params(gradients, model.layout, unrolled),
        )

    return fast_jit(everything)


HASTE = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,  # with them, compiling takes three times as long
}


def fast_jit(function, **options):
    """`jax.jit` that spends little on optimising machine code which runs once."""
    return jax.jit(function, compiler_options=_known_haste(), **options)


@functools.cache
def _known_haste():
    """Those options that this jaxlib still has."""

    def is_known(name):
        try:
            jax.jit(lambda: 0, compiler_options={name: HASTE[name]}).lower().compile()
        except jax.errors.JaxRuntimeError:
            return False
        return True

    return {name: value for name, value in HASTE.items() if is_known(name)}


def assert_same_gradients(actual, expected):
    """Fails where a loss and its gradients leave the tolerances around the expected outcome's."""
    loss, gradients = actual
    np.testing.assert_allclose(loss, expected.loss, rtol=0, atol=LOSS_ATOL)
    assert jax.tree.structure(gradients) == jax.tree.structure(expected.gradients)
    jax.tree.map(
        lambda a, e: np.testing.assert_allclose(a, e, rtol=0, atol=GRADIENT_ATOL),
        gradients,
        expected.gradients,
    )


def assert_same(actual, expected):
    """Fails where an outcome leaves the tolerances around the expected one."""
    np.testing.assert_allclose(actual.logits, expected.logits, rtol=0, atol=LOGITS_ATOL)
    assert jax.tree.structure(actual.cache) == jax.tree.structure(expected.cache)
    jax.tree.map(
        lambda a, e: np.testing.assert_allclose(a, e, rtol=0, atol=CACHE_ATOL),
        actual.cache,
        expected.cache,
    )
    assert_same_gradients((actual.loss, actual.gradients), expected)
    # A greedy token is decided where no error within the tolerance can turn it.
    best = np.sort(expected.logits, axis=-1)
    decided = best[..., -1] - best[..., -2] > 2 * LOGITS_ATOL
    assert decided.any()
    np.testing.assert_array_equal(
        actual.logits.argmax(-1)[decided], expected.logits.argmax(-1)[decided]
    )
