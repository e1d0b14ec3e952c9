"""The presets have the shapes of the models they are named after."""

from __future__ import annotations

import math

import jax
import pytest

from layerbench_models import PRESETS, UnknownNameError, build, preset

# Billions, from the models' names and published shapes.
PUBLISHED = {
    "qwen3-0.6b": 0.60,
    "qwen3-1.7b": 1.72,
    "qwen3-4b": 4.02,
    "qwen3-8b": 8.19,
    "qwen3-14b": 14.77,
    "qwen3-32b": 32.76,
    "llama3-1b": 1.24,
    "llama3-3b": 3.21,
    "llama3-8b": 8.03,
    "llama3-70b": 70.55,
}


@pytest.mark.parametrize(("name", "billions"), PUBLISHED.items())
def test_a_preset_has_the_published_number_of_parameters(name, billions):
    assert round(PRESETS[name].parameter_count / 1e9, 2) == billions


@pytest.mark.parametrize("name", PRESETS)
def test_the_counted_parameters_are_those_of_the_model(name):
    params = build(name, "stacked-scan").abstract_params()
    assert sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params)) == (
        PRESETS[name].parameter_count
    )


def test_every_large_preset_is_checked_against_its_name():
    assert set(PRESETS) - set(PUBLISHED) == {"qwen3-tiny", "qwen3-small", "llama3-tiny"}


def test_an_unknown_preset_lists_those_that_exist():
    with pytest.raises(UnknownNameError) as caught:
        preset("qwen3-30b-a3b")
    assert str(caught.value) == (
        "unknown preset 'qwen3-30b-a3b': choose one of qwen3-tiny, qwen3-small, qwen3-0.6b, "
        "qwen3-1.7b, qwen3-4b, qwen3-8b, qwen3-14b, qwen3-32b, llama3-tiny, llama3-1b, "
        "llama3-3b, llama3-8b, llama3-70b, or a folder with a config.json"
    )
