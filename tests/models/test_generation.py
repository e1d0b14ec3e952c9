"""Generation is repeated decode steps, ended by the stop token, the limit or the cache's end."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from layerbench_models import NO_TOKEN, Positions, build, convert_params

PROMPT, CAPACITY, WIDTH = 5, 13, 9


class Case:
    """A prefilled model with its generation compiled once, for any number of turns."""

    def __init__(self, name, parity):
        config = parity.config(num_layers=2)
        self.model = build(config, name)
        self.params = convert_params(parity.random_params(config, seed=3), "unrolled", name)
        tokens, lengths = parity.batch(config, [5, 2, 4])
        cache = self.model.init_cache(3, CAPACITY)
        with jax.default_matmul_precision("highest"):
            logits, self.cache = parity.fast_jit(self.model.prefill)(
                self.params, cache, tokens, lengths
            )
        self.first = jnp.argmax(logits, -1).astype(jnp.int32)
        self.positions = Positions.after_prompt(PROMPT, lengths)
        self.compiled = parity.fast_jit(self.model.generate, static_argnames="max_new_tokens")

    def generate(self, count, stop=NO_TOKEN):
        generated, _ = self.compiled(
            self.params, self.cache, self.first, self.positions, count, stop, max_new_tokens=WIDTH
        )
        return np.asarray(generated.tokens), np.asarray(generated.lengths)


@pytest.fixture(scope="module")
def case(parity):
    return Case("stacked-scan", parity)


@pytest.mark.parametrize(
    "name",
    ["unrolled", "stacked-scan", "vmap", "stacked", "sliced", "scan-deferred-write", "hybrid"],
)
def test_generation_is_repeated_decode_steps(name, parity):
    case = Case(name, parity)
    step, params = parity.fast_jit(case.model.decode_step), case.model.prepare_decode(case.params)
    cache, tokens, positions, expected = case.cache, case.first, case.positions, []
    for _ in range(4):
        logits, cache = step(params, cache, tokens, positions)
        tokens = jnp.argmax(logits, -1).astype(jnp.int32)
        positions = positions.next()
        expected.append(tokens)
    tokens, lengths = case.generate(4)
    np.testing.assert_array_equal(tokens[:, :4], np.stack(expected, axis=1))
    assert (tokens[:, 4:] == NO_TOKEN).all()
    np.testing.assert_array_equal(lengths, [4, 4, 4])


def test_prepared_parameters_generate_the_same(parity):
    case = Case("stacked", parity)
    expected = case.generate(3)[0]
    case.params = case.model.prepare_decode(case.params)
    np.testing.assert_array_equal(case.generate(3)[0], expected)


def test_one_program_serves_any_number_of_turns_and_any_stop_token(case):
    for count, stop in ((1, -1), (3, -1), (0, -1), (3, 5)):
        case.generate(jnp.int32(count), jnp.int32(stop))
    assert case.compiled._cache_size() == 1


def test_no_turn_generates_nothing(case):
    tokens, lengths = case.generate(jnp.int32(0))
    assert (tokens == NO_TOKEN).all()
    np.testing.assert_array_equal(lengths, [0, 0, 0])


def test_the_output_and_the_cache_limit_the_turns(case):
    # 13 slots, 5 of them the prompt's: the eighth new token takes the last one.
    assert case.generate(jnp.int32(100))[1].max() == CAPACITY - PROMPT


def test_a_row_ends_with_its_stop_token_while_the_others_go_on(case):
    free, _ = case.generate(jnp.int32(6))
    ends = {
        int(stop): [
            next((i + 1 for i, t in enumerate(row) if t == stop), None) for row in free[:, :6]
        ]
        for stop in free[:, :6].ravel()
    }
    started = set(np.asarray(case.first).tolist())
    stop = next(s for s, found in ends.items() if None in found and s not in started)
    tokens, lengths = case.generate(jnp.int32(6), jnp.int32(stop))
    for row, end in enumerate(ends[stop]):
        kept = end or 6
        assert lengths[row] == kept
        np.testing.assert_array_equal(tokens[row, :kept], free[row, :kept])
        assert (tokens[row, kept:] == NO_TOKEN).all()


def test_the_loop_ends_early_once_every_row_has_stopped(case):
    """Slots behind the last turn stay as they were: nothing ran there."""
    one_row = jnp.full_like(case.first, case.first[0])
    _, cache = case.compiled(
        case.params, case.cache, one_row, case.positions, 6, one_row[0], max_new_tokens=WIDTH
    )
    jax.tree.map(np.testing.assert_array_equal, cache, case.cache)
