"""Writes the stored programs: every loop kind, compiled for a TPU and a GPU that are not there.

    python tests/harness/program/make_stored.py

Needs `layerbench[tpu,gpu]`; what is stored was made with jax 0.11.2. What the compilers write is
kept but for source lines and settings of their own, which no figure needs.
"""

import importlib.util
import os
import re
import sys
from pathlib import Path

from layerbench.chips import CHIPS
from layerbench.targets import parse_target

FOLDER = Path(__file__).parent
STORED = {"tpu": "tpu-v5e", "gpu": "gpu-h200"}
SOURCE_TABLES = re.compile(r"\n(FileNames|FunctionNames|FileLocations|StackFrames)\n(?:.+\n)*")
METADATA = re.compile(r', metadata=\{(?:[^{}"]|"[^"]*")*\}')
TRIP_COUNT = re.compile(r'"known_trip_count":\{"n":"\d+"\}')


def main():
    os.environ.update(parse_target("aot:tpu-v5e").process_environment(os.environ))
    import jax
    from jax.sharding import SingleDeviceSharding

    from layerbench.measure.absent import open_device

    specification = importlib.util.spec_from_file_location("kinds", FOLDER / "loop_kinds.py")
    kinds = importlib.util.module_from_spec(specification)
    sys.modules["kinds"] = kinds
    specification.loader.exec_module(kinds)
    for target, chip in STORED.items():
        device = SingleDeviceSharding(open_device(CHIPS[chip]))
        (FOLDER / "stored" / target).mkdir(parents=True, exist_ok=True)
        for name, kind in kinds.KINDS.items():
            arguments = [
                jax.ShapeDtypeStruct(argument.shape, argument.dtype, sharding=device)
                for argument in kind.arguments
            ]
            text = jax.jit(kind.function).lower(*arguments).compile().as_text()
            (FOLDER / "stored" / target / f"{name}.hlo").write_text(shortened(text))


def shortened(text):
    """The text without source lines, and with trip counts alone of the compilers' settings."""
    lines = METADATA.sub("", SOURCE_TABLES.sub("\n", text)).split("\n")
    kept = [without_settings(line) for line in lines]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip() + "\n"


def without_settings(line):
    head, found, settings = line.partition(", backend_config=")
    trips = TRIP_COUNT.search(settings)
    return f"{head}{found}{{{trips[0]}}}" if trips else head


if __name__ == "__main__":
    main()
