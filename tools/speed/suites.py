"""Times `layerbench compare` against two stock asv suites of the same cells and metrics, in turn."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ASV = (sys.executable, "-m", "asv")
COMPARE = (
    "compare", "--model", "qwen3-small", "--phase", "prefill,decode_step",
    "--layout", "unrolled,stacked-scan", "--layers", "2,8", "--batch", "4", "--seq", "64",
    "--results", "-",
)  # fmt: skip


def asv_suite(module: str) -> tuple[str, ...]:
    """The command that runs one of the stock suites, in this environment: nothing is installed."""
    config = str(HERE / "asv.conf.json")
    return (*ASV, "--config", config, "run", "--python=same", "--bench", rf"^{module}\.")


def main() -> None:
    """Runs all three and prints a table in Markdown."""
    layerbench = (str(Path(sys.executable).with_name("layerbench")), *COMPARE)
    commands = {
        "`layerbench compare`": layerbench,
        "stock asv, program cached in the process": asv_suite("cached"),
        "stock asv, compile in `setup`": asv_suite("naive"),
    }
    with tempfile.TemporaryDirectory() as home:
        # asv keeps a file about the machine there; what it says does not matter here.
        environment = {**os.environ, "HOME": home}
        machine = (*ASV, "machine", "--yes", "--machine", "speed")
        subprocess.run(
            [*machine, "--os", "any", "--arch", "any", "--cpu", "any", "--ram", "any"],
            cwd=HERE, env=environment, check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        wall_s = {name: timed_s(command, environment) for name, command in commands.items()}
    ours_s = next(iter(wall_s.values()))
    print("| | wall time | ours is |\n|---|---|---|")
    for name, seconds in wall_s.items():
        share = "" if seconds == ours_s else f"1/{seconds / ours_s:.0f} of it"
        print(f"| {name} | {seconds:.0f} s | {share} |")


def timed_s(command: tuple[str, ...], environment: dict[str, str]) -> float:
    """Wall time of a command; what it says goes to standard error."""
    print(*command, file=sys.stderr)
    started = time.perf_counter()
    subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=sys.stderr)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
