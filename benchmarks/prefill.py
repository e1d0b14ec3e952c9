"""asv: whole prompts into an empty cache."""

from layerbench.asv_types import cells

from . import LAYERS, LAYOUTS, METRICS, PARAM_NAMES, ROUNDS


@cells(*METRICS)
class Prefill:
    """Whole prompts into an empty cache."""

    fixed = {"model": "qwen3-small", "phase": "prefill", "batch": 4, "seq": 64}
    params = (LAYOUTS, LAYERS)
    param_names = PARAM_NAMES
    rounds = ROUNDS
    repeat = (6, 30, 2.0)
