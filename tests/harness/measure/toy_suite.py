"""A suite of small programs whose answers, sizes and misdeeds are known."""

import os
import signal
import sys

import jax
import jax.numpy as jnp

from layerbench import Cell, Floor, Matrix, Suite, Turns, Workload, WrongAnswerError

SIZE = 64
LAYOUTS = ("plain", "twice", "wrong", "raises", "absent", "dies", "exits")


def add_layers(cell, state, weights):
    for _ in range(cell.layers):
        state = state + weights
    return state


def loop_layers(cell, state, weights, turns):
    return jax.lax.fori_loop(0, turns, lambda _, each: jnp.tanh(each @ weights), state)


def build(cell: Cell) -> Workload:
    match cell.layout:
        case "raises":
            raise ValueError("this layout\nalways raises")
        case "absent":
            raise NotImplementedError("these models have no such layout")
        case "dies":
            sys.stdout.write("last words of a dying worker\n")
            sys.stdout.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        case "exits":
            sys.stdout.write("leaving early\n")
            sys.stdout.flush()
            os._exit(7)
    shape = (SIZE, SIZE)
    abstract = jax.ShapeDtypeStruct(shape, jnp.float32)
    floor = Floor(hbm_bytes=3 * SIZE * SIZE * 4, flops=cell.layers * SIZE * SIZE)
    if cell.phase == "loop":
        return Workload(
            function=lambda state, weights, turns: loop_layers(cell, state, weights, turns),
            make_arguments=lambda: (jnp.ones(shape), jnp.eye(SIZE), jnp.int32(1)),
            abstract_arguments=(abstract, abstract, jax.ShapeDtypeStruct((), jnp.int32)),
            donated=(0,),
            thread=lambda outputs, arguments: (outputs, *arguments[1:]),
            check=lambda _outputs, _calls: None,
            tokens_per_step=1,
            floor=floor,
            turns=Turns(
                short=2,
                long=2000,
                with_turns=lambda arguments, turns: (*arguments[:2], jnp.int32(turns)),
            ),
        )

    def check(outputs, calls):
        found = float(outputs[0, 0])
        wanted = (calls + 1) * cell.layers + (1 if cell.layout == "wrong" else 0)
        if found != wanted:
            raise WrongAnswerError(f"the sum is {found} and should be {wanted}")

    return Workload(
        function=lambda state, weights: add_layers(cell, state, weights),
        make_arguments=lambda: (jnp.zeros(shape), jnp.ones(shape)),
        abstract_arguments=(abstract, abstract),
        donated=(0,),
        thread=lambda outputs, arguments: (outputs, arguments[1]),
        check=check,
        tokens_per_step=5,
        floor=floor,
        note="Adds in place." if cell.layout == "twice" else "",
        contender=cell.layout != "twice",
    )


def check(cell: Cell) -> None:
    if cell.model != "toy":
        raise ValueError(f"unknown model '{cell.model}':\nchoose toy")


SUITE = Suite(
    models=("toy",),
    layouts=LAYOUTS,
    phases=("add", "loop"),
    default=Matrix(
        models=("toy",),
        layouts=("plain", "twice"),
        phases=("add",),
        layers=(1, 2),
        batch=1,
        seq=1,
        new_tokens=0,
        dtype="float32",
        targets=("cpu",),
    ),
    check=check,
    build=build,
)
