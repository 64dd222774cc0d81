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
    out = tmp_path / "out"
    flow = FLOW.replace("EVENTS", "1000000") + 'bids.sink("copies", ms.files("out", format="parquet"))\n'
    (tmp_path / "flow.py").write_text(flow, encoding="utf-8")
    run = millstream.start("run", "flow.py", "--home", tmp_path / "house")
    progress(tmp_path / "house", 0, run)
    out.rename(tmp_path / "moved")
    out.touch()  # the folder of the sink is a file now: no record is to blame, and no restart helps
    began = time.monotonic()
    done = millstream.ended(run)
    assert done.returncode == 3, done.stderr
    assert "the sink `copies` cannot write to" in done.stderr
    assert "it failed 5 times without an epoch in between" in done.stderr
    assert done.stderr.count("error: ") == 1
    assert "restarting (4 of 5" in done.stderr
    assert time.monotonic() - began > 0.75 * (0.5 + 1 + 2 + 4)
