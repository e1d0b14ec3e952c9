"""The loops over the layers of a stack, apart from what the layers do with a cache.

Each takes the hidden states and a carry past some adjoining layers, so that loops are made of
loops: a hybrid is single layers around a scan, a nested scan ends with the layers of no block.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from layerbench_models.layers import Rope
from layerbench_models.stacks.cache_flow import CacheFlow, Index
from layerbench_models.stacks.choices import Forward, Remat
from layerbench_models.stacks.emitted import joined
from layerbench_models.stacks.layer_axis import map_parameters, named
from layerbench_models.stacks.layout import Layout
from layerbench_models.stacks.remat import checkpointed


class LayerSource(Protocol):
    """Parameters of layers, for a loop to take them in the form it wants."""

    num_layers: int

    def split_layer(self, index: Index) -> tuple[nnx.GraphDef[Any], nnx.State]:
        """Returns one layer's definition and parameters."""
        ...

    def split_stacked(self, layers: range) -> tuple[nnx.GraphDef[Any], nnx.State]:
        """Returns one layer's definition and the parameters of several on a leading axis.

        Their metadata is one layer's, as it fits the values in the body of a loop.
        """
        ...


@dataclasses.dataclass(frozen=True, eq=False)  # told apart by identity, as functions are
class LayerStep:
    """One layer's turn in a loop over layers.

    Attributes:
        graphdef: One layer's definition.
        rope: The tokens' rotations.
        flow: How the cache travels.
    """

    graphdef: nnx.GraphDef[Any]
    rope: Rope
    flow: CacheFlow

    def __call__(
        self, state: nnx.State, x_btd: jax.Array, carry: Any, item: Any, index: Index
    ) -> tuple[jax.Array, Any, Any]:
        """Runs one layer; returns its hidden states, the next carry and what it emits."""
        layer = nnx.merge(self.graphdef, state)
        x_btd, kept = layer(x_btd, self.rope, self.flow.attend(carry, item, index))
        carry, emitted = self.flow.advance(carry, kept, index)
        return x_btd, carry, emitted


@dataclasses.dataclass(frozen=True, slots=True)
class Pass:
    """What the loops of one pass through the layers have in common.

    Attributes:
        source: The parameters.
        rope: The tokens' rotations.
        flow: How the cache travels.
        layout: Says how scans are unrolled and cut into blocks.
        remat: What the backward pass computes again, if there is one.
    """

    source: LayerSource
    rope: Rope
    flow: CacheFlow
    layout: Layout
    remat: Remat

    def step(self, graphdef: nnx.GraphDef[Any], *, in_loop: bool) -> Callable[..., Any]:
        """Returns one layer's turn: (state, x, carry, item, index) -> (x, carry, emitted)."""
        return checkpointed(LayerStep(graphdef, self.rope, self.flow), self.remat, in_loop=in_loop)

    def step_by_index(self) -> Callable[..., Any]:
        """Returns one layer's turn in a loop: (x, carry, index) -> (x, carry, emitted).

        The layer is sliced within what is computed again, or its slice would be stored.
        """

        def step(x_btd: jax.Array, carry: Any, index: jax.Array) -> tuple[jax.Array, Any, Any]:
            graphdef, state = self.source.split_layer(index)
            run_layer = LayerStep(graphdef, self.rope, self.flow)
            return run_layer(state, x_btd, carry, self.item(index), index)

        return checkpointed(step, self.remat, in_loop=True)

    def item(self, index: Index) -> Any:
        """Returns one layer's entry of the flow's items."""
        if isinstance(self.flow.items, list):
            return self.flow.items[index]
        return jax.tree.map(lambda a: a[index], self.flow.items)

    def items(self, layers: range) -> Any:
        """Returns the entries of adjoining layers, arrays with a leading axis."""
        if len(layers) == self.source.num_layers:
            return self.flow.items
        return jax.tree.map(lambda a: a[layers.start : layers.stop], self.flow.items)


Loop = Callable[[Pass, jax.Array, Any, range], tuple[jax.Array, Any, Any]]
"""(pass, hidden states, carry, layers) -> (hidden states, carry, what the layers emitted)."""


