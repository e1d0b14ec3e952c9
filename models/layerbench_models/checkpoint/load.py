"""Parameters of a model from a safetensors checkpoint, into any layout.

Each array of the model is allocated once and filled piece by piece: a few rows of a tensor are read
into a buffer, cast, turned, and copied to where they belong. So the peak is the model and some
buffers of `PIECE_BYTES`, and every byte is written once, however the layers are stacked. Two thirds of
the time go to the first touch of new memory, so threads gain nothing here.
"""

from __future__ import annotations

import fnmatch
import math
import mmap
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, BinaryIO

import jax
import numpy as np

from layerbench_models.checkpoint import rules
from layerbench_models.checkpoint.errors import CheckpointError, listed
from layerbench_models.checkpoint.folder import find_tensors
from layerbench_models.checkpoint.memory import FreeBytes, measured_free_bytes, require_free
from layerbench_models.checkpoint.places import Holder, Place, holders
from layerbench_models.checkpoint.reorder import reordered
from layerbench_models.checkpoint.tensor_file import DTYPES, Tensor, read_into

if TYPE_CHECKING:
    from layerbench_models.model import Model, Params

PIECE_BYTES = 2 * 2**20
"""Bytes of a tensor that are read at once: large for a disk, small beside a processor's cache."""

# Where an array begins at such an address, jax on CPU takes it over without a copy.
_ALIGNMENT = 64

_MAPPED_BYTES = 2**20


def load_safetensors(
    source: str | os.PathLike[str],
    model: Model,
    *,
    ignore: Sequence[str] = rules.IGNORED,
    first_layers: bool = False,
    free_bytes: FreeBytes = measured_free_bytes,
) -> Params:
    """Returns the model's parameters from a checkpoint, cast to its type, placed on its mesh.

    Every parameter is filled and every tensor is used, or it is an error. Where the model ties its
    embeddings, a head in the checkpoint has to equal the table.

    Args:
        source: A folder with `model.safetensors` or `model.safetensors.index.json`, such an index,
            or one safetensors file; tensors under Hugging Face's names.
        model: The model, in the layout that is wanted.
        ignore: Shell patterns of names that may be in the checkpoint without being used.
        first_layers: Whether the model may have fewer layers than the checkpoint; it then gets the
            first ones. Without this, deeper layers are unexpected.
        free_bytes: Tells how much memory is free, before any is taken.

    Returns:
        Parameters as `model.init` returns them.

    Raises:
        CheckpointError: With one line, if a file is missing, damaged or foreign, tensors are
            missing, unexpected, of a wrong shape or type, or memory is short.
    """
    tensors = find_tensors(source)
    targets = holders(model)
    _require_match(str(source), model, targets, tensors, ignore, first_layers=first_layers)
    require_free(str(source), _needs(targets), free_bytes)
    with _Files() as files:
        if model.config.tied_embeddings and rules.HEAD in tensors:
            _require_equal(files, tensors[rules.TABLE], tensors[rules.HEAD])
        leaves = [_filled(files, holder, model, tensors) for holder in targets]
    return jax.tree.unflatten(jax.tree.structure(model.abstract_params()), leaves)


def _require_match(
    source: str,
    model: Model,
    targets: Iterable[Holder],
    tensors: dict[str, Tensor],
    ignore: Sequence[str],
    *,
    first_layers: bool,
) -> None:
    """Raises one error that names everything in which checkpoint and model differ."""
    sizes = rules.axis_sizes(model.config)
    wanted = {place.tensor: place.rule for holder in targets for place in holder.places}
    missing = [name for name in wanted if name not in tensors]
    unexpected, deeper = [], set()
    for name in tensors:
        match = rules.rule_of_tensor(name)
        if name in wanted or any(fnmatch.fnmatchcase(name, pattern) for pattern in ignore):
            continue
        if name == rules.HEAD and model.config.tied_embeddings:
            wanted[name] = wanted[rules.TABLE]
        elif match and match[1] is not None and match[1] >= model.config.num_layers:
            deeper.add(match[1])
            if not first_layers:
                unexpected.append(name)
        else:
            unexpected.append(name)
    misshapen = []
    for name, rule in wanted.items():
        if name not in tensors:
            continue
        found, shape = tensors[name], rule.stored_shape(sizes)
        if found.shape != shape:
            misshapen.append(f"{name} is {found.shape} and not {shape}")
        elif found.dtype not in DTYPES:
            misshapen.append(f"{name} has type {found.dtype} and not one of {', '.join(DTYPES)}")
    if not (missing or unexpected or misshapen):
        return
    parts = [
        f"{len(names)} {what} ({listed(names)})"
        for names, what in (
            (missing, "missing"),
            (unexpected, "unexpected"),
            (misshapen, "of a wrong shape or type"),
        )
        if names
    ]
    raise CheckpointError(
        f"{source} does not fit the model: {'; '.join(parts)}: "
        f"{_advice(model, tensors, missing, unexpected, deeper)}",
        missing=missing,
        unexpected=unexpected,
        misshapen=[text.split(" ")[0] for text in misshapen],
    )


