"""Where a cell runs: the targets by name, and the process that each needs."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import re
import sys
from typing import TYPE_CHECKING

from layerbench.chips import CHIPS
from layerbench.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from layerbench.chips import Chip

_PLATFORMS = {"cpu": "cpu", "gpu": "cuda", "tpu": "tpu"}
ABSENT_PREFIX = "aot:"
"""Of the targets that programs are compiled for without a device."""

_COMPILERS = {"tpu": ("libtpu",), "gpu": ("jax_plugins.xla_cuda13", "jax_plugins.xla_cuda12")}
# All of them together make libtpu quiet on a machine without a TPU; two processes may use it.
_QUIET_TPU = {
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_ID": "0",
    "TPU_STDERR_LOG_LEVEL": "3",
    "TPU_MIN_LOG_LEVEL": "3",
    "TPU_LOG_DIR": "disabled",
}
_AXIS = re.compile(r"([a-z]+):([1-9][0-9]*)")


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """A device, a mesh of devices of one kind, or a chip that is not there.

    Attributes:
        name: As a cell names it.
        platform: As jax names it; for an absent chip that of the process that compiles.
        mesh: Device mesh axes by name and size, in order; empty for one device.
        chip: The absent chip; None where a device is there.
    """

    name: str
    platform: str
    mesh: tuple[tuple[str, int], ...] = ()
    chip: Chip | None = None

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
        if self.chip is not None:
            environment |= {**_QUIET_TPU, "TF_CPP_MIN_LOG_LEVEL": "3"}
        return environment

    def require_compiler(self) -> None:
        """Checks that an absent chip's compiler is installed.

        Raises:
            UsageError: It is not; the line says what to install.
        """
        if self.chip is None:
            return
        if sys.platform != "linux":
            raise UsageError(f"target {self.name} compiles on Linux only")
        if not any(_is_installed(name) for name in _COMPILERS[self.chip.platform]):
            extra = self.chip.platform
            raise UsageError(
                f"target {self.name} needs a compiler that is not installed: "
                f"pip install 'layerbench[{extra}]'"
            )


def parse_target(name: str, mesh: str = "") -> Target:
    """The target of that name.

    Args:
        name: `cpu`, `gpu` or `tpu`, or an absent chip such as `aot:tpu-v5e`.
        mesh: Such as `fsdp:2,tp:2`; empty for one device.

    Raises:
        UsageError: There is no such target, or the mesh cannot be read.
    """
    if name.startswith(ABSENT_PREFIX):
        return _absent_target(name, mesh)
    if name not in _PLATFORMS:
        known = ", ".join((*_PLATFORMS, *(ABSENT_PREFIX + chip for chip in CHIPS)))
        raise UsageError(f"unknown target '{name}': choose from {known}")
    return Target(name=name, platform=_PLATFORMS[name], mesh=parse_mesh(mesh))


def _absent_target(name: str, mesh: str) -> Target:
    chip = CHIPS.get(name.removeprefix(ABSENT_PREFIX))
    if chip is None:
        known = ", ".join(ABSENT_PREFIX + known for known in CHIPS)
        raise UsageError(f"unknown target '{name}': choose from {known}")
    if mesh:
        raise UsageError(f"target {name} is one chip: leave the mesh out")
    return Target(name=name, platform="cpu", chip=chip)


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its parent is not there
        return False


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
