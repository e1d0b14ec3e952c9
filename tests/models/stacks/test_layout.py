"""Layouts are data, checked where they are made."""

from __future__ import annotations

import dataclasses

import pytest

from layerbench_models import (
    ALIASES,
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
    Remat,
    RematScope,
    UnknownNameError,
    resolve_layout,
)


def test_the_layouts_are_named_after_themselves():
    assert list(LAYOUTS)[:4] == ["unrolled", "stacked-scan", "vmap", "stacked"]
    assert all(layout.name == name for name, layout in LAYOUTS.items())


def test_no_two_layouts_are_the_same():
    bare = [dataclasses.replace(layout, name="") for layout in LAYOUTS.values()]
    assert len(set(bare)) == len(LAYOUTS)


def test_an_alias_is_another_name_of_a_layout():
    assert resolve_layout("scan-carry-token") is LAYOUTS["stacked-scan"]
    assert not set(ALIASES) & set(LAYOUTS)
    assert set(ALIASES.values()) <= set(LAYOUTS)


@pytest.mark.parametrize(
    ("name", "fields", "reason"),
    [
        ("unrolled", {"forward": Forward.SCAN}, "pipeline runs over stacked parameters"),
        ("stacked-scan", {"forward": Forward.PIPELINE}, "stages hold the layers in all phases"),
        ("stacked-scan", {"cache": CacheForm.STAGES}, "a pipeline caches by stage"),
        ("vmap", {"cache": CacheForm.CARRY_TOKEN}, "a pipeline caches by stage"),
        ("stacked-scan", {"microbatches": 2}, "only a pipeline has micro-batches"),
        ("vmap", {"microbatches": 0}, "at least one micro-batch"),
        ("unrolled", {"creation": Creation.VMAP}, "nnx.vmap creates stacked parameters"),
        ("unrolled", {"creation": Creation.PREALLOCATED}, "writing into empty stacks creates"),
        ("hybrid", {"creation": Creation.SCAN_KEYS}, "a scan over keys creates stacked"),
        ("stacked", {"creation": Creation.LOOP}, "one array for each layer"),
        ("axis-1", {"creation": Creation.VMAP_UNNAMED}, "fit no axis"),
        ("unrolled", {"decode": Forward.FORI}, "runs over stacked parameters"),
        ("unrolled", {"forward": Forward.HYBRID}, "runs over stacked parameters"),
        ("stacked-scan", {"forward": Forward.HYBRID}, "copy the layers between the ends"),
        ("stacked-scan", {"decode": Forward.HYBRID}, "copy the layers between the ends"),
        ("hybrid", {"forward": Forward.LOOP}, "set forward to hybrid"),
        ("hybrid", {"decode": Forward.LOOP}, "set decode to hybrid"),
        ("unrolled", {"unroll": 2}, "only a scan can be unrolled"),
        ("fori", {"unroll": 2}, "only a scan can be unrolled"),
        ("stacked-scan", {"unroll": 0}, "at least one layer a turn"),
        ("stacked-scan", {"block": 2}, "only a nested scan has blocks"),
        ("nested-scan", {"block": 0}, "at least one layer"),
        ("stacked-scan", {"cache_device_order": "lbksx"}, "an order of the letters lbksh"),
        ("unrolled", {"cache_device_order": "lbskh"}, "an order of the letters bskh"),
        ("stacked-scan", {"remat": Remat.NESTED}, "by blocks of layers"),
        (
            "nested-scan",
            {"remat": Remat.NESTED, "remat_scope": RematScope.MODEL},
            "by blocks and layers",
        ),
        ("unrolled", {"remat_scope": RematScope.MODEL}, "nothing is computed again"),
        (
            "scan-deferred-write",
            {"attention": AttentionImplementation.CUDNN, "cache_order": CacheOrder.TOKEN_MAJOR},
            "cannot join the current one",
        ),
        ("fori", {"cache": CacheForm.LIST}, "cannot update separate arrays"),
        ("stacked-scan", {"cache": CacheForm.LIST}, "cannot update separate arrays"),
        ("unrolled", {"parameters": Parameters.STACKED}, "set creation to vmap or another"),
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
        f"unknown layout 'stacked-scna': choose one of {', '.join(LAYOUTS)}"
    )
