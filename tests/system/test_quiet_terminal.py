"""No warning of another library reaches the terminal: what a program prints is its own. (What the demo prints:
test_life.py, which runs it, also in `make test`.)
"""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from millstream.engine.spark.foreign_warnings import KNOWN, hide_foreign_warnings

from .conftest import PATIENCE

FLOW = """
import millstream as ms

flow = ms.Flow("shop")
source = ms.memory()
schema = "auction BIGINT, price BIGINT, ts TIMESTAMP"
bids = flow.source("bids", source, schema=schema, event_time="ts")
bids.map_batches(lambda frame: frame, takes="pandas", schema=schema).view("through_pandas")
bids.key_by("auction").aggregate(n=ms.count()).view("counts")
"""

SCRIPT = f"""
{FLOW}
source.send({{"auction": 1, "price": 2, "ts": "2026-01-01T00:00:00Z"}})
with ms.open("home") as home, home.start(flow) as run:
    run.catch_up()
    print(home.query("SELECT n FROM counts").to_pandas()["n"].tolist(), len(home.query("SELECT * FROM through_pandas")))
"""

LEFT_OPEN = """
import millstream as ms

home = ms.open("home")
home.put_table("numbers", [{"n": 1}])
print(home.query("SELECT n FROM numbers").to_dicts())
"""


def printed(script: str, folder: Path) -> tuple[str, str, int]:
    """What a program prints in a folder, and its exit code."""
    known = {k: v for k, v in os.environ.items() if not k.startswith("MILLSTREAM_")}
    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", script],
        cwd=folder, env=known, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    return done.stdout, done.stderr, done.returncode


@pytest.mark.slow
@pytest.mark.spark
def test_a_program_that_runs_a_flow_prints_only_its_own_lines(tmp_path: Path) -> None:
    folder = tmp_path / 'späces, 50% and "quotes"'
    folder.mkdir()
    assert printed(SCRIPT, folder) == ("[1] 1\n", "", 0)
    assert "WARN" in (folder / "home" / "logs" / "spark.log").read_text()  # Spark found its log settings


def test_a_home_that_is_left_open_is_closed_when_the_program_ends(tmp_path: Path) -> None:
    assert printed(LEFT_OPEN, tmp_path) == ("[{'n': 1}]\n", "", 0)
    assert not (tmp_path / "home" / "query.sock").exists()


def test_only_the_known_warnings_are_hidden() -> None:
    ((message, category, _),) = KNOWN
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        hide_foreign_warnings()
        said = f"{message} >= 3.0.0."
        warnings.warn_explicit(said, category, "x.py", 1, module="pyspark.sql.pandas.utils")
        assert not caught
        warnings.warn_explicit(said, category, "x.py", 1, module="mine")  # another library may say the same
        warnings.warn_explicit("another", category, "x.py", 1, module="pyspark.sql")
        warnings.warn_explicit(said, DeprecationWarning, "x.py", 1, module="pyspark.sql")
    assert len(caught) == 3
