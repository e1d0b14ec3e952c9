"""Where a cell runs: the targets by name, and the process that each needs."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import TYPE_CHECKING

from layerbench.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

_PLATFORMS = {"cpu": "cpu", "gpu": "cuda", "tpu": "tpu"}
_AXIS = re.compile(r"([a-z]+):([1-9][0-9]*)")


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """A device, or a mesh of devices of one kind.

    Attributes:
        name: As a cell names it.
        platform: As jax names it.
        mesh: Device mesh axes by name and size, in order; empty for one device.
    """

    name: str
    platform: str
    mesh: tuple[tuple[str, int], ...] = ()

    @property
    def device_count(self) -> int:
        """Devices that the target needs."""
        return math.prod(size for _, size in self.mesh)

    def process_environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Environment variables for a process that measures on this target and no other."""
        environment = dict(inherited)
        environment["JAX_PLATFORMS"] = self.platform
        environment["JAX_ENABLE_COMPILATION_CACHE"] = "false"
        environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        if self.platform == "cpu" and self.mesh:
            environment["JAX_NUM_CPU_DEVICES"] = str(self.device_count)
        if self.platform == "cuda":
            # Layouts are sampled in turn, so several cells share the device's memory.
            environment.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        return environment


def parse_target(name: str, mesh: str = "") -> Target:
    """The target of that name.

    Args:
        name: `cpu`, `gpu` or `tpu`.
        mesh: Such as `fsdp:2,tp:2`; empty for one device.

    Raises:
        UsageError: There is no such target, or the mesh cannot be read.
    """
    if name not in _PLATFORMS:
        raise UsageError(f"unknown target '{name}': choose from {', '.join(_PLATFORMS)}")
    return Target(name=name, platform=_PLATFORMS[name], mesh=parse_mesh(mesh))


def parse_mesh(mesh: str) -> tuple[tuple[str, int], ...]:
    """The axes of a mesh such as `fsdp:2,tp:2`, in order.

    Raises:
        UsageError: The text has another form, or names an axis twice.
    """
    if not mesh:
        return ()
    axes = []
    for part in mesh.split(","):
        match = _AXIS.fullmatch(part.strip())
        if match is None:
            raise UsageError(
                f"cannot read mesh '{mesh}': write axes with sizes, such as fsdp:2,tp:2"
            )
        axes.append((match[1], int(match[2])))
    if len({axis for axis, _ in axes}) < len(axes):
        raise UsageError(f"mesh '{mesh}' names an axis twice")
    return tuple(axes)
