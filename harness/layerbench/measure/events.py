"""What a worker tells while it measures; each event is one line of JSON on its way."""

from __future__ import annotations

import dataclasses
from typing import Any

from layerbench.cell import Cell, Matrix
from layerbench.environment import Environment
from layerbench.record import Record


@dataclasses.dataclass(frozen=True, slots=True)
class TargetReady:
    """A target's device is up; its environment goes with every record that follows."""

    target: str
    environment: Environment


@dataclasses.dataclass(frozen=True, slots=True)
class Progress:
    """A cell has entered a stage: `build`, `compile` or `sample`."""

    cell: Cell
    stage: str


Event = TargetReady | Progress | Record


@dataclasses.dataclass(frozen=True, slots=True)
class SuiteDescription:
    """What a suite offers, without its code."""

    models: tuple[str, ...]
    layouts: tuple[str, ...]
    phases: tuple[str, ...]
    default: Matrix


def encode(event: Event) -> dict[str, Any]:
    """The event as strict JSON's types."""
    match event:
        case TargetReady():
            return {
                "event": "target",
                "target": event.target,
                "environment": event.environment.as_dict(),
            }
        case Progress():
            return {"event": "progress", "cell": event.cell.as_dict(), "stage": event.stage}
        case Record():
            return {"event": "record", "record": event.as_dict()}


def decode(message: dict[str, Any]) -> Event:
    """Inverse of `encode`."""
    match message["event"]:
        case "target":
            environment = Environment.from_dict(message["environment"])
            return TargetReady(message["target"], environment)
        case "progress":
            return Progress(Cell.from_dict(message["cell"]), message["stage"])
        case "record":
            return Record.from_dict(message["record"])
        case unknown:
            raise ValueError(f"unknown event {unknown!r}")


def encode_description(description: SuiteDescription) -> dict[str, Any]:
    """The description as strict JSON's types."""
    return dataclasses.asdict(description)


def decode_description(fields: dict[str, Any]) -> SuiteDescription:
    """Inverse of `encode_description`."""
    return SuiteDescription(
        models=tuple(fields["models"]),
        layouts=tuple(fields["layouts"]),
        phases=tuple(fields["phases"]),
        default=Matrix.from_dict(fields["default"]),
    )
