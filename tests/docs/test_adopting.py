"""The example in docs/adopting.md is run as it stands, in a repository of its own."""

import json
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "adopting.md"


def test_the_example_measures_both_layouts(tmp_path):
    page = PAGE.read_text()
    (table,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "pyproject.toml").write_text(table)
    (tmp_path / "benchmarks" / "workloads.py").write_text(code)
    command = [sys.executable, "-m", "layerbench", "compare", "--budget", "1"]
    done = subprocess.run(
        [*command, "--results", "-", "--json", "-"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    cells = {
        (row["cell"]["layout"], row["cell"]["layers"]): row["status"]
        for row in json.loads(done.stdout)
    }
    assert cells == {(layout, n): "ok" for layout in ("unrolled", "scan") for n in (2, 4)}
