"""Prompts are padded on the left, so that all end in the same slot."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from layerbench_models import ModelError, Positions, left_pad


def test_prompts_end_in_the_same_slot():
    tokens, lengths = left_pad([[7, 8, 9], [5], []])
    np.testing.assert_array_equal(tokens, [[7, 8, 9], [0, 0, 5], [0, 0, 0]])
    np.testing.assert_array_equal(lengths, [3, 1, 0])
    assert tokens.dtype == lengths.dtype == np.int32


def test_prompts_can_be_padded_further():
    np.testing.assert_array_equal(left_pad([[7], [8, 9]], slots=4)[0], [[0, 0, 0, 7], [0, 0, 8, 9]])


@pytest.mark.parametrize(
    ("prompts", "slots", "message"),
    [
        ([], None, "there is no prompt to pad: give at least one token"),
        ([[]], None, "there is no prompt to pad: give at least one token"),
        ([[1, 2, 3]], 2, "a prompt of 3 tokens does not fit: give slots >= 3"),
    ],
)
def test_prompts_that_cannot_be_padded_are_refused(prompts, slots, message):
    with pytest.raises(ModelError) as caught:
        left_pad(prompts, slots=slots)
    assert str(caught.value) == message


def test_the_first_new_token_takes_the_slot_behind_the_prompts():
    positions = Positions.after_prompt(5, jnp.array([5, 2], jnp.int32))
    assert positions.fill == 5
    np.testing.assert_array_equal(positions.starts, [0, 3])
    assert positions.next().fill == 6
