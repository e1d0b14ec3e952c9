"""A layout is data: how the layers of a stack are stored, created and run, and how they cache."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from layerbench_models.cache import CacheOrder
from layerbench_models.errors import LayoutError, UnknownNameError
from layerbench_models.layers.dot_product import (
    AttentionForm,
    AttentionImplementation,
    GroupedQuery,
)


class Parameters(StrEnum):
    """How the layers' parameters are stored."""

    LIST = "list"
    """One array for each layer."""
    STACKED = "stacked"
    """One array with a leading axis L."""


class Creation(StrEnum):
    """How the layers' parameters are created."""

    LOOP = "loop"
    """A Python loop over the layers."""
    VMAP = "vmap"
    """`nnx.vmap` over the layers' keys."""


class Forward(StrEnum):
    """How the layers are run in a phase."""

    LOOP = "loop"
    """A Python loop: every layer is in the program."""
    SCAN = "scan"
    """`lax.scan` over the stacked parameters."""
    PIPELINE = "pipeline"
    """All layers at once, vmapped, on different micro-batches in a shifting buffer."""


class CacheForm(StrEnum):
    """How the KV cache is stored and how a decode step travels with it."""

    LIST = "list"
    """One array for each layer, the token written in place."""
    CARRY_TOKEN = "carry-token"  # noqa: S105 - a token of text, no secret
    """One array in the carry of the loop over layers, one token written for each layer."""
    STAGES = "stages"
    """One array, each stage of the pipeline reading and writing its own layer."""

    @property
    def is_stacked(self) -> bool:
        """Whether all layers share one array."""
        return self is not CacheForm.LIST


class DecodeWeights(StrEnum):
    """Which form of the parameters a decode step runs on."""

    AS_STORED = "as-stored"
    UNSTACKED_ONCE = "unstacked-once"
    """A list, made from the stacked parameters once, outside the loop over tokens."""


class Remat(StrEnum):
    """What the backward pass computes again instead of storing it."""

    NONE = "none"
    FULL = "full"
    """Each layer, from its input."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One way to lay out a stack of decoder layers; checked on creation.

    Attributes:
        name: What it is called.
        parameters: How the parameters are stored.
        creation: How they are created.
        forward: How the layers are run in prefill and training.
        decode: How they are run in a decode step.
        decode_weights: Which form of the parameters a decode step runs on.
        cache: How the KV cache is stored and travels.
        cache_order: The order of a layer's cache axes.
        grouped_query: How query heads meet key/value heads.
        attention: What computes the attention.
        remat: What the backward pass computes again.
        microbatches: Micro-batches of a pipeline; None takes the largest divisor of the batch
            that does not exceed the number of layers.
    """

    name: str
    parameters: Parameters
    creation: Creation
    forward: Forward
    decode: Forward
    cache: CacheForm
    decode_weights: DecodeWeights = DecodeWeights.AS_STORED
    cache_order: CacheOrder = CacheOrder.TOKEN_MAJOR
    grouped_query: GroupedQuery = GroupedQuery.GROUPED_KEYS_FIRST
    attention: AttentionImplementation = AttentionImplementation.XLA
    remat: Remat = Remat.NONE
    microbatches: int | None = None

    def __post_init__(self) -> None:
        reason = _contradiction(self)
        if reason:
            raise LayoutError(f"layout {self.name!r} makes no sense: {reason}")

    @property
    def attention_form(self) -> AttentionForm:
        """How attention is computed."""
        return AttentionForm(
            order=self.cache_order,
            grouped_query=self.grouped_query,
            implementation=self.attention,
        )


