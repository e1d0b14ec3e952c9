"""Compiles cells for a chip that is not there: exact metrics only, nothing is allocated or run."""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
import warnings
from typing import TYPE_CHECKING, Any

import jax
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

from layerbench.errors import UsageError
from layerbench.measure.events import Progress
from layerbench.measure.program.executable import Capacity, Reading, read_executable
from layerbench.record import Measured, Record, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from layerbench.cell import Cell
    from layerbench.chips import Chip, GpuDescription, Rate
    from layerbench.suite import Suite
    from layerbench.workload import Workload

_GIB = 1 << 30
_UNIT_BYTES = {"K": 1 << 10, "M": 1 << 20, "G": _GIB, "T": 1 << 40}
_SIZE = r"([\d.]+)([KMGT])"
_DOES_NOT_FIT = re.compile(rf"\({_SIZE}\) exceeds available HBM \({_SIZE}\)")
_USED_OF = re.compile(rf"Used {_SIZE} of {_SIZE} hbm")
# XLA's numbers for types, in the tables of a GPU's rates.
_TYPE_NUMBERS = {
    "s8": 2, "s32": 4, "u8": 6, "u32": 8, "f16": 10, "f32": 11, "f64": 12, "bf16": 16,
    "f8e5m2": 19, "f8e4m3fn": 20,
}  # fmt: skip
UNTUNED = (
    "Compiled for a GPU that is not there: products are not tuned and become the compiler's own "
    "kernels, where a device may choose others."
)


class DoesNotFitError(Exception):
    """The compiler refused the program for its memory.

    Attributes:
        wanted_bytes: That it asked for, as exact as the compiler says (a hundredth of a GiB).
        available_bytes: That the device has.
    """

    def __init__(self, wanted_bytes: int, available_bytes: int) -> None:
        super().__init__(f"wants {wanted_bytes} bytes and has {available_bytes}")
        self.wanted_bytes = wanted_bytes
        self.available_bytes = available_bytes


def measure_absent(
    cells: Sequence[Cell],
    suite: Suite,
    chip: Chip,
    *,
    tell: Callable[[Progress], None],
    clock: Callable[[], int],
) -> Iterator[Record]:
    """Compiles each cell and reads its program.

    Yields:
        A record for each cell, with exact metrics alone. A program that does not fit is a result,
        with the bytes that it wants beyond the device's memory.
    """
    for cell in cells:
        started_at, start_ns = dt.datetime.now(dt.UTC).isoformat(timespec="seconds"), clock()
        tell(Progress(cell, "build"))
        try:
            workload = suite.build(cell)
            tell(Progress(cell, "compile"))
            record = _compile_cell(cell, workload, chip)
        except NotImplementedError as absent:
            reason = str(absent) or "not in the installed models"
            record = Record(cell=cell, status=Status.NOT_APPLICABLE, reason=reason)
        except Exception as error:  # noqa: BLE001 - whatever a cell does is that cell's result
            record = Record.failure(cell, f"{type(error).__name__}: {error}"[:500])
        yield dataclasses.replace(
            record, started_at=started_at, duration_s=round((clock() - start_ns) / 1e9, 3)
        )


def _compile_cell(cell: Cell, workload: Workload, chip: Chip) -> Record:
    notes = [workload.note] if workload.note else []
    try:
        reading = read_absent(workload, chip)
        metrics, fingerprint = dict(reading.metrics), reading.fingerprint
        notes += reading.notes
    except DoesNotFitError as refusal:
        beyond = max(0, refusal.wanted_bytes - refusal.available_bytes)
        metrics, fingerprint = {"over_capacity_bytes": Measured(beyond)}, None
        notes.append(
            f"Does not fit: it wants {refusal.wanted_bytes / _GIB:.2f} GiB of "
            f"{refusal.available_bytes / _GIB:.2f} GiB, so there is no program to read."
        )
    return Record(
        cell=cell,
        status=Status.OK,
        metrics=metrics,
        floor=workload.floor,
        tokens_per_step=workload.tokens_per_step,
        notes=tuple(notes),
        contender=workload.contender,
        program=fingerprint,
    )


def read_absent(workload: Workload, chip: Chip) -> Reading:
    """Compiles a workload for a chip and reads its program.

    Raises:
        DoesNotFitError: The compiler refused it for its memory.
        UsageError: The chip's compiler does not start.
    """
    placed = _placed(workload, open_device(chip))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on donated buffers; `undonated_bytes` tells
        traced = jax.jit(placed.function, donate_argnums=placed.donated).trace(
            *placed.abstract_arguments
        )
        lowered = traced.lower()
        try:
            compiled = lowered.compile()
        except jax.errors.JaxRuntimeError as error:
            refusal = does_not_fit(str(error))
            if refusal is None:
                raise
            raise refusal from error
    capacity = Capacity(chip.memory_bytes, chip.on_chip_bytes)
    reading = read_executable(placed, traced, lowered, compiled, capacity=capacity)
    untuned = (UNTUNED,) if chip.gpu is not None else ()
    return dataclasses.replace(reading, notes=(*untuned, *reading.notes))


