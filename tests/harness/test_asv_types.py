import subprocess
import sys

import pytest

asv_types = pytest.importorskip("layerbench.asv_types", reason="needs the extra `asv`")

from asv_runner.benchmarks import benchmark_types  # noqa: E402 - skipped above where it is missing

from layerbench.cell import Cell  # noqa: E402
from layerbench.errors import UsageError  # noqa: E402
from layerbench.metrics import METRICS  # noqa: E402


@asv_types.cells("step_ms", "temp_bytes")
class Prefill:
    """Cells of a suite."""

    fixed = {"model": "m", "phase": "prefill", "batch": 2, "seq": 3, "dtype": "float32"}  # noqa: RUF012 - as in a suite
    params = (["unrolled", "stacked-scan"], [5, 7])
    param_names = ("layout", "layers")


def benchmark_of(suite, metric, **attributes):
    instance = suite()
    for name, value in attributes.items():
        setattr(instance, name, value)
    function = getattr(instance, f"cell_{metric}")
    return asv_types.CellBenchmark(f"prefill.Prefill.cell_{metric}", function, [function, instance])


def test_importing_it_takes_neither_jax_nor_what_measures():
    program = (
        "import sys, layerbench.asv_types; "
        "heavy = {'jax', 'pandas', 'psutil', 'matplotlib'} & set(sys.modules); "
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_type_is_registered_once():
    asv_types._register()
    assert benchmark_types.count(asv_types.CellBenchmark) == 1


def test_a_benchmark_has_the_cell_of_its_parameters():
    assert Prefill().cell_step_ms("stacked-scan", 7) == Cell(
        "m", "stacked-scan", "prefill", layers=7, batch=2, seq=3
    )


def test_names_are_of_declared_metrics_alone():
    pattern = asv_types.CellBenchmark.name_regex
    assert all(pattern.match(f"cell_{metric}") for metric in METRICS)
    assert not any(map(pattern.match, ("cell_", "cell_step", "cells", "cell_step_ms_more")))


def test_a_version_says_what_the_cells_have_in_common_and_leaves_defaults_out():
    assert benchmark_of(Prefill, "step_ms").version == "1 model=m phase=prefill batch=2 seq=3"


def test_a_suite_may_raise_its_version_by_hand():
    version = benchmark_of(Prefill, "step_ms", version="4").version
    assert version == "1 suite=4 model=m phase=prefill batch=2 seq=3"


def test_timed_metrics_are_measured_in_two_rounds_and_exact_ones_once():
    assert benchmark_of(Prefill, "step_ms").rounds == 2
    assert benchmark_of(Prefill, "temp_bytes").rounds == 1
    assert benchmark_of(Prefill, "step_ms", rounds=5).rounds == 5


@pytest.mark.parametrize(
    ("attributes", "fewest", "most", "min_sample_ms"),
    [
        ({}, 8, 60, 10.0),
        ({"repeat": 1}, 1, 1, 0.0),
        ({"repeat": 9}, 9, 9, 10.0),
        ({"repeat": (2, 4, 0.5), "sample_time": 0.02}, 2, 4, 20.0),
    ],
)
def test_asvs_attributes_plan_the_sampling(attributes, fewest, most, min_sample_ms):
    plan = benchmark_of(Prefill, "step_ms", **attributes)._plan()
    assert (plan.min_samples, plan.max_samples) == (fewest, most)
    assert plan.min_sample_ms == min_sample_ms


def test_an_unknown_metric_is_refused_in_one_line():
    with pytest.raises(UsageError, match=r"^unknown metric 'speed': choose from step_ms, "):
        asv_types.cells("speed")


@pytest.mark.parametrize(
    ("fixed", "names", "problem"),
    [
        ({"model": "m"}, ("layout", "deep"), "a cell has no 'deep'"),
        ({"model": "m", "phase": "p", "batch": 1}, ("layout", "layers"), "lacks seq"),
        (
            {"model": "m", "phase": "p", "batch": 1, "seq": 1, "layers": 1},
            ("layout", "layers"),
            "names a field twice",
        ),
    ],
)
def test_a_suite_that_does_not_make_cells_is_refused(fixed, names, problem):
    suite = type("Suite", (), {"fixed": fixed, "param_names": names, "params": ([1], [1])})
    with pytest.raises(UsageError, match=problem):
        asv_types.cells("step_ms")(suite)
