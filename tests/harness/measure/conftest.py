from pathlib import Path

import pytest

from layerbench.suite import Project, load_suite


@pytest.fixture(scope="session")
def toy_project():
    folder = Path(__file__).parent
    return Project(root=folder, workloads=folder / "toy_suite.py", results=folder / "results")


@pytest.fixture(scope="session")
def toy_suite(toy_project):
    return load_suite(toy_project.workloads)
