"""Every metric, declared once: what it counts, in which unit, and how it is judged.

Imports nothing of the project, so that anything may import it.
"""

from __future__ import annotations

import dataclasses
import enum
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class Kind(enum.StrEnum):
    """Whether a number is a function of the program alone or of the machine's day as well."""

    EXACT = "exact"
    TIMED = "timed"


class Role(enum.StrEnum):
    """Whether a worse number is a verdict or only helps to explain one."""

    GATE = "gate"
    DIAGNOSTIC = "diagnostic"


@dataclasses.dataclass(frozen=True, slots=True)
class Metric:
    """A declaration.

    Attributes:
        name: With its unit at the end.
        unit: Of the stored number.
        counts: What is counted, and what is left out.
        kind: Exact or timed.
        role: Gate or diagnostic.
        tolerance: Smallest relative change that matters.
        tolerance_absolute: Smallest absolute change that matters, in `unit`; a change must exceed
            the larger of the two.
        version: Raised whenever the definition changes: numbers of two versions are never compared.
        lower_is_better: The better direction.
    """

    name: str
    unit: str
    counts: str
    kind: Kind
    role: Role
    tolerance: float
    tolerance_absolute: float = 0.0
    version: str = "1"
    lower_is_better: bool = True


_MIB = float(1 << 20)

_DECLARED = (
    Metric(
        name="step_ms",
        unit="ms",
        counts=(
            "Median wall time of one step: a call of prefill, train_step or decode_step with its "
            "result ready and donated state handed on; for generate the marginal turn of the "
            "decode loop, one token for every sequence."
        ),
        kind=Kind.TIMED,
        role=Role.GATE,
        tolerance=0.05,
    ),
    Metric(
        name="compile_ms",
        unit="ms",
        counts="Wall time of XLA's compilation, persistent cache off; tracing and lowering apart.",
        kind=Kind.TIMED,
        role=Role.GATE,
        tolerance=0.10,
    ),
    Metric(
        name="trace_ms",
        unit="ms",
        counts="Wall time of tracing the Python function to a jaxpr, jit caches cleared.",
        kind=Kind.TIMED,
        role=Role.DIAGNOSTIC,
        tolerance=0.20,
    ),
    Metric(
        name="lower_ms",
        unit="ms",
        counts="Wall time of lowering the jaxpr to StableHLO.",
        kind=Kind.TIMED,
        role=Role.DIAGNOSTIC,
        tolerance=0.20,
    ),
    Metric(
        name="first_call_ms",
        unit="ms",
        counts="Wall time of the compiled program's first call, result ready; nothing compiled.",
        kind=Kind.TIMED,
        role=Role.DIAGNOSTIC,
        tolerance=0.20,
    ),
    Metric(
        name="temp_bytes",
        unit="bytes",
        counts="Memory the compiled program takes beside its arguments and results.",
        kind=Kind.EXACT,
        role=Role.GATE,
        tolerance=0.001,
        tolerance_absolute=_MIB,
    ),
    Metric(
        name="output_bytes",
        unit="bytes",
        counts="Memory of the program's results, aliased ones included.",
        kind=Kind.EXACT,
        role=Role.GATE,
        tolerance=0.001,
        tolerance_absolute=_MIB,
    ),
    Metric(
        name="undonated_bytes",
        unit="bytes",
        counts="Bytes of donated arguments that the program did not alias to a result.",
        kind=Kind.EXACT,
        role=Role.GATE,
        tolerance=0.001,
        tolerance_absolute=_MIB,
    ),
    Metric(
        name="stablehlo_lines",
        unit="lines",
        counts="Lines of the StableHLO module before optimisation: what the compiler is given.",
        kind=Kind.EXACT,
        role=Role.DIAGNOSTIC,
        tolerance=0.0,
    ),
)

METRICS: Mapping[str, Metric] = MappingProxyType({metric.name: metric for metric in _DECLARED})
"""All metrics by name, in the order in which tables show them."""

PRIMARY_TIMED = "step_ms"
"""The timed metric that a layout is ranked by."""
