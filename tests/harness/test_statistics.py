"""Tests of layerbench.statistics against slow, obvious versions."""

from __future__ import annotations

import itertools
import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerbench.statistics import median, median_interval

samples = st.lists(st.floats(min_value=-1e6, max_value=1e6), min_size=1, max_size=60)


@given(samples)
def test_the_median_is_the_standard_librarys(values):
    assert median(values) == pytest.approx(statistics.median(values))


def test_no_samples_have_no_median():
    with pytest.raises(ValueError, match="no samples"):
        median([])


@given(samples)
def test_the_interval_covers_the_median(values):
    low, high = median_interval(values)
    assert low <= median(values) <= high


@given(samples, st.randoms())
def test_the_order_of_samples_does_not_matter(values, generator):
    shuffled = list(values)
    generator.shuffle(shuffled)
    assert median_interval(shuffled) == median_interval(values)


@given(samples, st.integers(min_value=-20, max_value=20))
def test_the_interval_scales_with_the_unit(values, exponent):
    scale = 2.0**exponent  # exact, so that the ends are equal to the last bit
    low, high = median_interval(values)
    assert median_interval([value * scale for value in values]) == (low * scale, high * scale)


@given(st.lists(st.floats(0, 1), min_size=6, max_size=60), st.floats(0.5, 0.9))
def test_more_confidence_is_never_narrower(values, confidence):
    low, high = median_interval(values, confidence)
    wider_low, wider_high = median_interval(values, 0.95)
    assert wider_low <= low <= high <= wider_high


@pytest.mark.parametrize(
    ("count", "ends"),
    [
        (6, (1, 6)),
        (8, (1, 8)),
        (9, (2, 8)),
        (12, (3, 10)),
        (20, (6, 15)),
        (30, (10, 21)),
        (50, (18, 33)),
        (70, (27, 44)),
    ],
)
def test_ranks_are_those_of_the_usual_tables(count, ends):
    assert median_interval(range(1, count + 1)) == ends


@pytest.mark.parametrize("count", range(6))
def test_too_few_samples_claim_nothing(count):
    assert median_interval([1.0] * count) == (-math.inf, math.inf)


@pytest.mark.parametrize("count", range(1, 13))
def test_coverage_counted_over_all_outcomes_reaches_the_confidence_and_no_inner_interval_does(
    count,
):
    """Each sample is below or above the median with probability 1/2; all 2^n cases are counted."""

    def coverage(rank):
        below = [sum(signs) for signs in itertools.product((0, 1), repeat=count)]
        return sum(rank <= number <= count - rank for number in below) / len(below)

    for confidence in (0.5, 0.8, 0.95, 0.99):
        low, _ = median_interval(range(1, count + 1), confidence)
        if math.isinf(low):
            assert coverage(1) < confidence
        else:
            assert coverage(low) >= confidence
            assert low + 1 > count / 2 or coverage(low + 1) < confidence


def test_one_slow_outlier_does_not_move_the_interval():
    generator = random.Random(7)
    values = sorted(generator.random() for _ in range(20))
    assert median_interval([*values[:-1], 1e9]) == median_interval(values)


def test_many_samples_are_no_trouble():
    low, high = median_interval([float(value) for value in range(20_000)])
    assert 9_800 < low < 10_000 < high < 10_200


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0, math.nan])
def test_a_confidence_lies_between_zero_and_one(confidence):
    with pytest.raises(ValueError, match="between 0 and 1"):
        median_interval([1.0], confidence)
