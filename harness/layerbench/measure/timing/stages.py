"""A workload's way to a compiled program: traced, lowered and compiled, each timed apart."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from layerbench.measure.program.executable import Capacity, read_executable
from layerbench.record import Measured

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from layerbench.workload import Workload

_NS_PER_MS = 1e6


@dataclasses.dataclass(frozen=True, slots=True)
class Program:
    """A compiled workload and what making it told.

    Attributes:
        call: The executable; takes the workload's arguments.
        metrics: Times of the stages, sizes of the program.
        resident_bytes: Device memory that a call needs: arguments, results that alias none of them,
            and temporaries.
        notes: Warnings of the compiler that concern the reader, a sentence each.
        fingerprint: Of the program's structure; None where its text could not be read.
    """

    call: Callable[..., Any]
    metrics: Mapping[str, Measured]
    resident_bytes: int
    notes: tuple[str, ...]
    fingerprint: Mapping[str, Any] | None = None


@functools.cache
def warm_up_compiler() -> None:
    """Compiles a small loop, once in a process: what starts up with it belongs to no cell."""
    ones = jnp.ones((8, 8))
    jax.jit(lambda x: jax.lax.scan(lambda c, _: (c @ x, None), x, length=2)[0])(ones)


def compile_program(workload: Workload, *, clock: Callable[[], int]) -> Program:
    """Compiles from the abstract arguments; allocates nothing.

    The jit caches are cleared first and the persistent cache is expected to be off (the worker sees
    to it), so that the times are those of a first compilation.
    """
    jax.clear_caches()  # type: ignore[no-untyped-call]
    jitted = jax.jit(workload.function, donate_argnums=workload.donated)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        started = clock()
        traced = jitted.trace(*workload.abstract_arguments)
        traced_at = clock()
        lowered = traced.lower()
        lowered_at = clock()
        compiled = lowered.compile()
        compiled_at = clock()
    reading = read_executable(workload, traced, lowered, compiled, capacity=Capacity())
    return Program(
        call=compiled,
        metrics={
            "compile_ms": Measured((compiled_at - lowered_at) / _NS_PER_MS),
            "trace_ms": Measured((traced_at - started) / _NS_PER_MS),
            "lower_ms": Measured((lowered_at - traced_at) / _NS_PER_MS),
            **reading.metrics,
        },
        resident_bytes=reading.resident_bytes,
        notes=(
            *(
                "XLA could not reuse all donated buffers."
                for warning in caught[:1]
                if "donated" in str(warning.message)
            ),
            *reading.notes,
        ),
        fingerprint=reading.fingerprint,
    )


def synchronise(tree: Any) -> Any:
    """Waits until all arrays of the tree are computed, and returns it."""
    return jax.block_until_ready(tree)  # type: ignore[no-untyped-call]


def device_memory_stats() -> dict[str, int]:
    """What the first device tells of its memory; empty where it tells nothing."""
    return jax.devices()[0].memory_stats() or {}
