"""One self-contained HTML page of a comparison: no network, no script, works from a file."""

from __future__ import annotations

import base64
import dataclasses
from typing import TYPE_CHECKING

import jinja2

from layerbench.metrics import METRICS
from layerbench.record import Status
from layerbench.report.footnotes import Footnotes
from layerbench.report.plots import plot_name
from layerbench.report.table import section_columns
from layerbench.report.text import scaled, section_title

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from layerbench.environment import Environment
    from layerbench.record import Run
    from layerbench.report.comparison import Comparison, Group

_SHOWN_METRICS = ("step_ms", "compile_ms", "temp_bytes")


@dataclasses.dataclass(frozen=True, slots=True)
class _Line:
    """A table row as the template wants it; `span` rows share one depth, 0 after the first."""

    layers: int
    span: int
    layout: str
    footnotes: tuple[int, ...]
    texts: tuple[str, ...]
    css_class: str


@dataclasses.dataclass(frozen=True, slots=True)
class _Section:
    title: str
    columns: tuple[str, ...]
    lines: tuple[_Line, ...]
    image: str


def render_page(run: Run, comparison: Comparison, plots: Mapping[str, bytes]) -> str:
    """The page as HTML.

    Args:
        run: Gives the command, source and environment.
        comparison: Of the run's records.
        plots: PNG images by `plot_name`; they are embedded.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("layerbench.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    footnotes = Footnotes()
    sections = [_section(section, footnotes, plots) for section in comparison.sections()]
    return environment.get_template("comparison.html.j2").render(
        run=run,
        summary=comparison.summary,
        sections=sections,
        footnotes=footnotes.texts,
        environments={
            target: _environment_lines(each) for target, each in run.environments.items()
        },
        metrics=[METRICS[name] for name in _SHOWN_METRICS],
    )


def _section(
    section: Sequence[Group], footnotes: Footnotes, plots: Mapping[str, bytes]
) -> _Section:
    columns = section_columns(section)
    lines = []
    for group in section:
        for index, row in enumerate(group.rows):
            ok = row.record.status is Status.OK
            lines.append(
                _Line(
                    layers=group.cell.layers,
                    span=len(group.rows) if index == 0 else 0,
                    layout=row.layout,
                    footnotes=tuple(footnotes.of_row(group, row)),
                    texts=tuple(column.show(row) for column in columns)
                    if ok
                    else (row.record.status.value,),
                    css_class=(row.mark.value if ok else "failed"),
                )
            )
    image = plots.get(plot_name(section))
    return _Section(
        title=section_title(section[0].cell),
        columns=tuple(column.title for column in columns),
        lines=tuple(lines),
        image=base64.b64encode(image).decode() if image else "",
    )


def _environment_lines(environment: Environment) -> list[tuple[str, str]]:
    """What a reader has to know of the machine, in the order of interest; empty lines left out."""
    words = {
        "machine": environment.machine,
        "device": f"{environment.device_count} x {environment.device_kind}"
        if environment.device_kind
        else "",
        "processor": environment.cpu,
        "cores": str(environment.cpu_count or ""),
        "memory": scaled(environment.memory_bytes, "B") if environment.memory_bytes else "",
        "system": environment.system,
        "python": environment.python,
        **environment.packages,
        "runtime": environment.platform_version,
        "matmul precision": environment.matmul_precision,
        "random generator": environment.prng,
        **environment.flags,
        **environment.device_state,
    }
    return [(name, text) for name, text in words.items() if text]
