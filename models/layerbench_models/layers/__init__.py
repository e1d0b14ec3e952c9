"""The parts of a decoder layer; shapes are written with the axis letters of the package."""

from layerbench_models.layers.attention import GroupedQueryAttention
from layerbench_models.layers.decoder_layer import Attend, DecoderLayer
from layerbench_models.layers.dot_product import (
    AttentionForm,
    AttentionImplementation,
    GroupedQuery,
    cached_attention,
    causal_attention,
    joined_attention,
)
from layerbench_models.layers.embedding import Embedding, OutputHead
from layerbench_models.layers.mlp import GatedMLP
from layerbench_models.layers.norm import RMSNorm
from layerbench_models.layers.rope import Rope, rope_table

__all__ = [
    "Attend",
    "AttentionForm",
    "AttentionImplementation",
    "DecoderLayer",
    "Embedding",
    "GatedMLP",
    "GroupedQuery",
    "GroupedQueryAttention",
    "OutputHead",
    "RMSNorm",
    "Rope",
    "cached_attention",
    "causal_attention",
    "joined_attention",
    "rope_table",
]
