"""Writes the stored programs: every loop kind, compiled for a TPU and a GPU that are not there.

    python tests/harness/program/make_stored.py TARGET_CONFIG

Needs jax 0.11.2 with `jax[tpu]`, `jax-cuda13-plugin` and `jax-cuda13-pjrt` (without dependencies),
and `nvidia-cuda-nvcc`. TARGET_CONFIG is the text form of XLA's description of an H200. What the
compilers write is kept but for source lines and settings of their own, which no figure needs.
"""

import importlib.util
import os
import re
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
QUIET = {
    "JAX_PLATFORMS": "cpu",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_ID": "0",
    "TPU_STDERR_LOG_LEVEL": "3",
    "TPU_MIN_LOG_LEVEL": "3",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TPU_LOG_DIR": "disabled",
}
SOURCE_TABLES = re.compile(r"\n(FileNames|FunctionNames|FileLocations|StackFrames)\n(?:.+\n)*")
METADATA = re.compile(r', metadata=\{(?:[^{}"]|"[^"]*")*\}')
TRIP_COUNT = re.compile(r'"known_trip_count":\{"n":"\d+"\}')


def main(target_config):
    os.environ.update(QUIET)
    import jax
    from jax.experimental import topologies
    from jax.sharding import SingleDeviceSharding

    specification = importlib.util.spec_from_file_location("kinds", FOLDER / "loop_kinds.py")
    kinds = importlib.util.module_from_spec(specification)
    sys.modules["kinds"] = kinds
    specification.loader.exec_module(kinds)
    topology_of = {
        "tpu": topologies.get_topology_desc("v5e:2x2", platform="tpu"),
        "gpu": topologies.get_topology_desc(
            "h200", platform="cuda", target_config=target_config.read_text(), topology="1x1x1"
        ),
    }
    for target, topology in topology_of.items():
        device = SingleDeviceSharding(topology.devices[0])
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
    main(Path(sys.argv[1]))
