"""asv: one token for every sequence, at the last slot of the cache."""

from layerbench.asv_types import cells

from . import LAYERS, LAYOUTS, METRICS, PARAM_NAMES, ROUNDS


@cells(*METRICS)
class DecodeStep:
    """One token for every sequence, at the last slot of the cache."""

    fixed = {"model": "qwen3-small", "phase": "decode_step", "batch": 4, "seq": 1024}
    params = (LAYOUTS, LAYERS)
    param_names = PARAM_NAMES
    rounds = ROUNDS
    repeat = (6, 30, 2.0)
