"""A model's parameters, from any layout, into a checkpoint that transformers reads."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from layerbench_models.checkpoint.errors import CheckpointError
from layerbench_models.checkpoint.folder import INDEX_FILE, SINGLE_FILE
from layerbench_models.checkpoint.hf_config import to_hf
from layerbench_models.checkpoint.load import PIECE_BYTES
from layerbench_models.checkpoint.paths import dotted
from layerbench_models.checkpoint.places import Place, holders
from layerbench_models.checkpoint.reorder import reordered
from layerbench_models.checkpoint.rules import axis_sizes
from layerbench_models.checkpoint.tensor_file import DTYPES, encode_header
from layerbench_models.errors import ParameterError

if TYPE_CHECKING:
    from layerbench_models.model import Model, Params

MAX_SHARD_BYTES = 5_000_000_000


@dataclasses.dataclass(frozen=True)
class _Source:
    """A tensor to write, and the array and place that it comes from."""

    name: str
    array: Any
    place: Place
    stored_shape: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        return int(np.prod(self.stored_shape)) * self.array.dtype.itemsize


def save_safetensors(
    params: Params,
    model: Model,
    folder: str | os.PathLike[str],
    *,
    max_shard_bytes: int = MAX_SHARD_BYTES,
) -> tuple[Path, ...]:
    """Writes a checkpoint: safetensors files with Hugging Face's names, and a `config.json`.

    All is written into a hidden folder beside the target, which then takes its name. So there is a
    whole checkpoint or none, whatever happens. The values keep their type.

    Args:
        params: The parameters, as `model.init` returns them.
        model: The model whose layout they are in.
        folder: Where to write: a folder that is empty or does not exist.
        max_shard_bytes: Size of one file, at most, unless a single tensor is larger. A checkpoint of
            more than one file gets an index.

    Returns:
        The safetensors files.

    Raises:
        CheckpointError: If the folder is not empty or cannot be written, or a type has no name in
            the format.
        ParameterError: If the parameters are not in the form of the model's layout.
        ValueError: If `max_shard_bytes` is not positive.
    """
    if max_shard_bytes < 1:
        raise ValueError(f"max_shard_bytes is {max_shard_bytes}: give a positive number")
    target = Path(folder)
    sources = _sources(params, model)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise CheckpointError(f"{target} exists and is not empty: choose another folder")
    shards = _shards(sources, max_shard_bytes)
    with _whole_folder(target) as unfinished:
        for name, shard in shards.items():
            _write(unfinished / name, shard)
        if len(shards) > 1:
            weight_map = {s.name: name for name, shard in shards.items() for s in shard}
            total = sum(source.size_bytes for source in sources)
            index = {"metadata": {"total_size": total}, "weight_map": weight_map}
            _write_json(unfinished / INDEX_FILE, index)
        settings = to_hf(model.config, str(sources[0].array.dtype))
        _write_json(unfinished / "config.json", settings)
    return tuple(target / name for name in shards)


def _sources(params: Params, model: Model) -> list[_Source]:
    """Returns the tensors in the order of a forward pass."""
    sizes = axis_sizes(model.config)
    arrays = {dotted(path): leaf for path, leaf in jax.tree.leaves_with_path(params)}
    targets = holders(model)
    shapes = {name: tuple(leaf.shape) for name, leaf in arrays.items()}
    if shapes != {holder.name: tuple(holder.abstract.shape) for holder in targets}:
        raise ParameterError(
            f"the parameters are not in the form of layout {model.layout.name!r}: save_safetensors "
            "takes those of init, in the model's own layout"
        )
    found = []
    for holder in targets:
        array = arrays[holder.name]
        if np.dtype(array.dtype) not in DTYPES.values():
            raise CheckpointError(
                f"{holder.name} has type {array.dtype}: cast it to bfloat16, float16 or float32"
            )
        for place in holder.places:
            shape = place.rule.stored_shape(sizes)
            found.append(_Source(place.tensor, array, place, shape))

    def order(source: _Source) -> tuple[int, int, str]:
        if source.place.layer is not None:
            return 1, source.place.layer, source.name
        return (0 if source.name.startswith("model.embed") else 2), 0, source.name

    return sorted(found, key=order)


def _shards(sources: Sequence[_Source], max_bytes: int) -> dict[str, list[_Source]]:
    """Returns the tensors of each file, by its name."""
    groups: list[list[_Source]] = [[]]
    room = max_bytes
    for source in sources:
        if groups[-1] and source.size_bytes > room:
            groups.append([])
            room = max_bytes
        groups[-1].append(source)
        room -= source.size_bytes
    if len(groups) == 1:
        return {SINGLE_FILE: groups[0]}
    return {
        f"model-{number:05d}-of-{len(groups):05d}.safetensors": group
        for number, group in enumerate(groups, 1)
    }


def _write(path: Path, shard: Sequence[_Source]) -> None:
    with path.open("wb", buffering=0) as handle:
        handle.write(
            encode_header({s.name: (np.dtype(s.array.dtype), s.stored_shape) for s in shard})
        )
        for source in shard:
            for piece in _pieces(source):
                view = memoryview(piece.reshape(-1).view(np.uint8))
                while view:
                    view = view[handle.write(view) :]
        os.fsync(handle.fileno())


def _pieces(source: _Source) -> Iterator[np.ndarray]:
    """Yields the rows of a tensor as they are stored, a few at a time."""
    rule = source.place.rule
    values = _on_host(source.array, source.place.index)
    to_stored = np.argsort(rule.permutation)
    rows = values.transpose(to_stored)
    row_bytes = max(1, rows[:1].nbytes)
    step = max(1, PIECE_BYTES // row_bytes)
    for first in range(0, len(rows), step):
        yield np.ascontiguousarray(reordered(rows[first : first + step]))


def _on_host(array: Any, index: tuple[slice | int, ...]) -> np.ndarray:
    """Returns one tensor of an array, without bringing the rest of a stack to the host."""
    if isinstance(array, np.ndarray):
        return array[index]
    devices = array.sharding.device_set
    if len(devices) == 1 and next(iter(devices)).platform == "cpu":
        return np.asarray(array)[index]  # a view
    axes = tuple(axis for axis, at in enumerate(index) if isinstance(at, int))
    return np.asarray(_layer(array, tuple(index[axis] for axis in axes), axes=axes))


@functools.partial(jax.jit, static_argnames="axes")
def _layer(array: jax.Array, at: tuple[Any, ...], *, axes: tuple[int, ...]) -> jax.Array:
    for axis, index in sorted(zip(axes, at, strict=True), reverse=True, key=lambda pair: pair[0]):
        array = jax.lax.dynamic_index_in_dim(array, index, axis, keepdims=False)
    return array


def _write_json(path: Path, content: dict[str, Any]) -> None:
    with path.open("w", encoding="utf-8") as handle:
        json.dump(content, handle, indent=2)
        handle.write("\n")
        handle.flush()
        os.fsync(handle.fileno())


@contextlib.contextmanager
def _whole_folder(target: Path) -> Iterator[Path]:
    """Yields a folder that takes the target's name in the end, or is gone after an error."""
    unfinished = target.parent / f".{target.name}.{uuid.uuid4().hex}.unfinished"
    try:
        unfinished.mkdir(parents=True)
        yield unfinished
        unfinished.rename(target)
    except OSError as error:
        raise CheckpointError(f"{target} cannot be written ({error.strerror or error})") from None
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
