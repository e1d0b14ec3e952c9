"""The few statistics that both the sampler and the reports rest on; pure, standard library only."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

CONFIDENCE = 0.95
"""Confidence of every interval that is shown or that ends sampling, unless said otherwise."""


def median(samples: Sequence[float]) -> float:
    """The middle sample, or halfway between the two in the middle.

    Raises:
        ValueError: There are no samples.
    """
    if not samples:
        raise ValueError("no samples have no median")
    ordered = sorted(samples)
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    # Halves first: the sum of two large samples may overflow.
    return low if low == high else low / 2 + high / 2


def median_interval(
    samples: Sequence[float], confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Confidence interval of the median from order statistics.

    Of `n` independent samples, the number below the true median is binomial (n, 1/2), whatever the
    distribution. So the interval from the k-th smallest to the k-th largest sample holds the median
    with probability `1 - 2 P(B <= k - 1)`; the largest `k` for which that reaches `confidence` is
    taken. No distribution is assumed, and one slow outlier cannot move the interval. See
    J.-Y. Le Boudec, Performance Evaluation of Computer and Communication Systems, EPFL Press 2010,
    theorem 2.1; W. J. Conover, Practical Nonparametric Statistics, 3rd edition, section 3.2.

    What it does not cover: samples that depend on each other (a machine that heats up) make the
    true interval wider than this one.

    Args:
        samples: In any order.
        confidence: Of the interval, between 0 and 1.

    Returns:
        The lower and the upper end. With too few samples for the confidence (fewer than 6 for
        95 %) no such interval exists, and the ends are minus and plus infinity: nothing is claimed.

    Raises:
        ValueError: The confidence is not between 0 and 1.
    """
    rank = _interval_rank(len(samples), confidence)
    if rank == 0:
        return -math.inf, math.inf
    ordered = sorted(samples)
    return ordered[rank - 1], ordered[-rank]


@functools.lru_cache(maxsize=1024)
def _interval_rank(count: int, confidence: float) -> int:
    """Largest k with `2 P(B <= k - 1) <= 1 - confidence` for B binomial (count, 1/2), or 0.

    In whole numbers, so that no tail is lost to rounding.
    """
    if not 0 < confidence < 1:
        message = f"a confidence lies between 0 and 1, not {confidence}"
        raise ValueError(message)
    outcomes = 2**count
    ways, tail, rank = 1, 1, 0
    while 2 * tail / outcomes <= 1 - confidence:
        rank += 1
        ways = ways * (count - rank + 1) // rank
        tail += ways
    return rank
