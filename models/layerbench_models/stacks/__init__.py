"""How a stack of decoder layers is laid out, created, run and converted."""

from layerbench_models.stacks.convert import convert_cache, convert_params
from layerbench_models.stacks.layout import (
    LAYOUTS,
    CacheForm,
    Creation,
    DecodeWeights,
    Forward,
    Layout,
    Parameters,
    Remat,
    resolve_layout,
)
from layerbench_models.stacks.pipelined import PipelinedDecoderLayers
from layerbench_models.stacks.protocol import DecoderStack
from layerbench_models.stacks.stacked import StackedDecoderLayers
from layerbench_models.stacks.unrolled import UnrolledDecoderLayers

__all__ = [
    "LAYOUTS",
    "CacheForm",
    "Creation",
    "DecodeWeights",
    "DecoderStack",
    "Forward",
    "Layout",
    "Parameters",
    "PipelinedDecoderLayers",
    "Remat",
    "StackedDecoderLayers",
    "UnrolledDecoderLayers",
    "convert_cache",
    "convert_params",
    "resolve_layout",
]
