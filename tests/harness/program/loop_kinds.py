"""Small programs with loops of every kind, and the matrix products that each must do.

Used by the tests on the cpu target and by `make_fixtures.py` for the targets that are not there.
Every product is (3, 128) by (128, 128), so a program's FLOPs are told by counting products.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

ROWS, WIDTH = 3, 128
PRODUCT_FLOPS = 2 * ROWS * WIDTH * WIDTH

_X = jax.ShapeDtypeStruct((ROWS, WIDTH), jnp.float32)
_W = jax.ShapeDtypeStruct((WIDTH, WIDTH), jnp.float32)
_N = jax.ShapeDtypeStruct((), jnp.int32)


def _stack(layers: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((layers, WIDTH, WIDTH), jnp.float32)


@dataclasses.dataclass(frozen=True)
class LoopKind:
    """A function, its abstract arguments and what it does.

    Attributes:
        products: Matrix products with every trip counted; of a data-dependent loop, those of one
            trip.
        trips: The trip counts of the compiled program's loops, outermost first; None for a count
            that depends on data. Where the compiler removes a loop, it is not listed.
    """

    function: Callable[..., Any]
    arguments: tuple[jax.ShapeDtypeStruct, ...]
    products: int
    trips: tuple[int | None, ...]


def _apply(x: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.tanh(x @ w)


def _scan(x: jax.Array, stack: jax.Array, **options: Any) -> jax.Array:
    return lax.scan(lambda x, w: (_apply(x, w), None), x, stack, **options)[0]


def _scan_outputs(x: jax.Array, stack: jax.Array) -> Any:
    return lax.scan(lambda x, w: (_apply(x, w), x), x, stack)


def _scan_index(x: jax.Array, stack: jax.Array) -> jax.Array:
    def step(x: jax.Array, index: jax.Array) -> Any:
        return _apply(x, lax.dynamic_index_in_dim(stack, index, keepdims=False)), None

    return lax.scan(step, x, jnp.arange(stack.shape[0]))[0]


def _fori(x: jax.Array, w: jax.Array) -> jax.Array:
    return lax.fori_loop(0, 9, lambda _, x: _apply(x, w), x)


def _fori_from(x: jax.Array, w: jax.Array) -> jax.Array:
    return lax.fori_loop(4, 17, lambda i, x: _apply(x, w) + i, x)


def _while_down(x: jax.Array, w: jax.Array) -> jax.Array:
    def step(state: Any) -> Any:
        return state[0] - 3, _apply(state[1], w)

    return lax.while_loop(lambda state: state[0] > 2, step, (jnp.int32(20), x))[1]


def _while_at_most(x: jax.Array, w: jax.Array) -> jax.Array:
    def step(state: Any) -> Any:
        return state[0] + 2, _apply(state[1], w)

    return lax.while_loop(lambda state: state[0] <= 12, step, (jnp.int32(1), x))[1]


def _while_data(x: jax.Array, w: jax.Array) -> jax.Array:
    return lax.while_loop(lambda x: x.sum() < 100.0, lambda x: _apply(x, w) + 1, x)


def _while_argument(x: jax.Array, w: jax.Array, turns: jax.Array) -> jax.Array:
    return lax.fori_loop(0, turns, lambda _, x: _apply(x, w), x)


def _scan_in_data_loop(x: jax.Array, stack: jax.Array, turns: jax.Array) -> jax.Array:
    return lax.fori_loop(0, turns, lambda _, x: _scan(x, stack), x)


def _nested(x: jax.Array, stack: jax.Array) -> jax.Array:
    return lax.fori_loop(0, 4, lambda _, x: _scan(x, stack), x)


def _nested_scans(x: jax.Array, stack: jax.Array) -> jax.Array:
    pairs = stack.reshape(3, 2, WIDTH, WIDTH)
    return lax.scan(lambda x, pair: (_scan(x, pair), None), x, pairs)[0]


def _unrolled(x: jax.Array, stack: jax.Array) -> jax.Array:
    for layer in range(stack.shape[0]):
        x = _apply(x, stack[layer])
    return x


def _map(x: jax.Array, stack: jax.Array) -> jax.Array:
    return lax.map(lambda w: _apply(x, w).sum(), stack)


def _two_loops(x: jax.Array, stack: jax.Array) -> jax.Array:
    return _scan(_scan(x, stack), stack, reverse=True)


def _gradient(x: jax.Array, stack: jax.Array) -> jax.Array:
    # Forward, and backward to the weights and to every layer's input.
    return jax.grad(lambda stack: _scan(x, stack).sum())(stack)


def _condition(x: jax.Array, stack: jax.Array) -> jax.Array:
    def step(x: jax.Array, w: jax.Array) -> Any:
        return lax.cond(x[0, 0] > 0, lambda x: _apply(x, w), lambda x: x + 1, x), None

    return lax.scan(step, x, stack)[0]


KINDS = {
    "scan": LoopKind(_scan, (_X, _stack(6)), 6, (6,)),
    "scan_outputs": LoopKind(_scan_outputs, (_X, _stack(6)), 6, (6,)),
    "scan_index": LoopKind(_scan_index, (_X, _stack(6)), 6, (6,)),
    "scan_reverse": LoopKind(lambda x, s: _scan(x, s, reverse=True), (_X, _stack(7)), 7, (7,)),
    "scan_unroll_2": LoopKind(lambda x, s: _scan(x, s, unroll=2), (_X, _stack(6)), 6, (3,)),
    "scan_unroll_rest": LoopKind(lambda x, s: _scan(x, s, unroll=2), (_X, _stack(7)), 7, (3,)),
    "scan_unroll_all": LoopKind(lambda x, s: _scan(x, s, unroll=True), (_X, _stack(5)), 5, ()),
    "scan_one": LoopKind(_scan, (_X, _stack(1)), 1, ()),
    "scan_none": LoopKind(_scan, (_X, _stack(0)), 0, ()),
    "fori": LoopKind(_fori, (_X, _W), 9, (9,)),
    "fori_from": LoopKind(_fori_from, (_X, _W), 13, (13,)),
    "while_down": LoopKind(_while_down, (_X, _W), 6, (6,)),
    "while_at_most": LoopKind(_while_at_most, (_X, _W), 6, (6,)),
    "while_data": LoopKind(_while_data, (_X, _W), 1, (None,)),
    "while_argument": LoopKind(_while_argument, (_X, _W, _N), 1, (None,)),
    "scan_in_data_loop": LoopKind(_scan_in_data_loop, (_X, _stack(6), _N), 6, (None, 6)),
    "nested": LoopKind(_nested, (_X, _stack(6)), 24, (4, 6)),
    "nested_scans": LoopKind(_nested_scans, (_X, _stack(6)), 6, (3, 2)),
    "unrolled": LoopKind(_unrolled, (_X, _stack(5)), 5, ()),
    "map": LoopKind(_map, (_X, _stack(6)), 6, (6,)),
    "two_loops": LoopKind(_two_loops, (_X, _stack(6)), 12, (6, 6)),
    "condition": LoopKind(_condition, (_X, _stack(6)), 6, (6,)),
    "gradient": LoopKind(_gradient, (_X, _stack(6)), 18, (6, 6)),
}
