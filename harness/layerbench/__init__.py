"""layerbench: did this JAX code get slower, in which layer layout, and why.

Names are imported on first use, so that commands start fast and a machine without jax can judge
and publish.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from layerbench.cell import Cell as Cell
    from layerbench.cell import Matrix as Matrix
    from layerbench.errors import WrongAnswerError as WrongAnswerError
    from layerbench.floor import DecoderShape as DecoderShape
    from layerbench.floor import Floor as Floor
    from layerbench.floor import decode_floor as decode_floor
    from layerbench.floor import prefill_floor as prefill_floor
    from layerbench.floor import train_floor as train_floor
    from layerbench.record import Record as Record
    from layerbench.record import Run as Run
    from layerbench.suite import Suite as Suite
    from layerbench.workload import Turns as Turns
    from layerbench.workload import Workload as Workload

__version__ = "0.1.0"

_HOMES = {
    "Cell": "cell",
    "DecoderShape": "floor",
    "Floor": "floor",
    "Matrix": "cell",
    "Record": "record",
    "Run": "record",
    "Suite": "suite",
    "Turns": "workload",
    "Workload": "workload",
    "WrongAnswerError": "errors",
    "decode_floor": "floor",
    "prefill_floor": "floor",
    "train_floor": "floor",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'layerbench' has no attribute '{name}'")
    return getattr(importlib.import_module(f"layerbench.{_HOMES[name]}"), name)
