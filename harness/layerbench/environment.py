"""Where and with what a measurement was made; captured, never guessed.

`capture_source` needs git alone. `capture_environment` is called in the worker, after jax has
chosen its backend, and is the only part that imports jax.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from collections.abc import Mapping

PACKAGES = (
    "jax", "jaxlib", "flax", "optax", "numpy", "libtpu", "jax-cuda12-plugin", "jax-cuda13-plugin",
    "layerbench-models",
)  # fmt: skip
FLAG_VARIABLES = (
    "XLA_FLAGS", "LIBTPU_INIT_ARGS", "JAX_ENABLE_X64", "JAX_DEFAULT_MATMUL_PRECISION",
    "JAX_DEFAULT_PRNG_IMPL", "JAX_PLATFORMS", "JAX_DISABLE_JIT", "XLA_PYTHON_CLIENT_PREALLOCATE",
    "XLA_PYTHON_CLIENT_MEM_FRACTION", "OMP_NUM_THREADS", "TF_CPP_MIN_LOG_LEVEL",
)  # fmt: skip
_GPU_QUERY = ("name", "driver_version", "clocks.sm", "clocks.mem", "power.draw", "power.limit",
              "temperature.gpu")  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """The commit that was measured.

    Attributes:
        commit: Full hash; empty outside a repository.
        dirty: Whether tracked files differed from the commit.
        branch: Its name, or empty on a detached checkout.
    """

    commit: str = ""
    dirty: bool = False
    branch: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Environment:
    """Everything but the source that a number depends on.

    Attributes:
        machine: Name from configuration; empty for a machine that has none.
        python: Version.
        system: Operating system and architecture, such as `Linux-x86_64`.
        cpu: Model name.
        cpu_count: Logical cores that this process may use.
        memory_bytes: Of the host.
        backend: jax's platform, such as `cpu`.
        device_kind: As the device calls itself.
        device_count: Devices of the backend.
        platform_version: Of the backend's runtime and driver, as it tells.
        packages: Versions of what is installed of the packages that matter.
        flags: Environment variables that change programs or timing.
        matmul_precision: jax's default.
        prng: jax's default generator.
        device_state: Clocks, power and temperature where a device tells them.
    """

    machine: str
    python: str
    system: str
    cpu: str
    cpu_count: int
    memory_bytes: int
    backend: str
    device_kind: str
    device_count: int
    platform_version: str
    packages: Mapping[str, str]
    flags: Mapping[str, str]
    matmul_precision: str
    prng: str
    device_state: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The fields by name, for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Environment:
        """Inverse of `as_dict`."""
        return cls(**fields)


def capture_source(folder: Path) -> Source:
    """The state of the repository that holds `folder`; an empty one where there is none."""

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", *arguments], cwd=folder, capture_output=True, text=True, check=False
            )
        except OSError:
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit = git("rev-parse", "HEAD")
    if not commit:
        return Source()
    dirty = bool(git("status", "--porcelain", "--untracked-files=no"))
    return Source(commit=commit, dirty=dirty, branch=git("symbolic-ref", "--short", "HEAD") or "")


def capture_environment(machine: str = "") -> Environment:
    """The environment of this process, which must be the one that measures."""
    import jax  # noqa: PLC0415 - reading a stored environment must not need it

    def setting(name: str) -> str:
        # jax's config has its options as attributes that no type checker sees.
        return str(getattr(jax.config, name) or "default")

    device = jax.devices()[0]
    # jax has no public name for the runtime's version; without it an environment is still useful.
    platform_version = str(getattr(device.client, "platform_version", ""))
    return Environment(
        machine=machine,
        python=platform.python_version(),
        system=f"{platform.system()}-{platform.machine()}",
        cpu=_cpu_model(),
        cpu_count=_usable_cpus(),
        memory_bytes=psutil.virtual_memory().total,
        backend=device.platform,
        device_kind=device.device_kind,
        device_count=jax.device_count(),
        platform_version=" ".join(platform_version.split()),
        packages=_package_versions(),
        flags={name: os.environ[name] for name in FLAG_VARIABLES if name in os.environ},
        matmul_precision=setting("jax_default_matmul_precision"),
        prng=setting("jax_default_prng_impl"),
        device_state=_gpu_state() if device.platform == "gpu" else {},
    )


def _package_versions() -> dict[str, str]:
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _usable_cpus() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # Linux alone has it.
        return os.cpu_count() or 1


def _cpu_model() -> str:
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass  # Not Linux; the standard library's answer is shorter.
    return platform.processor()


def _gpu_state() -> dict[str, str]:
    command = ["nvidia-smi", f"--query-gpu={','.join(_GPU_QUERY)}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    if done.returncode != 0 or not done.stdout.strip():
        return {}
    values = [value.strip() for value in done.stdout.splitlines()[0].split(",")]
    return dict(zip(_GPU_QUERY, values, strict=False))
