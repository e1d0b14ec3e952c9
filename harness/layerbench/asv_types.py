"""asv's door: a benchmark type for the metrics of cells, and the decorator that declares them.

A suite imports this module in its `__init__.py`, so that asv knows the type, and decorates a class
for each phase::

    @cells("step_ms", "compile_ms", "temp_bytes")
    class DecodeStep:
        fixed = {"model": "qwen3-0.6b", "phase": "decode_step", "batch": 1, "seq": 512}
        params = (["unrolled", "stacked-scan"], [2, 8])
        param_names = ("layout", "layers")

Each metric becomes a benchmark `DecodeStep.cell_<metric>`. asv starts a process for each of them
and each parameter set; the first one measures the cell, with one compilation, and the others read
its numbers without importing jax.

asv's own attributes keep their meaning: `timeout`; `rounds` (every round measures anew); `repeat`, a
number of samples or (fewest, most, seconds); `sample_time`, the seconds that a sample fills at
least. `version` may be raised by hand when what the suite measures changes in a way that `fixed`
does not say.

Importing this module needs neither jax nor anything that measures.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import asv_runner.benchmarks
from asv_runner.benchmarks._base import Benchmark, _get_first_attr

from layerbench.cell import Cell
from layerbench.errors import UsageError
from layerbench.measure.timing.sampling import SamplingPlan
from layerbench.metrics import METRICS, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Suite = TypeVar("Suite", bound=type)

PREFIX = "cell_"
"""Of the names of benchmarks; a metric follows."""

TIMED_ROUNDS = 2
"""Rounds of timed metrics: what differs between two processes of one program is seen, and `asv
continuous` can take its two commits in turn."""

_CELL_FIELDS = {field.name: field for field in dataclasses.fields(Cell)}


def cells(*metrics: str) -> Callable[[Suite], Suite]:
    """Makes an asv class of a class that declares cells.

    Args:
        metrics: Names from `layerbench.metrics`, one benchmark each.

    Returns:
        A decorator for a class with `fixed`, the fields that its cells have in common, and asv's
        `params` and `param_names`, the fields that they differ in.

    Raises:
        UsageError: There is no such metric, or no such field.
    """
    for metric in metrics:
        if metric not in METRICS:
            raise UsageError(f"unknown metric '{metric}': choose from {', '.join(METRICS)}")

    def decorate(suite: Suite) -> Suite:
        _check_fields(suite)
        source = inspect.getsource(suite)
        suite.setup_cache = _setup_cache  # type: ignore[attr-defined]
        for metric in metrics:
            setattr(suite, PREFIX + metric, _benchmark_method(suite, metric, source))
        return suite

    return decorate


class CellBenchmark(Benchmark):  # type: ignore[misc]
    """One metric of the cells of a class, as asv sees it.

    The public attributes go into asv's `benchmarks.json` and onto its site.

    Attributes:
        metric: Name of the metric.
        unit: Of its values.
        kind: `exact` or `timed`.
        role: `gate` or `diagnostic`.
        lower_is_better: The better direction.
        rounds: How often asv measures it anew.
        version: Of the metric's definition and of what the cells have in common. Editing text or
            comments keeps the history; values of two versions are never compared.
    """

    name_regex = re.compile(rf"^{PREFIX}({'|'.join(METRICS)})$")

    def __init__(self, name: str, func: Callable[..., Cell], attr_sources: list[Any]) -> None:
        super().__init__(name, func, attr_sources)
        metric = METRICS[name.rpartition(".")[2].removeprefix(PREFIX)]
        self.type = "cell"
        self.metric = metric.name
        self.unit = metric.unit
        self.kind = metric.kind.value
        self.role = metric.role.value
        self.lower_is_better = metric.lower_is_better
        rounds = TIMED_ROUNDS if metric.kind is Kind.TIMED else 1
        self.rounds = _get_first_attr(attr_sources, "rounds", rounds)
        by_hand = _get_first_attr(attr_sources, "version", None)
        self.version = _version(metric.version, by_hand, attr_sources[1].fixed)

    def run(self, *params: Any) -> dict[str, Any] | float:
        """Gives the metric of the cell with these parameters.

        Returns:
            What asv takes: samples of a timed metric, the value of an exact one, NaN for what does
            not apply.

        Raises:
            SystemExit: With one line, for a cell that failed; asv counts any exit but 0 as failed
                and keeps the text, which a traceback would bury.
        """
        # Measuring needs psutil and the store, which the processes that only list do without.
        from layerbench.asv_cells.result import metric_for_asv  # noqa: PLC0415

        return metric_for_asv(
            self.func(*params), self.metric, suite_folder=self._suite_folder(), plan=self._plan()
        )

    def _suite_folder(self) -> Path:
        return Path(inspect.getfile(type(self.func.__self__))).resolve().parent

    def _plan(self) -> SamplingPlan:
        plan = SamplingPlan()
        # Read now: asv puts the attributes of its command line in front after the constructor.
        repeat = _get_first_attr(self._attr_sources, "repeat", 0)
        sample_s = _get_first_attr(self._attr_sources, "sample_time", None)
        if sample_s is not None:
            plan = dataclasses.replace(plan, min_sample_ms=1e3 * sample_s)
        match repeat:
            case 1:  # `--quick`: one call, to see whether it works
                return dataclasses.replace(plan, min_samples=1, max_samples=1, min_sample_ms=0.0)
            case (fewest, most, seconds):
                return dataclasses.replace(
                    plan, min_samples=fewest, max_samples=most, budget_s=seconds
                )
            case int() if repeat > 1:
                return dataclasses.replace(
                    plan, min_samples=repeat, max_samples=repeat, budget_s=math.inf
                )
            case _:
                return plan


def _setup_cache(_: Any) -> None:
    """Does nothing: asv then gives the benchmarks of a run one working folder."""


def _benchmark_method(suite: type, metric: str, source: str) -> Callable[..., Cell]:
    def benchmark(self: Any, *params: Any) -> Cell:
        varied = dict(zip(self.param_names, params, strict=True))
        return Cell(**self.fixed, **varied)

    benchmark.__name__ = PREFIX + metric
    benchmark.__qualname__ = f"{suite.__qualname__}.{PREFIX}{metric}"
    benchmark.__module__ = suite.__module__
    # What asv's site shows as the benchmark's code.
    benchmark.pretty_source = f"# {metric}: {METRICS[metric].counts}\n{source}"  # type: ignore[attr-defined]
    return benchmark


def _check_fields(suite: Any) -> None:
    declared = [*suite.fixed, *suite.param_names]
    for name in declared:
        if name not in _CELL_FIELDS:
            raise UsageError(
                f"{suite.__name__}: a cell has no '{name}': choose from {', '.join(_CELL_FIELDS)}"
            )
    missing = [
        name
        for name, field in _CELL_FIELDS.items()
        if field.default is dataclasses.MISSING and name not in declared
    ]
    if missing or len(set(declared)) < len(declared):
        problem = f"lacks {', '.join(missing)}" if missing else "names a field twice"
        raise UsageError(f"{suite.__name__}: its fixed fields and parameters: {problem}")


def _version(metric_version: str, by_hand: Any, fixed: Mapping[str, Any]) -> str:
    parts: Sequence[str] = [metric_version, *([] if by_hand is None else [f"suite={by_hand}"])]
    # Defaults are left out, so that a cell may get new fields without ending every history.
    named = [
        f"{name}={fixed[name]}"
        for name, field in _CELL_FIELDS.items()
        if name in fixed and fixed[name] != field.default
    ]
    return " ".join([*parts, *named])


def _register() -> None:
    types = asv_runner.benchmarks.benchmark_types
    if CellBenchmark not in types:
        types.append(CellBenchmark)


_register()
