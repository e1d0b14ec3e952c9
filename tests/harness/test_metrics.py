"""The declarations of the metrics, and the glossary that repeats them for readers."""

from pathlib import Path

import pytest

from layerbench.metrics import METRICS, PRIMARY_TIMED, Kind, Role

GLOSSARY = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_the_primary_metric_is_a_gate():
    assert METRICS[PRIMARY_TIMED].role is Role.GATE
    assert METRICS[PRIMARY_TIMED].kind is Kind.TIMED


@pytest.mark.parametrize("metric", METRICS.values(), ids=list(METRICS))
def test_a_metrics_name_names_its_unit(metric):
    assert f"_{metric.unit}_" in f"_{metric.name}_"


@pytest.mark.parametrize("metric", METRICS.values(), ids=list(METRICS))
def test_the_glossary_says_what_the_declaration_says(metric):
    """Whoever changes a definition changes the page, or this fails."""
    entry = GLOSSARY.read_text().partition(f"### `{metric.name}`\n")[2].partition("\n### ")[0]
    text = " ".join(entry.split())
    assert metric.counts in text
    facts = f"{metric.unit}, {metric.kind}, {metric.role}, version {metric.version}."
    assert facts in text
