"""This repository's own workloads: they build, run and answer right, and a wrong answer is seen."""

import dataclasses
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import layerbench_models
from layerbench import Cell, WrongAnswerError
from layerbench.errors import UsageError
from layerbench.measure.session import measure_group
from layerbench.measure.timing.sampling import SamplingPlan
from layerbench.record import Status
from layerbench.suite import MODULE_NAME

PLAN = SamplingPlan(min_samples=2, max_samples=2, min_sample_ms=0.1)
PHASES = ("prefill", "train_step", "decode_step", "generate")


def cell(layout="stacked-scan", phase="decode_step", **fields):
    settings = {"model": "qwen3-tiny", "layers": 3, "batch": 2, "seq": 16} | fields
    new_tokens = 5 if phase == "generate" else 0
    return Cell(layout=layout, phase=phase, **{"new_tokens": new_tokens} | settings)


def run_once(workload):
    arguments = workload.make_arguments()
    return jax.jit(workload.function)(*arguments)


def answer_twice(workload):
    """Compiles as the harness does and checks two calls, the second on threaded state."""
    jitted = jax.jit(workload.function, donate_argnums=workload.donated)
    program = jitted.lower(*workload.abstract_arguments).compile()
    arguments = workload.make_arguments()
    for calls in range(2):
        outputs = program(*arguments)
        workload.check(outputs, calls)
        arguments = workload.thread(outputs, arguments)


# Layouts that differ in what these workloads hand over: parameters, prepared weights and caches. The
# numbers of all layouts are compared where the models are tested.
HANDED_OVER = ("unrolled", "stacked-scan", "stacked", "vmap")


@pytest.mark.parametrize("phase", PHASES)
def test_layouts_of_every_kind_answer_right_in_every_phase(suite, phase):
    for layout in HANDED_OVER:
        answer_twice(suite.build(cell(layout, phase)))


@pytest.mark.parametrize("layout", ["axis-1", "hybrid", "scan-deferred-write"])
def test_layouts_that_store_their_layers_otherwise_answer_right(suite, layout):
    answer_twice(suite.build(cell(layout, "decode_step")))


@pytest.mark.parametrize("phase", PHASES)
def test_every_layout_takes_what_its_workload_hands_over(suite, phase):
    for layout in suite.layouts:
        workload = suite.build(cell(layout, phase))
        outputs = jax.eval_shape(workload.function, *workload.abstract_arguments)
        threaded = workload.thread(outputs, workload.abstract_arguments)
        assert jax.tree.structure(threaded) == jax.tree.structure(workload.abstract_arguments)


@pytest.mark.parametrize("phase", PHASES)
def test_a_mesh_of_devices_answers_right(suite, phase):
    answer_twice(suite.build(cell(phase=phase, mesh="fsdp:2,tp:2")))


def test_a_group_is_measured_whole(suite):
    group = [cell(layout, "prefill") for layout in HANDED_OVER]
    records = list(measure_group(group, suite, PLAN))
    assert [(record.cell, record.status) for record in records] == [
        (each, Status.OK) for each in group
    ]


@pytest.mark.parametrize("phase", PHASES)
def test_layers_in_the_wrong_order_are_caught(suite, phase):
    """The oracle is not the program that is timed: turning the stack around fails every phase."""
    workload = suite.build(cell(phase=phase))

    def with_layers_turned_around(params, *rest):
        turned = jax.tree.map(
            lambda leaf: jnp.flip(leaf, 0) if leaf.ndim and leaf.shape[0] == 3 else leaf, params
        )
        return workload.function(turned, *rest)

    drifted = dataclasses.replace(workload, function=with_layers_turned_around)
    outputs = run_once(drifted)
    with pytest.raises(WrongAnswerError):
        workload.check(outputs, 0)


def test_a_training_step_that_learns_nothing_is_caught(suite):
    workload = suite.build(cell(phase="train_step"))
    loss, *state = run_once(workload)
    workload.check((loss, *state), 0)
    with pytest.raises(WrongAnswerError, match="after 4 steps on one batch"):
        workload.check((loss, *state), 4)


def test_a_loop_that_stops_early_is_caught(suite):
    workload = suite.build(cell(phase="generate"))
    arguments = workload.turns.with_turns(workload.make_arguments(), 3)
    outputs = jax.jit(workload.function)(*arguments)
    with pytest.raises(WrongAnswerError, match="the loop made"):
        workload.check(outputs, 0)


@pytest.mark.parametrize("phase", PHASES)
def test_arguments_are_what_the_program_was_compiled_for(suite, phase):
    for layout in HANDED_OVER:
        workload = suite.build(cell(layout, phase))
        concrete = jax.tree.map(jax.typeof, workload.make_arguments())
        abstract = jax.tree.map(
            lambda leaf: jax.typeof(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)),
            workload.abstract_arguments,
        )
        assert jax.tree.leaves(concrete) == jax.tree.leaves(abstract)


@pytest.mark.parametrize("model", ["qwen3-tiny", "llama3-tiny", "qwen3-0.6b", "llama3-8b"])
def test_the_floors_weights_are_the_models(suite, model):
    workloads = sys.modules[MODULE_NAME]
    subject = workloads.build_subject(cell(model=model))
    assert subject.shape.weights == subject.model.config.parameter_count


@pytest.mark.parametrize("bad", [{"layout": "spiral"}, {"model": "gpt-9"}])
def test_what_the_installed_models_lack_does_not_apply(suite, bad):
    (record,) = measure_group([cell(**bad)], suite, PLAN)
    assert record.status is Status.NOT_APPLICABLE
    assert "choose" in record.reason


def test_everything_on_offer_exists(suite):
    assert set(suite.models) == set(layerbench_models.PRESETS)
    known = {**layerbench_models.LAYOUTS, **layerbench_models.ALIASES}
    # A creation changes no phase that is measured here, and a pinned cache is pinned by who jits.
    elsewhere = {name for name in known if name.startswith("created-")} | {"scan-pinned"}
    assert set(suite.layouts) == set(known) - elsewhere
    assert len(set(suite.layouts)) == len(suite.layouts)
    assert all(default in suite.layouts for default in suite.default.layouts)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (cell(model="gpt-9"), "gpt-9"),
        (cell(dtype="int4"), "unknown dtype 'int4': choose from float32, bfloat16"),
        (cell(phase="generate", new_tokens=16), "below --seq"),
        (cell(layout="spiral"), "unknown layout 'spiral'"),
        (cell(phase="sleep"), "unknown phase 'sleep'"),
    ],
)
def test_what_cannot_be_built_is_refused_in_one_line(suite, bad, message):
    with pytest.raises(UsageError) as caught:
        suite.validate(bad)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


LOGITS = np.array([[[9.0, 1.0, 8.99], [0.0, 5.0, 1.0], [7.0, 0.0, 0.0]]])  # (B, N, V)
GREEDY = LOGITS.argmax(-1)


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        ([0, 1, 0], [False, False, False]),
        ([2, 0, 0], [False, False, False]),  # an equal at first: what follows is not judged
        ([0, 2, 0], [False, True, False]),
        ([1, 1, 0], [True, False, False]),
        ([0, 1, -1], [False, False, True]),
        ([0, 1], [False, False]),
    ],
)
def test_a_greedy_token_is_wrong_if_the_oracle_could_not_have_chosen_it(suite, found, wrong):
    workloads = sys.modules[MODULE_NAME]
    judged = workloads.wrong_tokens(np.array([found]), GREEDY, LOGITS, tolerance=1e-2)
    assert judged.tolist() == [wrong]
