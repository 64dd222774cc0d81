"""A run whose Java process dies goes on by itself, and says so; a crash loop ends with one message."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import psutil
import pytest

from .conftest import PATIENCE, Processes
from .test_standby import FLOW, counted, heard, progress

pytestmark = pytest.mark.spark

FOLDER_FLOW = """
import millstream as ms
flow = ms.Flow("folder")
rows = flow.source("rows", ms.files("in", format="csv"), schema="a BIGINT, b BIGINT")
rows.aggregate(n=ms.count()).view("total")
"""


@pytest.mark.slow
def test_a_run_goes_on_when_its_java_process_has_died(millstream: Processes, tmp_path: Path) -> None:
    home = tmp_path / "house"
    flow = FLOW.replace("EVENTS", "1000000").replace(
        "bids.agg", 'bids.where("abs(price) >= 0").agg'
    )  # only Spark has abs
    (tmp_path / "flow.py").write_text(flow, encoding="utf-8")
    run = millstream.start("run", "flow.py", "--home", home)
    progress(home, 0, run)
    (java,) = [p for p in psutil.Process(run.pid).children() if p.name() == "java"]
    java.kill()
    heard(run, "paced: restarting (1 of 5, in ")
    seen = counted(home)
    progress(home, seen, run)
    (fresh,) = [p for p in psutil.Process(run.pid).children() if p.name() == "java"]
    assert fresh.pid != java.pid
    run.send_signal(signal.SIGTERM)
    stopped = millstream.ended(run)
    assert stopped.returncode == 0, stopped.stderr
    assert "Traceback" not in stopped.stderr
    _, left = psutil.wait_procs([fresh], timeout=PATIENCE)
    assert not [p for p in left if p.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.slow
def test_a_crash_loop_ends_with_the_last_error_and_how_often(millstream: Processes, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "bad.csv").write_text("x,y\n1,2\n")
    (tmp_path / "flow.py").write_text(FOLDER_FLOW, encoding="utf-8")
    began = time.monotonic()
    done = millstream.run("run", "flow.py", "--until-caught-up")
    assert done.returncode == 3, done.stderr
    assert "does not name the columns" in done.stderr
    assert "it failed 5 times without an epoch in between" in done.stderr
    assert done.stderr.count("error: ") == 1
    assert "restarting (4 of 5" in done.stderr
    assert time.monotonic() - began > 0.75 * (0.5 + 1 + 2 + 4)
