"""One safetensors file: where each tensor lies in it, read and checked before any data is.

A file is a little-endian 8-byte length, a JSON header of that length, and the tensors' bytes. The
header gives each tensor's type, shape and first and last byte. The bytes have no gaps.

Files are read, not mapped into memory: pages of a mapped file count as the process's own, so a
model would take its size twice.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np

from layerbench_models.checkpoint.errors import CheckpointError

DTYPES: Mapping[str, np.dtype[Any]] = {
    "F64": np.dtype(np.float64),
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
}
"""The types that weights are read from, by their names in a header."""

LENGTH_BYTES = 8
MAX_HEADER_BYTES = 100_000_000
"""What the format allows; more is a damaged file, and would be read whole."""

# What people point at by mistake, by its first bytes.
_FOREIGN = (
    (b"PK\x03\x04", "a zip archive, such as a PyTorch pickle"),
    *((bytes((0x80, protocol)), "a Python pickle") for protocol in range(2, 6)),
    (b"version https://git-lfs", "a Git LFS pointer and not the file itself"),
    (b"GGUF", "a GGUF file"),
    (b"\x89HDF", "an HDF5 file"),
    (b"<", "an HTML or XML page"),
    (b"{", "a JSON file"),
)


@dataclasses.dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor in a file, unread.

    Attributes:
        name: Its name.
        file: The file.
        dtype: Its type's name in the format, such as "BF16".
        shape: Its shape.
        start: Its first byte, counted from the file's beginning.
        size_bytes: Its length.
    """

    name: str
    file: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    size_bytes: int


def read_header(file: Path) -> dict[str, Tensor]:
    """Returns the tensors of a file by their names, reading none of them.

    Raises:
        CheckpointError: With one line, if the file cannot be read, is empty, truncated, damaged,
            or no safetensors file.
    """
    try:
        with file.open("rb") as handle:
            size = os.fstat(handle.fileno()).st_size
            prefix = handle.read(LENGTH_BYTES)
            header_bytes = int.from_bytes(prefix, "little")
            is_possible = header_bytes <= min(size - LENGTH_BYTES, MAX_HEADER_BYTES)
            raw = handle.read(header_bytes) if is_possible else None
            if raw is None:
                handle.seek(0)
                raise CheckpointError(_no_header(file, size, header_bytes, handle.read(32)))
    except FileNotFoundError:
        raise CheckpointError(
            f"{file} does not exist: give a folder or a file of a checkpoint"
        ) from None
    except OSError as error:
        raise CheckpointError(f"{file} cannot be read ({error.strerror})") from None
    return _tensors(file, _parsed(file, raw), LENGTH_BYTES + header_bytes, size)


def read_into(handle: BinaryIO, tensor: Tensor, offset: int, buffer: np.ndarray) -> None:
    """Fills a contiguous array with a tensor's bytes from byte `offset` of the tensor on.

    Raises:
        CheckpointError: If the file ends before or cannot be read.
    """
    target = memoryview(buffer.reshape(-1).view(np.uint8))
    done = 0
    try:
        while done < len(target):
            count = os.preadv(handle.fileno(), [target[done:]], tensor.start + offset + done)
            if not count:
                raise CheckpointError(
                    f"{tensor.file} ended while {tensor.name} was read: another process changed it"
                )
            done += count
    except OSError as error:
        raise CheckpointError(f"{tensor.file} cannot be read ({error.strerror})") from None


def encode_header(tensors: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]]) -> bytes:
    """Returns a file's bytes up to the first tensor, for tensors that follow in this order.

    Args:
        tensors: Type and shape by name.
    """
    names = {dtype: name for name, dtype in DTYPES.items()}
    # transformers refuses a file that does not say whose conventions it follows.
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    start = 0
    for name, (dtype, shape) in tensors.items():
        end = start + math.prod(shape) * dtype.itemsize
        header[name] = {
            "dtype": names[dtype],
            "shape": list(shape),
            "data_offsets": [start, end],
        }
        start = end
    encoded = json.dumps(header, separators=(",", ":")).encode()
    # The data begins at a multiple of eight bytes, as the format asks.
    encoded += b" " * (-len(encoded) % LENGTH_BYTES)
    return len(encoded).to_bytes(LENGTH_BYTES, "little") + encoded


def _no_header(file: Path, size: int, header_bytes: int, beginning: bytes) -> str:
    """Says why a file cannot have the header that its first bytes announce."""
    if size == 0:
        return f"{file} is empty: download or write it again"
    for magic, kind in _FOREIGN:
        if beginning.startswith(magic):
            return f"{file} is {kind}: give a safetensors file"
    if size < LENGTH_BYTES or header_bytes <= MAX_HEADER_BYTES:
        return (
            f"{file} is truncated: its header alone takes {header_bytes} bytes and the file has "
            f"{size}: download or write it again"
        )
    return (
        f"{file} is no safetensors file: its first bytes announce a header of {header_bytes} bytes"
    )


def _parsed(file: Path, raw: bytes) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        twice = (
            sorted({name for name in names if names.count(name) > 1})
            if len(set(names)) < len(names)
            else []
        )
        if twice:
            raise CheckpointError(f"{file} is damaged: its header names {', '.join(twice)} twice")
        return dict(pairs)

    try:
        header = json.loads(raw.decode("utf-8"), object_pairs_hook=unique)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError):
        raise CheckpointError(
            f"{file} is damaged or no safetensors file: its header is not JSON"
        ) from None
    if not isinstance(header, dict):
        raise CheckpointError(f"{file} is no safetensors file: its header is no JSON object")
    header.pop("__metadata__", None)
    return header


def _tensors(file: Path, header: Mapping[str, Any], data: int, size: int) -> dict[str, Tensor]:
    tensors = [_tensor(file, name, entry, data) for name, entry in header.items()]
    tensors.sort(key=lambda tensor: (tensor.start, tensor.size_bytes))
    end = data
    for tensor in tensors:
        if tensor.start + tensor.size_bytes > size:
            raise CheckpointError(
                f"{file} is truncated: {tensor.name} ends at byte "
                f"{tensor.start + tensor.size_bytes} and the file at {size}: "
                "download or write it again"
            )
        if tensor.start != end:
            fault = "overlaps with the tensor before it" if tensor.start < end else "follows a gap"
            raise CheckpointError(f"{file} is damaged: {tensor.name} {fault}")
        end = tensor.start + tensor.size_bytes
    if end != size:
        raise CheckpointError(
            f"{file} is damaged: {size - end} bytes follow the last tensor that its header names"
        )
    return {tensor.name: tensor for tensor in tensors}


def _tensor(file: Path, name: str, entry: Any, data: int) -> Tensor:
    try:
        dtype, shape, (first, last) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
        counts = (*shape, first, last)
        is_sound = all(type(n) is int and n >= 0 for n in counts) and first <= last
    except (TypeError, KeyError, ValueError):
        is_sound = False
    if not is_sound or not isinstance(dtype, str):
        raise CheckpointError(f"{file} is damaged: its header describes {name} as {entry!r:.120}")
    known = DTYPES.get(dtype)
    if known is not None and math.prod(shape) * known.itemsize != last - first:
        raise CheckpointError(
            f"{file} is damaged: {name} takes {last - first} bytes and its shape {shape} in {dtype} "
            f"{math.prod(shape) * known.itemsize}"
        )
    return Tensor(name, file, dtype, shape, data + first, last - first)
