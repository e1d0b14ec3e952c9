"""The off-chip model floor: bytes that must move and operations that must happen in a step.

Nothing here looks at a program. The formulas are stated in `docs/methodology.md`; they count what
*any* implementation has to do, by the conventions that are stated there, and nothing of how it does it.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Floor:
    """Work that no implementation of a step can avoid.

    Attributes:
        hbm_bytes: Bytes that must cross the main memory's interface.
        flops: Floating-point operations, a multiply-add counted as two.
    """

    hbm_bytes: int
    flops: int


@dataclasses.dataclass(frozen=True, slots=True)
class DecoderShape:
    """The sizes of a dense decoder that its floor depends on.

    Attributes:
        layers: Number of decoder layers.
        layer_weights: Weights of one layer, norms included.
        layer_matmul_weights: Weights of one layer that are multiplied with every token.
        hidden: Width of the residual stream.
        vocabulary: Rows of the embedding table.
        heads: Query heads.
        kv_heads: Key and value heads.
        head_dim: Width of a head.
        tied: Whether the head is the embedding table.
        itemsize: Bytes of a weight, an activation and a cache entry.
    """

    layers: int
    layer_weights: int
    layer_matmul_weights: int
    hidden: int
    vocabulary: int
    heads: int
    kv_heads: int
    head_dim: int
    tied: bool
    itemsize: int

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of the keys and values of one token in all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.itemsize

    @property
    def weights(self) -> int:
        """All weights: layers, final norm, embedding and, if untied, head."""
        tables = 1 if self.tied else 2
        return (
            self.layers * self.layer_weights + self.hidden + tables * self.vocabulary * self.hidden
        )

    def used_weight_bytes(self, tokens: int) -> int:
        """Bytes of weights that a forward pass over `tokens` tokens must read.

        A tied table is read once, since the head needs all of it. An untied embedding is read only
        at the rows of the tokens, the head in whole.
        """
        embedding_rows = 0 if self.tied else min(tokens, self.vocabulary)
        used = (
            self.layers * self.layer_weights
            + self.hidden
            + (self.vocabulary + embedding_rows) * self.hidden
        )
        return used * self.itemsize

    def projection_flops(self, tokens: int) -> int:
        """Of all layers' projections, for `tokens` tokens."""
        return 2 * tokens * self.layers * self.layer_matmul_weights

    def attention_flops(self, query_key_pairs: int) -> int:
        """Of scores and weighted sums: two products of `head_dim` for each pair and query head."""
        return 4 * query_key_pairs * self.layers * self.heads * self.head_dim

    def head_flops(self, positions: int) -> int:
        """Of the logits of so many positions."""
        return 2 * positions * self.hidden * self.vocabulary


def _causal_pairs(tokens: int) -> int:
    return tokens * (tokens + 1) // 2


def decode_floor(shape: DecoderShape, *, batch: int, context: int) -> Floor:
    """One token for each sequence, which attends to `context` positions, its own among them.

    Every used weight is read once, the keys and values of the other positions are read and those of
    the new token written.
    """
    kv_bytes = batch * context * shape.kv_bytes_per_token
    flops = (
        shape.projection_flops(batch)
        + shape.attention_flops(batch * context)
        + shape.head_flops(batch)
    )
    return Floor(hbm_bytes=shape.used_weight_bytes(batch) + kv_bytes, flops=flops)


def prefill_floor(shape: DecoderShape, *, batch: int, seq: int) -> Floor:
    """Prompts of `seq` tokens: weights read once, keys and values written, last logits."""
    tokens = batch * seq
    flops = (
        shape.projection_flops(tokens)
        + shape.attention_flops(batch * _causal_pairs(seq))
        + shape.head_flops(batch)
    )
    return Floor(
        hbm_bytes=shape.used_weight_bytes(tokens) + tokens * shape.kv_bytes_per_token, flops=flops
    )


def train_floor(shape: DecoderShape, *, batch: int, seq: int, optimizer_itemsize: int) -> Floor:
    """One AdamW step with next-token loss on all positions but the last of each sequence.

    Weights are read by the forward and by the backward pass, gradients are written and read, and
    the optimiser reads and writes weight and both moments. Activations are left out, since how many
    of them are kept is a choice (remat); operations are three times the forward pass's.
    """
    tokens = batch * seq
    weight_bytes = shape.weights * shape.itemsize
    moment_bytes = shape.weights * optimizer_itemsize
    forward = (
        shape.projection_flops(tokens)
        + shape.attention_flops(batch * _causal_pairs(seq))
        + shape.head_flops(batch * (seq - 1))
    )
    return Floor(
        hbm_bytes=2 * weight_bytes  # forward, backward
        + 2 * weight_bytes  # gradients: written, read
        + 2 * weight_bytes  # the optimiser's weights: read, written
        + 4 * moment_bytes,  # two moments: read, written
        flops=3 * forward,
    )
