"""The shape of a model, read from a Hugging Face `config.json`."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Self, TypeVar

from layerbench_models.errors import ConfigError

_Setting = TypeVar("_Setting", int, float, bool)


class Architecture(StrEnum):
    """The supported families; the value is the `model_type` of a `config.json`."""

    QWEN3 = "qwen3"
    LLAMA = "llama"


_CLASS_NAMES = {
    "Qwen3ForCausalLM": Architecture.QWEN3,
    "LlamaForCausalLM": Architecture.LLAMA,
}

# Settings that change the mathematics and that no layer here implements, with the values that
# leave it unchanged.
_REQUIRED_SETTINGS: Mapping[str, tuple[object, ...]] = {
    "hidden_act": ("silu",),
    "attention_bias": (False, None),
    "mlp_bias": (False, None),
    "use_sliding_window": (False, None),
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """Llama 3's stretching of the rotary wavelengths to a longer context.

    Attributes:
        factor: By how much long wavelengths are stretched.
        low_freq_factor: Wavelengths above original_context / this are stretched in full.
        high_freq_factor: Wavelengths below original_context / this are left alone.
        original_context: Tokens of context the model was first trained on.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: int

    def __post_init__(self) -> None:
        _require_positive(self, ("factor", "low_freq_factor", "high_freq_factor"), float)
        _require_positive(self, ("original_context",), int)
        if self.low_freq_factor >= self.high_freq_factor:
            raise ConfigError(
                f"rope scaling has low_freq_factor {self.low_freq_factor} and high_freq_factor "
                f"{self.high_freq_factor}: give a low factor below the high one"
            )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """A decoder-only model's shape; checked on creation.

    Attributes:
        architecture: The model's family.
        vocab_size: Size of axis V.
        hidden_dim: Size of axis D.
        ffn_dim: Size of axis F.
        num_layers: Size of axis L.
        num_heads: Query heads, axis H.
        num_kv_heads: Key and value heads, axis K; divides `num_heads`.
        head_dim: Size of axis h; even, since rotary embedding turns pairs.
        norm_eps: Added to the mean square in each RMS norm.
        rope_theta: Base of the rotary wavelengths.
        rope_scaling: Llama 3's wavelength stretching, or None.
        tied_embeddings: Whether the output head is the embedding table.
        qk_norm: Whether queries and keys are normalised per head before rotation.
    """

    architecture: Architecture
    vocab_size: int
    hidden_dim: int
    ffn_dim: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None = None
    tied_embeddings: bool = False
    qk_norm: bool = False

    def __post_init__(self) -> None:
        sizes = ("vocab_size", "hidden_dim", "ffn_dim", "num_layers")
        _require_positive(self, (*sizes, "num_heads", "num_kv_heads", "head_dim"), int)
        _require_positive(self, ("norm_eps", "rope_theta"), float)
        if self.num_heads % self.num_kv_heads:
            raise ConfigError(
                f"{self.num_heads} query heads cannot share {self.num_kv_heads} key/value heads "
                "evenly: make num_attention_heads a multiple of num_key_value_heads"
            )
        if self.head_dim % 2:
            raise ConfigError(
                f"head_dim is {self.head_dim}: rotary embedding needs an even head_dim"
            )

    @property
    def group_size(self) -> int:
        """Query heads for each key/value head, axis G."""
        return self.num_heads // self.num_kv_heads

    @property
    def parameter_count(self) -> int:
        """Number of parameters; a tied table counts once."""
        attention = self.hidden_dim * self.head_dim * 2 * (self.num_heads + self.num_kv_heads)
        norms = 2 * self.hidden_dim + (2 * self.head_dim if self.qk_norm else 0)
        layer = attention + 3 * self.hidden_dim * self.ffn_dim + norms
        tables = self.vocab_size * self.hidden_dim * (1 if self.tied_embeddings else 2)
        return self.num_layers * layer + tables + self.hidden_dim

    def with_layers(self, num_layers: int) -> Self:
        """Returns the same model with another number of layers.

        Raises:
            ConfigError: If `num_layers` is not a positive integer.
        """
        return dataclasses.replace(self, num_layers=num_layers)

    @classmethod
    def from_hf(cls, settings: Mapping[str, Any]) -> Self:
        """Reads the settings of a Hugging Face `config.json`.

        Args:
            settings: The parsed file.

        Raises:
            ConfigError: If the architecture is not supported, a key is missing or of the wrong
                type, or the sizes do not fit together.
        """
        architecture = _architecture(settings)
        for key, accepted in _REQUIRED_SETTINGS.items():
            if settings.get(key, accepted[0]) not in accepted:
                raise ConfigError(
                    f"config.json sets {key} to {settings[key]!r}, which is not supported: "
                    f"use a model with {key} {json.dumps(accepted[0])}"
                )
        hidden_dim = _read(settings, "hidden_size", int)
        num_heads = _read(settings, "num_attention_heads", int)
        if "head_dim" not in settings and num_heads > 0 and hidden_dim % num_heads:
            raise ConfigError(
                f"hidden_size {hidden_dim} is not divisible by num_attention_heads {num_heads}: "
                "add head_dim to config.json or correct one of them"
            )
        rope = settings.get("rope_parameters")
        rope = settings | dict(rope) if isinstance(rope, Mapping) else settings
        return cls(
            architecture=architecture,
            vocab_size=_read(settings, "vocab_size", int),
            hidden_dim=hidden_dim,
            ffn_dim=_read(settings, "intermediate_size", int),
            num_layers=_read(settings, "num_hidden_layers", int),
            num_heads=num_heads,
            num_kv_heads=_read(settings, "num_key_value_heads", int, default=num_heads),
            head_dim=_read(
                settings, "head_dim", int, default=hidden_dim // num_heads if num_heads else 0
            ),
            norm_eps=_read(settings, "rms_norm_eps", float),
            rope_theta=_read(rope, "rope_theta", float),
            rope_scaling=_rope_scaling(settings),
            tied_embeddings=_read(settings, "tie_word_embeddings", bool, default=False),
            qk_norm=architecture is Architecture.QWEN3,
        )

    @classmethod
    def from_folder(cls, folder: str | os.PathLike[str]) -> Self:
        """Reads `config.json` in `folder`.

        Raises:
            ConfigError: If the file is missing, unreadable, not JSON or not supported.
        """
        path = Path(folder) / "config.json"
        try:
            settings = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            raise ConfigError(
                f"{path} does not exist: give a folder that holds a Hugging Face config.json"
            ) from None
        except OSError as error:
            raise ConfigError(
                f"{path} cannot be read ({error.strerror}): make it readable"
            ) from None
        except ValueError as error:
            raise ConfigError(f"{path} is not valid JSON ({error}): correct it") from None
        if not isinstance(settings, dict):
            raise ConfigError(f"{path} holds no JSON object: give a Hugging Face config.json")
        return cls.from_hf(settings)


