"""Which folder a run belongs to."""

from __future__ import annotations

import pytest

from layerbench.environment import Source
from layerbench.errors import UsageError
from layerbench.store.places import choose_place, machine_name
from layerbench.suite import Project

CLEAN, DIRTY = Source(commit="c0ffee"), Source(commit="c0ffee", dirty=True)


@pytest.fixture
def project(tmp_path):
    return Project(root=tmp_path, workloads=tmp_path / "w.py", results=tmp_path / "results")


def configure(project, machine):
    text = f'[tool.layerbench]\nworkloads = "w.py"\nmachine = {machine}\n'
    (project.root / "pyproject.toml").write_text(text)


@pytest.mark.parametrize(
    ("machine", "source", "results", "folder"),
    [
        ("h200", CLEAN, None, "results/records/h200"),
        ("h200", DIRTY, None, "results/local/records/h200"),
        ("h200", Source(), None, "results/local/records/h200"),
        ("", CLEAN, None, "results/local/records/unnamed"),
        ("", DIRTY, None, "results/local/records/unnamed"),
        ("h200", DIRTY, "elsewhere", "elsewhere/records/h200"),
        ("", CLEAN, "elsewhere", "elsewhere/records/unnamed"),
    ],
)
def test_only_a_named_machine_and_a_clean_tree_join_the_projects_results(
    project, machine, source, results, folder
):
    given = None if results is None else str(project.root / results)
    place = choose_place(project, source, machine=machine, results=given)
    assert place.records == project.root / folder


def test_a_dash_stores_nothing(project):
    assert choose_place(project, CLEAN, machine="h200", results="-") is None


def test_the_environment_wins_over_the_file(project):
    configure(project, '"from-file"')
    assert machine_name(project, {}) == "from-file"
    assert machine_name(project, {"LAYERBENCH_MACHINE": "from-environment"}) == "from-environment"


def test_a_machine_without_a_name_is_not_guessed(project):
    assert machine_name(project, {}) == ""


@pytest.mark.parametrize("name", ["../up", ".hidden", "a/b", "with space", "x" * 101])
def test_a_name_that_cannot_be_a_folder_is_refused(project, name):
    with pytest.raises(UsageError, match="cannot name a folder"):
        machine_name(project, {"LAYERBENCH_MACHINE": name})


def test_a_name_that_is_no_text_is_refused(project):
    configure(project, "7")
    with pytest.raises(UsageError, match="must be a string"):
        machine_name(project, {})
