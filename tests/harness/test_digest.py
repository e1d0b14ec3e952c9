"""The harness's digest: any change of any file is seen, caches are not."""

import shutil

import pytest

from layerbench.digest import PACKAGE, harness_digest, ruler_digest


@pytest.fixture
def package(tmp_path):
    (tmp_path / "p" / "sub").mkdir(parents=True)
    (tmp_path / "p" / "a.py").write_text("one")
    (tmp_path / "p" / "sub" / "b.html").write_text("two")
    return tmp_path / "p"


def test_a_copy_has_the_same_digest(package, tmp_path):
    copy = shutil.copytree(package, tmp_path / "elsewhere")
    assert harness_digest(copy) == harness_digest(package)


@pytest.mark.parametrize("name", ["a.py", "sub/b.html", "new.py"])
def test_any_edit_is_seen(package, name):
    before = harness_digest(package)
    (package / name).write_text("three")
    assert harness_digest(package) != before


def test_a_renamed_or_moved_file_is_seen(package):
    before = harness_digest(package)
    (package / "a.py").rename(package / "sub" / "a.py")
    assert harness_digest(package) != before


def test_compiled_files_do_not_count(package):
    before = harness_digest(package)
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "a.cpython-311.pyc").write_bytes(b"x")
    assert harness_digest(package) == before


def test_the_digest_is_that_of_the_installed_harness():
    assert harness_digest() == harness_digest(PACKAGE)
    assert len(harness_digest()) == 16


def test_what_is_measured_is_a_part_of_the_ruler(package, tmp_path):
    workloads = tmp_path / "workloads.py"
    workloads.write_text("one")
    before = ruler_digest(workloads, package)
    workloads.write_text("two")
    assert ruler_digest(workloads, package) != before
    workloads.write_text("one")
    assert ruler_digest(workloads, package) == before
    (package / "a.py").write_text("three")
    assert ruler_digest(workloads, package) != before
