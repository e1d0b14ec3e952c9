"""Which tensor of a Hugging Face checkpoint is which parameter, and how their axes differ.

A rule is data. Axes are written with letters: `v` vocabulary, `d` hidden size, `f` feed-forward
units, `n` query heads, `k` key/value heads, `h` size of a head. Letters in brackets share one axis
of the stored tensor, the first letter moving slowest.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping
from functools import cached_property

from layerbench_models.checkpoint.paths import dotted
from layerbench_models.config import ModelConfig

LAYER = "*"
"""Stands for the number of the layer in the names of a rule."""

TABLE, HEAD = "model.embed_tokens.weight", "lm_head.weight"
"""The tensors that are one and the same where a model ties its embeddings."""


@dataclasses.dataclass(frozen=True)
class Rule:
    """One kind of tensor.

    Attributes:
        parameter: The parameter's dotted path in a model whose layers are in a list.
        tensor: The name in the checkpoint.
        stored: The tensor's axes in the checkpoint.
        held: The parameter's axes.
    """

    parameter: str
    tensor: str
    stored: str
    held: str

    @cached_property
    def stored_letters(self) -> str:
        """The stored axes after shared ones are split, one letter each."""
        return re.sub(r"[ ()]", "", self.stored)

    @cached_property
    def permutation(self) -> tuple[int, ...]:
        """For each axis of the parameter, which of the stored letters it is."""
        return tuple(self.stored_letters.index(letter) for letter in self.held.split())

    def stored_shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Returns the tensor's shape in the checkpoint."""
        groups = re.findall(r"\(([a-z ]+)\)|([a-z])", self.stored)
        return tuple(
            math.prod(sizes[letter] for letter in (shared or single).split())
            for shared, single in groups
        )

    def split_shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Returns the tensor's shape after shared axes are split."""
        return tuple(sizes[letter] for letter in self.stored_letters)

    def held_shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Returns the parameter's shape, without a layer axis."""
        return tuple(sizes[letter] for letter in self.held.split())

    def tensor_name(self, layer: int | None) -> str:
        """Returns the name in the checkpoint of one layer's tensor, or of one outside the layers."""
        return self.tensor if layer is None else self.tensor.replace(LAYER, str(layer))


_OURS, _THEIRS = f"stack.layers.{LAYER}", f"model.layers.{LAYER}"

RULES = (
    Rule("embedding.table", TABLE, "v d", "v d"),
    Rule("norm.scale", "model.norm.weight", "d", "d"),
    Rule("head.kernel", HEAD, "v d", "d v"),
    Rule(f"{_OURS}.attention_norm.scale", f"{_THEIRS}.input_layernorm.weight", "d", "d"),
    Rule(f"{_OURS}.mlp_norm.scale", f"{_THEIRS}.post_attention_layernorm.weight", "d", "d"),
    Rule(f"{_OURS}.attention.q", f"{_THEIRS}.self_attn.q_proj.weight", "(n h) d", "d n h"),
    Rule(f"{_OURS}.attention.k", f"{_THEIRS}.self_attn.k_proj.weight", "(k h) d", "d k h"),
    Rule(f"{_OURS}.attention.v", f"{_THEIRS}.self_attn.v_proj.weight", "(k h) d", "d k h"),
    Rule(f"{_OURS}.attention.o", f"{_THEIRS}.self_attn.o_proj.weight", "d (n h)", "n h d"),
    Rule(f"{_OURS}.attention.q_norm.scale", f"{_THEIRS}.self_attn.q_norm.weight", "h", "h"),
    Rule(f"{_OURS}.attention.k_norm.scale", f"{_THEIRS}.self_attn.k_norm.weight", "h", "h"),
    Rule(f"{_OURS}.mlp.gate", f"{_THEIRS}.mlp.gate_proj.weight", "f d", "d f"),
    Rule(f"{_OURS}.mlp.up", f"{_THEIRS}.mlp.up_proj.weight", "f d", "d f"),
    Rule(f"{_OURS}.mlp.down", f"{_THEIRS}.mlp.down_proj.weight", "d f", "f d"),
)
"""Every tensor of Qwen3 and Llama 3; a model uses those whose parameter it has."""

IGNORED = ("*rotary_emb.inv_freq",)
"""Patterns of tensors that older checkpoints hold and that follow from the configuration."""


def axis_sizes(config: ModelConfig) -> dict[str, int]:
    """Returns the size of each axis letter."""
    return {
        "v": config.vocab_size,
        "d": config.hidden_dim,
        "f": config.ffn_dim,
        "n": config.num_heads,
        "k": config.num_kv_heads,
        "h": config.head_dim,
    }


def rule_of(path: Iterable[object]) -> tuple[Rule, int | None] | None:
    """Returns a parameter's rule and the number of its layer, or None if there is no rule.

    Args:
        path: The parameter's path in a model whose layers are in a list, with keys of any kind.
    """
    return _matched(dotted(path), "parameter")


def rule_of_tensor(name: str) -> tuple[Rule, int | None] | None:
    """Returns the rule of a tensor of a checkpoint and the number of its layer, or None."""
    return _matched(name, "tensor")


def is_stacked_name(name: str) -> bool:
    """Tells whether a checkpoint's name is one of a layer's, with the layer's number left out."""
    return any(
        LAYER in pattern and name == pattern.replace(f".{LAYER}", "")
        for rule in RULES
        for pattern in (rule.parameter, rule.tensor)
    )


def _matched(name: str, side: str) -> tuple[Rule, int | None] | None:
    layers = re.findall(r"(?<=\.layers\.)\d+(?=\.)", name)
    pattern = re.sub(r"(?<=\.layers\.)\d+(?=\.)", LAYER, name)
    for rule in RULES:
        if getattr(rule, side) == pattern:
            return rule, int(layers[0]) if layers else None
    return None
