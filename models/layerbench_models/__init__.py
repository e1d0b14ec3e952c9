"""Decoder-only language models in Flax NNX, in every layout of their layers.

Shapes are written with one letter for each axis, at the end of a name (`tokens_bt`) or in the
text; every module uses these:

    B batch                     L layers
    T query positions           D hidden size
    S cache positions (slots)   F hidden units of the feed-forward network
    H query heads               K key/value heads
    G query heads for each      h size of a head
      key/value head (H / K)    V vocabulary
    M micro-batches             b rows of a micro-batch

In lower case they stand in einsum strings and suffixes; there `n` are query heads before they are
grouped and `h` is always the size of a head.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp

from layerbench_models import partitioning
from layerbench_models.cache import CacheOrder, KVCache
from layerbench_models.checkpoint import (
    CheckpointError,
    holds_weights,
    load_safetensors,
    save_safetensors,
)
from layerbench_models.config import Architecture, ModelConfig, RopeScaling
from layerbench_models.errors import (
    BackendError,
    ConfigError,
    LayoutError,
    ModelError,
    ParameterError,
    UnknownNameError,
)
from layerbench_models.generation import NO_TOKEN, Generated
from layerbench_models.layers import AttentionImplementation, GroupedQuery
from layerbench_models.model import Model
from layerbench_models.positions import Positions, left_pad
from layerbench_models.presets import PRESETS, preset
from layerbench_models.stacks import (
    ALIASES,
    LAYOUTS,
    CacheForm,
    Creation,
    DecodeWeights,
    Forward,
    Layout,
    Parameters,
    Remat,
    RematScope,
    convert_cache,
    convert_params,
    resolve_layout,
)

if TYPE_CHECKING:
    from jax.sharding import Mesh

__version__ = "0.1.0"

__all__ = [
    "ALIASES",
    "DTYPES",
    "LAYOUTS",
    "NO_TOKEN",
    "PHASES",
    "PRESETS",
    "Architecture",
    "AttentionImplementation",
    "BackendError",
    "CacheForm",
    "CacheOrder",
    "CheckpointError",
    "ConfigError",
    "Creation",
    "DecodeWeights",
    "Forward",
    "Generated",
    "GroupedQuery",
    "KVCache",
    "Layout",
    "LayoutError",
    "Model",
    "ModelConfig",
    "ModelError",
    "ParameterError",
    "Parameters",
    "Positions",
    "Remat",
    "RematScope",
    "RopeScaling",
    "UnknownNameError",
    "build",
    "convert_cache",
    "convert_params",
    "holds_weights",
    "left_pad",
    "load_safetensors",
    "phase",
    "preset",
    "resolve_layout",
    "resolve_model",
    "save_safetensors",
]

DTYPES = ("float32", "bfloat16", "float16")
"""Names of the types that parameters may have."""

PHASES = ("init", "prefill", "decode_step", "generate", "train_step")
"""Names of the methods of `Model` that are phases."""


def build(
    model: str | os.PathLike[str] | ModelConfig,
    layout: str | Layout,
    *,
    num_layers: int | None = None,
    dtype: str = "float32",
    remat: str = "none",
    remat_scope: str = "layer",
    microbatches: int | None = None,
    mesh: Mesh | None = None,
    platform: str | None = None,
) -> Model:
    """Returns a model in a layout; allocates nothing and touches no device.

    Args:
        model: A preset's name, a folder with a Hugging Face `config.json`, or a configuration.
        layout: A layout's name, or a layout.
        num_layers: Another number of layers than the model's own.
        dtype: Type of parameters, hidden states and cache: one of `DTYPES`.
        remat: What the backward pass computes again: "none", "full", "dots", "named" or, in a
            nested scan, "nested".
        remat_scope: What it computes again as one piece: each "layer" or the whole "model".
        microbatches: Micro-batches of a pipeline; None lets the layout choose.
        mesh: Devices to spread parameters and caches over, by axes named "fsdp" and "tp".
        platform: What the programs are compiled for, where it is not the mesh's or the default.

    Raises:
        ModelError: With one line that says what to do, on anything that cannot be built.
    """
    config = resolve_model(model)
    if num_layers is not None:
        config = config.with_layers(num_layers)
    chosen = resolve_layout(layout)
    if dtype not in DTYPES:
        raise UnknownNameError("dtype", dtype, DTYPES)
    if remat not in tuple(Remat):
        raise UnknownNameError("remat", remat, Remat)
    if remat_scope not in tuple(RematScope):
        raise UnknownNameError("remat_scope", remat_scope, RematScope)
    wanted: dict[str, Any] = {}
    if remat != Remat.NONE:
        wanted["remat"] = Remat(remat)
    if remat_scope != RematScope.LAYER:
        wanted["remat_scope"] = RematScope(remat_scope)
    if microbatches is not None:
        wanted["microbatches"] = microbatches
    if wanted:
        chosen = dataclasses.replace(chosen, **wanted)
    if mesh is not None:
        platform = platform or mesh.devices.flat[0].platform
        mesh = partitioning.automatic(mesh)
    return Model(config=config, layout=chosen, dtype=jnp.dtype(dtype), mesh=mesh, platform=platform)


def resolve_model(model: str | os.PathLike[str] | ModelConfig) -> ModelConfig:
    """Returns the configuration of a preset's name, of a folder, or the given one.

    Raises:
        UnknownNameError: If it is neither a preset nor a folder.
        ConfigError: If the folder's `config.json` cannot be used.
    """
    if isinstance(model, ModelConfig):
        return model
    if isinstance(model, str) and model in PRESETS:
        return PRESETS[model]
    if isinstance(model, os.PathLike) or Path(model).is_dir():
        return ModelConfig.from_folder(model)
    return preset(model)


def phase(name: str) -> str:
    """Returns `name` if it is a phase.

    Raises:
        UnknownNameError: If it is not; the message lists the phases.
    """
    if name not in PHASES:
        raise UnknownNameError("phase", name, PHASES)
    return name
