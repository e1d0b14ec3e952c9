"""Numbers as readers see them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerbench.report.text import percent, scaled, significant


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (None, "-"), (0, "0"), (0.0, "0"), (1, "1.00"), (9.999, "10.0"), (99.96, "100"),
        (0.01234, "0.0123"), (0.09996, "0.100"), (1234.5, "1,230"), (78_901, "78,900"),
        (-2.5, "-2.50"), (1e-7, "0.000000100"),
    ],
)  # fmt: skip
def test_three_digits_and_no_exponent(number, text):
    assert significant(number) == text


@given(st.floats(1e-9, 1e12), st.integers(2, 5))
def test_the_text_is_the_number_to_its_digits(number, digits):
    read = float(significant(number, digits).replace(",", ""))
    assert read == pytest.approx(number, rel=10.0 ** (1 - digits))


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (None, "-"), (0, "0 B"), (999, "999 B"), (999.9, "1.00 kB"), (1000, "1.00 kB"),
        (999_499, "999 kB"), (999_999, "1.00 MB"), (1 << 30, "1.07 GB"), (8.2e9, "8.20 GB"),
        (3e12, "3.00 TB"), (5e16, "50.0 PB"), (1.5, "1.50 B"),
    ],
)  # fmt: skip
def test_prefixes_are_decimal(number, text):
    assert scaled(number, "B") == text


def test_a_missing_percentage_is_a_dash():
    assert (percent(None), percent(0.0123)) == ("-", "1.2 %")
