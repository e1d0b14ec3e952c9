import pytest

from layerbench.asv_cells.shared import UNFINISHED, SharedCell
from layerbench.cell import Cell
from layerbench.record import Record, Status

CELL = Cell("model", "layout", "phase", layers=2, batch=3, seq=5)


class Killed(BaseException):
    """Ends a process in the middle, as a signal would."""


class Processes:
    """Takes metrics of a cell as asv's processes do, one after the other."""

    def __init__(self, folder):
        self.folder = folder
        self.measured = 0
        self.kept = []

    def measure(self):
        self.measured += 1
        return Record(CELL, Status.OK, duration_s=float(self.measured))

    def die(self):
        raise Killed

    def take(self, metric, measure=None, cell=CELL):
        shared = SharedCell(self.folder, cell)
        return shared.take(metric, measure=measure or self.measure, keep=self.kept.append)


@pytest.fixture
def processes(tmp_path):
    return Processes(tmp_path)


def test_all_metrics_share_one_measurement(processes):
    records = [processes.take(metric) for metric in ("a", "b", "c")]
    assert {record.duration_s for record in records} == {1.0}
    assert processes.kept == records[:1]


def test_a_metric_that_asks_again_gets_new_numbers_and_the_others_get_them_too(processes):
    order = ("a", "b", "a", "b", "c", "b")
    assert [processes.take(metric).duration_s for metric in order] == [1, 1, 2, 2, 2, 3]
    assert [record.duration_s for record in processes.kept] == [1, 2, 3]


def test_cells_are_kept_apart(processes):
    other = Cell("elsewhere/model", "layout", "phase", layers=2, batch=3, seq=5)
    assert other.id == CELL.id
    processes.take("a")
    processes.take("a", cell=other)
    assert processes.measured == 2


def test_a_process_that_died_is_a_failure_for_the_others_and_is_kept_once(processes):
    with pytest.raises(Killed):
        processes.take("a", measure=processes.die)
    records = [processes.take(metric) for metric in ("b", "c")]
    assert [record.reason for record in records] == [UNFINISHED, UNFINISHED]
    assert processes.measured == 0
    assert processes.kept == records[:1]


def test_a_cell_whose_process_died_is_tried_again_in_the_next_round(processes):
    with pytest.raises(Killed):
        processes.take("a", measure=processes.die)
    assert processes.take("a").status is Status.OK
