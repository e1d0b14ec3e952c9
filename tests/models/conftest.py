"""Settings of jax for all tests of the models; they hold before any device is initialised."""

from __future__ import annotations

import jax

jax.config.update("jax_num_cpu_devices", 4)
jax.config.update("jax_default_matmul_precision", "highest")
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")
