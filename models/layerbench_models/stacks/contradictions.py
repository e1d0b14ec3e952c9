"""Why the fields of a layout do not fit together: the one place for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from layerbench_models.cache import CacheOrder
from layerbench_models.layers.dot_product import AttentionImplementation, GroupedQuery
from layerbench_models.stacks.choices import (
    CacheForm,
    Creation,
    DecodeWeights,
    Forward,
    Parameters,
    Remat,
    RematScope,
)

if TYPE_CHECKING:
    from layerbench_models.stacks.layout import Layout

Rule = tuple[bool, str]
"""Whether a layout breaks the rule, and the reason with what to do."""


def contradiction(layout: Layout) -> str | None:
    """Returns why the fields of a layout do not fit together, or None."""
    rules = (*_storage(layout), *_loops(layout), *_caches(layout), *_remat(layout))
    return next((reason for broken, reason in rules if broken), None)


def _storage(layout: Layout) -> Iterator[Rule]:
    apart = layout.parameters is Parameters.ENDS_APART
    on_one_axis = layout.parameters.layer_axis is not None
    forwards = (layout.forward, layout.decode)
    yield (
        layout.parameters is Parameters.LIST
        and any(f.is_compiled_loop or f is Forward.PIPELINE for f in forwards),
        "a scan, loop or pipeline runs over stacked parameters: set parameters to stacked",
    )
    yield (
        apart and layout.forward is not Forward.HYBRID,
        "ends stored apart fit the hybrid alone: set forward to hybrid",
    )
    yield (
        not apart and Forward.HYBRID in forwards,
        (
            "a hybrid over one stack would copy the layers between the ends in every step: "
            "set parameters to ends-apart"
        ),
    )
    yield (
        apart
        and layout.decode is not Forward.HYBRID
        and layout.decode_weights is DecodeWeights.AS_STORED,
        "ends stored apart fit the hybrid alone: set decode to hybrid",
    )
    yield (
        layout.creation is not Creation.LOOP and not on_one_axis,
        f"{_CREATED_BY[layout.creation]} creates stacked parameters: set creation to loop",
    )
    yield (
        layout.creation is Creation.LOOP and on_one_axis,
        "a loop creates one array for each layer: set creation to vmap or another stacked form",
    )
    yield (
        layout.creation is Creation.VMAP_UNNAMED and layout.parameters is Parameters.STACKED_ON_1,
        (
            "without a name the recorded mesh axes fit no axis once the layers' is not the first: "
            "set creation to vmap"
        ),
    )


def _loops(layout: Layout) -> Iterator[Rule]:
    forwards = (layout.forward, layout.decode)
    pipelined = [form is Forward.PIPELINE for form in forwards]
    unstacked_once = layout.decode_weights is DecodeWeights.UNSTACKED_ONCE
    in_python = layout.decode in {Forward.LOOP, Forward.INNER_JIT}
    yield (
        any(pipelined) != all(pipelined),
        "the pipeline's stages hold the layers in all phases: set forward and decode to it",
    )
    yield (
        layout.microbatches is not None and not any(pipelined),
        "only a pipeline has micro-batches: leave microbatches out",
    )
    yield (
        layout.microbatches is not None and layout.microbatches < 1,
        "a pipeline needs at least one micro-batch: set microbatches to 1 or more",
    )
    yield (
        unstacked_once and not (layout.parameters is not Parameters.LIST and in_python),
        (
            "only a Python loop over stacked parameters gains from unstacking them once: "
            "set decode_weights to as-stored"
        ),
    )
    yield layout.unroll < 1, "a scan runs at least one layer a turn: set unroll to 1 or more"
    yield (
        layout.unroll > 1 and not any(form.is_scan for form in forwards),
        "only a scan can be unrolled: set unroll to 1",
    )
    yield (
        layout.block is not None and Forward.NESTED_SCAN not in forwards,
        "only a nested scan has blocks: leave block out",
    )
    yield (
        layout.block is not None and layout.block < 1,
        "a block has at least one layer: set block to 1 or more",
    )


def _caches(layout: Layout) -> Iterator[Rule]:
    pipelined = Forward.PIPELINE in {layout.forward, layout.decode}
    yield (
        pipelined != (layout.cache is CacheForm.STAGES),
        "a pipeline caches by stage and nothing else does: set cache to stages with it",
    )
    yield (
        layout.decode.is_compiled_loop and layout.cache is CacheForm.LIST,
        "a loop cannot update separate arrays in place: set cache to a stacked form",
    )
    yield (
        layout.cache_device_order is not None
        and sorted(layout.cache_device_order) != sorted(layout.cache_axes),
        (
            "a device's order names every axis of the cache once: set cache_device_order to an "
            f"order of the letters {layout.cache_axes}, or to None"
        ),
    )
    yield (
        layout.attention is AttentionImplementation.CUDNN
        and layout.cache_order is CacheOrder.HEAD_MAJOR,
        (
            "cuDNN reads token-major keys, so each step would transpose the cache: "
            "set cache_order to token-major"
        ),
    )
    yield (
        layout.attention is AttentionImplementation.CUDNN and layout.cache.joins_token,
        (
            "cuDNN attends to one array of keys and cannot join the current one to it: "
            "set cache to a form that is written before it is read"
        ),
    )
    yield (
        layout.attention is not AttentionImplementation.XLA
        and layout.grouped_query is GroupedQuery.REPEATED,
        "the fused kernels group the heads in their own way: set grouped_query to a grouped form",
    )


def _remat(layout: Layout) -> Iterator[Rule]:
    yield (
        layout.remat is Remat.NESTED and layout.forward is not Forward.NESTED_SCAN,
        "nested remat goes by blocks of layers: set forward to nested-scan",
    )
    yield (
        layout.remat is Remat.NESTED and layout.remat_scope is RematScope.MODEL,
        "nested remat goes by blocks and layers: set remat_scope to layer",
    )
    yield (
        layout.remat is Remat.NONE and layout.remat_scope is RematScope.MODEL,
        "nothing is computed again, of no scope: set remat, or set remat_scope to layer",
    )


_CREATED_BY = {
    Creation.LOOP: "a loop",
    Creation.LOOP_STACKED: "a loop with a stack behind it",
    Creation.PREALLOCATED: "writing into empty stacks",
    Creation.VMAP: "nnx.vmap",
    Creation.VMAP_UNNAMED: "nnx.vmap",
    Creation.SCAN_KEYS: "a scan over keys",
    Creation.JIT_SHARDED: "a jitted nnx.vmap",
}
