"""Real kills at random moments, with a reader that looks all along: nothing is lost, repeated, or seen half done.

Every test prints its seed; MILLSTREAM_SEED=<seed> replays its choices. Most kills meet a process with the local engine,
which is up again in a second or two; the others meet `millstream run` with Spark.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pytest

import millstream as ms
from millstream.errors import MillstreamError
from millstream.home import Home
from millstream.plan.planner import plan
from millstream.reader import Reader
from millstream.runtime.supervision.lease import owner_of, wait_for
from millstream.runtime.supervision.run import Run
from tests.local import LocalEngine
from tests.oracle import batch, same

from .conftest import PATIENCE, Processes

ROOT = Path(__file__).parents[2]
START = 1_767_225_600_000_000
KEYS, STEP = 7, 40_000
"""Record n is of key n % 7 and of the time 40 ms * n."""

WINDOWS = "SELECT time_bucket(INTERVAL '2 seconds', ts) AS window_start, k, count(*) AS n FROM t GROUP BY ALL"
SNAPSHOT = (
    "SELECT t.n AS n, t.s AS s, (SELECT sum(n) FROM by_key) AS by_key, (SELECT sum(n) FROM windows) AS windows "
    "FROM total t"
)


def made(start: int, end: int) -> pa.Table:
    """The records [start, end)."""
    numbers = np.arange(start, end)
    times = pa.array(START + numbers * STEP, pa.timestamp("us", "UTC"))
    return pa.table({"k": numbers % KEYS, "v": numbers * 31 % 1009, "ts": times})


def flow_of(source: Any, most: int | None) -> ms.Flow:
    flow = ms.Flow("killed")
    rows = flow.source("rows", source, schema="k BIGINT, v BIGINT, ts TIMESTAMP", event_time="ts", max_rows=most)
    rows.aggregate(n=ms.count(), s=ms.sum("v")).view("total")
    rows.key_by("k").aggregate(n=ms.count()).view("by_key")
    windows = rows.key_by("k").window(ms.tumbling("2 seconds"), trigger=ms.on_change())
    windows.aggregate(n=ms.count()).view("windows")
    rows.select("v").sink("values", ms.log("values"))
    return flow


def drive(home: str, records: int, most: int, lease: float) -> None:
    """What a child process does: own the home as soon as it can, and run the flow to its end."""
    memory = ms.memory()
    memory.send(*made(0, records).to_pylist())
    memory.end()
    planned = plan(flow_of(memory, most))
    lock = wait_for(Path(home) / "lock", lease=lease)
    with Home(home, lock=lock) as opened:
        Run("killed", lambda: opened.loop(planned, engine=LocalEngine), restarts=ms.Restarts()).wait().stop()


def child(home: Path, records: int, most: int, lease: float = 5.0) -> subprocess.Popen[bytes]:
    code = f"from tests.system.test_kills import drive; drive({str(home)!r}, {records}, {most}, {lease})"
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    return subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, cwd=ROOT)


class Watcher(threading.Thread):
    """A reader that polls all along: every answer is the state after some prefix of the records, and none goes back."""

    def __init__(self, home: Path, records: int) -> None:
        super().__init__(daemon=True)
        self.home, self.seen, self.answers = home, 0, 0
        self.sums = np.concatenate([[0], np.cumsum(made(0, records)["v"].to_numpy())])
        self.wrong: list[str] = []
        self.over = threading.Event()
        self.moved = threading.Condition()

    def run(self) -> None:
        while not self.over.wait(0.02):
            try:
                with Reader(self.home) as reader:  # anew for each question: without an owner it has the store itself
                    rows = reader.query(SNAPSHOT).to_dicts()
            except (MillstreamError, OSError, EOFError, ValueError):
                continue  # nobody answers just now
            self._look(rows)

    def _look(self, rows: list[dict[str, Any]]) -> None:
        if not rows:
            return
        (row,) = rows
        n = row["n"]
        self.answers += 1
        if n == 0:  # counts and sums over no rows: the groups have no row yet
            row = {k: v or 0 for k, v in row.items()}
        if not (n == row["by_key"] == row["windows"] and row["s"] == self.sums[n] and n >= self.seen):
            self.wrong.append(f"after {self.seen} records: {row}, and the sum of {n} is {self.sums[n]}")
        with self.moved:
            self.seen = max(self.seen, n)
            self.moved.notify_all()

    def wait(self, more: int, process: subprocess.Popen[Any]) -> None:
        """Until so many more records were seen, or the process has ended."""
        records = self.seen + more
        deadline = time.monotonic() + PATIENCE
        with self.moved:
            while self.seen < records and process.poll() is None:
                assert time.monotonic() < deadline, f"only {self.seen} records were seen"
                self.moved.wait(0.1)


@contextmanager
def watched(home: Path, records: int) -> Iterator[Watcher]:
    watcher = Watcher(home, records)
    watcher.start()
    try:
        yield watcher
    finally:
        watcher.over.set()
        watcher.join()
    assert not watcher.wrong, watcher.wrong[:3]
    assert watcher.answers


def seeded() -> random.Random:
    seed = int(os.environ.get("MILLSTREAM_SEED") or random.SystemRandom().randrange(2**32))
    print(f"MILLSTREAM_SEED={seed}")  # noqa: T201 - to replay a failure
    return random.Random(f"{seed} {os.environ['PYTEST_CURRENT_TEST']}")  # shares of a test choose differently


def shares(size: int, count: int) -> list[Any]:
    """Parameters for slow tests that share a long one."""
    return [pytest.param(size, marks=pytest.mark.slow, id=f"{size}-{i}") for i in range(count)]


def check(home: Path, records: int) -> None:
    """The views are what a batch over all records gives."""
    whole = made(0, records)
    with Reader(home) as reader:
        for view, sql in {
            "total": "SELECT count(*) AS n, sum(v) AS s FROM t",
            "by_key": "SELECT k, count(*) AS n FROM t GROUP BY k",
            "windows": WINDOWS,
        }.items():
            expected = batch(sql, t=whole)
            same(reader.query(f"SELECT * FROM {view}").to_dicts(), expected, list(expected[0]))
        topic = reader.topic("values")
        written = topic.read(0, 0, topic.end()[0], columns=["v"])["v"].to_pylist()
        assert sorted(written) == sorted(whole["v"].to_pylist()), "the sink has every change once"


@pytest.mark.parametrize("kills", [2, *shares(57, 5)])
def test_a_process_that_is_killed_again_and_again_loses_and_repeats_nothing(tmp_path: Path, kills: int) -> None:
    chance, home, records = seeded(), tmp_path / "home", 60 * kills
    done = 0
    with watched(home, records) as watcher:
        while done < kills:
            process = child(home, records, most=3)
            if chance.random() < 0.25:
                time.sleep(chance.uniform(0, 2))  # also while it starts
            else:
                watcher.wait(3, process)
                time.sleep(chance.uniform(0, 0.2))
            assert process.poll() is None, "all was read before the last kill"
            process.kill()
            process.wait()
            done += 1
        process = child(home, records, most=1000)
        assert process.wait(PATIENCE) == 0
    check(home, records)


@pytest.mark.parametrize("times", shares(17, 3))
def test_a_frozen_owner_is_ended_and_changes_nothing_any_more(tmp_path: Path, times: int) -> None:
    chance, home, records = seeded(), tmp_path / "home", 200 * (times + 1)
    with watched(home, records) as watcher:
        owner = child(home, records, most=3, lease=1.0)
        for _ in range(times):
            watcher.wait(3, owner)
            following = child(home, records, most=3, lease=1.0)
            time.sleep(chance.uniform(0, 0.5))
            assert owner.poll() is None, "all was read before the owner was frozen"
            owner.send_signal(signal.SIGSTOP)
            watcher.wait(30, following)  # by the one that took over
            held = owner_of(home / "lock")
            assert held is not None and held.pid == following.pid
            os.kill(owner.pid, signal.SIGCONT)
            assert owner.wait(PATIENCE) == -signal.SIGKILL
            owner = following
        owner.kill()
        owner.wait()
        assert child(home, records, most=1000).wait(PATIENCE) == 0
    check(home, records)


# ---------------------------------------------------------------- with Spark

RATE = 300
SPARK_FLOW = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import millstream as ms
from tests.system.test_kills import flow_of, made

def same(table):
    return table

source = ms.generator(made, rate={RATE}, events=RECORDS)
flow = flow_of(source, None)
rows = ms.Stream(flow, flow.sources[0])
rows.map_batches(same, schema="k BIGINT, v BIGINT, ts TIMESTAMP").aggregate(n=ms.count()).view("through_workers")
"""


