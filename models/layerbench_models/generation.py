"""Greedy generation in one program."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from layerbench_models.cache import KVCache
from layerbench_models.positions import Positions

NO_TOKEN = -1
"""Fills the output where nothing was generated; as a stop token it disables stopping."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, slots=True)
class Generated:
    """What was generated.

    Attributes:
        tokens: int32 (B, N), `NO_TOKEN` behind the end of each row.
        lengths: int32 (B,), tokens in each row, the stop token among them.
    """

    tokens: jax.Array
    lengths: jax.Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, slots=True)
class _Turn:
    """The state between two turns of the loop."""

    count: jax.Array
    tokens_b: jax.Array
    done_b: jax.Array
    positions: Positions
    cache: KVCache
    generated: Generated


DecodeStep = Callable[[KVCache, jax.Array, Positions], tuple[jax.Array, KVCache]]


def greedy(logits: jax.Array) -> jax.Array:
    """Returns the token of the highest score, int32; the first of equals."""
    return jnp.argmax(logits, axis=-1).astype(jnp.int32)


def generate_greedily(
    decode_step: DecodeStep,
    cache: KVCache,
    tokens_b: jax.Array,
    positions: Positions,
    *,
    num_new_tokens: jax.Array,
    stop_token: jax.Array,
    max_new_tokens: int,
    capacity: int,
) -> tuple[Generated, KVCache]:
    """Runs decode steps until every row has stopped or enough tokens are there.

    Args:
        decode_step: (cache, tokens (B,), positions) -> (logits (B, V), cache).
        cache: The cache of all slots before `positions.fill`.
        tokens_b: int32 (B,), the tokens to begin with.
        positions: Where they stand.
        num_new_tokens: int32 scalar, turns at most; one program serves any number.
        stop_token: int32 scalar; `NO_TOKEN` disables stopping. A row that begins with the stop
            token generates nothing.
        max_new_tokens: Width N of the output, and the limit of `num_new_tokens`.
        capacity: Slots of the cache; the loop ends before it would write past the last one.
    """
    batch = tokens_b.shape[0]
    room = jnp.asarray(capacity, jnp.int32) - positions.fill
    limit = jnp.minimum(jnp.minimum(num_new_tokens, max_new_tokens), room).astype(jnp.int32)
    may_stop = stop_token != NO_TOKEN

    def unfinished(turn: _Turn) -> jax.Array:
        return (turn.count < limit) & ~jnp.all(turn.done_b)

    def step(turn: _Turn) -> _Turn:
        logits, cache = decode_step(turn.cache, turn.tokens_b, turn.positions)
        tokens_b = greedy(logits)
        shown = jnp.where(turn.done_b, NO_TOKEN, tokens_b)
        return _Turn(
            count=turn.count + 1,
            tokens_b=tokens_b,
            done_b=turn.done_b | (may_stop & (tokens_b == stop_token)),
            positions=turn.positions.next(),
            cache=cache,
            generated=Generated(
                tokens=lax.dynamic_update_slice_in_dim(
                    turn.generated.tokens, shown[:, None], turn.count, axis=1
                ),
                lengths=turn.generated.lengths + (~turn.done_b).astype(jnp.int32),
            ),
        )

    last = lax.while_loop(
        unfinished,
        step,
        _Turn(
            count=jnp.zeros((), jnp.int32),
            tokens_b=tokens_b,
            done_b=may_stop & (tokens_b == stop_token),
            positions=positions,
            cache=cache,
            generated=Generated(
                tokens=jnp.full((batch, max_new_tokens), NO_TOKEN, jnp.int32),
                lengths=jnp.zeros((batch,), jnp.int32),
            ),
        ),
    )
    return last.generated, last.cache
