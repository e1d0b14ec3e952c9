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
        name: With its unit in it.
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
        name="hbm_bytes",
        unit="bytes",
        counts=(
            "Main-memory traffic of one step on one device, modelled from the compiled program: "
            "what is read and written at the boundaries of fusions, every loop multiplied by its "
            "trips. A slice is read as far as it reaches, an update in place is written as far as "
            "it reaches. Buffers in on-chip memory, results that nobody reads, conditions of loops "
            "and the padding of tiled layouts are left out; on cpu caches hide some of it. A custom "
            "call counts its own estimate or else its operands and results."
        ),
        kind=Kind.EXACT,
        role=Role.GATE,
        tolerance=0.001,
        tolerance_absolute=_MIB,
    ),
    Metric(
        name="hbm_bytes_once",
        unit="bytes",
        counts=(
            "Main-memory traffic that a program with a decode loop causes once, before and after "
            "the loop, counted as hbm_bytes is."
        ),
        kind=Kind.EXACT,
        role=Role.GATE,
        tolerance=0.001,
        tolerance_absolute=_MIB,
    ),
    Metric(
        name="hbm_floor_ratio",
        unit="ratio",
        counts=(
            "hbm_bytes of all devices over the floor's bytes. None where a watched buffer is "
            "smaller than the memory on the target's chip."
        ),
        kind=Kind.EXACT,
        role=Role.GATE,
        tolerance=0.001,
    ),
    Metric(
        name="cache_copy_bytes",
        unit="bytes",
        counts=(
            "Bytes written to main memory in one step by instructions that make a whole buffer of "
            "the KV cache anew: copies, changes of layout or type, and computations that read the "
            "buffer and write all of it. A buffer is one array of the cache: all layers of a "
            "stacked one, one layer of a list. Parts updated in place, parts cut out, and copies "
            "into on-chip memory are left out."
        ),
        kind=Kind.EXACT,
        role=Role.GATE,
        tolerance=0.001,
        tolerance_absolute=_MIB,
    ),
    Metric(
        name="layer_update_bytes",
        unit="bytes",
        counts=(
            "Bytes written in one step by updates of the KV cache that are as large as a layer: "
            "at least one index of the buffer's first axis, which is the layer in a stacked cache."
        ),
        kind=Kind.EXACT,
        role=Role.GATE,
        tolerance=0.001,
        tolerance_absolute=_MIB,
    ),
    Metric(
        name="loop_weight_slice_bytes",
        unit="bytes",
        counts=(
            "Bytes written to main memory in one step by instructions inside loops that do nothing "
            "but cut a part out of the weights. Slices that a computation reads in passing and "
            "copies into on-chip memory are left out."
        ),
        kind=Kind.EXACT,
        role=Role.GATE,
        tolerance=0.001,
        tolerance_absolute=_MIB,
    ),
    Metric(
        name="collective_bytes",
        unit="bytes",
        counts=(
            "Bytes that collectives take or give on one device in one step, whichever are more, "
            "loops multiplied by their trips."
        ),
        kind=Kind.EXACT,
        role=Role.GATE,
        tolerance=0.001,
        tolerance_absolute=_MIB,
    ),
    Metric(
        name="over_capacity_bytes",
        unit="bytes",
        counts=(
            "Arguments, results that alias none of them and temporaries, as far as they exceed the "
            "memory of the target's device."
        ),
        kind=Kind.EXACT,
        role=Role.GATE,
        tolerance=0.001,
        tolerance_absolute=_MIB,
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
        name="launches",
        unit="launches",
        counts=(
            "Instructions outside fusions that compute or move something in one step, loops "
            "multiplied by their trips; an asynchronous pair counts once."
        ),
        kind=Kind.EXACT,
        role=Role.DIAGNOSTIC,
        tolerance=0.0,
    ),
    Metric(
        name="instructions",
        unit="instructions",
        counts="Instructions of the compiled program, inside fusions and out, each counted once.",
        kind=Kind.EXACT,
        role=Role.DIAGNOSTIC,
        tolerance=0.0,
    ),
    Metric(
        name="loops",
        unit="loops",
        counts="Loops of the compiled program, each counted once.",
        kind=Kind.EXACT,
        role=Role.DIAGNOSTIC,
        tolerance=0.0,
    ),
    Metric(
        name="flops",
        unit="flops",
        counts=(
            "Operations of matrix products and convolutions in one step, a multiply-add counted as "
            "two, from the jaxpr with scans multiplied by their length; before compilation, so "
            "equal for every target, and of all devices together. Everything else, and kernels "
            "without a cost estimate, are left out."
        ),
        kind=Kind.EXACT,
        role=Role.DIAGNOSTIC,
        tolerance=0.0,
    ),
    Metric(
        name="opaque_bytes",
        unit="bytes",
        counts=(
            "The part of hbm_bytes that is only assumed: operands and results of custom calls that "
            "hold no estimate of their own."
        ),
        kind=Kind.EXACT,
        role=Role.DIAGNOSTIC,
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
