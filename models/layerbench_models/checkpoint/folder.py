"""The tensors of a checkpoint: one file, or the shards that an index names."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

from layerbench_models.checkpoint.errors import CheckpointError, listed
from layerbench_models.checkpoint.tensor_file import Tensor, read_header

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"


def holds_weights(folder: str | os.PathLike[str]) -> bool:
    """Tells whether a folder holds a checkpoint's weights; they may still be damaged."""
    return any((Path(folder) / name).is_file() for name in (SINGLE_FILE, INDEX_FILE))


def find_tensors(source: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Returns the tensors of a checkpoint by their names, reading none of them.

    Args:
        source: A folder with `model.safetensors` or `model.safetensors.index.json`, such an index,
            or one safetensors file.

    Raises:
        CheckpointError: With one line, if there is no checkpoint, a file is missing or damaged, or
            the index and the files do not agree.
    """
    path = Path(source)
    if not path.is_dir():
        return _of_index(path) if path.suffix == ".json" else read_header(path)
    has_single, has_index = ((path / name).is_file() for name in (SINGLE_FILE, INDEX_FILE))
    if has_single and has_index:
        raise CheckpointError(
            f"{path} holds both {SINGLE_FILE} and {INDEX_FILE}, so perhaps two checkpoints: "
            "give the one that is meant by its file name"
        )
    if has_index:
        return _of_index(path / INDEX_FILE)
    if has_single:
        return read_header(path / SINGLE_FILE)
    loose = sorted(file.name for file in path.glob("*.safetensors"))
    if loose:
        raise CheckpointError(
            f"{path} holds {listed(loose)} and neither {SINGLE_FILE} nor {INDEX_FILE}: "
            "add the index, or give one file by its name"
        )
    raise CheckpointError(f"{path} holds no safetensors files: give a folder with {SINGLE_FILE}")


def _of_index(index: Path) -> dict[str, Tensor]:
    file_of = _weight_map(index)
    names_of = defaultdict(list)
    for name, file in file_of.items():
        names_of[file].append(name)
    absent = [file for file in names_of if not (index.parent / file).is_file()]
    if absent:
        raise CheckpointError(
            f"{index} names {len(absent)} files that do not exist ({listed(absent)}): "
            "download or copy them too"
        )
    found: dict[str, Tensor] = {}
    lacking: list[str] = []
    for file, names in names_of.items():
        tensors = read_header(index.parent / file)
        lacking += [f"{name} in {file}" for name in names if name not in tensors]
        for name, tensor in tensors.items():
            if name in found:
                raise CheckpointError(
                    f"{name} is stored twice, in {found[name].file.name} and {file} of "
                    f"{index.parent}: remove one, or write the checkpoint again"
                )
            found[name] = tensor
    if lacking:
        raise CheckpointError(
            f"{index} promises {len(lacking)} tensors that the files do not hold "
            f"({listed(lacking)}): files and index are of different checkpoints",
            missing=[name.split(" in ")[0] for name in lacking],
        )
    return found


def _weight_map(index: Path) -> dict[str, str]:
    try:
        content: Any = json.loads(index.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(
            f"{index} does not exist: give a folder or a file of a checkpoint"
        ) from None
    except OSError as error:
        raise CheckpointError(f"{index} cannot be read ({error.strerror})") from None
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError):
        raise CheckpointError(f"{index} is not JSON: download or write it again") from None
    weight_map = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{index} has no weight_map: give the index of a checkpoint")
    for name, file in weight_map.items():
        # A name with a path could point anywhere; an index lies beside its shards.
        if not isinstance(file, str) or Path(file).name != file:
            raise CheckpointError(
                f"{index} says that {name} is in {file!r}: shards are named by their file name alone"
            )
    return weight_map
