"""What a stack of decoder layers does, whatever its layout."""

from __future__ import annotations

from typing import Protocol

import jax

from layerbench_models.cache import KVCache
from layerbench_models.layers import DecoderLayer, Rope
from layerbench_models.positions import Positions


class DecoderStack(Protocol):
    """All decoder layers of a model, without embedding, final norm and head."""

    def train(self, x_btd: jax.Array, rope: Rope, starts_b: jax.Array) -> jax.Array:
        """Runs whole sequences without a cache; rematerialises as the layout says.

        Args:
            x_btd: Embedded tokens (B, T, D), left-padded.
            rope: Their rotations.
            starts_b: int32 (B,), the slot of each sequence's first token.

        Returns:
            Hidden states (B, T, D).
        """
        ...

    def prefill(
        self, x_btd: jax.Array, rope: Rope, starts_b: jax.Array, cache: KVCache
    ) -> tuple[jax.Array, KVCache]:
        """Runs the prompts and writes their keys and values to slots 0 to T-1.

        Args:
            x_btd: Embedded prompts (B, T, D), left-padded.
            rope: Their rotations.
            starts_b: int32 (B,), the slot of each prompt's first token.
            cache: A cache whose capacity is T or more.

        Returns:
            Hidden states (B, T, D) and the cache.
        """
        ...

    def decode(
        self, x_b1d: jax.Array, rope: Rope, positions: Positions, cache: KVCache
    ) -> tuple[jax.Array, KVCache]:
        """Runs one token of each sequence and writes its keys and values.

        Args:
            x_b1d: Embedded tokens (B, 1, D).
            rope: Their rotations.
            positions: The slot that is written and where the sequences begin.
            cache: The cache of all slots before.

        Returns:
            Hidden states (B, 1, D) and the cache.
        """
        ...

    def for_decode(self) -> DecoderStack:
        """Returns the stack that `decode` is to be called on, made once before many steps."""
        ...

    def layer(self, index: int) -> DecoderLayer:
        """Returns one layer, for tests and for loading weights only.

        Out of a stack it is a copy of that layer's parameters: a forward pass written with it
        slices every weight in every step.
        """
        ...
