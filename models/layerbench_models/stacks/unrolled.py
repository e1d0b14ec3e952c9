"""Layers in a list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from flax import nnx

from layerbench_models.layers import DecoderLayer
from layerbench_models.stacks.cache_flow import Index
from layerbench_models.stacks.layer_axis import map_parameters, stack, without_layer_axis
from layerbench_models.stacks.layout import Layout
from layerbench_models.stacks.sequential import SequentialLayers


class UnrolledDecoderLayers(SequentialLayers):
    """Every layer has parameters of its own."""

    def __init__(self, layers: Sequence[DecoderLayer], layout: Layout) -> None:
        """Takes the layers, first to last, and how to run them."""
        self.layers = nnx.List(layers)
        self.layout = layout
        self.num_layers = len(layers)

    def split_layer(self, index: Index) -> tuple[nnx.GraphDef[Any], nnx.State]:
        """Returns one layer's definition and parameters."""
        return nnx.split(self.layers[index])

    def split_stacked(self, layers: range) -> tuple[nnx.GraphDef[Any], nnx.State]:
        """Returns one layer's definition and several layers' parameters, stacked on the spot."""
        split = [self.split_layer(index) for index in layers]
        states = [state for _, state in split]
        return split[0][0], map_parameters(lambda *p: without_layer_axis(stack(p)), *states)

    def for_decode(self) -> Self:
        """Returns itself: a list is what a loop over layers wants."""
        return self
