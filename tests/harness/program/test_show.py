"""`layerbench show`, from the id of a cell to its bill."""

import json
from pathlib import Path

import pytest

from layerbench import Cell
from layerbench.cli import main
from layerbench.cli.show import cell_of
from layerbench.errors import UsageError
from layerbench.measure.program.archive import read_archive

TOY = Path(__file__).parents[1] / "measure" / "toy_suite.py"
ADD = "toy/add/plain/L3/B1/S1/float32/cpu"


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text(
        f"[tool.layerbench]\nworkloads = {json.dumps(str(TOY))}\nresults = 'results'\n"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "cell",
    [
        Cell("m", "stacked-scan", "decode_step", 2, 3, 5),
        Cell("m", "l", "generate", 2, 3, 5, "bfloat16", "aot:tpu-v5e", 4, "fsdp:2,tp:4"),
    ],
)
def test_an_id_leads_back_to_its_cell(cell):
    assert cell_of(cell.id) == cell


@pytest.mark.parametrize("text", ["", "m/decode_step", f"{ADD}/fsdp", ADD.replace("L3", "Lx")])
def test_what_is_no_id_is_refused_with_the_form_to_write(text):
    with pytest.raises(UsageError, match="write"):
        cell_of(text)


def test_a_bill_and_the_programs_text_are_shown_and_kept(project, capfd):
    assert main(["show", ADD, "--hlo", "program.hlo.gz", "--json", "bill.json"]) == 0
    out = capfd.readouterr().out
    assert out.startswith("add of toy, batch 1, seq 1, float32, cpu, plain, 3 layers\n")
    assert "fusion: add" in out
    answer = json.loads((project / "bill.json").read_text())
    assert answer["metrics"]["hbm_bytes"] >= answer["floor_bytes"]
    assert read_archive(project / "program.hlo.gz").startswith("HloModule ")


@pytest.mark.parametrize(
    ("cell", "line", "code"),
    [
        (ADD.replace("add", "sub"), "unknown phase 'sub'", 2),
        (ADD.replace("plain", "raises"), "this layout always raises", 4),
        (ADD.replace("plain", "exits"), "ended with 7 and no answer", 4),
        (ADD.replace("cpu", "npu"), "unknown target 'npu'", 2),
    ],
)
def test_a_cell_that_cannot_be_read_is_one_line_and_an_exit_code(project, capfd, cell, line, code):
    assert main(["show", cell]) == code
    error = capfd.readouterr().err
    assert line in error
    assert "Traceback" not in error
