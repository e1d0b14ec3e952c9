"""Operations of the matrix products and convolutions in a compiled program, weighted by trips.

A check on the trip counts, since a product does the same work however its loop is written. The
metric `flops` is read from the jaxpr instead: compilers turn small products into multiplications
and sums, and hide others in library calls.
"""

from __future__ import annotations

import math
import re

from layerbench.measure.program.errors import ProgramError
from layerbench.measure.program.hlo import (
    Computation,
    Instruction,
    Module,
    parse_integer,
    split_attributes,
)
from layerbench.measure.program.loops import find_loops
from layerbench.measure.program.weights import ZERO, Weight, callees_first, weigh

_LABELS = re.compile(r"(\w+)_(\w+)->(\w+)")
_MAX_WINDOW = 1 << 20  # of one axis: beyond, the text is not a program's


def product_flops(module: Module, *, with_turns: bool = False) -> Weight:
    """Operations of all products, a multiply-add counted as two: once, and with each turn."""
    order = callees_first(module)
    own: dict[str, int] = {}
    for name in order:
        computation = module.computation(name)
        own[name] = sum(
            _own_flops(computation, instruction, own) for instruction in computation.instructions
        )
    weights = weigh(module, find_loops(module), own, with_turns=with_turns)
    total = ZERO
    for name, weight in weights.weights.items():
        total += weight * own[name]
    return total


def _own_flops(computation: Computation, instruction: Instruction, own: dict[str, int]) -> int:
    match instruction.opcode:
        case "dot":
            return dot_flops(computation, instruction)
        case "convolution":
            return convolution_flops(computation, instruction)
        case "fusion" | "fusion-start":
            return own[instruction.callee("calls")]
        case _:
            return 0


def dot_flops(computation: Computation, dot: Instruction) -> int:
    """Of one matrix product."""
    left = computation.operand(dot, 0).shape.array
    text = dot.attribute("lhs_contracting_dims") or "{}"
    contracted = math.prod(left.dims[axis] for axis in _axes(text, len(left.dims)))
    return 2 * dot.shape.array.elements * contracted


def convolution_flops(computation: Computation, convolution: Instruction) -> int:
    """Of one convolution; on TPUs matrix products are convolutions with windows of size one.

    Positions of the window that hang over the edge are counted as the compiler counts them, not at
    all.
    """
    labels = _LABELS.search(convolution.attribute("dim_labels") or "")
    if labels is None:
        raise ProgramError(f"the convolution {convolution.name} has no labels")
    image = computation.operand(convolution, 0).shape.array
    kernel = computation.operand(convolution, 1).shape.array
    output = convolution.shape.array
    if any(
        len(label) != len(array.dims)
        for label, array in zip(labels.groups(), (image, kernel, output), strict=True)
    ):
        raise ProgramError(f"the labels of {convolution.name} do not fit its operands")
    if any(part not in labels[1] or part not in labels[3] for part in labels[2] if part.isdigit()):
        raise ProgramError(f"the labels of {convolution.name} do not fit each other")
    if "i" not in labels[2] or "f" not in labels[3] or "b" not in labels[1]:
        raise ProgramError(f"the labels of {convolution.name} name no feature")
    window = _window(convolution, labels[2])
    valid = 1
    for position, axis in enumerate(sorted(part for part in labels[2] if part.isdigit())):
        valid *= _valid_positions(
            image.dims[labels[1].index(axis)],
            output.dims[labels[3].index(axis)],
            window,
            position,
        )
    groups = convolution.attribute("batch_group_count") or "1"
    batch_groups = max(1, parse_integer(groups, f"batch_group_count of {convolution.name}"))
    return (
        2
        * kernel.dims[labels[2].index("i")]
        * output.dims[labels[3].index("f")]
        * (image.dims[labels[1].index("b")] // batch_groups)
        * valid
    )


def _window(convolution: Instruction, kernel_labels: str) -> dict[str, list[str]]:
    text = (convolution.attribute("window") or "{}").strip("{}")
    rank = sum(part.isdigit() for part in kernel_labels)
    defaults = {"size": "1", "stride": "1", "pad": "0_0", "lhs_dilate": "1", "rhs_dilate": "1"}
    written = split_attributes(text.replace(" ", ", "))
    sizes = {
        key: written[key].split("x") if key in written else [default] * rank
        for key, default in defaults.items()
    }
    if any(len(each) < rank for each in sizes.values()):
        raise ProgramError(f"the window of {convolution.name} has too few axes")
    return sizes


def _valid_positions(image: int, output: int, window: dict[str, list[str]], position: int) -> int:
    """Pairs of an output and a window position that meet the image and not its padding."""

    def number(key: str) -> int:
        return parse_integer(window[key][position].split("_")[0], f"{key} of a window")

    size, stride, pad = number("size"), number("stride"), number("pad")
    image_step, kernel_step = number("lhs_dilate"), number("rhs_dilate")
    if not 0 <= size <= _MAX_WINDOW or stride < 1 or image_step < 1:
        raise ProgramError(f"a window has size {size}, stride {stride} and dilation {image_step}")
    common = math.gcd(stride, image_step)
    period = image_step // common
    found = 0
    for tap in range(size):
        shift = tap * kernel_step - pad
        if shift % common:
            continue
        # Outputs between these two meet the image or the gaps of a dilated one; every `period`th
        # of them, from the `phase`th on, meets the image.
        first = max(0, -(shift // stride))
        last = min(output - 1, ((image - 1) * image_step - shift) // stride)
        phase = -(shift // common) * pow(stride // common, -1, period) % period
        found += max(0, (last - phase) // period - (first - 1 - phase) // period)
    return found


def _axes(text: str, rank: int) -> list[int]:
    axes = [int(part) for part in text.strip("{} ").split(",") if part.strip().isdecimal()]
    if any(axis >= rank for axis in axes):
        raise ProgramError(f"there is no axis {max(axes)} in {rank}")
    return axes
