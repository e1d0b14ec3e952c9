"""How a stack of decoder layers is laid out, created, run and converted."""

from layerbench_models.stacks.choices import (
    CacheForm,
    Creation,
    DecodeWeights,
    Forward,
    Parameters,
    Remat,
    RematScope,
)
from layerbench_models.stacks.convert import convert_cache, convert_params
from layerbench_models.stacks.hybrid import HybridDecoderLayers
from layerbench_models.stacks.layout import ALIASES, LAYOUTS, Layout, resolve_layout
from layerbench_models.stacks.pipelined import PipelinedDecoderLayers
from layerbench_models.stacks.protocol import DecoderStack
from layerbench_models.stacks.stacked import StackedDecoderLayers
from layerbench_models.stacks.unrolled import UnrolledDecoderLayers

__all__ = [
    "ALIASES",
    "LAYOUTS",
    "CacheForm",
    "Creation",
    "DecodeWeights",
    "DecoderStack",
    "Forward",
    "HybridDecoderLayers",
    "Layout",
    "Parameters",
    "PipelinedDecoderLayers",
    "Remat",
    "RematScope",
    "StackedDecoderLayers",
    "UnrolledDecoderLayers",
    "convert_cache",
    "convert_params",
    "resolve_layout",
]
