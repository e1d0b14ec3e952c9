"""A layout is data: how the layers of a stack are stored, created and run, and how they cache."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from layerbench_models.cache import CacheOrder
from layerbench_models.errors import LayoutError, UnknownNameError
from layerbench_models.layers.dot_product import (
    AttentionForm,
    AttentionImplementation,
    GroupedQuery,
)
from layerbench_models.stacks.choices import (
    CacheForm,
    Creation,
    DecodeWeights,
    Forward,
    Parameters,
    Remat,
    RematScope,
)
from layerbench_models.stacks.contradictions import contradiction


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
        cache_device_order: The order in which a device is to store the cache's axes, from major to
            minor, by their letters (`l` for the layers of a stacked cache), such as "lskbh". None
            leaves it to the compiler's default. It is pinned where a program takes and returns the
            cache: `Model.cache_formats` says how.
        grouped_query: How query heads meet key/value heads.
        attention: What computes the attention.
        remat: What the backward pass computes again.
        remat_scope: What is computed again as one piece.
        unroll: Layers that a scan runs in one turn, in all phases.
        block: Layers in a block of a nested scan; None takes the divisor of the number of layers
            that is nearest to its square root, or that root where only 1 divides it.
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
    cache_device_order: str | None = None
    grouped_query: GroupedQuery = GroupedQuery.GROUPED_KEYS_FIRST
    attention: AttentionImplementation = AttentionImplementation.XLA
    remat: Remat = Remat.NONE
    remat_scope: RematScope = RematScope.LAYER
    unroll: int = 1
    block: int | None = None
    microbatches: int | None = None

    def __post_init__(self) -> None:
        reason = contradiction(self)
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

    @property
    def layer_remat(self) -> Remat:
        """What the backward pass computes again layer by layer."""
        return self.remat if self.remat_scope is RematScope.LAYER else Remat.NONE

    @property
    def model_remat(self) -> Remat:
        """What it computes again of the whole stack at once."""
        return self.remat if self.remat_scope is RematScope.MODEL else Remat.NONE

    @property
    def cache_axes(self) -> str:
        """The letters of the axes of the cache's arrays."""
        return ("l" if self.cache.is_stacked else "") + self.cache_order.axes


def _variant(base: Layout, name: str, **fields: Any) -> Layout:
    return dataclasses.replace(base, name=name, **fields)


_UNROLLED = Layout(
    name="unrolled",
    parameters=Parameters.LIST,
    creation=Creation.LOOP,
    forward=Forward.LOOP,
    decode=Forward.LOOP,
    cache=CacheForm.LIST,
)

_SCAN = Layout(
    name="stacked-scan",
    parameters=Parameters.STACKED,
    creation=Creation.VMAP,
    forward=Forward.SCAN,
    decode=Forward.SCAN,
    cache=CacheForm.CARRY_TOKEN,
    # A layer's slice of the carry feeds the contraction as it lies: on CPU this order saves a
    # transposing copy of each slice, which token-major ones need.
    cache_order=CacheOrder.HEAD_MAJOR,
)

_STACKED = Layout(
    name="stacked",
    parameters=Parameters.STACKED,
    creation=Creation.VMAP,
    forward=Forward.SCAN,
    decode=Forward.LOOP,
    decode_weights=DecodeWeights.UNSTACKED_ONCE,
    cache=CacheForm.LIST,
)

_VMAP = Layout(
    name="vmap",
    parameters=Parameters.STACKED,
    creation=Creation.VMAP,
    forward=Forward.PIPELINE,
    decode=Forward.PIPELINE,
    cache=CacheForm.STAGES,
)


def _looped(name: str, forward: Forward, **fields: Any) -> Layout:
    """Returns the stacked scan with another loop in all phases."""
    return _variant(_SCAN, name, forward=forward, decode=forward, **fields)


LAYOUTS: Mapping[str, Layout] = MappingProxyType(
    {
        layout.name: layout
        for layout in (
            _UNROLLED,
            _SCAN,
            _VMAP,
            _STACKED,
            # How a cache travels past scanned layers.
            _variant(_SCAN, "scan-xs-ys", cache=CacheForm.XS_YS),
            _variant(_SCAN, "scan-carry-layer", cache=CacheForm.CARRY_LAYER),
            _variant(_SCAN, "scan-read-then-write", cache=CacheForm.READ_THEN_WRITE),
            _variant(_SCAN, "scan-deferred-write", cache=CacheForm.DEFERRED_WRITE),
            # How layers are looped over.
            _variant(_SCAN, "scan-unroll-2", unroll=2),
            _variant(_SCAN, "scan-unroll-4", unroll=4),
            _looped("scan-closure", Forward.SCAN_CLOSURE),
            _looped("fori", Forward.FORI),
            _looped("nnx-scan", Forward.NNX_SCAN),
            _looped("nested-scan", Forward.NESTED_SCAN),
            _looped(
                "hybrid",
                Forward.HYBRID,
                parameters=Parameters.ENDS_APART,
                creation=Creation.LOOP,
            ),
            _variant(_UNROLLED, "inner-jit", forward=Forward.INNER_JIT, decode=Forward.INNER_JIT),
            # Where the weights lie.
            _variant(_SCAN, "axis-1", parameters=Parameters.STACKED_ON_1),
            _variant(_STACKED, "sliced", decode_weights=DecodeWeights.AS_STORED),
            # How the cache's axes lie: the other order than the base's, or the device's own.
            _variant(_UNROLLED, "unrolled-head-major", cache_order=CacheOrder.HEAD_MAJOR),
            _variant(_STACKED, "stacked-head-major", cache_order=CacheOrder.HEAD_MAJOR),
            _variant(_SCAN, "scan-token-major", cache_order=CacheOrder.TOKEN_MAJOR),
            # What a TPU's compiler picks by itself for the loop over layers: with it at the
            # program's edge too, nothing is copied at the loop's entry and exit.
            _variant(
                _SCAN,
                "scan-pinned",
                cache_order=CacheOrder.TOKEN_MAJOR,
                cache_device_order="lskbh",
            ),
            # How stacked parameters are created.
            _variant(_STACKED, "created-by-loop", creation=Creation.LOOP_STACKED),
            _variant(_STACKED, "created-preallocated", creation=Creation.PREALLOCATED),
            _variant(_STACKED, "created-by-scan", creation=Creation.SCAN_KEYS),
            _variant(_STACKED, "created-sharded", creation=Creation.JIT_SHARDED),
        )
    }
)
"""The layouts that people use or fall into, by name."""

ALIASES: Mapping[str, str] = MappingProxyType({"scan-carry-token": "stacked-scan"})
"""Other names of layouts."""


def resolve_layout(layout: str | Layout) -> Layout:
    """Returns the layout of that name, or the given one.

    Raises:
        UnknownNameError: If no layout has the name; the message lists those that exist.
    """
    if isinstance(layout, Layout):
        return layout
    try:
        return LAYOUTS[ALIASES.get(layout, layout)]
    except (KeyError, TypeError):
        raise UnknownNameError("layout", layout, LAYOUTS) from None
