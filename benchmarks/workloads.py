"""What is measured here: the models of `layerbench_models`, in every layout and phase.

The one place where harness and models meet. asv runs today's file on old commits, so it touches the
models through `build`, the methods of what it returns, `Positions`, `convert_params`, `convert_cache`
and, for folders, `holds_weights` and `load_safetensors` alone; what an old commit lacks is "not
applicable" there.

All layouts of a group get the same parameters, caches and tokens, bit for bit, so that their answers
can be held to one oracle: the unrolled layout's, computed once for each group.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import layerbench_models
from layerbench import (
    Cell,
    DecoderShape,
    Matrix,
    Suite,
    Turns,
    Workload,
    WrongAnswerError,
    decode_floor,
    prefill_floor,
    train_floor,
)
from layerbench.targets import parse_mesh

if TYPE_CHECKING:
    from collections.abc import Callable

# Names stand here as literals: what is offered must not depend on the commit that is measured.
MODELS = (
    "qwen3-tiny", "qwen3-small", "qwen3-0.6b", "qwen3-1.7b", "qwen3-4b", "qwen3-8b", "qwen3-14b",
    "qwen3-32b", "llama3-tiny", "llama3-1b", "llama3-3b", "llama3-8b", "llama3-70b",
)  # fmt: skip
LAYOUTS = (
    "unrolled", "stacked-scan", "stacked", "vmap", "scan-carry-token", "scan-xs-ys",
    "scan-carry-layer", "scan-read-then-write", "scan-deferred-write", "scan-unroll-2",
    "scan-unroll-4", "scan-closure", "fori", "nnx-scan", "nested-scan", "hybrid", "inner-jit",
    "axis-1", "sliced", "unrolled-head-major", "stacked-head-major", "scan-token-major",
)  # fmt: skip
ORACLE = "unrolled"
STACKED = "stacked"
PIPELINES = {
    "vmap": "A pipeline over micro-batches: its bubble is part of what is measured, and on one "
    "device it is not compared for the best."
}
DTYPES = ("float32", "bfloat16")

KEY = 20_26
# Largest error that is allowed, over the largest logit: layouts differ in the order of their sums.
TOLERANCE_FLOAT32_CPU = 1e-3
TOLERANCE_ELSEWHERE = 5e-2  # bfloat16, or float32 products in reduced precision
SHORT_TURNS = 1


@dataclasses.dataclass(frozen=True)
class Subject:
    """A cell with its model, before a phase is chosen."""

    cell: Cell
    model: Any

    @property
    def mesh(self) -> Mesh | None:
        """The devices that arrays are spread over; None for one device."""
        return self.model.mesh

    @property
    def shape(self) -> DecoderShape:
        """The sizes that the floor depends on."""
        config = self.model.config
        matmul_weights = (
            2 * config.hidden_dim * config.head_dim * (config.num_heads + config.num_kv_heads)
            + 3 * config.hidden_dim * config.ffn_dim
        )
        norms = 2 * config.hidden_dim + (2 * config.head_dim if config.qk_norm else 0)
        return DecoderShape(
            layers=config.num_layers,
            layer_weights=matmul_weights + norms,
            layer_matmul_weights=matmul_weights,
            hidden=config.hidden_dim,
            vocabulary=config.vocab_size,
            heads=config.num_heads,
            kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            tied=config.tied_embeddings,
            itemsize=jnp.dtype(self.cell.dtype).itemsize,
        )

    @property
    def tolerance(self) -> float:
        """Allowed error of a logit over the largest one."""
        exact = self.cell.dtype == "float32" and self.cell.target == "cpu"
        return TOLERANCE_FLOAT32_CPU if exact else TOLERANCE_ELSEWHERE

    def params(self) -> Any:
        """Parameters in this layout; the same numbers in every layout.

        Made by numpy, since compiling jax's generators takes longer than all the rest.
        """
        abstract = self.model.abstract_params()
        params = host_params(self.cell.model, self.cell.layers, self.cell.dtype)
        params = layerbench_models.convert_params(params, STACKED, self.model.layout)
        return jax.tree.map(
            lambda leaf, like: jax.device_put(leaf, like.sharding), params, abstract
        )

    def tokens(self, *shape: int) -> np.ndarray:
        """Token ids, int32, the same for every layout."""
        return np.random.default_rng(KEY).integers(
            self.model.config.vocab_size, size=shape, dtype=np.int32
        )

    def filled_cache(self) -> Any:
        """A cache of normally distributed keys and values, the same for every layout."""
        rng = np.random.default_rng(KEY)
        reference = build_subject(dataclasses.replace(self.cell, layout=ORACLE))
        blank = reference.model.abstract_cache(self.cell.batch, self.cell.seq)
        filled = jax.tree.map(
            lambda leaf: jnp.asarray(rng.standard_normal(leaf.shape, np.float32), leaf.dtype), blank
        )
        cache = layerbench_models.convert_cache(filled, reference.model.layout, self.model.layout)
        return self.placed_like(cache, self.model.abstract_cache(self.cell.batch, self.cell.seq))

    def replicated(self, tree: Any) -> Any:
        """The arrays on all devices."""
        if self.mesh is None:
            return jax.tree.map(jnp.asarray, tree)
        return jax.device_put(tree, NamedSharding(self.mesh, PartitionSpec()))

    def placed_like(self, tree: Any, abstract: Any) -> Any:
        """The arrays, sharded as the abstract ones are."""
        if self.mesh is None:
            return tree
        return jax.tree.map(lambda leaf, like: jax.device_put(leaf, like.sharding), tree, abstract)

    def abstract(self, tree: Any) -> Any:
        """Shapes, types and shardings of small arguments."""
        sharding = None if self.mesh is None else NamedSharding(self.mesh, PartitionSpec())
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), tree
        )


@functools.lru_cache(maxsize=1)
def host_params(model: str, layers: int, dtype: str) -> Any:
    """Parameters as the stacked layout stores them: a parameter tree.

    A folder with weights gives its own, of its first layers. Others are random, in numpy arrays:
    matrices are normally distributed, with a deviation that keeps hidden states in range; vectors,
    which are the norms' scales, lie around one.
    """
    stacked = layerbench_models.build(model, STACKED, num_layers=layers, dtype=dtype)
    if model not in MODELS and layerbench_models.holds_weights(model):
        return layerbench_models.load_safetensors(model, stacked, first_layers=True)
    rng = np.random.default_rng(KEY)
    abstract = stacked.abstract_params()

    def fill(leaf: jax.ShapeDtypeStruct) -> np.ndarray:
        noise = rng.standard_normal(leaf.shape, np.float32)
        is_matrix = leaf.size > layers * max(leaf.shape)
        return (0.02 * noise if is_matrix else 1 + 0.1 * noise).astype(leaf.dtype)

    return jax.tree.map(fill, abstract)


def build_subject(cell: Cell) -> Subject:
    """The model of a cell, on its mesh; allocates nothing."""
    axes = parse_mesh(cell.mesh)
    mesh = jax.make_mesh([size for _, size in axes], [name for name, _ in axes]) if axes else None
    model = layerbench_models.build(
        cell.model, cell.layout, num_layers=cell.layers, dtype=cell.dtype, mesh=mesh
    )
    return Subject(cell, model)


def build(cell: Cell) -> Workload:
    """The workload of a cell.

    Raises:
        NotImplementedError: The installed models are of a commit that has no such model or layout.
    """
    try:
        subject = build_subject(cell)
    except layerbench_models.UnknownNameError as error:
        raise NotImplementedError(str(error)) from error
    workload = PHASES[cell.phase](subject)
    if cell.mesh or cell.layout not in PIPELINES:
        return workload
    return dataclasses.replace(workload, note=PIPELINES[cell.layout], contender=False)


def prefill(subject: Subject) -> Workload:
    """Whole prompts of `seq` tokens into an empty cache."""
    cell, model = subject.cell, subject.model
    inputs = (subject.tokens(cell.batch, cell.seq), np.full(cell.batch, cell.seq, np.int32))
    cache = model.abstract_cache(cell.batch, cell.seq)

    def make_arguments() -> tuple[Any, ...]:
        oracle_logits(cell.group)
        empty = subject.placed_like(model.init_cache(cell.batch, cell.seq), cache)
        return (subject.params(), empty, *subject.replicated(inputs))

    def check(outputs: Any, _calls: int) -> None:
        require_close("logits", outputs[0], oracle_logits(cell.group), subject.tolerance)

    return Workload(
        function=model.prefill,
        make_arguments=make_arguments,
        abstract_arguments=(model.abstract_params(), cache, *subject.abstract(inputs)),
        donated=(1,),
        thread=lambda outputs, arguments: (arguments[0], outputs[1], *arguments[2:]),
        check=check,
        tokens_per_step=cell.batch * cell.seq,
        floor=prefill_floor(subject.shape, batch=cell.batch, seq=cell.seq),
        watched={"kv_cache": cache, "weights": model.abstract_params()},
    )


def train_step(subject: Subject) -> Workload:
    """One AdamW step on the same batch again and again; parameters and optimiser are donated."""
    cell, model = subject.cell, subject.model
    inputs = (subject.tokens(cell.batch, cell.seq), np.full(cell.batch, cell.seq, np.int32))
    params = model.abstract_params()
    optimizer = model.abstract_optimizer()

    def make_arguments() -> tuple[Any, ...]:
        oracle_loss(cell.group)
        fresh = subject.params()
        return (fresh, jax.jit(model.init_optimizer)(fresh), *subject.replicated(inputs))

    def check(outputs: Any, calls: int) -> None:
        loss, first = float(outputs[0]), oracle_loss(cell.group)
        if calls == 0:
            require_close("loss", loss, np.asarray(first), subject.tolerance)
        elif not loss < first:
            raise WrongAnswerError(
                f"the loss is {loss:.6g} after {calls} steps on one batch and began at {first:.6g}"
            )

    return Workload(
        function=model.train_step,
        make_arguments=make_arguments,
        abstract_arguments=(params, optimizer, *subject.abstract(inputs)),
        donated=(0, 1),
        thread=lambda outputs, arguments: (outputs[1], outputs[2], *arguments[2:]),
        check=check,
        tokens_per_step=cell.batch * cell.seq,
        floor=train_floor(
            subject.shape,
            batch=cell.batch,
            seq=cell.seq,
            optimizer_itemsize=subject.shape.itemsize,
        ),
        watched={"weights": params},
    )


def decode_step(subject: Subject) -> Workload:
    """One token for every sequence at the cache's last slot, on weights prepared beforehand.

    The slot is written anew in each call, so that every call does the same work.
    """
    cell, model = subject.cell, subject.model
    inputs = decode_inputs(subject, fill=cell.seq - 1)
    cache = model.abstract_cache(cell.batch, cell.seq)
    params = model.abstract_decode_params()

    def make_arguments() -> tuple[Any, ...]:
        oracle_logits(cell.group)
        prepared = jax.jit(model.prepare_decode)(subject.params())
        return (prepared, subject.filled_cache(), *subject.replicated(inputs))

    def check(outputs: Any, _calls: int) -> None:
        require_close("logits", outputs[0], oracle_logits(cell.group), subject.tolerance)

    return Workload(
        function=model.decode_step,
        make_arguments=make_arguments,
        abstract_arguments=(params, cache, *subject.abstract(inputs)),
        donated=(1,),
        thread=lambda outputs, arguments: (arguments[0], outputs[1], *arguments[2:]),
        check=check,
        tokens_per_step=cell.batch,
        floor=decode_floor(subject.shape, batch=cell.batch, context=cell.seq),
        watched={"kv_cache": cache, "weights": params},
    )


def generate(subject: Subject) -> Workload:
    """The decode loop in one program, up to the cache's last slot; a step is a marginal turn."""
    cell, model = subject.cell, subject.model
    inputs = (*decode_inputs(subject, fill=cell.seq - cell.new_tokens), np.int32(cell.new_tokens))
    cache = model.abstract_cache(cell.batch, cell.seq)
    params = model.abstract_params()

    def run(params: Any, cache: Any, tokens_b: Any, positions: Any, turns: Any) -> tuple[Any, Any]:
        return model.generate(
            params, cache, tokens_b, positions, turns, -1, max_new_tokens=cell.new_tokens
        )

    def make_arguments() -> tuple[Any, ...]:
        oracle_tokens(cell.group)
        return (subject.params(), subject.filled_cache(), *subject.replicated(inputs))

    def check(outputs: Any, _calls: int) -> None:
        found, lengths = np.asarray(outputs[0].tokens), np.asarray(outputs[0].lengths)
        turns = int(lengths.max())
        if turns not in (SHORT_TURNS, cell.new_tokens) or (lengths != turns).any():
            raise WrongAnswerError(f"the loop made {lengths.tolist()} tokens")
        wrong = wrong_tokens(found[:, :turns], *oracle_tokens(cell.group), subject.tolerance)
        if wrong.any():
            raise WrongAnswerError(f"{int(wrong.sum())} of {wrong.size} greedy tokens are wrong")

    replicate = subject.replicated
    # Threading must not allocate inside the timed loop.
    counts = functools.lru_cache(lambda turns: replicate(np.int32(turns)))
    # Turns `short` to `long` attend to one position more each; the middle stands for them all.
    context = cell.seq - cell.new_tokens + (SHORT_TURNS + cell.new_tokens + 1) // 2
    return Workload(
        function=run,
        make_arguments=make_arguments,
        abstract_arguments=(params, cache, *subject.abstract(inputs)),
        donated=(1,),
        thread=lambda outputs, arguments: (arguments[0], outputs[1], *arguments[2:]),
        check=check,
        tokens_per_step=cell.batch,
        floor=decode_floor(subject.shape, batch=cell.batch, context=context),
        watched={"kv_cache": cache, "weights": params},
        turns=Turns(
            short=SHORT_TURNS,
            long=cell.new_tokens,
            with_turns=lambda arguments, turns: (*arguments[:-1], counts(turns)),
        ),
    )


