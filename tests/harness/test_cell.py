"""Cells: ids that are stable and distinct, and matrices of them."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerbench.cell import Cell, Matrix, group_cells
from layerbench.errors import UsageError

NAMES = st.sampled_from(["a", "b", "c-d"])
CELLS = st.builds(
    Cell,
    model=NAMES,
    layout=NAMES,
    phase=NAMES,
    layers=st.integers(1, 5),
    batch=st.integers(1, 5),
    seq=st.integers(1, 5),
    dtype=NAMES,
    target=NAMES,
    new_tokens=st.integers(0, 3),
    mesh=st.sampled_from(["", "tp:2", "fsdp:2,tp:2"]),
)
MATRIX = Matrix(
    models=("m",),
    layouts=("x", "y"),
    phases=("prefill", "generate"),
    layers=(1, 2),
    batch=3,
    seq=64,
    new_tokens=8,
    dtype="float32",
    targets=("cpu",),
    phase_seq={"generate": 512},
)


@given(CELLS, CELLS)
def test_cells_are_equal_if_and_only_if_their_ids_are(one, other):
    assert (one == other) == (one.id == other.id)


@given(CELLS)
def test_a_cell_survives_json(cell):
    assert Cell.from_dict(cell.as_dict()) == cell


def test_fields_of_a_later_version_are_left_out():
    cell = Cell("m", "x", "prefill", 1, 1, 1)
    assert Cell.from_dict({**cell.as_dict(), "colour": "blue"}) == cell


def test_an_id_reads_well_and_never_changes():
    cell = Cell("qwen3-tiny", "stacked-scan", "generate", 4, 2, 128, new_tokens=16, mesh="tp:2")
    assert cell.id == "qwen3-tiny/generate/stacked-scan/L4/B2/S128/N16/float32/cpu/tp2"


def test_a_model_folder_gives_the_same_id_wherever_it_lies():
    here = Cell("/home/a/my-model", "x", "prefill", 1, 1, 1)
    there = dataclasses.replace(here, model="../my-model/")
    assert here.id == there.id


@pytest.mark.parametrize("field", ["layers", "batch", "seq"])
def test_nothing_of_size_zero_is_measured(field):
    sizes = {"layers": 1, "batch": 1, "seq": 1} | {field: 0}
    with pytest.raises(UsageError, match=f"{field} must be at least 1, not 0"):
        Cell("m", "x", "prefill", **sizes)


def test_a_matrix_is_every_combination_with_groups_side_by_side():
    cells = MATRIX.cells()
    assert len(set(cells)) == len(cells) == 8
    assert [len(group) for group in group_cells(cells)] == [2] * 4
    assert [cell.layout for cell in cells] == ["x", "y"] * 4


def test_new_tokens_belong_to_generate_and_a_phase_may_have_its_own_length():
    by_phase = {cell.phase: (cell.seq, cell.new_tokens) for cell in MATRIX.cells()}
    assert by_phase == {"prefill": (64, 0), "generate": (512, 8)}