def loop(
    run: Pass, x_btd: jax.Array, carry: Any, layers: range
) -> tuple[jax.Array, Any, list[Any]]:
    """A Python loop: every layer is in the program."""
    emitted = []
    for index in layers:
        graphdef, state = run.source.split_layer(index)
        # The index stays a Python integer, and with it each layer's place a constant.
        bound = functools.partial(LayerStep(graphdef, run.rope, run.flow), index=index)
        step = checkpointed(bound, run.remat, in_loop=False)
        x_btd, carry, out = step(state, x_btd, carry, run.item(index))
        emitted.append(out)
    return x_btd, carry, emitted


def inner_jit(
    run: Pass, x_btd: jax.Array, carry: Any, layers: range
) -> tuple[jax.Array, Any, list[Any]]:
    """A Python loop around one jitted layer, which is traced once."""
    graphdef, _ = run.source.split_layer(layers[0])
    step = jax.jit(run.step(graphdef, in_loop=False))
    emitted = []
    for index in layers:
        _, state = run.source.split_layer(index)
        x_btd, carry, out = step(state, x_btd, carry, run.item(index), jnp.int32(index))
        emitted.append(out)
    return x_btd, carry, emitted


def scan(run: Pass, x_btd: jax.Array, carry: Any, layers: range) -> tuple[jax.Array, Any, Any]:
    """`lax.scan`: one layer is in the program, its parameters are the scanned input."""
    graphdef, stacked = run.source.split_stacked(layers)
    return _scan_layers(run, graphdef, x_btd, carry, (stacked, run.items(layers), _indices(layers)))


def _scan_layers(
    run: Pass, graphdef: nnx.GraphDef[Any], x_btd: jax.Array, carry: Any, inputs: Any
) -> tuple[jax.Array, Any, Any]:
    step = run.step(graphdef, in_loop=True)

    def body(loop_carry: Any, layer: Any) -> tuple[Any, Any]:
        x_btd, carry = loop_carry
        state, item, index = layer
        x_btd, carry, out = step(state, x_btd, carry, item, index)
        return (x_btd, carry), out

    (x_btd, carry), emitted = lax.scan(body, (x_btd, carry), inputs, unroll=run.layout.unroll)
    return x_btd, carry, emitted


def _indices(layers: range) -> jax.Array:
    return jnp.arange(layers.start, layers.stop, dtype=jnp.int32)


def scan_closure(
    run: Pass, x_btd: jax.Array, carry: Any, layers: range
) -> tuple[jax.Array, Any, Any]:
    """`lax.scan` over the layers' numbers: each takes its parameters out of the closure."""
    step = run.step_by_index()

    def body(loop_carry: Any, index: jax.Array) -> tuple[Any, Any]:
        x_btd, carry, out = step(*loop_carry, index)
        return (x_btd, carry), out

    (x_btd, carry), emitted = lax.scan(
        body, (x_btd, carry), _indices(layers), unroll=run.layout.unroll
    )
    return x_btd, carry, emitted


def fori(run: Pass, x_btd: jax.Array, carry: Any, layers: range) -> tuple[jax.Array, Any, Any]:
    """`lax.fori_loop`: parameters by index, what layers emit written into a carried array."""
    step = run.step_by_index()
    shapes = jax.eval_shape(step, x_btd, carry, jnp.int32(layers.start))[2]
    empty = jax.tree.map(lambda a: jnp.zeros((len(layers), *a.shape), a.dtype), shapes)

    def body(index: jax.Array, loop_carry: Any) -> Any:
        x_btd, carry, emitted = loop_carry
        x_btd, carry, out = step(x_btd, carry, index)
        emitted = jax.tree.map(
            lambda a, new: lax.dynamic_update_index_in_dim(a, new, index - layers.start, 0),
            emitted,
            out,
        )
        return x_btd, carry, emitted

    # Plain numbers, since only a loop of known length can be differentiated.
    return lax.fori_loop(layers.start, layers.stop, body, (x_btd, carry, empty))


