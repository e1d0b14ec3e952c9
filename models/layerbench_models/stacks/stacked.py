"""Layers whose parameters are stacked on a leading axis."""

from __future__ import annotations

from typing import Any

from flax import nnx

from layerbench_models.layers import DecoderLayer
from layerbench_models.stacks.layer_axis import layer_of, map_parameters, without_layer_axis
from layerbench_models.stacks.layout import DecodeWeights, Layout
from layerbench_models.stacks.sequential import SequentialLayers
from layerbench_models.stacks.unrolled import UnrolledDecoderLayers


class StackedDecoderLayers(SequentialLayers):
    """Every parameter is one array for all layers, with a leading axis L."""

    def __init__(self, layers: DecoderLayer, num_layers: int, layout: Layout) -> None:
        """Takes one layer object whose parameters are stacked, and how to run it.

        Args:
            layers: A layer made by `nnx.vmap`.
            num_layers: Length of the leading axis.
            layout: How the layers are run.
        """
        self.layers = layers
        self.layout = layout
        self.num_layers = num_layers

    def split_layer(self, index: int) -> tuple[nnx.GraphDef[Any], nnx.State]:
        """Returns one layer's definition and parameters, sliced out of the stack."""
        graphdef, stacked = nnx.split(self.layers)
        return graphdef, map_parameters(lambda parameter: layer_of(parameter, index), stacked)

    def split_stacked(self) -> tuple[nnx.GraphDef[Any], nnx.State]:
        """Returns one layer's definition and all layers' parameters on a leading axis."""
        return nnx.split(self.layers)

    def for_decode(self) -> StackedDecoderLayers | UnrolledDecoderLayers:
        """Returns itself, or its layers in a list where the layout decodes on one."""
        if self.layout.decode_weights is DecodeWeights.AS_STORED:
            return self
        layers = [self.layer(index) for index in range(self.num_layers)]
        return UnrolledDecoderLayers(layers, self.layout)

    def split_stages(self) -> tuple[nnx.GraphDef[Any], nnx.State]:
        """Returns one layer's definition and stacked values under one layer's metadata."""
        graphdef, stacked = nnx.split(self.layers)
        return graphdef, map_parameters(without_layer_axis, stacked)
