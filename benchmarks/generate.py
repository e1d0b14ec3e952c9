"""asv: a turn of the decode loop."""

from layerbench.asv_types import cells

from . import LAYERS, LAYOUTS, METRICS, PARAM_NAMES, ROUNDS


@cells(*METRICS)
class Generate:
    """A turn of the decode loop."""

    fixed = {"model": "qwen3-small", "phase": "generate", "batch": 4, "seq": 1024, "new_tokens": 16}
    params = (LAYOUTS, LAYERS)
    param_names = PARAM_NAMES
    rounds = ROUNDS
    repeat = (6, 30, 2.0)
