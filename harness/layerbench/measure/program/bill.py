"""Where each byte of a step goes: by what is read and written, and by instruction."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from layerbench.measure.program.analysis import KV_CACHE, WEIGHTS, Analysis, Movement
from layerbench.measure.program.figures import (
    cache_copy_bytes,
    collective_bytes,
    layer_update_bytes,
)
from layerbench.measure.program.hlo import Instruction, Module
from layerbench.measure.program.opcodes import base_opcode, result_offset
from layerbench.measure.program.weights import ZERO, Weight

OTHER = "other"
_PLAIN = frozenset({"bitcast", "reshape", "tuple", "convert", "copy", "transpose"})
_PRODUCTS = frozenset({"dot", "convolution"})


@dataclasses.dataclass(frozen=True, slots=True)
class Flow:
    """Bytes of one direction and kind of buffer.

    Attributes:
        direction: `read`, `written`, or `by estimate` for kernels that declare their bytes.
        role: Of the buffers, such as `weights`, and of parts that were cut out of them; `other`
            for those that are not watched.
        bytes: Once, and with each turn.
    """

    direction: str
    role: str
    bytes: Weight


@dataclasses.dataclass(frozen=True, slots=True)
class Mover:
    """Instructions of one kind, shape and place, together.

    Attributes:
        kind: The opcode; of a fusion also what it computes.
        shape: Of the result.
        loop_depth: Loops around it.
        purpose: What it does to a watched buffer, in words; empty where it touches none.
        runs: How often it runs, once and with each turn.
        bytes: That it moves, once and with each turn.
    """

    kind: str
    shape: str
    loop_depth: int
    purpose: str
    runs: Weight
    bytes: Weight


@dataclasses.dataclass(frozen=True, slots=True)
class Bill:
    """All bytes of a program, twice: both parts sum up to its `hbm_bytes`.

    Attributes:
        flows: By direction and role, the largest first.
        movers: By instruction, the largest first.
    """

    flows: tuple[Flow, ...]
    movers: tuple[Mover, ...]


def make_bill(analysis: Analysis) -> Bill:
    """The bill of a program."""
    flows: dict[tuple[str, str], Weight] = {}
    movers: dict[tuple[str, str, int, str], tuple[Weight, Weight]] = {}
    for movement in analysis.movements:
        for direction, role, size in _flows(movement):
            key = direction, role
            flows[key] = flows.get(key, ZERO) + movement.weight * size
        instruction = movement.traffic.instruction
        group = (
            kind_of(analysis.module, instruction),
            str(result_offset(instruction)[0]),
            movement.loop_depth,
            purpose_of(movement),
        )
        runs, size_so_far = movers.get(group, (ZERO, ZERO))
        movers[group] = (
            runs + movement.weight,
            size_so_far + movement.weight * movement.traffic.bytes,
        )
    return Bill(
        flows=tuple(
            sorted(
                (Flow(*key, total) for key, total in flows.items()),
                key=lambda flow: (*_descending(flow.bytes), flow.direction, flow.role),
            )
        ),
        movers=tuple(
            sorted(
                (Mover(*group, runs, size) for group, (runs, size) in movers.items()),
                key=lambda mover: (
                    *_descending(mover.bytes),
                    *_descending(mover.runs),
                    mover.kind,
                    mover.shape,
                    mover.loop_depth,
                    mover.purpose,
                ),
            )
        ),
    )


def kind_of(module: Module, instruction: Instruction) -> str:
    """The opcode; of a fusion with what it computes, such as `fusion: dot`."""
    opcode = base_opcode(instruction)
    if opcode == "custom-call":
        target = (instruction.attribute("custom_call_target") or "").strip('"')
        return f"custom-call: {target}"
    if opcode != "fusion":
        return opcode
    computation = module.computation(instruction.callee("calls"))
    inside = {each.opcode for each in computation.instructions}
    product = min(inside & _PRODUCTS, default="")
    root = computation.root
    while root.opcode in _PLAIN and root.operands:
        before = computation.operand(root, 0)
        if before.opcode in ("parameter", "constant"):
            break
        root = before
    return f"fusion: {product or root.opcode}"


def purpose_of(movement: Movement) -> str:
    """What an instruction does to a watched buffer, the costliest first."""
    cut_out = [
        role
        for write in movement.traffic.writes
        if write.result.is_slice and write.bytes
        for role in (KV_CACHE, WEIGHTS)
        if any(
            number < len(movement.read_roles) and movement.read_roles[number] == role
            for number in write.result.moved
        )
    ]
    read = {
        role
        for each, role in zip(movement.traffic.reads, movement.read_data, strict=True)
        if each.bytes
    }
    reads = [role for role in (KV_CACHE, WEIGHTS) if role in read]
    updates = [role for role in (KV_CACHE, WEIGHTS) if any(movement.writes_to(role))]
    named = {KV_CACHE: "KV cache", WEIGHTS: "weights"}
    if collective_bytes(movement):
        return "collective"
    if cache_copy_bytes(movement):
        return "copies the KV cache"
    if layer_update_bytes(movement):
        return "updates layers of the KV cache"
    if cut_out:
        return f"cuts out {named[cut_out[0]]}"
    if updates:
        return f"updates {named[updates[0]]}"
    return f"reads {' and '.join(named[role] for role in reads)}" if reads else ""


def _flows(movement: Movement) -> Iterable[tuple[str, str, int]]:
    if movement.traffic.estimated is not None:
        yield "by estimate", OTHER, movement.traffic.estimated
        return
    for read, role in zip(movement.traffic.reads, movement.read_data, strict=True):
        yield "read", role or OTHER, read.bytes
    for write, role in zip(movement.traffic.writes, movement.write_roles, strict=True):
        yield "written", role or OTHER, write.bytes


def _descending(weight: Weight) -> tuple[int, int]:
    return -weight.turn, -weight.once
