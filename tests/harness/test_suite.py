"""Finding a project and loading its suite; every mistake is one line that says what to do."""

import pytest

from layerbench import Cell
from layerbench.errors import UsageError
from layerbench.suite import find_project, load_suite


def write(folder, text, name="pyproject.toml"):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return folder / name


def refusal(call, *arguments):
    with pytest.raises(UsageError) as caught:
        call(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_nearest_project_above_is_found(tmp_path):
    write(tmp_path, '[tool.layerbench]\nworkloads = "w.py"\nresults = "out"')
    write(tmp_path / "sub", "[tool.other]\n")
    project = find_project(tmp_path / "sub")
    assert (project.root, project.workloads) == (tmp_path, tmp_path / "w.py")
    assert project.results == tmp_path / "out"


def test_results_have_a_default_place(tmp_path):
    write(tmp_path, '[tool.layerbench]\nworkloads = "w.py"')
    assert find_project(tmp_path).results == tmp_path / "results"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tool.layerbench]\n", "names no workloads file"),
        ("[tool.layerbench\n", "is not valid TOML"),
    ],
)
def test_a_bad_table_is_refused(tmp_path, text, message):
    write(tmp_path, text)
    assert message in refusal(find_project, tmp_path)


def test_no_project_at_all_says_what_to_write(tmp_path):
    assert 'workloads = "benchmarks/workloads.py"' in refusal(find_project, tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "does not exist"),
        ("import nonesuch", "cannot be imported: ModuleNotFoundError: No module named 'nonesuch'"),
        ("def broken(:", "cannot be imported: SyntaxError"),
        ("SUITE = 3", "holds no SUITE"),
        ("", "holds no SUITE"),
    ],
)
def test_a_bad_workloads_file_is_refused(tmp_path, text, message):
    path = tmp_path / "w.py" if text is None else write(tmp_path, text, "w.py")
    assert message in refusal(load_suite, path)


SUITE = """
from layerbench import Matrix, Suite

def check(cell):
    if cell.layers > 8:
        raise ValueError("too\\n deep: choose at most 8 layers")

SUITE = Suite(("m",), ("x",), ("prefill",),
              Matrix(("m",), ("x",), ("prefill",), (1,), 1, 1, 0, "float32", ("cpu",)),
              check, build=lambda cell: None)
"""


def test_a_suite_checks_names_first_and_then_asks_the_project(tmp_path):
    suite = load_suite(write(tmp_path, SUITE, "w.py"))
    suite.validate(Cell("m", "x", "prefill", 8, 1, 1))
    deep = Cell("m", "x", "prefill", 9, 1, 1)
    assert refusal(suite.validate, deep) == "too deep: choose at most 8 layers"
    wrong = Cell("m", "y", "prefill", 9, 1, 1)
    assert refusal(suite.validate, wrong) == "unknown layout 'y': choose from x"
