"""A compiled cell, made in the way of most suites: build, trace, lower, compile, call once."""

import time

import jax
import numpy as np

import layerbench_models

MODEL, BATCH, SEQ = "qwen3-small", 4, 64
PARAMS = (["prefill", "decode_step"], ["unrolled", "stacked-scan"], [2, 8])
PARAM_NAMES = ("phase", "layout", "layers")


class Program:
    """The program of one cell with its arguments, and what making it told."""

    def __init__(self, phase, layout, layers):
        model = layerbench_models.build(MODEL, layout, num_layers=layers)
        params = jax.jit(model.init)(jax.random.key(0))
        tokens = np.random.default_rng(0).integers(
            model.config.vocab_size, size=(BATCH, SEQ), dtype=np.int32
        )
        if phase == "decode_step":
            params = jax.jit(model.prepare_decode)(params)
            self.inputs = (
                tokens[:, 0],
                layerbench_models.Positions(
                    fill=np.int32(SEQ - 1), starts=np.zeros(BATCH, np.int32)
                ),
            )
        else:
            self.inputs = (tokens, np.full(BATCH, SEQ, np.int32))
        self.inputs = jax.tree.map(jax.numpy.asarray, self.inputs)
        self.params, self.cache = params, model.init_cache(BATCH, SEQ)
        cache_bytes = sum(leaf.nbytes for leaf in jax.tree.leaves(self.cache))

        jitted = jax.jit(getattr(model, phase), donate_argnums=1)
        started = time.perf_counter()
        traced = jitted.trace(self.params, self.cache, *self.inputs)
        traced_at = time.perf_counter()
        lowered = traced.lower()
        lowered_at = time.perf_counter()
        self.compiled = lowered.compile()
        compiled_at = time.perf_counter()
        self.step()
        self.first_call_ms = 1e3 * (time.perf_counter() - compiled_at)
        self.trace_ms = 1e3 * (traced_at - started)
        self.lower_ms = 1e3 * (lowered_at - traced_at)
        self.compile_ms = 1e3 * (compiled_at - lowered_at)

        memory = self.compiled.memory_analysis()
        self.temp_bytes = memory.temp_size_in_bytes
        self.output_bytes = memory.output_size_in_bytes
        self.undonated_bytes = max(0, cache_bytes - memory.alias_size_in_bytes)
        self.stablehlo_lines = lowered.as_text().count("\n")

    def step(self):
        logits, self.cache = self.compiled(self.params, self.cache, *self.inputs)
        jax.block_until_ready((logits, self.cache))
