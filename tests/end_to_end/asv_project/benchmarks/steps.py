import os
import pathlib
import sys

from layerbench.asv_types import cells


@cells("step_ms", "compile_ms", "stablehlo_lines")
class Step:
    fixed = {"model": "tiny", "phase": "step", "layers": 1, "batch": 1, "seq": 64}  # noqa: RUF012 - asv
    params = (["plain", "wrong", "newer", "deadly"],)
    param_names = ("layout",)
    rounds = 1
    repeat = (2, 4, 0.2)

    def teardown(self, layout):
        with pathlib.Path(os.environ["TINY_LOG"]).open("a") as log:
            log.write(f"end {os.environ.get('ASV_COMMIT')} {layout} jax={'jax' in sys.modules}\n")