def _advice(
    model: Model,
    tensors: dict[str, Tensor],
    missing: Sequence[str],
    unexpected: Sequence[str],
    deeper: set[int],
) -> str:
    if any(rules.is_stacked_name(name) for name in unexpected):
        return (
            "its layers are stacked (scanned) and this reads one tensor for each layer: "
            "write it again with save_safetensors, or unstack it"
        )
    if any(name.startswith("stack.") for name in unexpected):
        return "it has this package's own names: write it again with save_safetensors"
    present = {match[1] for match in map(rules.rule_of_tensor, tensors) if match}
    depth = max((layer for layer in present if layer is not None), default=-1) + 1
    if (
        deeper
        and not missing
        and not set(unexpected)
        - {name for name in unexpected if (rules.rule_of_tensor(name) or (None, -1))[1] in deeper}
    ):
        return (
            f"it has {depth} layers and the model {model.config.num_layers}: build the model with "
            f"num_layers={depth}, or load with first_layers=True"
        )
    if 0 < depth < model.config.num_layers:
        return f"it has {depth} layers and the model {model.config.num_layers}"
    if list(missing) == [rules.HEAD]:
        return "its embeddings are tied and the model's are not: set tie_word_embeddings"
    return "give the checkpoint of this model, or name what may be left out in ignore"


def _needs(targets: Sequence[Holder]) -> list[tuple[jax.Device | None, int]]:
    """Returns the bytes that loading takes on each device and on the host."""
    by_device: Counter[jax.Device] = Counter()
    largest = 0
    for holder in targets:
        abstract = holder.abstract
        size = math.prod(abstract.shape) * abstract.dtype.itemsize
        sharding = abstract.sharding
        devices = [jax.devices()[0]] if sharding is None else list(sharding.device_set)
        shard = abstract.shape if sharding is None else sharding.shard_shape(abstract.shape)
        is_copied = devices[0].platform != "cpu" or len(devices) > 1
        largest = max(largest, size if is_copied else 0)
        for device in devices:
            by_device[device] += math.prod(shard) * abstract.dtype.itemsize
    on_host = sum(count for device, count in by_device.items() if device.platform == "cpu")
    accelerators = [(d, count) for d, count in by_device.items() if d.platform != "cpu"]
    return [(None, on_host + largest + 4 * PIECE_BYTES), *accelerators]


