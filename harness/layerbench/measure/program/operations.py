"""Operations of matrix products and convolutions, counted in the jaxpr: what was asked for.

Nothing of the compiler is in this count, so that it is equal for every way to write one loop.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

from layerbench.measure.program.weights import ZERO, Weight


@dataclasses.dataclass(frozen=True, slots=True)
class Operations:
    """Operations of a jaxpr.

    Attributes:
        flops: Of all products, a multiply-add counted as two.
        has_unknown_trips: Whether a loop whose trips depend on data was counted as one trip.
        has_branches: Whether a conditional was counted by its costliest branch.
        uncounted_kernels: Kernels without a cost estimate, whose operations are not known.
    """

    flops: Weight
    has_unknown_trips: bool = False
    has_branches: bool = False
    uncounted_kernels: int = 0

    def __add__(self, other: Operations) -> Operations:
        return Operations(
            self.flops + other.flops,
            self.has_unknown_trips or other.has_unknown_trips,
            self.has_branches or other.has_branches,
            self.uncounted_kernels + other.uncounted_kernels,
        )


def count_operations(jaxpr: Any, *, with_turns: bool) -> Operations:
    """Counts the operations of a closed jaxpr, scans multiplied by their length.

    Args:
        jaxpr: As `jitted.trace(...).jaxpr` gives it.
        with_turns: Whether the outermost while loops stand for the turns of the workload: their
            bodies are counted per turn. Otherwise a while loop counts one trip.
    """
    total = Operations(ZERO)
    for equation in _open(jaxpr).eqns:
        total += _count_equation(equation, with_turns=with_turns)
    return total


def _count_equation(  # noqa: PLR0911 - a case for each kind of primitive
    equation: Any, *, with_turns: bool
) -> Operations:
    parameters = equation.params
    match equation.primitive.name:
        case "dot_general":
            return Operations(Weight(_dot_flops(equation), 0))
        case "conv_general_dilated":
            return Operations(Weight(_convolution_flops(equation), 0))
        case "scan":
            body = count_operations(parameters["jaxpr"], with_turns=with_turns)
            return dataclasses.replace(body, flops=body.flops * parameters["length"])
        case "while":
            body = count_operations(parameters["body_jaxpr"], with_turns=False)
            body += count_operations(parameters["cond_jaxpr"], with_turns=False)
            if with_turns:
                return dataclasses.replace(body, flops=Weight(0, body.flops.once))
            return dataclasses.replace(body, has_unknown_trips=True)
        case "cond":
            branches = [
                count_operations(branch, with_turns=with_turns) for branch in parameters["branches"]
            ]
            costliest = max(branches, key=lambda branch: branch.flops.once + branch.flops.turn)
            return dataclasses.replace(costliest, has_branches=True)
        case "pallas_call":
            estimate = parameters.get("cost_estimate")
            if estimate is None:
                return Operations(ZERO, uncounted_kernels=1)
            return Operations(Weight(int(estimate.flops), 0))
        case _:
            total = Operations(ZERO)
            for inner in _inner_jaxprs(parameters.values()):
                total += count_operations(inner, with_turns=with_turns)
            return total


def _open(jaxpr: Any) -> Any:
    """The jaxpr without its constants."""
    return getattr(jaxpr, "jaxpr", jaxpr)


def _inner_jaxprs(values: Any) -> Iterator[Any]:
    """The jaxprs that a call-like primitive (jit, remat, custom_vjp, shard_map) runs once."""
    for value in values:
        if hasattr(_open(value), "eqns"):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from _inner_jaxprs(value)


def _dot_flops(equation: Any) -> int:
    (contracted, _), _ = equation.params["dimension_numbers"]
    left: Sequence[int] = equation.invars[0].aval.shape
    result: Sequence[int] = equation.outvars[0].aval.shape
    return 2 * math.prod(result) * _product(left, contracted)


def _convolution_flops(equation: Any) -> int:
    numbers = equation.params["dimension_numbers"]
    kernel: Sequence[int] = equation.invars[1].aval.shape
    result: Sequence[int] = equation.outvars[0].aval.shape
    inputs: int = numbers.rhs_spec[1]
    window: Sequence[int] = numbers.rhs_spec[2:]
    # The kernel's input axis holds the features of one group already.
    return 2 * math.prod(result) * kernel[inputs] * _product(kernel, window)


def _product(sizes: Sequence[int], axes: Sequence[int]) -> int:
    product = 1
    for axis in axes:
        product *= sizes[axis]
    return product
