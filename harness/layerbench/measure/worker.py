"""The process that measures: `python -m layerbench.measure.worker WORKLOADS MACHINE`.

Requests come as lines of JSON on standard input, events go as lines of JSON to what was standard
output; whatever the measured code prints goes to standard error. It ends when its input does, also
in the middle of a measurement, so that it never outlives the command that started it.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax

from layerbench.cell import Cell
from layerbench.environment import capture_environment
from layerbench.errors import LayerbenchError, UsageError
from layerbench.measure.events import SuiteDescription, TargetReady, encode, encode_description
from layerbench.measure.session import describe_failure, measure_group
from layerbench.measure.timing.sampling import SamplingPlan
from layerbench.suite import Suite, load_suite

if TYPE_CHECKING:
    from collections.abc import Callable

    Send = Callable[[dict[str, Any]], None]


def main() -> None:
    """Serves requests until the input ends."""
    workloads, machine = Path(sys.argv[1]), sys.argv[2]
    send = _take_standard_output()
    requests = _read_requests()
    suite: Suite | None = None
    while True:
        request = requests.get()
        try:
            if suite is None:
                _check_backend()
                suite = load_suite(workloads)
            _serve(request, suite, machine, send)
            send({"event": "done"})
        except LayerbenchError as error:
            send({"event": "error", "message": str(error), "exit_code": error.exit_code})
        except Exception as error:  # noqa: BLE001 - told to the command, which has the user's ear
            send({"event": "error", "message": describe_failure(error), "exit_code": 4})


def _serve(request: dict[str, Any], suite: Suite, machine: str, send: Send) -> None:
    cells = [Cell.from_dict(fields) for fields in request.get("cells", ())]
    match request["op"]:
        case "describe":
            description = SuiteDescription(
                models=tuple(suite.models),
                layouts=tuple(suite.layouts),
                phases=tuple(suite.phases),
                default=suite.default,
            )
            send({"event": "description", **encode_description(description)})
        case "validate":
            for cell in cells:
                suite.validate(cell)
        case "measure":
            send(encode(TargetReady(request["target"], capture_environment(machine))))
            plan = SamplingPlan(**request["plan"])
            for record in measure_group(cells, suite, plan, tell=lambda told: send(encode(told))):
                send(encode(record))
        case unknown:
            raise UsageError(f"unknown request {unknown!r}")


def _take_standard_output() -> Send:
    events = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def send(message: dict[str, Any]) -> None:
        events.write(json.dumps(message, allow_nan=False) + "\n")
        events.flush()

    return send


def _read_requests() -> queue.Queue[dict[str, Any]]:
    requests: queue.Queue[dict[str, Any]] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            requests.put(json.loads(line))
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    return requests


def _check_backend() -> None:
    wanted = os.environ.get("JAX_PLATFORMS", "")
    try:
        jax.devices()
    except RuntimeError as error:
        raise UsageError(
            f"no device for this target here (JAX_PLATFORMS={wanted}): {_first_line(error)}"
        ) from error


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


if __name__ == "__main__":
    main()