def _contradiction(layout: Layout) -> str | None:
    """Returns why the fields of a layout do not fit together, or None: the one place for it."""
    stacked = layout.parameters is Parameters.STACKED
    unstacked_once = layout.decode_weights is DecodeWeights.UNSTACKED_ONCE
    pipelined = [form is Forward.PIPELINE for form in (layout.forward, layout.decode)]
    scanned = Forward.SCAN in (layout.forward, layout.decode)
    rules: tuple[tuple[bool, str], ...] = (
        (
            not stacked and (scanned or any(pipelined)),
            "a scan or pipeline runs over stacked parameters: set parameters to stacked",
        ),
        (
            any(pipelined) != all(pipelined),
            "the pipeline's stages hold the layers in all phases: set forward and decode to it",
        ),
        (
            any(pipelined) != (layout.cache is CacheForm.STAGES),
            "a pipeline caches by stage and nothing else does: set cache to stages with it",
        ),
        (
            layout.microbatches is not None and not any(pipelined),
            "only a pipeline has micro-batches: leave microbatches out",
        ),
        (
            layout.microbatches is not None and layout.microbatches < 1,
            "a pipeline needs at least one micro-batch: set microbatches to 1 or more",
        ),
        (
            layout.creation is Creation.VMAP and not stacked,
            "nnx.vmap creates stacked parameters: set creation to loop",
        ),
        (
            layout.creation is Creation.LOOP and stacked,
            "a loop creates one array for each layer: set creation to vmap",
        ),
        (
            layout.decode is Forward.SCAN and layout.cache is CacheForm.LIST,
            "a scan cannot update separate arrays in place: set cache to a stacked form",
        ),
        (
            unstacked_once and not (stacked and layout.decode is Forward.LOOP),
            (
                "only a Python loop over stacked parameters gains from unstacking them once: "
                "set decode_weights to as-stored"
            ),
        ),
        (
            layout.attention is AttentionImplementation.CUDNN
            and layout.cache_order is CacheOrder.HEAD_MAJOR,
            (
                "cuDNN reads token-major keys, so each step would transpose the cache: "
                "set cache_order to token-major"
            ),
        ),
        (
            layout.attention is not AttentionImplementation.XLA
            and layout.grouped_query is GroupedQuery.REPEATED,
            "the fused kernels group the heads in their own way: set grouped_query to a grouped form",
        ),
    )
    return next((reason for broken, reason in rules if broken), None)


LAYOUTS: Mapping[str, Layout] = MappingProxyType(
    {
        layout.name: layout
        for layout in (
            Layout(
                name="unrolled",
                parameters=Parameters.LIST,
                creation=Creation.LOOP,
                forward=Forward.LOOP,
                decode=Forward.LOOP,
                cache=CacheForm.LIST,
            ),
            Layout(
                name="stacked-scan",
                parameters=Parameters.STACKED,
                creation=Creation.VMAP,
                forward=Forward.SCAN,
                decode=Forward.SCAN,
                cache=CacheForm.CARRY_TOKEN,
                # A layer's slice of the carry feeds the contraction as it lies: on CPU this order
                # saves a transposing copy of each slice, which token-major ones need.
                cache_order=CacheOrder.HEAD_MAJOR,
            ),
            Layout(
                name="vmap",
                parameters=Parameters.STACKED,
                creation=Creation.VMAP,
                forward=Forward.PIPELINE,
                decode=Forward.PIPELINE,
                cache=CacheForm.STAGES,
            ),
            Layout(
                name="stacked",
                parameters=Parameters.STACKED,
                creation=Creation.VMAP,
                forward=Forward.SCAN,
                decode=Forward.LOOP,
                decode_weights=DecodeWeights.UNSTACKED_ONCE,
                cache=CacheForm.LIST,
            ),
        )
    }
)


def resolve_layout(layout: str | Layout) -> Layout:
    """Returns the layout of that name, or the given one.

    Raises:
        UnknownNameError: If no layout has the name; the message lists those that exist.
    """
    if isinstance(layout, Layout):
        return layout
    try:
        return LAYOUTS[layout]
    except (KeyError, TypeError):
        raise UnknownNameError("layout", layout, LAYOUTS) from None
