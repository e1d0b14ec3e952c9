"""asv: one AdamW step."""

from layerbench.asv_types import cells

from . import LAYERS, LAYOUTS, METRICS, PARAM_NAMES, ROUNDS


@cells(*METRICS)
class TrainStep:
    """One AdamW step."""

    fixed = {"model": "qwen3-small", "phase": "train_step", "batch": 4, "seq": 64}
    params = (LAYOUTS, LAYERS)
    param_names = PARAM_NAMES
    rounds = ROUNDS
    repeat = (6, 30, 2.0)
