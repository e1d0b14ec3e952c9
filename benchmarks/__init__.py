"""asv's suite: what stands here is measured at every commit, one module for each phase.

asv lists the benchmarks of every module in this folder. Commands load `workloads.py` by its path
and see nothing of the rest. All values are literals: what an old commit lacks is n/a there, and a
value that changed would begin a new history.
"""

import layerbench.asv_types  # noqa: F401 - asv learns the type of our benchmarks

METRICS = ("step_ms", "compile_ms", "first_call_ms", "temp_bytes")
"""What asv carries of each phase; the records in results/records carry all metrics."""

PARAM_NAMES = ("layout", "layers")
LAYOUTS = ["unrolled", "stacked-scan", "stacked", "vmap"]
LAYERS = [2, 8]
"""Only append to these: asv tells a history by its values."""

ROUNDS = 1
"""One commit then takes well under 15 minutes on 2 cores; `-a rounds=2` asks for more."""
