"""Trip counts and the operations that follow from them, for every kind of loop and compiler."""

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from layerbench_tests_loop_kinds import KINDS, PRODUCT_FLOPS
from layerbench_tests_programs import abstract, computation, module

from layerbench.measure.program.loops import TripSource, find_loops
from layerbench.measure.program.operations import count_operations
from layerbench.measure.program.parser import parse_module
from layerbench.measure.program.products import product_flops
from layerbench.measure.program.weights import Weight

STORED = ("tpu", "gpu")


def flops_of(kind):
    """What a loop kind must do: once, and with each turn of a loop whose trips depend on data."""
    flops = kind.products * PRODUCT_FLOPS
    return Weight(0, flops) if None in kind.trips else Weight(flops, 0)


def trips_of(parsed):
    return sorted((loop.trips for loop in find_loops(parsed).values()), key=str)


@pytest.fixture(scope="module")
def compiled_text():
    return lambda kind: jax.jit(kind.function).lower(*kind.arguments).compile().as_text()


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_loops_have_the_right_trips_and_operations_on_the_cpu(kind, compiled_text):
    parsed = parse_module(compiled_text(kind))
    assert trips_of(parsed) == sorted(kind.trips, key=str)
    assert product_flops(parsed, with_turns=None in kind.trips) == flops_of(kind)


@pytest.mark.parametrize("target", STORED)
@pytest.mark.parametrize("name", KINDS)
def test_loops_have_the_right_trips_and_operations_on_absent_targets(target, name, stored_text):
    kind, parsed = KINDS[name], parse_module(stored_text(target, name))
    assert trips_of(parsed) == sorted(kind.trips, key=str)
    assert product_flops(parsed, with_turns=None in kind.trips) == flops_of(kind)


def test_the_stored_programs_are_those_of_the_loop_kinds(stored_text):
    for target in STORED:
        for name in KINDS:
            assert stored_text(target, name).startswith("HloModule ")


def test_tpu_text_has_no_trip_counts_so_they_are_inferred(stored_text):
    sources = {
        target: {
            loop.source for loop in find_loops(parse_module(stored_text(target, "scan"))).values()
        }
        for target in STORED
    }
    assert sources == {"tpu": {TripSource.INFERRED}, "gpu": {TripSource.KNOWN}}


@pytest.mark.parametrize("name", [name for name in KINDS if not name.startswith("while_")])
def test_the_jaxpr_has_the_operations_of_the_compiled_program(name):
    kind = KINDS[name]
    counted = count_operations(
        jax.jit(kind.function).trace(*kind.arguments).jaxpr, with_turns=None in kind.trips
    )
    assert counted.flops == flops_of(kind)
    assert counted.has_branches == (name == "condition")


def test_a_while_loop_counts_one_trip_in_the_jaxpr_and_says_so():
    kind = KINDS["while_down"]
    counted = count_operations(jax.make_jaxpr(kind.function)(*kind.arguments), with_turns=False)
    assert counted.flops == Weight(PRODUCT_FLOPS, 0)
    assert counted.has_unknown_trips


def test_convolutions_count_each_tap_of_each_group():
    def convolve(image, kernel):
        return lax.conv_general_dilated(image, kernel, (1, 1), "SAME", feature_group_count=2)

    image, kernel = abstract(2, 6, 7, 11), abstract(10, 3, 3, 5)
    counted = count_operations(jax.make_jaxpr(convolve)(image, kernel), with_turns=False)
    assert counted.flops == Weight(2 * (2 * 10 * 7 * 11) * 3 * 3 * 5, 0)


@settings(max_examples=12, deadline=None)
@given(
    layers=st.integers(1, 5),
    rows=st.sampled_from([2, 3]),
    widths=st.tuples(st.sampled_from([5, 7]), st.sampled_from([5, 11])),
    unroll=st.integers(1, 3),
    reverse=st.booleans(),
)
def test_a_loop_unrolled_by_hand_has_the_operations_of_its_scan(
    layers, rows, widths, unroll, reverse
):
    inner, outer = widths

    def layer(x, pair):
        return jnp.tanh(x @ pair[0]) @ pair[1], None

    def scanned(x, pairs):
        return lax.scan(layer, x, pairs, unroll=unroll, reverse=reverse)[0]

    def unrolled(x, pairs):
        for index in reversed(range(layers)) if reverse else range(layers):
            x, _ = layer(x, (pairs[0][index], pairs[1][index]))
        return x

    arguments = (
        abstract(rows, inner),
        (abstract(layers, inner, outer), abstract(layers, outer, inner)),
    )
    found = set()
    for function in (scanned, unrolled):
        traced = jax.jit(function).trace(*arguments)
        found.add(count_operations(traced.jaxpr, with_turns=False).flops)
        found.add(product_flops(parse_module(traced.lower().compile().as_text())))
    assert found == {Weight(layers * 2 * 2 * rows * inner * outer, 0)}


def counting_loop(*, start=0, limit=10, step=2, direction="LT", body_operation="add"):
    """A loop that does nothing but count."""
    state = "(s32[], s32[])"
    condition = computation(
        "condition",
        f"%p = {state} parameter(0)",
        "%i = s32[] get-tuple-element(%p), index=0",
        "%limit = s32[] get-tuple-element(%p), index=1",
        f"ROOT %c = pred[] compare(%i, %limit), direction={direction}",
    )
    body = computation(
        "body",
        f"%p = {state} parameter(0)",
        "%i = s32[] get-tuple-element(%p), index=0",
        "%limit = s32[] get-tuple-element(%p), index=1",
        f"%step = s32[] constant({step})",
        f"%next = s32[] {body_operation}(%i, %step)",
        f"ROOT %t = {state} tuple(%next, %limit)",
    )
    return module(
        f"%start = s32[] constant({start})",
        f"%limit = s32[] constant({limit})",
        f"%t = {state} tuple(%start, %limit)",
        f"ROOT %w = {state} while(%t), condition=%condition, body=%body",
        entry="() -> (s32[], s32[])",
        computations=condition + body,
    )


@pytest.mark.parametrize(
    ("options", "trips"),
    [
        ({}, 5),
        ({"limit": 9}, 5),
        ({"direction": "LE"}, 6),
        ({"start": 10, "limit": 0, "step": -3, "direction": "GT"}, 4),
        ({"start": 9, "limit": 0, "step": 3, "direction": "GE", "body_operation": "subtract"}, 4),
        ({"direction": "NE"}, 5),
        ({"start": 12}, 0),
        ({"limit": 9, "direction": "NE"}, None),  # steps over the limit
        ({"step": 0}, None),
        ({"step": -1}, None),
        ({"direction": "EQ"}, None),
        ({"body_operation": "multiply"}, None),
    ],
)
def test_trips_follow_from_start_limit_step_and_direction(options, trips):
    (loop,) = find_loops(parse_module(counting_loop(**options))).values()
    assert loop.trips == trips
    assert loop.source is (TripSource.UNKNOWN if trips is None else TripSource.INFERRED)
