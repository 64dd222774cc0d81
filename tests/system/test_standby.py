"""A standby goes on with the flows of a process that was killed or frozen, and says how long nothing happened."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pyarrow.compute as pc
import pytest

from millstream.connect.nexmark import Nexmark, events
from millstream.errors import MillstreamError
from millstream.reader import Reader

from .conftest import PATIENCE, Processes

pytestmark = [pytest.mark.spark, pytest.mark.slow]

EVENTS, RATE = 400_000, 500
FLOW = f"""
import millstream as ms
flow = ms.Flow("paced")
bids = flow.source("bids", ms.nexmark("bid", rate={RATE}, events=EVENTS), event_time="date_time")
bids.aggregate(bids=ms.count(), volume=ms.sum("price")).view("total")
bids.key_by("auction").window(ms.tumbling("1 second")).aggregate(bids=ms.count()).view("per_auction")
"""


def counted(home: Path) -> int:
    try:
        with Reader(home) as reader:
            rows = reader.query("SELECT bids FROM total").to_dicts()
    except (MillstreamError, OSError):
        return 0
    return int(rows[0]["bids"]) if rows else 0


def progress(home: Path, beyond: int, *processes: subprocess.Popen[str]) -> int:
    """Wait until more bids are counted."""
    deadline = time.monotonic() + PATIENCE
    while (found := counted(home)) <= beyond:
        for process in processes:
            assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, f"still at {found}"
        time.sleep(0.05)  # other processes are watched: there is nothing to wait on
    return found


def heard(process: subprocess.Popen[str], text: str) -> None:
    """Wait until a process has said this on standard error."""
    assert process.stderr is not None
    said = ""
    for line in process.stderr:
        said += line
        if text in line:
            return
    pytest.fail(f"`{text}` was not said: {said}")


def performed(home: Path, pid: int) -> bool:
    """Whether a standby has run epochs beside the owner: its own state is there."""
    return any((home / "shadow" / str(pid)).rglob("*.arrow"))


@pytest.mark.parametrize(
    ("mode", "end"),
    [
        ("active", signal.SIGKILL),
        ("passive", signal.SIGKILL),
        ("active", signal.SIGSTOP),
    ],
)
def test_a_standby_goes_on_where_the_owner_was(
    millstream: Processes, tmp_path: Path, mode: str, end: signal.Signals
) -> None:
    home = tmp_path / "house"
    (tmp_path / "flow.py").write_text(FLOW.replace("EVENTS", str(EVENTS)), encoding="utf-8")
    owner = millstream.start("run", "flow.py", "--home", home)
    progress(home, 0, owner)
    standby = millstream.start("run", "flow.py", "--home", home, "--standby", mode)
    heard(standby, f"in use by process {owner.pid}")
    if mode == "active":
        deadline = time.monotonic() + PATIENCE
        while not performed(home, standby.pid):
            assert time.monotonic() < deadline
            time.sleep(0.05)  # another process is watched: there is nothing to wait on
    family = [p for o in (owner, standby) for p in psutil.Process(o.pid).children(recursive=True)]
    seen = counted(home)
    owner.send_signal(end)
    heard(standby, "no progress for")
    if end == signal.SIGSTOP:
        owner.send_signal(signal.SIGCONT)
    assert millstream.ended(owner).returncode == -signal.SIGKILL
    progress(home, seen, standby)
    standby.send_signal(signal.SIGTERM)
    stopped = millstream.ended(standby)
    assert stopped.returncode == 0, stopped.stderr
    assert "Traceback" not in stopped.stderr
    assert not list((home / "shadow").glob("*"))
    _, left = psutil.wait_procs(family, timeout=PATIENCE)
    assert not [p for p in left if p.status() != psutil.STATUS_ZOMBIE]
    with Reader(home) as reader:
        (row,) = reader.query("SELECT *, (SELECT sum(bids) FROM per_auction) AS windows FROM total").to_dicts()
    prices = events("bid", 0, EVENTS, Nexmark(rate=RATE), columns=["price"])["price"]
    assert row["volume"] == pc.sum(prices.slice(0, row["bids"])).as_py()
    assert row["windows"] <= row["bids"]


def test_a_standby_that_is_stopped_has_changed_nothing(millstream: Processes, tmp_path: Path) -> None:
    home = tmp_path / "house"
    (tmp_path / "flow.py").write_text(FLOW.replace("EVENTS", "1000000"), encoding="utf-8")
    owner = millstream.start("run", "flow.py", "--home", home)
    progress(home, 0, owner)
    standby = millstream.start("run", "flow.py", "--home", home, "--take-over")
    heard(standby, f"in use by process {owner.pid}")
    standby.send_signal(signal.SIGTERM)
    stopped = millstream.ended(standby)
    assert stopped.returncode == 0, stopped.stderr
    assert not re.search("Traceback|error", stopped.stderr)
    progress(home, counted(home), owner)
    owner.send_signal(signal.SIGTERM)
    assert millstream.ended(owner).returncode == 0
