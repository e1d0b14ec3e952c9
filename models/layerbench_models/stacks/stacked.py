"""Layers whose parameters are stacked on one axis."""

from __future__ import annotations

from typing import Any

from flax import nnx

from layerbench_models.layers import DecoderLayer
from layerbench_models.stacks.cache_flow import Index
from layerbench_models.stacks.choices import DecodeWeights
from layerbench_models.stacks.layer_axis import (
    layer_of,
    layers_of,
    map_parameters,
    without_layer_axis,
)
from layerbench_models.stacks.layout import Layout
from layerbench_models.stacks.sequential import SequentialLayers
from layerbench_models.stacks.unrolled import UnrolledDecoderLayers


class StackedDecoderLayers(SequentialLayers):
    """Every parameter is one array for all layers, which are one of its axes."""

    def __init__(self, layers: DecoderLayer, num_layers: int, layout: Layout) -> None:
        """Takes one layer object whose parameters are stacked, and how to run it.

        Args:
            layers: A layer whose parameters have an axis more, where the layout says.
            num_layers: Length of that axis.
            layout: How the layers are run.
        """
        self.layers = layers
        self.layout = layout
        self.num_layers = num_layers

    def split_layer(self, index: Index) -> tuple[nnx.GraphDef[Any], nnx.State]:
        """Returns one layer's definition and parameters, sliced out of the stack."""
        graphdef, stacked = nnx.split(self.layers)
        return graphdef, map_parameters(lambda p: layer_of(p, index, self._axis), stacked)

    def split_stacked(self, layers: range) -> tuple[nnx.GraphDef[Any], nnx.State]:
        """Returns one layer's definition and several layers' parameters on a leading axis.

        Where the stack's own axis is another, this turns every weight around.
        """
        graphdef, stacked = nnx.split(self.layers)

        def leading(parameter: nnx.Variable[Any]) -> nnx.Variable[Any]:
            return without_layer_axis(layers_of(parameter, layers, self._axis), self._axis)

        return graphdef, map_parameters(leading, stacked)

    def for_decode(self) -> StackedDecoderLayers | UnrolledDecoderLayers:
        """Returns itself, or its layers in a list where the layout decodes on one."""
        if self.layout.decode_weights is DecodeWeights.AS_STORED:
            return self
        layers = [self.layer(index) for index in range(self.num_layers)]
        return UnrolledDecoderLayers(layers, self.layout)

    @property
    def _axis(self) -> int:
        axis = self.layout.parameters.layer_axis
        assert axis is not None
        return axis
