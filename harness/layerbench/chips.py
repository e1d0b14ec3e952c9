"""The chips that programs are compiled for without having one, and what is known of them.

Figures have their sources in NOTICE. Those of TPUs' memory are what libtpu itself names when a
program does not fit; those of GPUs are the fields of XLA's description of the device, which its
compiler needs in place of a device that it could ask.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

_MIB = 1 << 20
_GIB = 1 << 30


@dataclasses.dataclass(frozen=True, slots=True)
class Rate:
    """How fast the units of one kind are for one type.

    Attributes:
        clock_ghz: Of the units.
        units_per_core: In each multiprocessor.
        ops_per_clock: Of each unit.
    """

    clock_ghz: float
    units_per_core: int
    ops_per_clock: int


@dataclasses.dataclass(frozen=True, slots=True)
class GpuDescription:
    """What XLA's compiler asks of a GPU.

    Attributes:
        name: As the device calls itself.
        compute_capability: Major number; minor is 0 for all that are described here.
        has_accelerated_features: Whether instructions of this generation alone may be used.
        core_count: Multiprocessors.
        fpus_per_core: float32 lanes of each.
        clock_ghz: Boost clock.
        memory_bytes: Device memory.
        memory_bytes_per_s: Its bandwidth.
        l2_bytes: Second-level cache.
        shared_bytes_per_core: Shared memory of a multiprocessor.
        shared_bytes_per_block: The most that a block may ask for.
        scalar_rates: By type, of the ordinary units; empty where not known.
        matrix_rates: By type, of the tensor cores; empty where not known.
    """

    name: str
    compute_capability: int
    has_accelerated_features: bool
    core_count: int
    fpus_per_core: int
    clock_ghz: float
    memory_bytes: int
    memory_bytes_per_s: int
    l2_bytes: int
    shared_bytes_per_core: int
    shared_bytes_per_block: int
    scalar_rates: Mapping[str, Rate] = dataclasses.field(default_factory=dict)
    matrix_rates: Mapping[str, Rate] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Chip:
    """A chip that need not be there.

    Attributes:
        name: As a target has it after `aot:`.
        platform: `tpu` or `gpu`.
        topology: As the compiler names the smallest arrangement of such chips.
        memory_bytes: That one device's program may fill.
        on_chip_bytes: The largest memory on the chip that a buffer can stay in.
        is_megacore: Whether two cores are one device, which v4 has to be asked for.
        gpu: Its description; None for a TPU.
    """

    name: str
    platform: str
    topology: str
    memory_bytes: int
    on_chip_bytes: int
    is_megacore: bool = False
    gpu: GpuDescription | None = None


_HOPPER_SCALAR = {
    **dict.fromkeys(("s32", "u32", "f64"), Rate(1.98, 64, 1)),
    **dict.fromkeys(("f16", "bf16"), Rate(1.98, 128, 2)),
    "f32": Rate(1.98, 128, 1),
}
_HOPPER_MATRIX = {
    **dict.fromkeys(("s8", "u8", "f8e5m2", "f8e4m3fn"), Rate(1.8295201, 4, 1024)),
    **dict.fromkeys(("f16", "bf16"), Rate(1.8295201, 4, 512)),
    "f32": Rate(1.8295201, 4, 256),
    "f64": Rate(1.8295201, 4, 32),
}
_H200 = GpuDescription(
    name="NVIDIA H200",
    compute_capability=9,
    has_accelerated_features=True,
    core_count=132,
    fpus_per_core=128,
    clock_ghz=1.98,
    memory_bytes=151_397_597_184,
    memory_bytes_per_s=4_800_000_000_000,
    l2_bytes=50 * _MIB,
    shared_bytes_per_core=228 * 1024,
    shared_bytes_per_block=227 * 1024,
    scalar_rates=_HOPPER_SCALAR,
    matrix_rates=_HOPPER_MATRIX,
)
_H100 = dataclasses.replace(
    _H200,
    name="NVIDIA H100 80GB HBM3",
    memory_bytes=84_942_979_072,
    memory_bytes_per_s=3_352_320_000_000,
)
_A100 = GpuDescription(
    name="NVIDIA A100-SXM4-80GB",
    compute_capability=8,
    has_accelerated_features=False,
    core_count=108,
    fpus_per_core=64,
    clock_ghz=1.41,
    memory_bytes=85_100_068_864,
    memory_bytes_per_s=2_039_040_000_000,
    l2_bytes=40 * _MIB,
    shared_bytes_per_core=164 * 1024,
    shared_bytes_per_block=163 * 1024,
)


def _tpu(
    name: str, topology: str, memory_gib: float, on_chip_mib: int, *, is_megacore: bool = False
) -> Chip:
    return Chip(
        name=f"tpu-{name}",
        platform="tpu",
        topology=topology,
        memory_bytes=round(memory_gib * _GIB),
        on_chip_bytes=on_chip_mib * _MIB,
        is_megacore=is_megacore,
    )


def _gpu(name: str, gpu: GpuDescription) -> Chip:
    return Chip(
        name=f"gpu-{name}",
        platform="gpu",
        topology="1x1x1",
        memory_bytes=gpu.memory_bytes,
        on_chip_bytes=gpu.l2_bytes,
        gpu=gpu,
    )


CHIPS: Mapping[str, Chip] = MappingProxyType(
    {
        chip.name: chip
        for chip in (
            _tpu("v4", "v4:2x2x1", 30.75, 128, is_megacore=True),
            _tpu("v5e", "v5e:2x2", 15.75, 128),
            _tpu("v5p", "v5p:2x2x1", 95.73, 128),
            _tpu("v6e", "v6e:2x2", 31.24, 128),
            _tpu("v7x", "tpu7x:2x2x1", 94.74, 64),
            _gpu("a100", _A100),
            _gpu("h100", _H100),
            _gpu("h200", _H200),
        )
    }
)
"""All chips by name."""
