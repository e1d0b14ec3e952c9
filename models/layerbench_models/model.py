"""A model in one layout as pure functions of its parameters."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax import lax
from jax.experimental.layout import Format
from jax.experimental.layout import Layout as DeviceLayout
from jax.sharding import Mesh, SingleDeviceSharding

from layerbench_models import partitioning
from layerbench_models.cache import KVCache, empty_cache
from layerbench_models.causal_lm import CausalLM
from layerbench_models.config import ModelConfig
from layerbench_models.errors import BackendError, ParameterError
from layerbench_models.generation import Generated, generate_greedily
from layerbench_models.layers import AttentionImplementation
from layerbench_models.positions import Positions
from layerbench_models.stacks.layout import Layout
from layerbench_models.training import default_optimizer, next_token_loss

Params = nnx.State
OptimizerState = Any


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Model:
    """A model in one layout.

    Every method is a pure function of its arguments and may be jitted; what is donated is the
    caller's choice (the cache in `prefill`, `decode_step` and `generate`; parameters and
    optimizer state in `train_step`).

    Attributes:
        config: The model's shape.
        layout: How its decoder layers are laid out.
        dtype: Type of parameters, hidden states and cache. Norms, softmax, logits and loss are
            computed in float32.
        mesh: Devices to spread parameters and caches over, or None.
        platform: The platform that the programs are compiled for, such as "cpu" or "tpu".
    """

    config: ModelConfig
    layout: Layout
    dtype: jnp.dtype
    mesh: Mesh | None = None
    platform: str | None = None

    def init(self, key: jax.Array) -> Params:
        """Returns new parameters; the same numbers in every layout for one key."""
        return self._place(nnx.split(self._create(key))[1])

    def abstract_params(self) -> Params:
        """Returns the parameters' shapes and types (and shardings), allocating nothing."""
        return self._abstract[1]

    def prepare_decode(self, params: Params) -> Params:
        """Returns the parameters in the form that `decode_step` takes.

        Call it once, outside the loop over tokens: in some layouts it copies every weight, in
        others it returns what it was given.
        """
        model = self._merge(self._abstract, params, "prepare_decode takes those of init")
        model.prepare_decode()
        return nnx.split(model)[1]

    def abstract_decode_params(self) -> Params:
        """Returns the shapes and types that `prepare_decode` returns, allocating nothing."""
        return self._abstract_decode[1]

    def init_cache(self, batch: int, capacity: int) -> KVCache:
        """Returns an empty cache for `batch` sequences of up to `capacity` tokens."""
        return self._place_cache(self._empty_cache(batch, capacity))

    def abstract_cache(self, batch: int, capacity: int) -> KVCache:
        """Returns the cache's shapes and types (and shardings), allocating nothing."""
        cache = jax.eval_shape(lambda: self._empty_cache(batch, capacity))
        return cache if self.mesh is None else _with(cache, self._cache_shardings(cache))

    def cache_formats(
        self, batch: int, capacity: int, *, device: jax.Device | None = None
    ) -> KVCache | None:
        """Returns how devices are to store the cache, a `Format` in the place of each array.

        None where the layout pins nothing. A compiler chooses the storage of what it computes, but
        not of what a program takes and returns; so a pinned cache is pinned where it is jitted:

            formats = model.cache_formats(batch, capacity)
            step = jax.jit(
                model.decode_step,
                donate_argnums=1,
                in_shardings=(None, formats, None, None),
                out_shardings=(None, formats),
            )
            cache = jax.device_put(model.init_cache(batch, capacity), formats)

        Args:
            batch: Number of sequences, B.
            capacity: Tokens that fit, S.
            device: Where the cache lies, if the model has no mesh; None takes the default device.
        """
        order = self.layout.cache_device_order
        if order is None:
            return None
        major_to_minor = tuple(self.layout.cache_axes.index(letter) for letter in order)
        cache = jax.eval_shape(lambda: self._empty_cache(batch, capacity))
        if self.mesh is None:
            single = SingleDeviceSharding(device or jax.devices()[0])
            shardings = jax.tree.map(lambda _: single, cache)
        else:
            shardings = self._cache_shardings(cache)
        return jax.tree.map(lambda s: Format(DeviceLayout(major_to_minor), s), shardings)

    def init_optimizer(self, params: Params) -> OptimizerState:
        """Returns AdamW's state for the parameters, its moments sharded as they are."""
        return self._place(default_optimizer().init(params))

    def abstract_optimizer(self) -> OptimizerState:
        """Returns the state's shapes and types (and shardings), allocating nothing."""
        state = jax.eval_shape(default_optimizer().init, self.abstract_params())
        return state if self.mesh is None else _with(state, self._shardings(state))

    def partition_specs(self) -> Params:
        """Returns the parameters' tree with a PartitionSpec in the place of each array."""
        return partitioning.param_specs(self.abstract_params())

    def cache_partition_specs(self) -> KVCache:
        """Returns the cache's tree with a PartitionSpec in the place of each array."""
        spec = partitioning.cache_spec(
            self.layout.cache_order, stacked=self.layout.cache.is_stacked
        )
        specs: Any = (
            spec if self.layout.cache.is_stacked else tuple([spec] * self.config.num_layers)
        )
        return KVCache(keys=specs, values=specs)

    def logits(self, params: Params, tokens_bt: jax.Array, lengths_b: jax.Array) -> jax.Array:
        """Scores the next token after every token, as training does.

        Args:
            params: The parameters.
            tokens_bt: int32 (B, T), left-padded.
            lengths_b: int32 (B,), the tokens in each sequence.

        Returns:
            float32 (B, T, V); without meaning in the padding.
        """
        model = self._merge(self._abstract, params, "logits takes those of init")
        return model.logits(tokens_bt, lengths_b)

    def loss(self, params: Params, tokens_bt: jax.Array, lengths_b: jax.Array) -> jax.Array:
        """Returns the mean next-token cross-entropy over all valid tokens, float32 scalar."""
        return next_token_loss(self.logits(params, tokens_bt, lengths_b), tokens_bt, lengths_b)

    def train_step(
        self,
        params: Params,
        opt_state: OptimizerState,
        tokens_bt: jax.Array,
        lengths_b: jax.Array,
    ) -> tuple[jax.Array, Params, OptimizerState]:
        """Takes one step of AdamW on the next-token loss.

        Args:
            params: The parameters.
            opt_state: The state from `init_optimizer`.
            tokens_bt: int32 (B, T), left-padded.
            lengths_b: int32 (B,), the tokens in each sequence.

        Returns:
            The loss before the step, the new parameters and the new optimizer state.
        """
        loss, gradients = jax.value_and_grad(self.loss)(params, tokens_bt, lengths_b)
        updates, opt_state = default_optimizer().update(gradients, opt_state, params)
        params = self._place(optax.apply_updates(params, updates))
        return loss, params, self._place(opt_state)

    def prefill(
        self, params: Params, cache: KVCache, tokens_bt: jax.Array, lengths_b: jax.Array
    ) -> tuple[jax.Array, KVCache]:
        """Runs the prompts.

        Args:
            params: The parameters.
            cache: A cache for B sequences of T tokens or more; to be donated.
            tokens_bt: int32 (B, T), left-padded.
            lengths_b: int32 (B,), the tokens in each prompt.

        Returns:
            The scores after each prompt's last token, float32 (B, V), and the cache with slots
            0 to T-1 filled.
        """
        model = self._merge(self._abstract, params, "prefill takes those of init")
        logits, cache = model.prefill(cache, tokens_bt, lengths_b)
        return logits, self._place_cache(cache)

    def decode_step(
        self, params: Params, cache: KVCache, tokens_b: jax.Array, positions: Positions
    ) -> tuple[jax.Array, KVCache]:
        """Runs one token of each sequence.

        Args:
            params: The parameters from `prepare_decode`.
            cache: The cache of all slots before `positions.fill`; to be donated.
            tokens_b: int32 (B,), the current tokens.
            positions: The slot they take, below the cache's capacity, and where sequences begin.

        Returns:
            The scores after the tokens, float32 (B, V), and the cache with the slot filled.

        Raises:
            ParameterError: If the parameters were not prepared.
        """
        model = self._merge(
            self._abstract_decode, params, "decode_step takes those of prepare_decode"
        )
        logits, cache = model.decode_step(cache, tokens_b, positions)
        return logits, self._place_cache(cache)

    def generate(  # noqa: PLR0917 - traced arguments by place, as jit and donation take them
        self,
        params: Params,
        cache: KVCache,
        tokens_b: jax.Array,
        positions: Positions,
        num_new_tokens: jax.Array | int,
        stop_token: jax.Array | int,
        *,
        max_new_tokens: int,
    ) -> tuple[Generated, KVCache]:
        """Generates greedily in one loop; stops early once every row has stopped.

        Args:
            params: The parameters from `init`, prepared once before the loop, or already from
                `prepare_decode`.
            cache: The cache of all slots before `positions.fill`; to be donated.
            tokens_b: int32 (B,), the tokens to begin with, as `prefill` scored them best.
            positions: Where they stand.
            num_new_tokens: int32 scalar, turns of the loop at most; may be traced.
            stop_token: int32 scalar, ends a row; -1 disables stopping; may be traced.
            max_new_tokens: Width N of the output; limits `num_new_tokens`. Static.

        Returns:
            The tokens after `tokens_b`, and the cache.
        """
        if not self._matches(self._abstract_decode, params):
            params = self.prepare_decode(params)
        model = self._merge(self._abstract_decode, params, "generate takes those of init")
        buffer = cache.keys if self.layout.cache.is_stacked else cache.keys[0]
        axis = self.layout.cache_order.token_axis + (1 if self.layout.cache.is_stacked else 0)
        generated, cache = generate_greedily(
            model.decode_step,
            cache,
            tokens_b,
            positions,
            num_new_tokens=jnp.asarray(num_new_tokens, jnp.int32),
            stop_token=jnp.asarray(stop_token, jnp.int32),
            max_new_tokens=max_new_tokens,
            capacity=buffer.shape[axis],
        )
        return generated, self._place_cache(cache)

    def _create(self, key: jax.Array) -> CausalLM:
        return CausalLM(self.config, self.layout, key=key, dtype=self.dtype, mesh=self.mesh)

    def _empty_cache(self, batch: int, capacity: int) -> KVCache:
        return empty_cache(
            self.config,
            batch,
            capacity,
            order=self.layout.cache_order,
            stacked=self.layout.cache.is_stacked,
            dtype=self.dtype,
        )

    @cached_property
    def _abstract(self) -> tuple[nnx.GraphDef[Any], Params]:
        # A key of its own: tracing must not depend on the caller's random implementation.
        graphdef, params = nnx.split(nnx.eval_shape(lambda: self._create(jax.random.key(0))))
        return graphdef, params if self.mesh is None else _with(params, self._shardings(params))

    @cached_property
    def _abstract_decode(self) -> tuple[nnx.GraphDef[Any], Params]:
        def prepared() -> CausalLM:
            model = self._create(jax.random.key(0))
            model.prepare_decode()
            return model

        graphdef, params = nnx.split(nnx.eval_shape(prepared))
        return graphdef, params if self.mesh is None else _with(params, self._shardings(params))

    def _merge(
        self, form: tuple[nnx.GraphDef[Any], Params], params: Params, expected: str
    ) -> CausalLM:
        if not self._matches(form, params):
            raise ParameterError(
                f"the parameters are not in the form of layout {self.layout.name!r}: {expected}"
            )
        self._require_backend()
        return nnx.merge(form[0], params)

    @staticmethod
    def _matches(form: tuple[nnx.GraphDef[Any], Params], params: Params) -> bool:
        paths = [path for path, _ in jax.tree.leaves_with_path(params)]
        expected = jax.tree.leaves_with_path(form[1])
        return paths == [path for path, _ in expected]

    def _require_backend(self) -> None:
        needed = {
            AttentionImplementation.CUDNN: ("gpu", "cuda"),
            AttentionImplementation.PALLAS: ("tpu",),
        }.get(self.layout.attention)
        if needed is None:
            return
        platform = self.platform or jax.default_backend()
        if platform not in needed:
            raise BackendError(
                f"attention {self.layout.attention.value!r} needs a {needed[0]} and the platform "
                f"is {platform}: use a layout with attention 'xla'"
            )

    def _shardings(self, tree: Any) -> Any:
        """How the mesh splits parameters, or a tree that holds parameters and other arrays."""
        assert self.mesh is not None
        return partitioning.tree_shardings(self.mesh, partitioning.param_specs(tree), tree)

    def _cache_shardings(self, cache: KVCache) -> KVCache:
        assert self.mesh is not None
        return partitioning.tree_shardings(self.mesh, self.cache_partition_specs(), cache)

    # What a program returns is placed as what it takes, or a caller could not hand it on.
    def _place(self, tree: Any) -> Any:
        if self.mesh is None:
            return tree
        return lax.with_sharding_constraint(tree, self._shardings(tree))

    def _place_cache(self, cache: KVCache) -> KVCache:
        if self.mesh is None:
            return cache
        return lax.with_sharding_constraint(cache, self._cache_shardings(cache))


def _with(abstract: Any, shardings: Any) -> Any:
    return jax.tree.map(
        lambda a, s: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s), abstract, shardings
    )
