import os
import pathlib

import jax
import jax.numpy as jnp
import tinymodels

from layerbench import Floor, Matrix, Suite, Workload, WrongAnswerError

HARNESS = pathlib.Path(os.environ["TINY_HARNESS"])


def build(cell):
    if cell.layout == "newer" and not hasattr(tinymodels, "newer"):
        raise NotImplementedError("the installed models have no layout 'newer'")
    if os.environ.get("TINY_EDIT") == cell.layout:
        (HARNESS / "layerbench" / "edited.py").write_text("# An edit in the middle of a run.\n")
    return Workload(
        function=lambda x: product(x, cell),
        make_arguments=lambda: (jnp.eye(cell.seq),),
        abstract_arguments=(jax.ShapeDtypeStruct((cell.seq, cell.seq), jnp.float32),),
        thread=lambda outputs, arguments: arguments,
        check=lambda outputs, calls: check(outputs, cell),
        tokens_per_step=1,
        floor=Floor(hbm_bytes=1, flops=1),
    )


def product(x, cell):
    with pathlib.Path(os.environ["TINY_LOG"]).open("a") as log:
        log.write(f"traced {os.environ.get('ASV_COMMIT')} {cell.layout}\n")
    if cell.layout == "deadly":
        os._exit(3)
    y = x
    for _ in range(tinymodels.PRODUCTS):
        y = jnp.sin(y @ x)
    return y


def check(outputs, cell):
    if cell.layout == "wrong":
        raise WrongAnswerError("the product is wrong by 17")
    outputs.block_until_ready()


SUITE = Suite(
    models=("tiny",),
    layouts=("plain", "wrong", "newer", "deadly"),
    phases=("step",),
    default=Matrix(
        models=("tiny",),
        layouts=("plain",),
        phases=("step",),
        layers=(1,),
        batch=1,
        seq=64,
        new_tokens=0,
        dtype="float32",
        targets=("cpu",),
    ),
    check=lambda cell: None,
    build=build,
)