def _architecture(settings: Mapping[str, Any]) -> Architecture:
    names = settings.get("architectures") or ()
    names = [names] if isinstance(names, str) else list(names)
    supported = "Qwen3ForCausalLM (model_type qwen3), LlamaForCausalLM (model_type llama)"
    if names:
        for name in names:
            if name in _CLASS_NAMES:
                return _CLASS_NAMES[name]
        found = f"architecture {', '.join(map(str, names))}"
    else:
        model_type = settings.get("model_type")
        if model_type in tuple(Architecture):
            return Architecture(model_type)
        found = f"model_type {model_type}" if model_type else "config.json without an architecture"
    raise ConfigError(f"{found} is not supported: use one of {supported}")


def _rope_scaling(settings: Mapping[str, Any]) -> RopeScaling | None:
    """Reads either form: `rope_scaling`, or `rope_parameters` of newer transformers."""
    scaling = settings.get("rope_parameters") or settings.get("rope_scaling")
    if scaling is None:
        return None
    if not isinstance(scaling, Mapping):
        raise ConfigError(f"config.json sets rope scaling to {scaling!r}: give an object or null")
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind == "default":
        return None
    if kind != "llama3":
        raise ConfigError(
            f"rope scaling of type {kind!r} is not supported: use a model with llama3 or none"
        )
    return RopeScaling(
        factor=_read(scaling, "factor", float),
        low_freq_factor=_read(scaling, "low_freq_factor", float),
        high_freq_factor=_read(scaling, "high_freq_factor", float),
        original_context=_read(scaling, "original_max_position_embeddings", int),
    )


def _read(
    settings: Mapping[str, Any], key: str, kind: type[_Setting], *, default: _Setting | None = None
) -> _Setting:
    found = settings.get(key)
    if found is None:
        if default is None:
            raise ConfigError(f"config.json has no {key}: add it")
        return default
    if kind is float and type(found) is int:
        return kind(found)
    if type(found) is not kind:
        raise ConfigError(f"config.json sets {key} to {found!r}: give one {kind.__name__}")
    return found


def _require_positive(owner: object, names: tuple[str, ...], kind: type) -> None:
    for name in names:
        found = getattr(owner, name)
        right_type = type(found) is kind or (kind is float and type(found) is int)
        if not right_type or not math.isfinite(found) or found <= 0:
            raise ConfigError(f"{name} is {found!r}: give a positive {kind.__name__}")
