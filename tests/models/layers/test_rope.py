"""Rotations have the wavelengths of their model."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from layerbench_models import PRESETS
from layerbench_models.layers import rope_table
from layerbench_models.layers.rope import inverse_frequencies


@pytest.mark.parametrize("name", ["qwen3-0.6b", "llama3-1b", "llama3-8b"])
def test_frequencies_are_those_of_the_definition(name, oracle):
    config = PRESETS[name]
    expected = [oracle.frequency(config, pair) for pair in range(config.head_dim // 2)]
    np.testing.assert_allclose(inverse_frequencies(config), expected, rtol=1e-12)


def test_llama3_stretches_long_wavelengths_only():
    config = PRESETS["llama3-8b"]
    plain = config.rope_theta ** (-np.arange(0, config.head_dim, 2) / config.head_dim)
    stretch = plain / inverse_frequencies(config)
    assert stretch[0] == 1
    np.testing.assert_allclose(stretch[-1], 8)
    assert np.any((stretch > 1) & (stretch < 8))


def test_scores_depend_on_distance_alone():
    config = PRESETS["qwen3-tiny"]
    q, k = (
        jnp.asarray(np.random.default_rng(i).standard_normal((1, 1, 1, 16)), "float32")
        for i in (0, 1)
    )
    at = lambda place: rope_table(config, jnp.array([[place]], jnp.int32))  # noqa: E731 - one line
    near = (at(9).rotate(q) * at(4).rotate(k)).sum()
    far = (at(105).rotate(q) * at(100).rotate(k)).sum()
    np.testing.assert_allclose(near, far, atol=1e-4)
