"""The exact figures of a program, each as `layerbench.metrics` declares it.

For a workload that is a loop every weighted figure is that of one more turn; what the program does
once stands beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from layerbench.measure.program.analysis import KV_CACHE, WEIGHTS, Analysis, Movement
from layerbench.measure.program.opcodes import COLLECTIVES, base_opcode, result_offset
from layerbench.measure.program.traffic import Write
from layerbench.measure.program.weights import Weight

_WHOLE = 0.999_999  # of a layer: fractions are floats


class Place(NamedTuple):
    """Where a collective runs.

    Attributes:
        kind: Such as `all-gather`.
        in_loop: Whether it runs inside a loop.
    """

    kind: str
    in_loop: bool


def program_figures(analysis: Analysis, *, with_turns: bool) -> dict[str, int]:
    """The exact metrics that a program's text gives, by name.

    Args:
        analysis: Of the program.
        with_turns: Whether a step of the workload is a turn of its loop. If it is and no such loop
            was found, the figures of a step cannot be told and are left out.
    """
    figures = {
        "instructions": sum(
            len(computation.instructions) for computation in analysis.module.computations.values()
        ),
        "loops": len(analysis.loops),
    }
    if with_turns and not analysis.has_turns:
        return figures
    hbm_bytes = _weighted(analysis, lambda movement: movement.traffic.bytes)
    figures["hbm_bytes"] = _step(hbm_bytes, with_turns=with_turns)
    if with_turns:
        figures["hbm_bytes_once"] = hbm_bytes.once
    measures: dict[str, Callable[[Movement], int]] = {
        "opaque_bytes": lambda movement: movement.traffic.opaque,
        "collective_bytes": collective_bytes,
        "launches": lambda _: 1,
    }
    roles = {watched.role for watched in analysis.watched}
    if KV_CACHE in roles:
        measures["cache_copy_bytes"] = cache_copy_bytes
        measures["layer_update_bytes"] = layer_update_bytes
    if WEIGHTS in roles:
        measures["loop_weight_slice_bytes"] = loop_weight_slice_bytes
    for name, measure in measures.items():
        figures[name] = _step(_weighted(analysis, measure), with_turns=with_turns)
    return figures


def cache_copy_bytes(movement: Movement) -> int:
    """Bytes of one run that write a whole buffer of the KV cache anew.

    A buffer is one array of the watched cache: the stacked array, or one layer's. Counted are
    copies, changes of layout or type, and computations that read the buffer and write all of it;
    not parts updated in place, nor copies into on-chip memory, which is how a cache is read there.
    """
    reads_cache = movement.bytes_read_of(KV_CACHE) > 0
    return sum(
        write.bytes
        for write in movement.writes_to(KV_CACHE)
        if write.result.in_place is None and (write.result.moved or reads_cache)
    )


def layer_update_bytes(movement: Movement) -> int:
    """Bytes of one run that update the KV cache by a layer at a time or more.

    A layer is one index of the buffer's first axis, which is the layer axis of a stacked cache.
    """
    return sum(
        update.bytes
        for write in movement.writes_to(KV_CACHE)
        for update in write.result.updates
        if update.fraction * _first_axis(movement, write) >= _WHOLE
    )


def loop_weight_slice_bytes(movement: Movement) -> int:
    """Bytes of one run that copy a slice of the weights to main memory, inside a loop."""
    if not movement.loop_depth or not movement.bytes_read_of(WEIGHTS):
        return 0
    return sum(
        write.bytes
        for write in movement.traffic.writes
        if write.result.is_slice
        and any(_role_of_operand(movement, number) == WEIGHTS for number in write.result.moved)
    )


def collective_bytes(movement: Movement) -> int:
    """Bytes of one run of a collective: its operands or results, whichever are more."""
    instruction = movement.traffic.instruction
    if base_opcode(instruction) not in COLLECTIVES:
        return 0
    shape, _ = result_offset(instruction)
    return max(shape.bytes, movement.operand_bytes)


def collectives(analysis: Analysis) -> Mapping[Place, Weight]:
    """Bytes of collectives by kind and place."""
    found: dict[Place, Weight] = {}
    for movement in analysis.movements:
        size = collective_bytes(movement)
        if size:
            kind = base_opcode(movement.traffic.instruction)
            place = Place(kind, movement.loop_depth > 0)
            found[place] = found.get(place, Weight(0, 0)) + movement.weight * size
    return found


def notes(analysis: Analysis, *, with_turns: bool) -> tuple[str, ...]:
    """What a reader of the figures has to know, a sentence each."""
    said = []
    if with_turns and not analysis.has_turns:
        said.append(
            "The decode loop was not found in the compiled program: its bytes per turn are unknown."
        )
    if analysis.counted_once:
        names = ", ".join(sorted(loop.name for loop in analysis.counted_once)[:3])
        said.append(f"Loops whose trips depend on data count one trip each: {names}.")
    if analysis.has_branches:
        said.append("Of a conditional the branch that moves the most bytes is counted.")
    if analysis.followed_by_shape:
        roles = ", ".join(analysis.followed_by_shape)
        said.append(
            f"Buffers told by their shape alone, since they could not be followed: {roles}."
        )
    return tuple(said)


def _weighted(analysis: Analysis, measure: Callable[[Movement], int]) -> Weight:
    once = turn = 0
    for movement in analysis.movements:
        size = measure(movement)
        once += movement.weight.once * size
        turn += movement.weight.turn * size
    return Weight(once, turn)


def _step(weight: Weight, *, with_turns: bool) -> int:
    return weight.turn if with_turns else weight.once


def _first_axis(movement: Movement, write: Write) -> int:
    dims = movement.traffic.instruction.shape.leaves[write.leaf].dims
    return dims[0] if dims else 1


def _role_of_operand(movement: Movement, number: int) -> str | None:
    reads = movement.traffic.reads
    return movement.read_roles[number] if number < len(reads) else None
