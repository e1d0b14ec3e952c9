"""What opcodes mean for the bytes that a program moves."""

from __future__ import annotations

from layerbench.measure.program.hlo import Instruction
from layerbench.measure.program.shapes import Shape


def words(text: str) -> frozenset[str]:
    """The words of a text, as a set of names."""
    return frozenset(text.split())


FREE = words(
    """
    parameter constant tuple get-tuple-element bitcast after-all opt-barrier add-dependency
    partition-id replica-id domain
    """
)
"""They name values and move nothing."""

CONTROL = frozenset({"while", "conditional", "call", "call-start", "async-start"})
"""They run other computations, which are counted themselves."""

COLLECTIVES = words(
    """
    all-gather all-reduce all-to-all ragged-all-to-all collective-broadcast
    collective-permute reduce-scatter
    """
)

SLICES = frozenset({"slice", "dynamic-slice"})

_BUFFERS_ONLY = words(
    """
    AllocateBuffer AssumeGatherIndicesInBound ConcatBitcast CreateBuffer LayoutConstraint Sharding
    SPMDFullToShardShape SPMDShardToFullShape annotate_device_placement
    """
)


def base_opcode(instruction: Instruction) -> str:
    """The opcode without the `-start` of an asynchronous one."""
    return instruction.opcode.removesuffix("-start")


def is_end(instruction: Instruction) -> bool:
    """Whether it waits for an asynchronous operation, whose start was counted."""
    return instruction.opcode.endswith(("-done", "-update"))


def starts_work(instruction: Instruction) -> bool:
    """Whether something is launched that computes or moves data."""
    return not (
        instruction.opcode in FREE
        or instruction.opcode in CONTROL
        or is_end(instruction)
        or allocates_only(instruction)
    )


def allocates_only(instruction: Instruction) -> bool:
    """Whether it is a custom call that only names, joins or reserves buffers."""
    if base_opcode(instruction) != "custom-call":
        return False
    target = instruction.attribute("custom_call_target") or ""
    return target.strip('"') in _BUFFERS_ONLY


def result_offset(instruction: Instruction) -> tuple[Shape, int]:
    """The shape of what is computed, and where its first array is among the instruction's arrays.

    They differ from the whole for the start of an asynchronous operation, whose value holds the
    operands and a context as well.
    """
    shape = instruction.shape
    opcode = instruction.opcode
    if not opcode.endswith("-start") or not shape.is_tuple or len(shape.parts) < 2:
        return shape, 0
    if opcode == "copy-start":
        return shape.parts[0], 0
    if shape.parts[0].is_tuple or opcode in ("all-gather-start", "collective-permute-start"):
        return shape.parts[1], len(shape.parts[0].leaves)
    return shape, 0
