"""`import millstream` is light: the heavy libraries load when a flow starts, not when one is described."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src"
HEAVY = ("pyspark", "py4j", "duckdb")


def is_written(module: str) -> bool:
    path = SRC / Path(*module.split("."))
    return (path / "__init__.py").exists() or path.with_suffix(".py").exists()


@pytest.mark.parametrize("module", ["millstream", "millstream.cli"])
def test_importing_millstream_loads_neither_pyspark_nor_duckdb(module: str) -> None:
    if not is_written(module):
        pytest.skip(f"{module} is not written yet")
    script = f"import sys, {module}; print(*[name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(SRC)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [], f"import {module} loads {done.stdout.strip()}"
