"""The same suite by somebody who noticed: each process makes its program once."""

import functools

from . import naive
from .program import Program

_program = functools.lru_cache(Program)


class CachedCells(naive.Cells):
    def setup(self, phase, layout, layers):
        self.program = _program(phase, layout, layers)
