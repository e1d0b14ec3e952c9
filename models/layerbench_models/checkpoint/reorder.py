"""Turning the axes of an array on the host, faster than numpy does."""

from __future__ import annotations

import functools

import jax
import numpy as np

_SMALL_BYTES = 2**16


def reordered(view: np.ndarray) -> np.ndarray:
    """Returns the values of a transposed view in an array that is contiguous, or nearly.

    numpy copies a transposed view one element after the other: 0.2 to 0.6 GB/s for two-byte types,
    where the runtime of jax, which has to take any strides in a transfer, copies 2 to 3 GB/s.

    Args:
        view: Any view of an array; it may change after the call.
    """
    device = _cpu()
    if view.flags.c_contiguous or view.nbytes < _SMALL_BYTES or device is None:
        return view
    return np.asarray(jax.device_put(view, device))


@functools.cache
def _cpu() -> jax.Device | None:
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:  # JAX_PLATFORMS leaves the CPU out
        return None
