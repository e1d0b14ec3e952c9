"""Worker processes: real ones, that crash for real."""

import os
import signal
import subprocess
import sys

import psutil
import pytest

from layerbench import Cell
from layerbench.errors import MeasurementError, UsageError
from layerbench.measure.events import Progress, TargetReady
from layerbench.measure.timing.sampling import SamplingPlan
from layerbench.measure.workers import Workers
from layerbench.record import Record, Status

PLAN = SamplingPlan(min_samples=2, max_samples=2, min_sample_ms=0.1)


def cell(layout, phase="add", **fields):
    return Cell("toy", layout, phase, 3, 1, 1, **fields)


@pytest.fixture(scope="module")
def toy_workers(toy_project):
    with Workers(toy_project, machine="a-machine") as workers:
        yield workers


def records(events):
    return {event.cell.layout: event for event in events if isinstance(event, Record)}


def test_a_suite_is_described_without_jax_in_this_process(toy_workers):
    description = toy_workers.describe()
    assert description.phases == ("add", "loop")
    assert description.default.layers == (1, 2)


def test_every_record_follows_its_environment_and_progress(toy_workers):
    events = list(toy_workers.measure([cell("plain")], PLAN))
    assert isinstance(events[0], TargetReady)
    assert events[0].environment.machine == "a-machine"
    stages = [event.stage for event in events if isinstance(event, Progress)]
    assert stages[:3] == ["build", "compile", "sample"]
    assert isinstance(events[-1], Record)


def test_a_crash_takes_one_cell_with_it_and_names_signal_and_last_words(toy_workers):
    found = records(
        toy_workers.measure([cell("plain"), cell("dies"), cell("exits"), cell("twice")], PLAN)
    )
    assert {name: record.status for name, record in found.items()} == {
        "plain": Status.OK,
        "dies": Status.FAILED,
        "exits": Status.FAILED,
        "twice": Status.OK,
    }
    assert "SIGKILL" in found["dies"].reason
    assert "last words of a dying worker" in found["dies"].reason
    assert "exit code 7" in found["exits"].reason


def test_a_worker_killed_from_outside_fails_the_cell_it_was_busy_with(toy_workers):
    found = []
    killed = False
    for event in toy_workers.measure([cell("plain"), cell("twice")], PLAN):
        if isinstance(event, Progress) and event.cell.layout == "twice" and not killed:
            killed = True
            (worker,) = psutil.Process().children()
            worker.send_signal(signal.SIGKILL)
        if isinstance(event, Record):
            found.append((event.cell.layout, event.status))
    assert sorted(found) == [("plain", Status.OK), ("twice", Status.FAILED)]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (cell("plain", phase="fly"), "unknown phase 'fly': choose from add, loop"),
        (cell("diagonal"), "unknown layout 'diagonal': choose from plain, "),
        (Cell("toys", "plain", "add", 1, 1, 1), "unknown model 'toys': choose toy"),
        (cell("plain", target="abacus"), "unknown target 'abacus': choose from cpu, gpu, tpu"),
        (cell("plain", mesh="tp=2"), "cannot read mesh 'tp=2'"),
    ],
)
def test_a_bad_cell_is_refused_in_one_line(toy_workers, bad, message):
    with pytest.raises(UsageError) as caught:
        toy_workers.validate([bad])
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_a_target_without_a_device_is_refused_in_one_line(toy_workers):
    with pytest.raises(UsageError, match="no device for this target here") as caught:
        toy_workers.validate([cell("plain", target="tpu")])
    assert "\n" not in str(caught.value)


def test_zero_layers_are_refused():
    with pytest.raises(UsageError, match="layers must be at least 1, not 0"):
        Cell("toy", "plain", "add", 0, 1, 1)


def test_a_mesh_of_virtual_cpu_devices_is_made_for_the_cells_that_ask_for_it(toy_project):
    with Workers(toy_project) as workers:
        ready = next(iter(workers.measure([cell("plain", mesh="fsdp:2,tp:2")], PLAN)))
    assert ready.environment.device_count == 4


def test_no_worker_outlives_its_context(toy_project):
    others = set(psutil.Process().children())
    with Workers(toy_project) as workers:
        workers.describe()
        (worker,) = set(psutil.Process().children()) - others
    assert not worker.is_running()


def test_no_worker_outlives_a_killed_command(toy_project):
    script = (
        "import sys, time; from pathlib import Path; from layerbench.suite import Project;"
        "from layerbench.measure.workers import Workers;"
        f"path = Path({str(toy_project.workloads)!r});"
        "workers = Workers(Project(path.parent, path, path.parent)); workers.describe();"
        "print('up', flush=True); time.sleep(600)"
    )
    command = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert command.stdout.readline() == "up\n"
    (worker,) = psutil.Process(command.pid).children()
    os.kill(command.pid, signal.SIGKILL)
    command.wait()
    command.stdout.close()
    worker.wait(timeout=30)
    assert not worker.is_running()


def test_a_harness_edited_in_the_middle_ends_the_measurement(toy_project):
    digests = iter(["one", "one", "two"])
    found = []

    def measure():
        with Workers(toy_project, digest=lambda: next(digests)) as workers:
            found.extend(workers.measure([cell("plain"), cell("plain", phase="loop")], PLAN))

    with pytest.raises(MeasurementError, match="two rulers"):
        measure()
    # `extend` keeps what came before the error.
    assert [record.status for record in records(found).values()] == [Status.OK]