def family(process: subprocess.Popen[str]) -> list[psutil.Process]:
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def victim(process: subprocess.Popen[str], kind: str) -> psutil.Process | None:
    """The Java process, or one of the Python workers, of a run."""
    try:
        java = [p for p in family(process) if p.name() == "java"]
        if kind == "java" or not java:
            return java[0] if java else None
        workers = [w for daemon in java[0].children() for w in daemon.children()]
        return workers[0] if workers else None
    except psutil.NoSuchProcess:
        return None


def gone(processes: list[psutil.Process]) -> None:
    """Wait until all have ended."""
    _, left = psutil.wait_procs(processes, timeout=PATIENCE)
    assert not [p for p in left if p.status() != psutil.STATUS_ZOMBIE], left


@pytest.mark.spark
@pytest.mark.parametrize("rounds", shares(2, 5))
def test_kills_of_worker_java_and_driver_lose_and_repeat_nothing(
    millstream: Processes, tmp_path: Path, rounds: int
) -> None:
    chance, home, records = seeded(), tmp_path / "home", RATE * 100 * rounds
    (tmp_path / "flow.py").write_text(SPARK_FLOW.replace("RECORDS", str(records)), encoding="utf-8")
    known: list[psutil.Process] = []
    with watched(home, records) as watcher:
        process = millstream.start("run", "flow.py", "--home", home)
        for _ in range(rounds):
            kinds = ["worker", "java"]
            chance.shuffle(kinds)
            for kind in [*kinds, "driver"]:
                watcher.wait(50, process)
                time.sleep(chance.uniform(0, 0.5))
                known += family(process)
                if kind == "driver":
                    process.kill()
                    process.communicate()
                    process = millstream.start("run", "flow.py", "--home", home)
                else:
                    while (found := victim(process, kind)) is None:
                        assert process.poll() is None, process.communicate()
                        time.sleep(0.05)  # workers come and go
                    found.kill()
        watcher.wait(50, process)
        assert process.poll() is None, process.communicate()
        known += family(process)
        process.send_signal(signal.SIGTERM)
        stopped = millstream.ended(process)
        assert stopped.returncode == 0, stopped.stderr
    gone(known)
    with Reader(home) as reader:
        (row,) = reader.query(SNAPSHOT).to_dicts()
        assert reader.query("SELECT n FROM through_workers").to_dicts() == [{"n": row["n"]}]
    check(home, row["n"])
