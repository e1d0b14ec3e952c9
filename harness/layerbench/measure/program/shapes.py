"""Shapes as HLO text writes them: arrays with layout and memory space, and tuples of them."""

from __future__ import annotations

import dataclasses
import functools
import math
import re

from layerbench.measure.program.errors import ProgramError

_FLOAT8 = ("f8e3m4", "f8e4m3", "f8e4m3b11fnuz", "f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz")
ELEMENT_BITS = {
    "token": 0,
    "opaque": 0,
    **dict.fromkeys(("s1", "u1"), 1),
    **dict.fromkeys(("s2", "u2"), 2),
    **dict.fromkeys(("s4", "u4", "f4e2m1fn"), 4),
    **dict.fromkeys(("pred", "s8", "u8", "f8e8m0fnu", *_FLOAT8), 8),
    **dict.fromkeys(("s16", "u16", "f16", "bf16"), 16),
    **dict.fromkeys(("s32", "u32", "f32"), 32),
    **dict.fromkeys(("s64", "u64", "f64", "c64"), 64),
    "c128": 128,
}
"""Bits of one element of each type. A predicate takes a byte in memory."""

_ARRAY = re.compile(r"([a-z][a-z0-9]*)\[([0-9,<= ]*)\](?:\{([^{}]*)\})?")
_MEMORY_SPACE = re.compile(r"S\((\d{1,9})\)")
_PACKED = re.compile(r"E\((\d{1,3})\)")
_COMMENT = re.compile(r"/\*[^*]*\*/")
_MAX_DIGITS = 18  # of a dimension: beyond, the text is not a program's
_MAX_DEPTH = 50  # of nested tuples
_KEPT_SHAPES = 200_000  # distinct shape texts that are kept read; a program has a few thousand


@dataclasses.dataclass(frozen=True, slots=True)
class Array:
    """One array.

    Attributes:
        dtype: As HLO names it, such as `bf16`.
        dims: Sizes of the axes.
        memory_space: 0 for main memory; others are the target's (1 is a TPU's vector memory).
        bytes: Of the elements; the padding of tiled layouts is left out.
    """

    dtype: str
    dims: tuple[int, ...]
    memory_space: int
    bytes: int

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.dims)

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.dims))}]"


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """The shape of a value: an array, or a tuple.

    Attributes:
        parts: The elements of a tuple; empty for an array.
        leaves: All arrays, in order; one for an array.
        is_tuple: Whether it is a tuple, which may be empty.
    """

    parts: tuple[Shape, ...]
    leaves: tuple[Array, ...]
    is_tuple: bool

    @property
    def bytes(self) -> int:
        """Of all arrays."""
        return sum(leaf.bytes for leaf in self.leaves)

    @property
    def array(self) -> Array:
        """The only array.

        Raises:
            ProgramError: It is a tuple.
        """
        if self.is_tuple or not self.leaves:
            raise ProgramError(f"expected an array and found the tuple {self}")
        return self.leaves[0]

    def __str__(self) -> str:
        if not self.is_tuple:
            return str(self.leaves[0])
        if len(self.leaves) > 4:
            return f"({self.leaves[0]}, ... {len(self.leaves)} arrays)"
        return f"({', '.join(map(str, self.parts))})"


@functools.lru_cache(maxsize=_KEPT_SHAPES)
def parse_shape(text: str) -> Shape:
    """Reads `f32[2,64]{1,0:T(8,128)S(1)}` or a tuple `(s32[], (f32[2], pred[]))`.

    Raises:
        ProgramError: The text is no shape.
    """
    if "/*" in text:
        text = _COMMENT.sub("", text)
    shape, end = _parse(text, _skip_spaces(text, 0), 0)
    if _skip_spaces(text, end) != len(text):
        raise ProgramError(f"cannot read the shape '{_short(text)}'")
    return shape


def _parse(text: str, start: int, depth: int) -> tuple[Shape, int]:
    if not text.startswith("(", start):
        match = _ARRAY.match(text, start)
        if match is None:
            raise ProgramError(f"cannot read the shape '{_short(text)}'")
        array = _array(match[1], match[2], match[3] or "")
        return Shape(parts=(), leaves=(array,), is_tuple=False), match.end()
    if depth > _MAX_DEPTH:
        raise ProgramError(f"a tuple is nested deeper than {_MAX_DEPTH}")
    parts: list[Shape] = []
    end = _skip_spaces(text, start + 1)
    while not text.startswith(")", end):
        if parts:
            if not text.startswith(",", end):
                raise ProgramError(f"cannot read the tuple '{_short(text)}'")
            end = _skip_spaces(text, end + 1)
        part, end = _parse(text, end, depth + 1)
        parts.append(part)
        end = _skip_spaces(text, end)
    leaves = tuple(leaf for part in parts for leaf in part.leaves)
    return Shape(parts=tuple(parts), leaves=leaves, is_tuple=True), end + 1


def _array(dtype: str, dims_text: str, layout: str) -> Array:
    bits = ELEMENT_BITS.get(dtype)
    if bits is None:
        raise ProgramError(f"unknown element type '{dtype}'")
    dims = []
    for part in dims_text.split(","):
        digits = part.strip().removeprefix("<=")
        if not digits and not dims_text.strip():
            break
        if not digits.isdecimal() or len(digits) > _MAX_DIGITS:
            raise ProgramError(f"cannot read the dimensions '[{_short(dims_text)}]'")
        dims.append(int(digits))
    packed = _PACKED.search(layout)
    if packed is not None and int(packed[1]):
        bits = int(packed[1])
    space = _MEMORY_SPACE.search(layout)
    return Array(
        dtype=dtype,
        dims=tuple(dims),
        memory_space=int(space[1]) if space else 0,
        bytes=(math.prod(dims) * bits + 7) // 8,
    )


def _skip_spaces(text: str, at: int) -> int:
    while text.startswith(" ", at):
        at += 1
    return at


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."
