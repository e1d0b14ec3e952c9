"""What is captured of the place where a number was made."""

import json
import subprocess

import pytest

from layerbench.environment import Environment, Source, capture_environment, capture_source


def git(folder, *arguments):
    identity = ("-c", "user.name=n", "-c", "user.email=e@example.org")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path):
    git(tmp_path, "init", "--initial-branch=trunk")
    (tmp_path / "file").write_text("one")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-m", "first")
    return tmp_path


def test_a_clean_commit_is_told_by_its_full_hash(repository):
    source = capture_source(repository)
    assert len(source.commit) == 40
    assert (source.dirty, source.branch) == (False, "trunk")


def test_an_edited_file_makes_the_tree_dirty_and_a_new_one_does_not(repository):
    (repository / "new").write_text("x")
    assert not capture_source(repository).dirty
    (repository / "file").write_text("two")
    assert capture_source(repository).dirty


def test_a_detached_checkout_has_no_branch(repository):
    git(repository, "checkout", "--detach")
    assert capture_source(repository).branch == ""


def test_a_folder_outside_any_repository_has_no_source(tmp_path):
    assert capture_source(tmp_path) == Source()


def test_the_environment_tells_versions_device_precision_and_flags(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=true")
    environment = capture_environment("a-machine")
    assert environment.machine == "a-machine"
    assert {"jax", "jaxlib", "numpy"} <= set(environment.packages)
    assert environment.flags["XLA_FLAGS"] == "--xla_cpu_multi_thread_eigen=true"
    assert (environment.backend, environment.prng) == ("cpu", "threefry2x32")
    assert environment.matmul_precision
    assert environment.cpu_count >= 1


def test_an_environment_survives_json():
    environment = capture_environment()
    stored = json.loads(json.dumps(environment.as_dict()))
    assert Environment.from_dict(stored) == environment
