"""Files are whole or not there, and JSON is strict."""

from __future__ import annotations

import errno
import json
import math
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerbench.errors import StoreError
from layerbench.store.files import check_writable, decode_json, encode_json, read_json, write_text

documents = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(documents)
def test_a_document_comes_back_as_it_was(document):
    assert decode_json(encode_json(document)) == document


@given(documents)
def test_written_text_is_ascii_so_that_no_encoding_can_harm_it(document):
    encode_json(document).encode("ascii")


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_strict_json_cannot_say_is_not_written(number):
    with pytest.raises(StoreError, match="strict JSON"):
        encode_json({"value": [number]})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "an empty file"),
        (" \n", "an empty file"),
        ('{"a": [1, 2', "not JSON, or cut off: Expecting ',' delimiter in line 1"),
        ('{"a": NaN}', "not strict JSON: it holds NaN"),
        ("[-Infinity]", "not strict JSON: it holds -Infinity"),
        ("[1e999]", "not strict JSON: the number 1e999 is too large"),
        ("[" * 100_000, "not JSON that can be read: "),
        (f"[{'1' * 5000}]", "not JSON that can be read: "),
    ],
)
def test_what_is_not_strict_json_is_refused_in_one_line(text, message):
    with pytest.raises(StoreError) as caught:
        decode_json(text)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / "run.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(StoreError, match="not a text file"):
        read_json(path)


def test_a_folder_in_the_place_of_a_file_is_refused(tmp_path):
    with pytest.raises(StoreError, match="is a directory"):
        read_json(tmp_path)


def test_writing_makes_the_folders_and_leaves_nothing_else(tmp_path):
    path = tmp_path / "a" / "b" / "run.json"
    write_text(path, "first")
    write_text(path, "second")
    assert path.read_text() == "second"
    assert [each.name for each in path.parent.iterdir()] == ["run.json"]


@pytest.mark.parametrize("step", ["write", "fsync", "replace"])
def test_a_write_that_fails_in_the_middle_leaves_the_old_file_whole(tmp_path, monkeypatch, step):
    path = tmp_path / "run.json"
    write_text(path, "old")

    def full_disk(*_args, **_kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    if step == "replace":
        monkeypatch.setattr("pathlib.Path.replace", full_disk)
    elif step == "fsync":
        monkeypatch.setattr("os.fsync", full_disk)
    else:
        real = os.fdopen

        def half_written(handle, mode):
            file = real(handle, mode)
            file.write(b"ne")
            file.flush()
            file.close()
            full_disk()

        monkeypatch.setattr("os.fdopen", half_written)
    with pytest.raises(StoreError, match=r"cannot write .*run\.json: no space left on device"):
        write_text(path, "new")
    monkeypatch.undo()
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["run.json"]


def test_an_interrupt_in_the_middle_of_a_write_leaves_the_old_file_whole(tmp_path, monkeypatch):
    path = tmp_path / "run.json"
    write_text(path, "old")

    def interrupt(_handle):
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["run.json"]


def test_a_folder_that_cannot_be_made_is_found_before_it_is_needed(tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("")
    with pytest.raises(StoreError, match=r"cannot write to the folder .*--results"):
        check_writable(blocker / "results")


def test_the_check_leaves_the_folder_empty(tmp_path):
    check_writable(tmp_path / "results")
    assert list((tmp_path / "results").iterdir()) == []


def test_what_is_written_can_be_read_by_others(tmp_path):
    path = tmp_path / "run.json"
    write_text(path, json.dumps({}))
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_pipe_is_written_through_and_stays_a_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_text(pipe, "told\n")
    assert os.read(reader, 100) == b"told\n"
    os.close(reader)
    assert pipe.is_fifo()


def test_a_device_keeps_its_place():
    write_text(Path(os.devnull), "told")
    assert Path(os.devnull).is_char_device()


def test_a_link_stays_a_link_to_what_was_written(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_text(tmp_path / "link", "told")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "told"
