"""How long a flow makes no progress when a part of it dies: a Python worker, Spark's Java process, the whole process
with and without a standby, and a process that freezes.

A paced flow runs as `millstream run`; a reader polls a view all along. The figure is the time from the kill to the
first new result in the view; for a worker, which is replaced while the epoch goes on, the longest time between two
results. Every case starts anew, is warm before the kill, and its views are checked at the end. With names of
cases, `python -m bench.own.recovery active java` measures only those; a name may come several times. For a restart, the
processor time of the new process and its children until the first result is told too: unlike seconds, it says something
on a busy machine.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from bench.own import turns
from millstream.connect.nexmark import Nexmark, events
from millstream.errors import MillstreamError
from millstream.reader import Reader

RATE = 2_000
WARM_EPOCHS_SECONDS = 10
POLL_SECONDS = 0.05
"""A reader that looks without a pause takes a good part of a core from the process it waits for."""
GOALS = {"worker": 5.0, "java": 15.0, "restart": 15.0, "passive": 15.0, "active": 3.0, "frozen_active": 8.0}
FLOW = f"""
import millstream as ms

def same(table):
    return table

flow = ms.Flow("recovery")
bids = flow.source("bids", ms.nexmark("bid", rate={RATE}), event_time="date_time")
bids = bids.select("auction", "price", "date_time")
bids.aggregate(bids=ms.count(), volume=ms.sum("price")).view("total")
bids.key_by("auction").window(ms.tumbling("10 seconds")).aggregate(bids=ms.count()).view("windows")
through = bids.map_batches(same, schema="auction BIGINT, price BIGINT, date_time TIMESTAMP")
through.aggregate(bids=ms.count()).view("through_workers")
"""


def measure(work: Path, events: int | None, cases: Sequence[str] = tuple(GOALS)) -> dict[str, Any]:
    """Seconds without progress, for every way to die."""
    del events
    (work / "flow.py").write_text(FLOW, encoding="utf-8")
    figures: dict[str, Any] = {}
    for i, case in enumerate(cases):
        home, load = work / f"{case}-{i}", os.getloadavg()[0]
        with _runs(work, home) as start:
            seconds, cpu = _case(case, home, start)
        _check(home)
        figure = figures.setdefault(f"{case}_s", {"value": 0.0, "goal": GOALS[case], "all": [], "load": []})
        figure["all"].append(round(seconds, 2))
        figure["load"].append(round(load, 2))
        figure["value"] = round(turns.middle(figure["all"]), 2)
        if cpu is not None:
            figure.setdefault("cpu_s", []).append(round(cpu, 2))
    return figures


Start = Callable[..., subprocess.Popen[bytes]]


def _case(case: str, home: Path, start: Start) -> tuple[float, float | None]:
    """The seconds without progress; and for a restart, the processor time that it took."""
    owner = start()
    _progress(home, time.monotonic())
    if case in ("passive", "active", "frozen_active"):
        _ready(home, start("--standby", "active" if "active" in case else "passive"), active="active" in case)
    time.sleep(WARM_EPOCHS_SECONDS)
    java = next(p for p in psutil.Process(owner.pid).children() if p.name() == "java")
    if case == "worker":
        workers = [w for daemon in java.children() for w in daemon.children()]
        return _longest_gap(home, workers[0].kill), None
    before, began = _seen(home), time.monotonic()
    if case == "java":
        java.kill()
        time.sleep(0.1)  # an epoch that was computed may still be committed
        before = _seen(home)
    elif case == "frozen_active":
        owner.send_signal(signal.SIGSTOP)
    else:
        owner.kill()
        owner.wait()
        before = _seen(home) or before  # from the store itself, if nobody has it yet
    if case == "restart":
        again = start()
        return _progress(home, began, before or 0), _cpu(again.pid)
    return _progress(home, began, before or 0), None


def _cpu(pid: int) -> float:
    """User and system seconds of a process and all its children until now."""
    process, total = psutil.Process(pid), 0.0
    for one in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = one.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


@contextmanager
def _runs(work: Path, home: Path) -> Iterator[Start]:
    """Starts runs of the flow; all of them end at the end."""
    begun: list[subprocess.Popen[bytes]] = []

    def start(*options: str) -> subprocess.Popen[bytes]:
        code = "from millstream.cli import main; main()"
        with (work / "runs.log").open("ab") as log:
            command = [sys.executable, "-c", code, "run", "flow.py", "--home", str(home), *options]
            begun.append(subprocess.Popen(command, cwd=work, stdout=log, stderr=log, env=dict(os.environ)))
        return begun[-1]

    try:
        yield start
    finally:
        for process in begun:
            if process.poll() is None:
                process.terminate()
                process.wait(60)


def _seen(home: Path) -> int | None:
    try:
        with Reader(home) as reader:
            rows = reader.query("SELECT bids FROM total").to_dicts()
    except (MillstreamError, OSError, EOFError):
        return None
    return int(rows[0]["bids"]) if rows else None


def _progress(home: Path, since: float, beyond: int = 0) -> float:
    """Seconds until more bids than this are in the view."""
    while (_seen(home) or 0) <= beyond:
        if time.monotonic() - since > 300:
            raise SystemExit(f"no progress beyond {beyond} bids; see runs.log")
        time.sleep(POLL_SECONDS)
    return time.monotonic() - since


def _ready(home: Path, standby: subprocess.Popen[bytes], *, active: bool) -> None:
    """Wait until a standby waits for the home (and has performed epochs beside its owner)."""
    own = home / "shadow" / str(standby.pid)
    log = home.parent / "runs.log"
    while b"waiting for " + bytes(home) not in log.read_bytes() or (active and not any(own.rglob("*.arrow"))):
        if standby.poll() is not None:
            raise SystemExit("the standby has ended; see runs.log")
        time.sleep(0.1)


def _longest_gap(home: Path, kill: Callable[[], None]) -> float:
    last, changed, longest = _seen(home), time.monotonic(), 0.0
    kill()
    until = time.monotonic() + 15
    while time.monotonic() < until:
        found = _seen(home)
        if found != last and found is not None:
            longest, changed, last = max(longest, time.monotonic() - changed), time.monotonic(), found
        time.sleep(0.005)
    return longest


def _check(home: Path) -> None:
    """The views hold every bid once."""
    with Reader(home) as reader:
        (row,) = reader.query("SELECT bids, volume, (SELECT bids FROM through_workers) AS again FROM total").to_dicts()
    last, made = 2 * row["bids"], None
    while made is None or made.num_rows < row["bids"]:
        made = events("bid", 0, last, Nexmark(rate=RATE), columns=["price"])
        last *= 2
    volume = sum(made["price"].to_pylist()[: row["bids"]])
    assert (row["volume"], row["again"]) == (volume, row["bids"]), row


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for name, figure in measure(Path(folder), None, sys.argv[1:] or tuple(GOALS)).items():
            told = ", ".join(f"{key} {figure[key]}" for key in ("all", "cpu_s", "load") if key in figure)
            print(f"{name}: {figure['value']} (goal {figure['goal']}; {told})")