PHASES: dict[str, Callable[[Subject], Workload]] = {
    "prefill": prefill,
    "train_step": train_step,
    "decode_step": decode_step,
    "generate": generate,
}


def decode_inputs(subject: Subject, *, fill: int) -> tuple[Any, Any]:
    """The current tokens (B,), and where they stand: slot `fill`, sequences from slot 0."""
    batch = subject.cell.batch
    positions = layerbench_models.Positions(fill=np.int32(fill), starts=np.zeros(batch, np.int32))
    return subject.tokens(batch), positions


def oracle_of(group: Cell) -> tuple[Subject, tuple[Any, ...]]:
    """The unrolled layout of a group and arguments of its own."""
    subject = build_subject(dataclasses.replace(group, layout=ORACLE))
    if group.phase in ("decode_step", "generate"):
        fill = group.seq - (group.new_tokens or 1)
        state = (subject.filled_cache(), *subject.replicated(decode_inputs(subject, fill=fill)))
    else:
        inputs = (subject.tokens(group.batch, group.seq), np.full(group.batch, group.seq, np.int32))
        state = subject.replicated(inputs)
    return subject, (subject.params(), *state)


@functools.lru_cache(maxsize=1)
def oracle_logits(group: Cell) -> np.ndarray:
    """Logits (B, V) of the last position, or of the decoded token."""
    subject, (params, *state) = oracle_of(group)
    model = subject.model
    if group.phase == "decode_step":
        logits, _ = jax.jit(model.decode_step, donate_argnums=1)(
            model.prepare_decode(params), *state
        )
    else:
        cache = model.init_cache(group.batch, group.seq)
        logits, _ = jax.jit(model.prefill, donate_argnums=1)(params, cache, *state)
    return np.asarray(logits)


