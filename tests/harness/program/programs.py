"""Programs for the tests: small texts written by hand, and decode steps with a cache."""

import jax
import jax.numpy as jnp
from jax import lax

from layerbench import Floor, Workload
from layerbench.measure.program.executable import Capacity, read_executable

LAYERS, BATCH, SLOTS, WIDTH = 3, 2, 61, 17
CACHE_BYTES = LAYERS * BATCH * SLOTS * WIDTH * 4
LAYER_BYTES = CACHE_BYTES // LAYERS


def module(*lines, entry, computations="", header=""):
    """The text of a module whose entry has the given instructions."""
    body = "\n".join(f"  {line}" for line in lines)
    return f"HloModule m{header}\n\n{computations}\nENTRY %main {entry} {{\n{body}\n}}\n"


def computation(name, *lines):
    """The text of a computation."""
    body = "\n".join(f"  {line}" for line in lines)
    return f"%{name} (p: f32[]) -> f32[] {{\n{body}\n}}\n\n"


def read(function, arguments, *, donated=(), watched=None, turns=None, floor_bytes=0):
    """Compiles a function for the first device here and reads its exact metrics."""
    workload = Workload(
        function=function,
        make_arguments=lambda: (),
        abstract_arguments=arguments,
        thread=lambda outputs, arguments: arguments,
        check=lambda outputs, calls: None,
        tokens_per_step=1,
        floor=Floor(hbm_bytes=floor_bytes, flops=0),
        donated=donated,
        watched=watched or {},
        turns=turns,
    )
    traced = jax.jit(function, donate_argnums=donated).trace(*arguments)
    lowered = traced.lower()
    return read_executable(workload, traced, lowered, lowered.compile(), capacity=Capacity())


def abstract(*shape, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype)


def _attend(cache_bsd, x_bd):
    return x_bd + jnp.einsum("bsd,bd->bs", cache_bsd, x_bd) @ jnp.ones((SLOTS, WIDTH))


def carried_cache_step(cache_lbsd, x_bd, slot):
    """The sound form: the cache in the carry, one token written in place."""

    def layer(carry, index):
        cache_lbsd, x_bd = carry
        cache_lbsd = lax.dynamic_update_slice(cache_lbsd, x_bd[None, :, None], (index, 0, slot, 0))
        return (cache_lbsd, _attend(cache_lbsd[index], x_bd)), None

    (cache_lbsd, x_bd), _ = lax.scan(layer, (cache_lbsd, x_bd), jnp.arange(LAYERS))
    return cache_lbsd, x_bd


def passed_cache_step(cache_lbsd, x_bd, slot):
    """The faulty form: each layer's cache comes in as xs and goes out as ys."""

    def layer(x_bd, cache_bsd):
        cache_bsd = lax.dynamic_update_slice(cache_bsd, x_bd[:, None], (0, slot, 0))
        return _attend(cache_bsd, x_bd), cache_bsd

    x_bd, cache_lbsd = lax.scan(layer, x_bd, cache_lbsd)
    return cache_lbsd, x_bd


def read_step(function, **options):
    """Reads a decode step whose cache is donated and watched."""
    cache = abstract(LAYERS, BATCH, SLOTS, WIDTH)
    arguments = (cache, abstract(BATCH, WIDTH), abstract(dtype=jnp.int32))
    return read(function, arguments, donated=(0,), watched={"kv_cache": cache}, **options)