class _Files(ExitStack):
    """The open files of a checkpoint, each opened once."""

    def __init__(self) -> None:
        super().__init__()
        self._open: dict[Any, BinaryIO] = {}
        # One for all tensors: buffers that come and go between arrays that stay leave holes.
        self._buffers = (np.empty(PIECE_BYTES, np.uint8), np.empty(PIECE_BYTES, np.uint8))

    def pieces(
        self, tensor: Tensor, row_shape: Sequence[int], rows: int, *, buffer: int = 0
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Yields the first row and the values of each piece; a piece holds until the next one.

        Args:
            tensor: The tensor.
            row_shape: Shape of a row.
            rows: Number of rows.
            buffer: Which of the two buffers they are read into.
        """
        handle = self._handle(tensor)
        dtype = DTYPES[tensor.dtype]
        row_bytes = math.prod(row_shape) * dtype.itemsize
        step = max(1, min(rows, PIECE_BYTES // row_bytes))
        raw = self._buffers[buffer]
        if step * row_bytes > raw.nbytes:
            raw = np.empty(step * row_bytes, np.uint8)
        values = raw[: step * row_bytes].view(dtype).reshape(step, *row_shape)
        for first in range(0, rows, step):
            piece = values[: rows - first]
            read_into(handle, tensor, first * row_bytes, piece)
            yield first, piece

    def _handle(self, tensor: Tensor) -> BinaryIO:
        if tensor.file not in self._open:
            try:
                handle = tensor.file.open("rb", buffering=0)
            except OSError as error:
                raise CheckpointError(f"{tensor.file} cannot be read ({error.strerror})") from None
            self._open[tensor.file] = self.enter_context(handle)
        return self._open[tensor.file]


def _filled(files: _Files, holder: Holder, model: Model, tensors: dict[str, Tensor]) -> jax.Array:
    """Returns one array of the model with all its tensors, on its devices."""
    abstract = holder.abstract
    host = _aligned(abstract.shape, abstract.dtype)
    sizes = rules.axis_sizes(model.config)
    for place in holder.places:
        _fill(files, host[place.index], place, tensors[place.tensor], sizes)
    placed = jax.device_put(host, abstract.sharding)
    # Without this, several arrays could wait on the host for their transfer.
    return jax.block_until_ready(placed)


def _fill(
    files: _Files, target: np.ndarray, place: Place, tensor: Tensor, sizes: dict[str, int]
) -> None:
    """Copies one tensor to its place, a view of an array on the host."""
    rule = place.rule
    rows, *row_shape = rule.split_shape(sizes)
    # The target with its axes in the stored order, so that rows are rows in both.
    as_stored = target.transpose(np.argsort(rule.permutation))
    for first, piece in files.pieces(tensor, row_shape, rows):
        values = _cast(piece, target.dtype, tensor)
        part = as_stored[first : first + len(piece)].transpose(rule.permutation)
        # As plain numbers, which numpy copies faster than bfloat16.
        bits = np.dtype(f"u{target.dtype.itemsize}")
        part.view(bits)[...] = reordered(values.view(bits).transpose(rule.permutation))


def _cast(piece: np.ndarray, dtype: np.dtype[Any], tensor: Tensor) -> np.ndarray:
    if piece.dtype == dtype:
        return piece
    with np.errstate(over="ignore"):  # found below, and then it is an error of ours
        cast = piece.astype(dtype)
    if dtype == np.float16 and (np.isinf(cast) & ~np.isinf(piece)).any():
        raise CheckpointError(
            f"{tensor.name} in {tensor.file} has values that float16 cannot hold: use bfloat16"
        )
    return cast


def _require_equal(files: _Files, table: Tensor, head: Tensor) -> None:
    rows, *row_shape = table.shape
    equal = table.dtype == head.dtype and all(
        np.array_equal(a.view(np.uint8), b.view(np.uint8))
        for (_, a), (_, b) in zip(
            files.pieces(table, row_shape, rows),
            files.pieces(head, row_shape, rows, buffer=1),
            strict=True,
        )
    )
    if not equal:
        raise CheckpointError(
            f"{head.name} in {head.file} differs from {table.name} and the model ties them: set "
            "tie_word_embeddings to false",
            unexpected=[head.name],
        )


def _aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """Returns an unfilled array at an address that jax on CPU takes over.

    Large ones are mapped by themselves: on the heap, the runtime's short-lived buffers between
    them would leave holes of up to a fifth of a model.
    """
    size = math.prod(shape) * dtype.itemsize
    try:
        if size >= _MAPPED_BYTES:
            raw = np.frombuffer(mmap.mmap(-1, size), np.uint8)
        else:
            raw = np.empty(size + _ALIGNMENT, np.uint8)
    except (MemoryError, OSError):
        raise CheckpointError(
            f"no memory for an array of {size / 2**30:.2f} GiB: use fewer layers or a smaller dtype"
        ) from None
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + size].view(dtype).reshape(shape)
