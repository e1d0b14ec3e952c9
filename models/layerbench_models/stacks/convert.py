"""Parameters and caches from any layout to any other, bit for bit.

The form in the middle is one entry for each layer.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from flax import nnx

from layerbench_models.cache import KVCache
from layerbench_models.stacks.choices import Parameters
from layerbench_models.stacks.layer_axis import Variable, layer_of, stack
from layerbench_models.stacks.layout import Layout, resolve_layout

LAYERS_PATH = ("stack", "layers")
"""Where a model's parameters hold the decoder layers."""

Path = tuple[Any, ...]


def convert_params(
    params: nnx.State, from_layout: str | Layout, to_layout: str | Layout
) -> nnx.State:
    """Returns the same parameters as another layout stores them.

    Args:
        params: A model's parameters as `from_layout` stores them (not as prepared for decode).
        from_layout: Their layout or its name.
        to_layout: The wanted layout or its name.
    """
    source, target = resolve_layout(from_layout), resolve_layout(to_layout)
    if source.parameters is target.parameters:
        return params
    layers, others = split_layers(params, source)
    return join_layers(layers, others, target)


def split_layers(
    params: nnx.State, layout: Layout
) -> tuple[list[dict[Path, Variable]], dict[Path, Variable]]:
    """Returns each layer's parameters by their path within the layer, and all other ones."""
    flat = dict(nnx.to_flat_state(params))
    depth = len(LAYERS_PATH)
    others = {path: p for path, p in flat.items() if path[:depth] != LAYERS_PATH}
    stored = {path[depth:]: p for path, p in flat.items() if path[:depth] == LAYERS_PATH}
    axis = layout.parameters.layer_axis
    if axis is not None:
        return _unstacked(stored, axis), others
    parts: list[dict[Path, Variable]] = [{} for _ in {path[0] for path in stored}]
    for (index, *path), parameter in stored.items():
        parts[index][tuple(path)] = parameter
    # With two layers or one there is nothing between the ends.
    if layout.parameters is Parameters.ENDS_APART and len(parts) == 3:
        first, between, last = parts
        return [first, *_unstacked(between, 0), last], others
    return parts, others


def _unstacked(stored: dict[Path, Variable], axis: int) -> list[dict[Path, Variable]]:
    count = next(iter(stored.values())).get_value().shape[axis]
    return [{path: layer_of(p, i, axis) for path, p in stored.items()} for i in range(count)]


def _stacked(layers: list[dict[Path, Variable]], axis: int) -> dict[Path, Variable]:
    return {path: stack([layer[path] for layer in layers], axis) for path in layers[0]}


def join_layers(
    layers: list[dict[Path, Variable]], others: dict[Path, Variable], layout: Layout
) -> nnx.State:
    """Returns a model's parameters as `layout` stores them; undoes `split_layers`."""
    axis = layout.parameters.layer_axis
    if axis is not None:
        stored = _stacked(layers, axis)
    else:
        parts = layers
        if layout.parameters is Parameters.ENDS_APART and len(layers) > 2:
            parts = [layers[0], _stacked(layers[1:-1], 0), layers[-1]]
        stored = {(i, *path): p for i, part in enumerate(parts) for path, p in part.items()}
    flat = others | {(*LAYERS_PATH, *path): p for path, p in stored.items()}
    return nnx.from_flat_state(flat)


def convert_cache(cache: KVCache, from_layout: str | Layout, to_layout: str | Layout) -> KVCache:
    """Returns the same cache as another layout stores it.

    Args:
        cache: A cache as `from_layout` stores it.
        from_layout: Its layout or the layout's name.
        to_layout: The wanted layout or its name.
    """
    source, target = resolve_layout(from_layout), resolve_layout(to_layout)

    def convert(buffers: Any) -> Any:
        layers = [buffers[index] for index in range(len(buffers))]
        if source.cache_order is not target.cache_order:
            layers = [jnp.swapaxes(layer, 1, 2) for layer in layers]
        return jnp.stack(layers) if target.cache.is_stacked else tuple(layers)

    return KVCache(keys=convert(cache.keys), values=convert(cache.values))
