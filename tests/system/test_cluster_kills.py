"""A hundred kills of executors, Python workers and Workers of a cluster at random moments: the views are those of a
batch, and no version of the state names a file of a task that was lost.

Every case prints its seed; MILLSTREAM_SEED=<seed> replays its choices.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from millstream.engine.spark.local_cluster import read, spark_home
from tests.seeds import run_seed

from .cluster_kit import compare
from .conftest import PATIENCE, Processes
from .test_cluster import QUICK, ROOT, until, url

__all__ = ["url"]
KILLS, STEP = 10, 4_000
KINDS = ("executor", "python", "worker")


class Members:
    """The processes of a cluster, also those that replace killed Workers."""

    def __init__(self, folder: Path) -> None:
        cluster = read(folder)
        assert cluster is not None
        self.started: list[subprocess.Popen[bytes]] = []
        self.workers = [psutil.Process(m.pid) for m in cluster.members if m.name != "master"]

    def executors(self) -> list[psutil.Process]:
        """The Java processes that run tasks."""
        return [c for w in self.workers if w.is_running() for c in w.children() if "java" in c.name()]

    def pythons(self) -> list[psutil.Process]:
        """The processes that run Python functions of tasks."""
        return [c for e in self.executors() for c in e.children(recursive=True) if "python" in c.name()]

    def kill(self, kind: str, choice: random.Random) -> bool:
        """Kill one process of a kind. A killed Worker is replaced by another one. False if there is none just now."""
        found = {"executor": self.executors, "python": self.pythons, "worker": lambda: self.workers}[kind]()
        if not found:
            return False
        victim = choice.choice(found)
        command, folder, environment = victim.cmdline(), victim.cwd(), victim.environ()
        victim.kill()
        if kind == "worker":
            self.workers.remove(victim)
            new = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            self.started.append(new)
            self.workers.append(psutil.Process(new.pid))
        return True

    def end(self) -> None:
        """End the Workers that replaced others; `cluster down` ends the others."""
        for process in self.started:
            process.terminate()
        for process in self.started:
            process.wait(timeout=PATIENCE)


@pytest.mark.slow
@pytest.mark.parametrize("share", range(100 // KILLS))
def test_killed_executors_python_workers_and_workers_lose_and_repeat_nothing(
    share: int, millstream: Processes, url: str, tmp_path: Path
) -> None:
    print(f"seed {run_seed()}, share {share}")  # noqa: T201
    choice = random.Random(run_seed() + share)
    members = Members(tmp_path / "cluster")
    known = {k: v for k, v in os.environ.items() if not k.startswith(("MILLSTREAM_", "SPARK_"))}
    run = subprocess.Popen(
        [sys.executable, "-m", "tests.system.cluster_kit", "until", str(tmp_path), url, str(STEP)],
        cwd=ROOT,
        env={
            **known,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
            "SPARK_HOME": str(spark_home()),
            "JAVA_TOOL_OPTIONS": QUICK,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )

    def files() -> int:
        progress = tmp_path / "epochs"
        return int(progress.read_text() or 0) if progress.exists() else 0

    try:
        until(lambda: files() >= 2, run)
        killed = dict.fromkeys(KINDS, 0)
        while sum(killed.values()) < KILLS:
            before, kind = files(), choice.choice(KINDS)
            print(f"next: {kind}", flush=True)  # noqa: T201
            until(lambda kind=kind: members.kill(kind, choice), run)  # type: ignore[misc]
            killed[kind] += 1
            print(f"{kind} killed after {before} files: {killed}")  # noqa: T201
            if choice.random() < 0.5:  # the next kill comes after progress, or while this one is still being handled
                until(lambda before=before: files() > before, run)  # type: ignore[misc]
            time.sleep(choice.random())  # some moment of an epoch
        (tmp_path / "enough").touch()
        out, err = run.communicate(timeout=PATIENCE)
    finally:
        if run.poll() is None:
            run.send_signal(signal.SIGKILL)
        members.end()
    assert run.returncode == 0, err
    found = json.loads(out)
    compare(found["views"], found["bids"])
    report = millstream.run("repair", "--home", "home")
    assert report.returncode == 0, report.stdout + report.stderr
