"""Whether a model fits, asked before anything is allocated."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import jax

from layerbench_models.checkpoint.errors import CheckpointError

FreeBytes = Callable[[jax.Device | None], int | None]
"""Returns the free bytes of a device, or of the host for None; None where nobody knows."""

_GIB = 2**30


def measured_free_bytes(device: jax.Device | None) -> int | None:
    """Returns the bytes that can still be allocated, or None where the system does not tell.

    Args:
        device: An accelerator, or None for the host, on which CPU devices live too.
    """
    if device is not None:
        stats = device.memory_stats() or {}
        if "bytes_limit" not in stats:
            return None
        return int(stats["bytes_limit"]) - int(stats.get("bytes_in_use", 0))
    known = [free for free in (_system_free(), _group_free()) if free is not None]
    return min(known, default=None)


def require_free(
    source: str, needed_by_device: Iterable[tuple[jax.Device | None, int]], free_bytes: FreeBytes
) -> None:
    """Refuses a checkpoint that does not fit.

    Args:
        source: What is loaded, for the message.
        needed_by_device: The bytes needed on each device, and on the host (None).
        free_bytes: Tells what is free.

    Raises:
        CheckpointError: If a device or the host has too little.
    """
    for device, needed in needed_by_device:
        free = free_bytes(device)
        if free is not None and needed > free:
            where = "the host" if device is None else str(device)
            raise CheckpointError(
                f"{source} needs {needed / _GIB:.2f} GiB on {where} and {free / _GIB:.2f} GiB are "
                "free: use fewer layers, a smaller dtype or more devices"
            )


def _system_free() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _group_free() -> int | None:
    """Returns what a container may still take; cached files count as free, they make way."""
    group = Path("/sys/fs/cgroup")
    try:
        limit = (group / "memory.max").read_text(encoding="ascii").strip()
        used = int((group / "memory.current").read_text(encoding="ascii"))
        stat = dict(
            line.split()
            for line in (group / "memory.stat").read_text(encoding="ascii").splitlines()
        )
    except (OSError, ValueError):
        return None
    return None if limit == "max" else int(limit) - used + int(stat.get("file", 0))
