"""Where the tokens of a ragged batch stand.

Prompts are left-padded, so that all of them end in the same slot. From there on every sequence
writes the same cache slot in each step, one index serves the whole batch, and the first tokens
of the shorter prompts stand in later slots. A token's rotary position is its slot minus the slot
of its sequence's first token.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np

from layerbench_models.errors import ModelError


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, slots=True)
class Positions:
    """The slot that a decode step writes, and where each sequence begins.

    Slot s of row b holds a token of the sequence iff `starts[b] <= s <= fill`.

    Attributes:
        fill: int32 scalar, the slot of the current token.
        starts: int32 (B,), the slot of each sequence's first token.
    """

    fill: jax.Array
    starts: jax.Array

    @classmethod
    def after_prompt(cls, prompt_slots: int, lengths_b: jax.Array) -> Self:
        """Returns the position of the first token after prompts that fill `prompt_slots` slots.

        Args:
            prompt_slots: Width T of the padded prompts.
            lengths_b: int32 (B,), the tokens in each prompt.
        """
        return cls(
            fill=jnp.asarray(prompt_slots, jnp.int32),
            starts=sequence_starts(prompt_slots, lengths_b),
        )

    def next(self) -> Self:
        """Returns the position one token later."""
        return dataclasses.replace(self, fill=self.fill + 1)


def sequence_starts(prompt_slots: int, lengths_b: jax.Array) -> jax.Array:
    """Returns the slot of each sequence's first token, int32 (B,)."""
    return jnp.asarray(prompt_slots, jnp.int32) - jnp.asarray(lengths_b, jnp.int32)


def left_pad(
    prompts: Sequence[Sequence[int]], *, slots: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Pads prompts on the left to one width.

    Args:
        prompts: Token ids, one sequence for each row; a row may be empty.
        slots: Width T of the result; None takes the longest prompt's.

    Returns:
        tokens int32 (B, T), with 0 in the padding, and lengths int32 (B,).

    Raises:
        ModelError: If there are no prompts, or one is longer than `slots`.
    """
    lengths = np.array([len(prompt) for prompt in prompts], np.int32)
    width = slots if slots is not None else int(lengths.max(initial=0))
    if not len(prompts) or width < 1:
        raise ModelError("there is no prompt to pad: give at least one token")
    if lengths.max() > width:
        raise ModelError(
            f"a prompt of {lengths.max()} tokens does not fit: give slots >= {lengths.max()}"
        )
    tokens = np.zeros((len(prompts), width), np.int32)
    for row, prompt in enumerate(prompts):
        tokens[row, width - len(prompt) :] = prompt
    return tokens, lengths
