"""A content digest of the harness: two numbers are comparable if one ruler measured both."""

from __future__ import annotations

import hashlib
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def harness_digest(package: Path = PACKAGE) -> str:
    """Hex digest over the names and bytes of all files of the installed package.

    Args:
        package: The package's folder.

    Returns:
        The first 16 hex digits of a SHA-256; caches and compiled files do not count.
    """
    total = hashlib.sha256()
    for path in sorted(package.rglob("*")):
        if path.suffix == ".pyc" or "__pycache__" in path.parts or not path.is_file():
            continue
        name = path.relative_to(package).as_posix().encode()
        content = path.read_bytes()
        total.update(b"%d:%s%d:" % (len(name), name, len(content)))
        total.update(content)
    return total.hexdigest()[:16]


def ruler_digest(workloads: Path, package: Path = PACKAGE) -> str:
    """Hex digest of the harness and of the file that says what is measured: the whole ruler."""
    total = hashlib.sha256(harness_digest(package).encode())
    total.update(workloads.read_bytes())
    return total.hexdigest()[:16]
