"""Strict JSON in files that are either whole or not there."""

from __future__ import annotations

import contextlib
import json
import math
import os
import tempfile
from pathlib import Path
from typing import Any, NoReturn

from layerbench.errors import StoreError


def encode_json(document: Any, *, compact: bool = False) -> str:
    """Strict JSON (no NaN, no Infinity) with one trailing newline.

    Args:
        document: Of JSON's types.
        compact: On one line and without spaces, else indented.

    Raises:
        StoreError: The document holds a number that strict JSON cannot say.
    """
    form: dict[str, Any] = {"separators": (",", ":")} if compact else {"indent": 1}
    try:
        return json.dumps(document, allow_nan=False, **form) + "\n"
    except ValueError as error:
        message = f"a result cannot be written as strict JSON: {error}"
        raise StoreError(message) from error


def decode_json(text: str) -> Any:
    """Inverse of `encode_json`.

    Raises:
        StoreError: The text is not strict JSON; one line says where.
    """
    if not text.strip():
        raise StoreError("an empty file")
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except StoreError:
        raise
    except json.JSONDecodeError as error:
        message = f"not JSON, or cut off: {error.msg} in line {error.lineno}"
        raise StoreError(message) from error
    except (ValueError, RecursionError) as error:
        message = f"not JSON that can be read: {error}"
        raise StoreError(message) from error


def read_json(path: Path) -> Any:
    """The document in a file.

    Raises:
        StoreError: The file cannot be read or is not strict JSON; the message leaves the path out.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise StoreError(_words(error)) from error
    except UnicodeDecodeError as error:
        raise StoreError("not a text file in UTF-8") from error
    return decode_json(text)


def write_text(path: Path, text: str) -> None:
    """Writes a file so that a reader, or a crash at any moment, finds the old or the new one whole.

    Raises:
        StoreError: The folder or disk does not take it; what was there before is untouched.
    """
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """As `write_text`, for content that is not text."""
    path = path.resolve()  # a link stays a link
    if path.exists() and not path.is_file():
        _write_through(path, content)
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # In the same folder: a rename is atomic only within one file system. Hidden and with a
        # suffix of its own: what a crash leaves behind is never read as a result.
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    except OSError as error:
        message = f"cannot write {path}: {_words(error)}"
        raise StoreError(message) from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)  # mkstemp's 0600 would hide results from a shared folder's readers
        Path(name).replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        if not isinstance(error, OSError):
            raise
        message = f"cannot write {path}: {_words(error)}"
        raise StoreError(message) from error


def _write_through(path: Path, content: bytes) -> None:
    # A device or a pipe, such as /dev/null: renaming a file onto it would take its place.
    try:
        with path.open("wb") as stream:
            stream.write(content)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {_words(error)}") from error


def check_writable(folder: Path) -> None:
    """Makes the folder and writes and removes a file in it, so that a long measurement can begin.

    Raises:
        StoreError: It cannot be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"layerbench")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        message = f"cannot write to the folder {folder}: {_words(error)}; choose one with --results"
        raise StoreError(message) from error


def _words(error: OSError) -> str:
    return (error.strerror or str(error) or type(error).__name__).lower()


def _refuse_constant(name: str) -> NoReturn:
    message = f"not strict JSON: it holds {name}"
    raise StoreError(message)


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        message = f"not strict JSON: the number {text} is too large"
        raise StoreError(message)
    return number
