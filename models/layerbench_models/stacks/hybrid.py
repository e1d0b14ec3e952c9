"""Layers of which the first and the last stand by themselves, and those between are stacked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flax import nnx

from layerbench_models.layers import DecoderLayer
from layerbench_models.stacks.cache_flow import Index
from layerbench_models.stacks.choices import DecodeWeights
from layerbench_models.stacks.layer_axis import (
    layer_of,
    layers_of,
    map_parameters,
    stack,
    without_layer_axis,
)
from layerbench_models.stacks.layout import Layout
from layerbench_models.stacks.sequential import SequentialLayers
from layerbench_models.stacks.unrolled import UnrolledDecoderLayers


class HybridDecoderLayers(SequentialLayers):
    """The parts are the first layer, all between on a leading axis, and the last layer.

    Two layers have nothing between them and one is the first and the last: the parts that are
    there are numbered from zero.
    """

    def __init__(self, layers: Sequence[DecoderLayer], layout: Layout) -> None:
        """Takes the layers, first to last, and how to run them."""
        self.layout = layout
        self.num_layers = len(layers)
        between = layers[1:-1]
        parts = [layers[0], *layers[1:][-1:]]
        if between:
            split = [nnx.split(layer) for layer in between]
            stacked = map_parameters(lambda *p: stack(p), *(state for _, state in split))
            parts.insert(1, nnx.merge(split[0][0], stacked))
        self.layers = nnx.List(parts)

    def split_layer(self, index: Index) -> tuple[nnx.GraphDef[Any], nnx.State]:
        """Returns one layer's definition and parameters; one between the ends is sliced out."""
        assert isinstance(index, int)  # no loop takes these layers by a traced index
        if index in {0, self.num_layers - 1}:
            return nnx.split(self.layers[0 if index == 0 else -1])
        graphdef, stacked = nnx.split(self.layers[1])
        return graphdef, map_parameters(lambda p: layer_of(p, index - 1), stacked)

    def split_stacked(self, layers: range) -> tuple[nnx.GraphDef[Any], nnx.State]:
        """Returns one layer's definition and the parameters of layers between the ends."""
        graphdef, stacked = nnx.split(self.layers[1])
        between = range(layers.start - 1, layers.stop - 1)
        return graphdef, map_parameters(
            lambda p: without_layer_axis(layers_of(p, between)), stacked
        )

    def for_decode(self) -> HybridDecoderLayers | UnrolledDecoderLayers:
        """Returns itself, or its layers in a list where the layout decodes on one."""
        if self.layout.decode_weights is DecodeWeights.AS_STORED:
            return self
        layers = [self.layer(index) for index in range(self.num_layers)]
        return UnrolledDecoderLayers(layers, self.layout)