@functools.lru_cache(maxsize=1)
def oracle_loss(group: Cell) -> float:
    """Loss before the first step."""
    subject, arguments = oracle_of(group)
    return float(jax.jit(subject.model.loss)(*arguments))


@functools.lru_cache(maxsize=1)
def oracle_tokens(group: Cell) -> tuple[np.ndarray, np.ndarray]:
    """Greedy tokens (B, N), and the logits (B, N, V) that they were chosen by."""
    subject, (params, cache, tokens_b, positions) = oracle_of(group)
    model = subject.model
    step = jax.jit(model.decode_step, donate_argnums=1)
    prepared = model.prepare_decode(params)
    tokens, scores = [], []
    for _ in range(group.new_tokens):
        logits, cache = step(prepared, cache, tokens_b, positions)
        tokens_b = jnp.argmax(logits, axis=-1).astype(jnp.int32)
        tokens.append(np.asarray(tokens_b))
        scores.append(np.asarray(logits))
        positions = positions.next()
    return np.stack(tokens, axis=1), np.stack(scores, axis=1)


def wrong_tokens(
    found: np.ndarray, expected: np.ndarray, logits: np.ndarray, tolerance: float
) -> np.ndarray:
    """Which tokens (B, T) a correct program could not have chosen.

    As long as a row follows the oracle, its next token must be one that the oracle scores as high
    as its own, within what layouts may differ by. After two equals have parted a row, its tokens
    answer another question and are not judged.
    """
    turns = found.shape[1]
    same = found == expected[:, :turns]
    follows = np.cumprod(np.pad(same, ((0, 0), (1, 0)), constant_values=True), axis=1)[:, :turns]
    valid = (found >= 0) & (found < logits.shape[-1])
    chosen = np.where(valid, found, 0)[..., None]
    short_of_best = (
        logits[:, :turns].max(-1) - np.take_along_axis(logits[:, :turns], chosen, -1)[..., 0]
    )
    allowed = 2 * tolerance * np.abs(logits).max()
    return follows.astype(bool) & (~valid | (short_of_best > allowed))


