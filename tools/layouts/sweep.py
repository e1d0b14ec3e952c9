"""All layouts side by side: every phase, depths, batches, and decode over cache lengths.

Runs `layerbench compare` once for each phase and batch, and once for each cache length, and gathers
what it wrote: `tables.md` with step, compile time and temporary memory, and the pictures. What was
measured before is kept, so that a run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from layerbench.suite import load_suite

ROOT = Path(__file__).parents[2]
ALIAS = "scan-carry-token"  # stacked-scan once more
METRICS = {
    "step_ms": ("step", 1, "ms"),
    "compile_ms": ("compile", 1000, "s"),
    "temp_bytes": ("temp", 2**20, "MiB"),
}
BASELINE = "unrolled"


@dataclasses.dataclass(frozen=True)
class Comparison:
    """One call of `layerbench compare`.

    Attributes:
        phase: What is run.
        layers: Depths.
        batch: Sequences.
        seq: Tokens of a prompt, or slots of a cache.
    """

    phase: str
    layers: tuple[int, ...]
    batch: int
    seq: int

    @property
    def name(self) -> str:
        """A name for its files and headings."""
        return f"{self.phase}-L{'-'.join(map(str, self.layers))}-B{self.batch}-S{self.seq}"


def main() -> None:
    """Measures what is not measured yet, and writes tables and pictures."""
    options = parse()
    out = Path(options.out)
    found = {each: measure(each, options, out) for each in comparisons(options)}
    pictures = out / "pictures"
    pictures.mkdir(parents=True, exist_ok=True)
    for each in found:
        for picture in sorted((out / each.name).rglob("*.png")):
            shutil.copy(picture, pictures / f"{each.name}.png")
    by_length = [each for each in found if is_sweep(each, options)]
    lines = [f"# Layouts of {options.model}, {options.dtype}, {options.target}", ""]
    for each, cells in found.items():
        lines += table(each, cells)
    if len(by_length) > 1:
        draw({each.seq: found[each] for each in by_length}, pictures / "decode-by-length.png")
    (out / "tables.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(out / "tables.md")


def parse() -> argparse.Namespace:
    """The options; without any, what docs/layouts.md is made from."""
    offered = load_suite(ROOT / "benchmarks" / "workloads.py").layouts
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="qwen3-small")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--target", default="cpu")
    parser.add_argument(
        "--layout", type=names, default=tuple(name for name in offered if name != ALIAS)
    )
    parser.add_argument(
        "--phase", type=names, default=("prefill", "train_step", "decode_step", "generate")
    )
    parser.add_argument("--layers", type=numbers, default=(4, 8, 16))
    parser.add_argument("--batch", type=numbers, default=(1, 8, 128))
    parser.add_argument("--seq", type=int, default=64, help="tokens of a prompt (default 64)")
    parser.add_argument("--cache", type=int, default=512, help="slots of a cache (default 512)")
    parser.add_argument(
        "--lengths", type=numbers, default=(128, 512, 2048, 8192), help="slots of the sweep"
    )
    parser.add_argument("--new-tokens", type=int, default=16)
    parser.add_argument("--budget", type=int, help="seconds of sampling for each comparison")
    parser.add_argument("--out", default=str(ROOT / "results" / "local" / "layouts"))
    return parser.parse_args()


def names(text: str) -> tuple[str, ...]:
    """The entries of a list with commas."""
    return tuple(text.split(","))


def numbers(text: str) -> tuple[int, ...]:
    """The numbers of a list with commas."""
    return tuple(map(int, text.split(",")))


def comparisons(options: argparse.Namespace) -> Iterator[Comparison]:
    """What is measured: phases by batches, then decode by cache lengths."""
    for phase in options.phase:
        for batch in options.batch:
            seq = options.cache if phase in {"decode_step", "generate"} else options.seq
            yield Comparison(phase, options.layers, batch, seq)
    for length in options.lengths:
        yield Comparison("decode_step", sweep_layers(options), sweep_batch(options), length)


def sweep_layers(options: argparse.Namespace) -> tuple[int, ...]:
    """The depth of the sweep over cache lengths: the middle one."""
    return (sorted(options.layers)[len(options.layers) // 2],)


def sweep_batch(options: argparse.Namespace) -> int:
    """Its batch: the middle one."""
    return sorted(options.batch)[len(options.batch) // 2]


def is_sweep(each: Comparison, options: argparse.Namespace) -> bool:
    """Whether a comparison belongs to the sweep over cache lengths."""
    at = (each.layers, each.batch) == (sweep_layers(options), sweep_batch(options))
    return each.phase == "decode_step" and at and each.seq in options.lengths


def measure(each: Comparison, options: argparse.Namespace, out: Path) -> list[dict[str, Any]]:
    """The cells of a comparison, read where it has been made before."""
    folder = out / each.name
    cells = folder / "cells.json"
    if not cells.exists():
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = folder / "unfinished.json"
        settings = {
            "model": options.model,
            "layout": ",".join(options.layout),
            "phase": each.phase,
            "layers": ",".join(map(str, each.layers)),
            "batch": each.batch,
            "seq": each.seq,
            "dtype": options.dtype,
            "target": options.target,
            "results": folder,
            "json": unfinished,
        }
        if each.phase == "generate":
            settings["new-tokens"] = options.new_tokens
        if options.budget:
            settings["budget"] = options.budget
        arguments = [text for name, value in settings.items() for text in (f"--{name}", str(value))]
        # A cell that failed is a result too: code 4.
        done = subprocess.run(
            ["layerbench", "compare", *arguments], cwd=ROOT, check=False, stdout=sys.stderr
        )
        if done.returncode not in (0, 4):
            raise SystemExit(done.returncode)
        unfinished.rename(cells)
    return json.loads(cells.read_text(encoding="utf-8"))


def value_of(cell: dict[str, Any], metric: str) -> float | None:
    """A metric of a cell, or None where there is none."""
    return cell["metrics"].get(metric, {}).get("value")


def table(each: Comparison, cells: list[dict[str, Any]]) -> list[str]:
    """Markdown: a row for each layout, step, compile time and memory at each depth."""
    heads = [f"{METRICS[m][0]}, L{n} [{METRICS[m][2]}]" for m in METRICS for n in each.layers]
    lines = [f"## {each.phase}, batch {each.batch}, {each.seq} tokens", ""]
    lines += [f"| layout | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    by_place = {(cell["cell"]["layout"], cell["cell"]["layers"]): cell for cell in cells}
    for layout in dict.fromkeys(cell["cell"]["layout"] for cell in cells):
        row = [
            shown(by_place.get((layout, depth)), metric)
            for metric in METRICS
            for depth in each.layers
        ]
        lines.append(f"| `{layout}` | {' | '.join(row)} |")
    failed = [
        f"- `{cell['cell']['layout']}`, {cell['cell']['layers']} layers: {cell['reason']}"
        for cell in cells
        if cell["status"] != "ok"
    ]
    return [*lines, "", *failed, *([""] if failed else [])]


def shown(cell: dict[str, Any] | None, metric: str) -> str:
    """A metric in the unit of its column."""
    found = None if cell is None else value_of(cell, metric)
    return "-" if found is None else f"{found / METRICS[metric][1]:.3g}"


def draw(by_length: dict[int, list[dict[str, Any]]], file: Path) -> None:
    """Step over cache length, of each layout over that of the unrolled one."""
    steps = {
        (cell["cell"]["layout"], length): value_of(cell, "step_ms")
        for length, cells in by_length.items()
        for cell in cells
    }
    figure = Figure(figsize=(9.6, 5.4), layout="constrained")
    axes = figure.subplots()
    for number, layout in enumerate(dict.fromkeys(layout for layout, _ in steps)):
        points = list(ratios(layout, sorted(by_length), steps))
        style = ("-", "--", ":")[number // 10 % 3]
        axes.plot(*zip(*points, strict=True), style, marker=".", label=layout) if points else None
    axes.set(xscale="log", yscale="log", xlabel="slots of the cache")
    axes.set_ylabel(f"decode step over that of {BASELINE}")
    axes.legend(fontsize="x-small", ncols=2, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(file, dpi=150)


def ratios(
    layout: str, lengths: Iterable[int], steps: dict[tuple[str, int], float | None]
) -> Iterator[tuple[int, float]]:
    """The points of one layout, where both it and the unrolled one were measured."""
    for length in lengths:
        own, base = steps.get((layout, length)), steps.get((BASELINE, length))
        if own and base:
            yield length, own / base


if __name__ == "__main__":
    main()
