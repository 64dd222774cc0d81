"""One comparison: all systems in turn, A B C A B C, each in a process of its own; answers are checked before
times count.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import tempfile
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from bench import data, environments, oracle
from bench.cases import HERE, OURS, Comparison, Peer
from bench.peers.protocol import Task

TIMEOUT = 1_800
WORK = HERE / ".work"


@dataclass
class Runs:
    """What one system did in all rounds. A run that failed or gave wrong rows has no time, and voids the
    ratio.
    """

    peer: Peer
    events: int
    sha256: str
    seconds: list[float | None] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    said: dict[str, Any] = field(default_factory=dict)
    peaks: list[float] = field(default_factory=list)
    """The most memory its processes held in each round, in MiB."""

    def rate(self, turn: int) -> float | None:
        """Events per second in one round."""
        seconds = self.seconds[turn]
        return self.events / seconds if seconds else None

    @property
    def rates(self) -> list[float]:
        return [rate for turn in range(len(self.seconds)) if (rate := self.rate(turn))]

    def ratios(self, ours: Runs) -> list[float]:
        """Ours / this system, round by round; empty as soon as one of them gave a wrong answer."""
        if self.faults or ours.faults:
            return []
        pairs = [(ours.rate(turn), self.rate(turn)) for turn in range(len(self.seconds))]
        return [mine / theirs for mine, theirs in pairs if mine and theirs]


def compare(
    case: Comparison, peers: Iterable[Peer], rounds: int, events: int, options: dict[str, dict[str, str]]
) -> list[Runs]:
    """Run `case` on all of `peers`, `rounds` times in turn."""
    WORK.mkdir(exist_ok=True)
    systems = list(peers)
    for peer in systems:
        environments.prepare(peer)
    sets = {peer.name: data.bids(max(int(events * peer.share), 1), case.format) for peer in systems}
    answers = {name: oracle.expected(case, chosen, WORK) for name, chosen in sets.items()}
    results = {peer.name: Runs(peer, sets[peer.name].bids, sets[peer.name].digest) for peer in systems}
    for turn in range(rounds):
        for peer in systems:
            runs = results[peer.name]
            _one(case, runs, sets[peer.name], answers[peer.name], options.get(peer.name, {}))
            rate = runs.rate(turn)
            told = f"{rate / 1e6:.3f} M events/s" if rate else runs.faults[-1]
            print(f"{case.name}  round {turn + 1}/{rounds}  {peer.name:<11} {told}", flush=True)
    return list(results.values())


def _one(case: Comparison, runs: Runs, chosen: data.DataSet, right: Path, options: dict[str, str]) -> None:
    prefix = f"{case.name}-{runs.peer.name}-"
    with tempfile.TemporaryDirectory(prefix=prefix, dir=WORK, ignore_cleanup_errors=True) as folder:
        _one_in(Path(folder), case, runs, chosen, right, options)


def _one_in(
    work: Path, case: Comparison, runs: Runs, chosen: data.DataSet, right: Path, options: dict[str, str]
) -> None:
    out = work / "result.parquet"
    task = Task(
        key=case.key,
        size=case.size,
        slide=case.slide,
        gap=case.gap,
        lateness=case.lateness,
        format=case.format,
        data=str(chosen.folder(case.format)),
        warm_up=str(chosen.warm_up(case.format)),
        out=str(out),
        work=str(work),
        options=options,
    )
    seconds, fault, said = run_script(runs.peer, task.to_json(), work)
    if fault is None:
        fault = oracle.difference(right, out) if out.exists() else "no rows to check"
    runs.seconds.append(None if fault else seconds)
    runs.said.update(said)
    runs.peaks.append(said.get("peak_mib", 0.0))
    if fault:
        log = WORK / f"{case.name}-{runs.peer.name}.log"
        log.write_text((work / "log").read_text() if (work / "log").exists() else "")
        runs.faults.append(f"{fault} (see {log})")


def run_script(peer: Peer, argument: str, work: Path) -> tuple[float, str | None, dict[str, Any]]:
    """The seconds a system's script told, or what went wrong, and all it told."""
    with (work / "log").open("w") as log:
        process = subprocess.Popen(
            [str(peer.python), str(peer.script), argument],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=work,
            start_new_session=True,
        )
        watch = Watch(process.pid)
        watch.start()
        try:
            told, _ = process.communicate(timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            return 0.0, f"not done after {TIMEOUT} s", {}
        finally:
            watch.done.set()
            # A JVM or a worker may outlive its script; all of them are in the session made for it.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        log.write(told)
    lines = told.strip().splitlines()
    if process.returncode or not lines:
        return 0.0, f"ended with code {process.returncode}", {}
    said: dict[str, Any] = {**json.loads(lines[-1]), "peak_mib": watch.peak}
    return said["seconds"], None, said


class Watch(threading.Thread):
    """Looks every fifth of a second how much memory a process and those it started hold."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.done = threading.Event()
        self.peak = 0.0
        """The most resident memory of all of them together, in MiB; pages that they share count for each."""
        self._root = psutil.Process(pid)

    def run(self) -> None:
        while not self.done.wait(0.2):
            held = 0
            with contextlib.suppress(psutil.NoSuchProcess):
                for each in (self._root, *self._root.children(recursive=True)):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        held += each.memory_info().rss
            self.peak = max(self.peak, held / 2**20)


def middle(values: list[float]) -> float | None:
    """The median, if there is one."""
    return statistics.median(values) if values else None


def ours_of(results: list[Runs]) -> Runs | None:
    """Our own runs among `results`."""
    return next((runs for runs in results if runs.peer.name == OURS.name), None)