def nnx_scan(run: Pass, x_btd: jax.Array, carry: Any, layers: range) -> tuple[jax.Array, Any, Any]:
    """`nnx.scan` over a module that holds all layers."""
    graphdef, stacked = run.source.split_stacked(layers)

    def body(loop_carry: Any, layer: nnx.Module, inputs: Any) -> tuple[Any, Any]:
        x_btd, carry = loop_carry
        item, index = inputs
        graphdef, state = nnx.split(layer)
        x_btd, carry, out = run.step(graphdef, in_loop=True)(state, x_btd, carry, item, index)
        return (x_btd, carry), out

    scanned = nnx.scan(
        body,
        in_axes=(nnx.Carry, 0, 0),
        out_axes=(nnx.Carry, 0),
        unroll=run.layout.unroll,
        transform_metadata={nnx.PARTITION_NAME: None},
    )
    module = nnx.merge(graphdef, map_parameters(named, stacked))
    inputs = (run.items(layers), _indices(layers))
    (x_btd, carry), emitted = scanned((x_btd, carry), module, inputs)
    return x_btd, carry, emitted


def block_size(num_layers: int, wanted: int | None) -> int:
    """Returns the number of layers in a block of a nested scan.

    Args:
        num_layers: Number of layers, L.
        wanted: A fixed number, or None for the divisor of L nearest to its square root. A prime L
            takes the root itself, and its last layers are in no block.
    """
    if wanted is not None:
        return min(wanted, num_layers)
    root = math.sqrt(num_layers)
    divisors = [size for size in range(2, num_layers) if num_layers % size == 0]
    return min(divisors, key=lambda size: abs(size - root), default=math.isqrt(num_layers))


def nested_scan(
    run: Pass, x_btd: jax.Array, carry: Any, layers: range
) -> tuple[jax.Array, Any, Any]:
    """A scan over blocks of layers, in it one over the layers of a block; the rest in a loop."""
    size = block_size(len(layers), run.layout.block)
    count = len(layers) // size
    whole, rest = layers[: count * size], layers[count * size :]
    graphdef, stacked = run.source.split_stacked(whole)

    def run_block(x_btd: jax.Array, carry: Any, block: Any) -> tuple[jax.Array, Any, Any]:
        return _scan_layers(run, graphdef, x_btd, carry, block)

    if run.remat is Remat.NESTED:
        run_block = checkpointed(run_block, Remat.FULL, in_loop=True)

    def body(loop_carry: Any, block: Any) -> tuple[Any, Any]:
        x_btd, carry, out = run_block(*loop_carry, block)
        return (x_btd, carry), out

    blocks = jax.tree.map(
        lambda a: a.reshape(count, size, *a.shape[1:]),
        (stacked, run.items(whole), _indices(whole)),
    )
    (x_btd, carry), blocked = lax.scan(body, (x_btd, carry), blocks)
    emitted = jax.tree.map(lambda a: a.reshape(count * size, *a.shape[2:]), blocked)
    if not rest:
        return x_btd, carry, emitted
    x_btd, carry, last = loop(run, x_btd, carry, rest)
    return x_btd, carry, joined([emitted, last])


def hybrid(run: Pass, x_btd: jax.Array, carry: Any, layers: range) -> tuple[jax.Array, Any, Any]:
    """The first and the last layer by themselves, and a scan over those between."""
    parts = []
    for part, run_part in ((layers[:1], loop), (layers[1:-1], scan), (layers[1:][-1:], loop)):
        if part:
            x_btd, carry, emitted = run_part(run, x_btd, carry, part)
            parts.append(emitted)
    return x_btd, carry, joined(parts)


FORWARDS: dict[Forward, Loop] = {
    Forward.LOOP: loop,
    Forward.INNER_JIT: inner_jit,
    Forward.SCAN: scan,
    Forward.SCAN_CLOSURE: scan_closure,
    Forward.FORI: fori,
    Forward.NNX_SCAN: nnx_scan,
    Forward.NESTED_SCAN: nested_scan,
    Forward.HYBRID: hybrid,
}
"""The loop of each form; a pipeline is a stack of its own."""