def does_not_fit(message: str) -> DoesNotFitError | None:
    """The refusal that a compiler's message tells of; None where it tells something else."""
    if "RESOURCE_EXHAUSTED" not in message:
        return None
    match = _DOES_NOT_FIT.search(message) or _USED_OF.search(message)
    if match is None:
        return None
    wanted, wanted_unit, available, available_unit = match.groups()
    return DoesNotFitError(
        round(float(wanted) * _UNIT_BYTES[wanted_unit]),
        round(float(available) * _UNIT_BYTES[available_unit]),
    )


def open_device(chip: Chip) -> Any:
    """A device of the chip's topology, to compile for.

    Raises:
        UsageError: The compiler does not know the chip, or does not start.
    """
    options: dict[str, Any] = {}
    if chip.gpu is not None:
        options = {"target_config": gpu_text(chip.gpu), "topology": chip.topology}
    elif chip.is_megacore:
        options = {"chip_config_name": "megacore"}
    name = chip.topology if chip.gpu is None else chip.name
    platform = "tpu" if chip.gpu is None else "cuda"
    try:
        topology = topologies.get_topology_desc(name, platform=platform, **options)
    except Exception as error:
        words = " ".join(str(error).split())[:200]
        raise UsageError(f"cannot compile for aot:{chip.name} here: {words}") from error
    return topology.devices[0]


def _placed(workload: Workload, device: Any) -> Workload:
    """The workload with its abstract arrays on a device; what is watched stays the same arrays."""
    sharding = SingleDeviceSharding(device)
    moved: dict[int, Any] = {}

    def place(leaf: Any) -> Any:
        if id(leaf) not in moved:
            moved[id(leaf)] = jax.ShapeDtypeStruct(  # type: ignore[no-untyped-call]
                leaf.shape, leaf.dtype, sharding=sharding
            )
        return moved[id(leaf)]

    return dataclasses.replace(
        workload,
        abstract_arguments=jax.tree.map(place, workload.abstract_arguments),
        watched={role: jax.tree.map(place, tree) for role, tree in workload.watched.items()},
    )


def gpu_text(gpu: GpuDescription) -> str:
    """The description in the text form of XLA's `GpuTargetConfigProto`."""
    features = "ACCELERATED_FEATURES" if gpu.has_accelerated_features else "NONE"
    device: list[tuple[str, Any]] = [
        ("threads_per_block_limit", 1024),
        ("threads_per_warp", 32),
        ("shared_memory_per_block", 48 * 1024),
        ("shared_memory_per_core", gpu.shared_bytes_per_core),
        ("threads_per_core_limit", 2048),
        ("core_count", gpu.core_count),
        ("fpus_per_core", gpu.fpus_per_core),
        ("block_dim_limit_x", (1 << 31) - 1),
        ("block_dim_limit_y", (1 << 16) - 1),
        ("block_dim_limit_z", (1 << 16) - 1),
        ("thread_dim_limit_x", 1024),
        ("thread_dim_limit_y", 1024),
        ("thread_dim_limit_z", 64),
        ("memory_bandwidth", gpu.memory_bytes_per_s),
        ("l2_cache_size", gpu.l2_bytes),
        ("clock_rate_ghz", gpu.clock_ghz),
        ("device_memory_size", gpu.memory_bytes),
        ("shared_memory_per_block_optin", gpu.shared_bytes_per_block),
        ("registers_per_core_limit", 1 << 16),
        ("registers_per_block_limit", 1 << 16),
    ]
    lines = [f"{name}: {value}" for name, value in device]
    lines.append(
        f"cuda_compute_capability {{ major: {gpu.compute_capability} "
        f"feature_extension: {features} }}"
    )
    for name, rates in (
        ("scalar_unit_description", gpu.scalar_rates),
        ("matrix_unit_description", gpu.matrix_rates),
    ):
        if rates:
            table = " ".join(_rate_text(dtype, rate) for dtype, rate in rates.items())
            lines.append(f"{name} {{ {table} }}")
    return (
        f"gpu_device_info {{ {' '.join(lines)} }}\n"
        'platform_name: "CUDA"\n'
        "dnn_version_info { major: 9 minor: 10 patch: 0 }\n"
        "runtime_version { major: 13 minor: 0 patch: 0 }\n"
        f'device_description_str: "{gpu.name}"\n'
    )


def _rate_text(dtype: str, rate: Rate) -> str:
    return (
        f"rate_infos {{ key: {_TYPE_NUMBERS[dtype]} value {{ clock_rate_ghz: {rate.clock_ghz} "
        f"units_per_core: {rate.units_per_core} ops_per_clock: {rate.ops_per_clock} }} }}"
    )