def require_close(what: str, found: Any, expected: np.ndarray, tolerance: float) -> None:
    """Raises where an answer is further from the oracle's than layouts may differ."""
    error = np.abs(np.asarray(found, np.float32) - expected).max()
    scale = np.abs(expected).max()
    if not error <= tolerance * scale:  # NaN fails too
        raise WrongAnswerError(
            f"the {what} differ from the {ORACLE} layout's by {error:.3g}, and the largest is "
            f"{scale:.3g} (allowed: {tolerance:g} of it)"
        )


def check(cell: Cell) -> None:
    """Refuses what cannot be built, in one line."""
    if cell.dtype not in DTYPES:
        raise ValueError(f"unknown dtype '{cell.dtype}': choose from {', '.join(DTYPES)}")
    if cell.phase == "generate" and not SHORT_TURNS < cell.new_tokens < cell.seq:
        raise ValueError(
            f"generate cannot add {cell.new_tokens} tokens to a cache of {cell.seq} slots: choose "
            f"--new-tokens above {SHORT_TURNS} and below --seq"
        )
    build_subject(cell)


SUITE = Suite(
    models=MODELS,
    layouts=LAYOUTS,
    phases=tuple(PHASES),
    default=Matrix(
        models=("qwen3-small",),
        layouts=("unrolled", "stacked-scan", "vmap"),
        phases=tuple(PHASES),
        layers=(2, 4, 8, 16),
        batch=4,
        seq=64,
        phase_seq={"decode_step": 1024, "generate": 1024},
        new_tokens=16,
        dtype="float32",
        targets=("cpu",),
    ),
    check=check,
    build=build,
)
