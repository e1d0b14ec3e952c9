"""A causal language model: embedding, decoder stack, final norm and output head."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import Mesh

from layerbench_models.cache import KVCache
from layerbench_models.config import ModelConfig
from layerbench_models.layers import Embedding, OutputHead, RMSNorm, rope_table
from layerbench_models.positions import Positions, sequence_starts
from layerbench_models.stacks.create import create_stack
from layerbench_models.stacks.layout import Layout
from layerbench_models.stacks.remat import checkpointed


class CausalLM(nnx.Module):
    """A decoder-only language model in one layout."""

    def __init__(
        self,
        config: ModelConfig,
        layout: Layout,
        *,
        key: jax.Array,
        dtype: jnp.dtype,
        mesh: Mesh | None = None,
    ) -> None:
        """Creates the parameters; the same numbers in every layout for one key.

        Args:
            config: The model's shape.
            layout: How its decoder layers are laid out.
            key: Random key.
            dtype: Type of the parameters and of the hidden states.
            mesh: Devices that a sharded creation spreads the layers over.
        """
        embedding_key, stack_key, head_key = jax.random.split(key, 3)
        self.config = config
        self.layout = layout
        self.embedding = Embedding(config, key=embedding_key, dtype=dtype)
        self.stack = create_stack(config, layout, key=stack_key, dtype=dtype, mesh=mesh)
        self.norm = RMSNorm(config.hidden_dim, eps=config.norm_eps, dtype=dtype)
        if not config.tied_embeddings:
            self.head = OutputHead(config, key=head_key, dtype=dtype)

    def prepare_decode(self) -> None:
        """Brings the stack into the form that `decode_step` runs on."""
        self.stack = self.stack.for_decode()

    def logits(self, tokens_bt: jax.Array, lengths_b: jax.Array) -> jax.Array:
        """Scores the next token after every token.

        Args:
            tokens_bt: int32 (B, T), left-padded.
            lengths_b: int32 (B,), the tokens in each sequence.

        Returns:
            float32 (B, T, V); without meaning in the padding.
        """
        slots = tokens_bt.shape[1]
        starts_b = sequence_starts(slots, lengths_b)
        rope = rope_table(self.config, _places(slots, starts_b))
        train = checkpointed(self.stack.train, self.layout.model_remat, in_loop=False)
        return self._score(train(self.embedding(tokens_bt), rope, starts_b))

    def prefill(
        self, cache: KVCache, tokens_bt: jax.Array, lengths_b: jax.Array
    ) -> tuple[jax.Array, KVCache]:
        """Runs the prompts; returns the scores after their last tokens and the filled cache."""
        slots = tokens_bt.shape[1]
        starts_b = sequence_starts(slots, lengths_b)
        rope = rope_table(self.config, _places(slots, starts_b))
        x_btd, cache = self.stack.prefill(self.embedding(tokens_bt), rope, starts_b, cache)
        return self._score(x_btd[:, -1]), cache

    def decode_step(
        self, cache: KVCache, tokens_b: jax.Array, positions: Positions
    ) -> tuple[jax.Array, KVCache]:
        """Runs one token of each sequence; returns the scores after it and the cache."""
        rope = rope_table(self.config, (positions.fill - positions.starts)[:, None])
        x_b1d, cache = self.stack.decode(self.embedding(tokens_b[:, None]), rope, positions, cache)
        return self._score(x_b1d[:, 0]), cache

    def _score(self, x: jax.Array) -> jax.Array:
        head = self.embedding if self.config.tied_embeddings else self.head
        return head.logits(self.norm(x))


def _places(slots: int, starts_b: jax.Array) -> jax.Array:
    """Returns each slot's place in its own sequence, int32 (B, T); negative in the padding."""
    return jnp.arange(slots, dtype=jnp.int32)[None, :] - starts_b[:, None]
