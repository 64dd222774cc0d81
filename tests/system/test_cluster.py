"""Flows on a cluster: executors are processes of their own, and one that dies takes nothing with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from millstream.engine.spark.local_cluster import page as master_page
from millstream.engine.spark.local_cluster import read, registered, spark_home
from millstream.errors import MillstreamError
from millstream.reader import Reader

from .cluster_kit import SQL, VIEWS, bids, compare, items, put
from .conftest import PATIENCE, Processes

ROOT = Path(__file__).parents[2]
QUICK = "-XX:TieredStopAtLevel=1 -XX:ActiveProcessorCount=1"
"""Java processes that live for seconds only: they compile less."""


@pytest.mark.spark
def test_a_flow_runs_on_executors_in_other_processes(tmp_path: Path) -> None:
    """In a child process: this one may have a session with another master."""
    programs = tmp_path / "spark"  # a cluster of this kind writes below the folder of Spark's programs
    programs.mkdir()
    for entry in spark_home().iterdir():
        (programs / entry.name).symlink_to(entry)
    known = {k: v for k, v in os.environ.items() if not k.startswith(("MILLSTREAM_", "SPARK_"))}
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    command = [sys.executable, "-m", "tests.system.cluster_kit", str(tmp_path), "local-cluster[2,1,1024]"]
    done = subprocess.run(
        [*command, "3000", "5000"],
        cwd=ROOT,
        env={**known, "PYTHONPATH": path, "SPARK_HOME": str(programs), "JAVA_TOOL_OPTIONS": QUICK},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    compare(found["views"], 5000)
    assert found["executors"] == 2
    assert found["shards"] == 2
    assert found["placements"] and set(found["placements"]) == {"spread"}


# ---------------------------------------------------------------- a real master and real workers


@pytest.fixture
def url(millstream: Processes) -> Iterator[str]:
    """The address of a cluster of two workers, which ends with the test."""
    up = millstream.run("cluster", "up", "--workers", "2", "--dir", "cluster")
    try:
        assert up.returncode == 0, up.stderr
        yield up.stdout.strip()
    finally:
        millstream.run("cluster", "down", "--dir", "cluster")


def until(holds: Callable[[], bool], process: subprocess.Popen[str] | None = None) -> None:
    """Wait for progress."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "no progress"
        assert process is None or process.poll() is None, process.communicate() if process else ""
        time.sleep(0.1)


def counted(home: Path) -> int:
    """How many bids the views reflect; 0 while nobody answers."""
    try:
        with Reader(home) as reader:
            return int(reader.query("SELECT sum(n) AS n FROM totals").to_dicts()[0]["n"] or 0)
    except (MillstreamError, OSError):
        return 0


def joined(end: int) -> int:
    """How many of the first bids are for an item."""
    return int(sum(a < len(items()) for a in bids(0, end)["auction"].to_pylist()))


@pytest.mark.slow
def test_a_worker_is_killed_between_two_epochs_and_nothing_is_lost(
    millstream: Processes, url: str, tmp_path: Path
) -> None:
    (tmp_path / "flow.sql").write_text(SQL)
    put(items(), tmp_path / "items", "items")
    put(bids(0, 90_000), tmp_path / "bids", "000")  # more than an epoch in the driver may have
    run = millstream.start("run", "flow.sql", "--master", url, "--home", "home")
    until(lambda: counted(tmp_path / "home") == joined(90_000), run)

    cluster = read(tmp_path / "cluster")
    assert cluster is not None and cluster.url == url and len(cluster.running) == 3
    victim = cluster.members[1]
    executors = psutil.Process(victim.pid).children()
    assert executors, "no executor runs on the worker"
    os.kill(victim.pid, signal.SIGKILL)
    _, alive = psutil.wait_procs(executors, timeout=PATIENCE)
    assert not alive, "an executor ends with its worker"

    put(bids(90_000, 170_000), tmp_path / "bids", "001")
    until(lambda: counted(tmp_path / "home") == joined(170_000), run)
    with Reader(tmp_path / "home") as reader:
        compare({view: reader.query(f"SELECT * FROM {view}").to_dicts() for view in VIEWS}, 170_000)
    run.send_signal(signal.SIGINT)
    ended = millstream.ended(run)
    assert ended.returncode == 0, ended.stderr

    status = millstream.run("cluster", "status", "--dir", "cluster")
    assert status.returncode == 1 and "worker-1: ended" in status.stdout and "worker-2: running" in status.stdout
    until(lambda: len(registered(master_page(cluster))) < 2)

    view = "CREATE VIEW auctions AS SELECT auction, count(*) AS n FROM bids GROUP BY auction"
    asked = millstream.run(
        *("sql", "--master", url, "--home", "home", "--format", "json", "-c", "SET wait = 200", "-c", view),
        *("-c", "SELECT CAST(sum(n) AS BIGINT) AS n, count(*) AS auctions FROM auctions"),
    )
    assert asked.returncode == 0, asked.stderr
    assert json.loads(asked.stdout) == [{"n": 170_000, "auctions": len(set(bids(0, 1000)["auction"].to_pylist()))}]

    members = [m for m in cluster.members if m != victim]
    down = millstream.run("cluster", "down", "--dir", "cluster")
    assert (down.returncode, down.stdout) == (0, "ended worker-2, master\n"), down.stderr
    assert not any(m.alive for m in members)
    again = millstream.run("cluster", "down", "--dir", "cluster")
    assert again.returncode == 0 and again.stdout.startswith("no cluster is running in ")
