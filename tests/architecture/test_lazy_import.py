"""`import millstream` is light: a command or a worker process loads the libraries that it needs, and no others."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src"
HEAVY = ("pyspark", "py4j", "duckdb", "pyarrow", "polars", "numpy", "sqlglot", "rich")
DESCRIBED = ("pyspark", "py4j", "duckdb", "rich")
"""Libraries that describing a flow does not need."""


def is_written(module: str) -> bool:
    path = SRC / Path(*module.split("."))
    return (path / "__init__.py").exists() or path.with_suffix(".py").exists()


def loaded(statement: str, libraries: tuple[str, ...]) -> list[str]:
    """Which of the libraries a new process has loaded after a statement."""
    script = f"import sys\n{statement}\nprint(*[name for name in {libraries} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(SRC)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(
    "module", ["millstream", "millstream.cli", "millstream.cli.app", "millstream.engine.spark.worker_daemon"]
)
def test_an_entry_point_loads_no_heavy_library(module: str) -> None:
    if not is_written(module):
        pytest.skip(f"{module} is not written yet")
    spark_itself = ("pyspark", "py4j") if module.startswith("millstream.engine") else ()
    assert set(loaded(f"import {module}", HEAVY)) <= set(spark_itself)


def test_describing_a_flow_loads_neither_pyspark_nor_duckdb() -> None:
    assert loaded("import millstream as ms; ms.Flow('f'); ms.Home", DESCRIBED) == []


def test_a_module_does_not_hide_the_function_of_its_name() -> None:
    modules = "import millstream.connect.nexmark, millstream.log.topic"
    functions = "assert all(map(callable, (millstream.connect, millstream.log, millstream.nexmark)))"
    assert loaded(f"{modules}\n{functions}", ()) == []
    assert loaded(f"import millstream\n{functions}\n{modules}\n{functions}", ()) == []


def test_a_module_is_an_attribute_without_an_import_of_its_own() -> None:
    assert loaded("import millstream as ms\nassert ms.errors.HomeInUse and ms.testing.Script", ()) == []
