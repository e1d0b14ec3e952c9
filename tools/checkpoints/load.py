"""How long loading a checkpoint takes at several depths, how much memory, and transformers beside it.

Prints the tables of docs/checkpoints.md. Checkpoints are written to a scratch folder first; each
load is a process of its own, so that its peak is its own, and all kinds of loads take turns, so that
drift of the machine meets them all. Afterwards every byte is summed, in both libraries by numpy, and
the sums have to agree.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

LAYERS = (4, 8, 16, 32)
LAYOUTS = ("unrolled", "stacked")
TRANSFORMERS = "transformers"


def main() -> None:
    """Writes the checkpoints, measures the loads and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5, help="loads of each kind (default 5)")
    parser.add_argument(
        "--scratch", help="folder for 4 GB of checkpoints (default: a temporary one)"
    )
    parser.add_argument("--one", nargs=2, metavar=("KIND", "FOLDER"), help=argparse.SUPPRESS)
    parser.add_argument("--write", nargs=2, metavar=("LAYERS", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        write(int(options.write[0]), Path(options.write[1]))
    elif options.one:
        print(json.dumps(measure(*options.one)))
    else:
        with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
            report(Path(scratch), options.repeats)


def report(scratch: Path, repeats: int) -> None:
    """Measures everything and prints it."""
    kinds = list(LAYOUTS)
    if importlib.util.find_spec(TRANSFORMERS):
        kinds.append(TRANSFORMERS)
    folders = {layers: scratch / f"layers-{layers}" for layers in LAYERS}
    for layers, folder in folders.items():
        note(f"writing {layers} layers")
        run("--write", str(layers), str(folder))
    found: dict[tuple[str, int], list[dict[str, Any]]] = {
        (kind, layers): [] for kind in kinds for layers in LAYERS
    }
    for turn in range(repeats):
        for (kind, layers), loads in found.items():
            note(f"turn {turn + 1} of {repeats}: {kind}, {layers} layers")
            loads.append(json.loads(run("--one", kind, str(folders[layers]))))
    for layers in LAYERS:
        sums = {load["sum"] for kind in kinds for load in found[kind, layers]}
        if len(sums) != 1:
            sys.exit(f"{layers} layers: the loads disagree about the sum of all bytes: {sums}")
    print_tables(kinds, found)


def print_tables(kinds: Iterable[str], found: dict[tuple[str, int], list[dict[str, Any]]]) -> None:
    """Prints one line for each kind and depth, and the growth of each kind."""
    print(
        "| loaded by | layers | GB | load s | fastest s | touch s | peak / model | process / model |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for (kind, layers), loads in found.items():
        size = loads[0]["model_bytes"]
        print(
            f"| {kind} | {layers} | {size / 1e9:.2f} | {middle(loads, 'load_s'):.2f} "
            f"| {min(load['load_s'] for load in loads):.2f} | {middle(loads, 'touch_s'):.2f} "
            f"| {max(load['added_bytes'] for load in loads) / size:.2f} "
            f"| {max(load['peak_bytes'] for load in loads) / size:.2f} |"
        )
    print("\n| loaded by | exponent of the median | exponent of the fastest |")
    print("|---|---|---|")
    for kind in kinds:
        rows = [found[kind, layers] for layers in LAYERS]
        sizes = [loads[0]["model_bytes"] for loads in rows]
        exponents = [
            exponent(sizes, [pick([load["load_s"] for load in loads]) for loads in rows])
            for pick in (statistics.median, min)
        ]
        print(f"| {kind} | {exponents[0]:.2f} | {exponents[1]:.2f} |")


def middle(loads: Iterable[dict[str, Any]], key: str) -> float:
    """Returns the median of one figure."""
    return statistics.median(load[key] for load in loads)


def exponent(sizes: Iterable[float], seconds: Iterable[float]) -> float:
    """Returns the slope of log(seconds) over log(bytes): 1 is linear, 2 is quadratic."""
    return float(np.polyfit([math.log(s) for s in sizes], [math.log(s) for s in seconds], 1)[0])


def measure(kind: str, folder: str) -> dict[str, Any]:
    """Loads once in this process, then sums every byte."""
    load, arrays_of = (from_transformers if kind == TRANSFORMERS else from_here)(kind, folder)
    before = status_bytes("VmRSS")
    start = time.perf_counter()
    loaded = load()
    loaded_at = time.perf_counter()
    arrays = arrays_of(loaded)
    total = sum(int(array.view(np.uint16).sum(dtype=np.uint64)) for array in arrays)
    end = time.perf_counter()
    peak = status_bytes("VmHWM")
    return {
        "load_s": loaded_at - start,
        "touch_s": end - loaded_at,
        "model_bytes": sum(array.nbytes for array in arrays),
        "added_bytes": peak - before,
        "peak_bytes": peak,
        "sum": total,
    }


def from_here(layout: str, folder: str) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """Returns how this package loads, and how to see the arrays of what it returns."""
    import jax  # noqa: PLC0415

    from layerbench_models import build, load_safetensors  # noqa: PLC0415

    jax.devices()  # starting the runtime is no part of loading
    model = build(folder, layout, dtype="bfloat16")
    return (
        lambda: load_safetensors(folder, model),
        lambda params: [np.asarray(leaf) for leaf in jax.tree.leaves(params)],
    )


def from_transformers(kind: str, folder: str) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """Returns how transformers loads, and how to see the arrays of what it returns."""
    del kind
    import torch  # noqa: PLC0415
    from transformers import AutoModelForCausalLM, Qwen3ForCausalLM  # noqa: PLC0415

    assert Qwen3ForCausalLM  # its modules are imported lazily; that is no part of loading
    return (
        lambda: AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16),
        lambda model: [p.detach().view(torch.int16).numpy() for p in model.parameters()],
    )


def write(layers: int, folder: Path) -> None:
    """Writes a checkpoint of random bfloat16 weights, of 2 GB at 32 layers."""
    import jax  # noqa: PLC0415

    from layerbench_models import (  # noqa: PLC0415
        Architecture,
        ModelConfig,
        build,
        save_safetensors,
    )

    config = ModelConfig(
        architecture=Architecture.QWEN3,
        vocab_size=64_000,
        hidden_dim=1536,
        ffn_dim=4608,
        num_layers=layers,
        num_heads=12,
        num_kv_heads=4,
        head_dim=128,
        norm_eps=1e-6,
        rope_theta=1e6,
        qk_norm=True,
        tied_embeddings=True,
    )
    model = build(config, "stacked", dtype="bfloat16")
    rng = np.random.default_rng(layers)

    def random(leaf: jax.ShapeDtypeStruct) -> np.ndarray:
        # Bits of small positive numbers: drawing them costs a tenth of drawing normal ones.
        return rng.integers(0x3C00, 0x3F80, leaf.shape, np.uint16).view(leaf.dtype)

    save_safetensors(jax.tree.map(random, model.abstract_params()), model, folder)


def status_bytes(key: str) -> int:
    """Returns a figure of this process from the kernel."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"the kernel does not tell {key}")


def run(*arguments: str) -> str:
    """Runs this script in a new process and returns what it prints."""
    command = [sys.executable, __file__, *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def note(text: str) -> None:
    """Says on stderr how far it is."""
    if sys.stderr.isatty():
        print(text, file=sys.stderr)


if __name__ == "__main__":
    main()
