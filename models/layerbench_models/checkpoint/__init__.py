"""Hugging Face safetensors in and out, from and into any layout, bit for bit."""

from layerbench_models.checkpoint.errors import CheckpointError
from layerbench_models.checkpoint.folder import find_tensors, holds_weights
from layerbench_models.checkpoint.hf_config import to_hf
from layerbench_models.checkpoint.load import load_safetensors
from layerbench_models.checkpoint.memory import FreeBytes, measured_free_bytes
from layerbench_models.checkpoint.paths import dotted, path_strings
from layerbench_models.checkpoint.rules import IGNORED, RULES, Rule
from layerbench_models.checkpoint.save import save_safetensors

__all__ = [
    "IGNORED",
    "RULES",
    "CheckpointError",
    "FreeBytes",
    "Rule",
    "dotted",
    "find_tensors",
    "holds_weights",
    "load_safetensors",
    "measured_free_bytes",
    "path_strings",
    "save_safetensors",
    "to_hf",
]
