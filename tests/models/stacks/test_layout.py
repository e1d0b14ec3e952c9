"""Layouts are data, checked where they are made."""

from __future__ import annotations

import dataclasses

import pytest

from layerbench_models import (
    LAYOUTS,
    AttentionImplementation,
    CacheForm,
    CacheOrder,
    Creation,
    DecodeWeights,
    Forward,
    GroupedQuery,
    LayoutError,
    Parameters,
    UnknownNameError,
    resolve_layout,
)


def test_the_layouts_are_named_after_themselves():
    assert list(LAYOUTS) == ["unrolled", "stacked-scan", "vmap", "stacked"]
    assert all(layout.name == name for name, layout in LAYOUTS.items())


@pytest.mark.parametrize(
    ("name", "fields", "reason"),
    [
        ("unrolled", {"forward": Forward.SCAN}, "a scan or pipeline runs over stacked parameters"),
        ("stacked-scan", {"forward": Forward.PIPELINE}, "stages hold the layers in all phases"),
        ("stacked-scan", {"cache": CacheForm.STAGES}, "a pipeline caches by stage"),
        ("vmap", {"cache": CacheForm.CARRY_TOKEN}, "a pipeline caches by stage"),
        ("stacked-scan", {"microbatches": 2}, "only a pipeline has micro-batches"),
        ("vmap", {"microbatches": 0}, "at least one micro-batch"),
        ("unrolled", {"creation": Creation.VMAP}, "nnx.vmap creates stacked parameters"),
        ("stacked", {"creation": Creation.LOOP}, "one array for each layer"),
        ("stacked-scan", {"cache": CacheForm.LIST}, "cannot update separate arrays"),
        ("unrolled", {"parameters": Parameters.STACKED}, "set creation to vmap"),
        ("unrolled", {"decode_weights": DecodeWeights.UNSTACKED_ONCE}, "unstacking them once"),
        (
            "stacked-scan",
            {"attention": AttentionImplementation.CUDNN, "cache_order": CacheOrder.HEAD_MAJOR},
            "cuDNN reads token-major keys",
        ),
        (
            "unrolled",
            {
                "attention": AttentionImplementation.PALLAS,
                "grouped_query": GroupedQuery.REPEATED,
            },
            "kernels group the heads in their own way",
        ),
    ],
)
def test_fields_that_make_no_sense_together_are_refused_with_the_reason(name, fields, reason):
    with pytest.raises(LayoutError) as caught:
        dataclasses.replace(LAYOUTS[name], **fields)
    message = str(caught.value)
    assert message.startswith(f"layout {name!r} makes no sense: ")
    assert reason in message
    assert ": set " in message or ": leave " in message


def test_an_unknown_layout_lists_those_that_exist():
    with pytest.raises(UnknownNameError) as caught:
        resolve_layout("stacked-scna")
    assert str(caught.value) == (
        "unknown layout 'stacked-scna': choose one of unrolled, stacked-scan, vmap, stacked"
    )
