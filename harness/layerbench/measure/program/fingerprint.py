"""A program in short: what is stored for every commit, so that two programs can be compared.

It depends on nothing but the program's structure: no names of instructions, no source lines, so
that it is equal wherever the exact metrics are.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from layerbench.measure.program.analysis import Analysis
from layerbench.measure.program.bill import Flow, Mover, make_bill
from layerbench.measure.program.figures import Place, collectives
from layerbench.measure.program.weights import ZERO, Weight

VERSION = 1
"""Raised whenever the form or the meaning of a field changes."""

STORED_MOVERS = 4
"""Movers that are stored with a record; the rest by kind: a little over 1 kB for each cell."""


@dataclasses.dataclass(frozen=True, slots=True)
class Fingerprint:
    """The structure of a program.

    Attributes:
        flows: Bytes by direction and role.
        movers: The instructions that move the most bytes, the largest first.
        rest: Runs and bytes of all others, by kind.
        loops: Trips of every loop, None where they depend on data; in order of size.
        collectives: Bytes by kind and place.
        digest: Of all movers, those in `rest` included: equal for programs of equal structure.
    """

    flows: tuple[Flow, ...]
    movers: tuple[Mover, ...]
    rest: Mapping[str, tuple[Weight, Weight]]
    loops: tuple[int | None, ...]
    collectives: Mapping[Place, Weight]
    digest: str

    def as_dict(self) -> dict[str, Any]:
        """Strict JSON's types; fields that are zero or empty are left out.

        `runs` and `bytes` are those of a call that do not depend on turns, `runs_per_turn` and
        `bytes_per_turn` those that come with each turn. In `rest`, which holds dozens of kinds, they
        are a list in this order, of two numbers where there are no turns.
        """
        return {
            "version": VERSION,
            "digest": self.digest,
            "flows": [
                {"direction": flow.direction, "role": flow.role, **_named("bytes", flow.bytes)}
                for flow in self.flows
            ],
            "movers": [_mover(mover) for mover in self.movers],
            "rest": {
                kind: _runs_and_bytes(runs, size)
                for kind, (runs, size) in sorted(self.rest.items())
            },
            "loops": list(self.loops),
            "collectives": [
                {"kind": place.kind, "in_loop": place.in_loop, **_named("bytes", size)}
                for place, size in sorted(self.collectives.items())
            ],
        }


def take_fingerprint(analysis: Analysis, *, kept_movers: int = STORED_MOVERS) -> Fingerprint:
    """The fingerprint of a program, with so many of its movers one by one."""
    bill = make_bill(analysis)
    trips = sorted(
        (loop.trips for loop in analysis.loops), key=lambda each: (each is None, each or 0)
    )
    everything = [[_mover(mover) for mover in bill.movers], trips]
    return Fingerprint(
        flows=bill.flows,
        movers=bill.movers[:kept_movers],
        rest=_by_kind(bill.movers[kept_movers:]),
        loops=tuple(trips),
        collectives=collectives(analysis),
        digest=hashlib.sha256(json.dumps(everything).encode()).hexdigest()[:16],
    )


def _by_kind(movers: Iterable[Mover]) -> dict[str, tuple[Weight, Weight]]:
    kinds: dict[str, tuple[Weight, Weight]] = {}
    for mover in movers:
        runs, size = kinds.get(mover.kind, (ZERO, ZERO))
        kinds[mover.kind] = (runs + mover.runs, size + mover.bytes)
    return kinds


def _mover(mover: Mover) -> dict[str, Any]:
    optional = {"loop_depth": mover.loop_depth, "purpose": mover.purpose}
    return {
        "kind": mover.kind,
        "shape": mover.shape,
        **{name: value for name, value in optional.items() if value},
        **_named("runs", mover.runs),
        **_named("bytes", mover.bytes),
    }


def _runs_and_bytes(runs: Weight, size: Weight) -> list[int]:
    per_turn = [runs.turn, size.turn]
    return [runs.once, size.once, *(per_turn if any(per_turn) else ())]


def _named(name: str, weight: Weight) -> dict[str, int]:
    parts = {name: weight.once, f"{name}_per_turn": weight.turn}
    return {part: value for part, value in parts.items() if value}
