"""Runs of one kind or another in turn, A B C B C A, and answers that are checked before a time counts."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import millstream as ms
from bench import oracle
from bench.own import engine, feed
from bench.peers.protocol import write_result
from millstream.plan.planner import plan

ROUNDS = 3
FILES, WARM_FILES = 6, 2
"""The files of a run, file by file, and how many of the first ones are not timed: the JVM is warm after them."""

Timed = Callable[[Path], float]
"""A run in a fresh folder, which need not exist yet; returns the seconds that count."""


def in_turn(case: str, work: Path, runs: Mapping[str, Timed], rounds: int = ROUNDS) -> dict[str, list[float]]:
    """The seconds of each run, round by round. Every round begins with another one, so that no kind always has the
    quiet or the warm place; with as many rounds as kinds, or twice as many, each has had every place equally often.
    """
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    names = list(runs)
    for i in range(rounds):
        first = i % len(names)
        for name in (*names[first:], *names[:first]):
            seconds[name].append(runs[name](work / f"{name}-{i}"))
        told = ", ".join(f"{name} {times[-1]:.2f} s" for name, times in seconds.items())
        print(f"{case}  round {i + 1}/{rounds}  {told}", flush=True)
    return seconds


def to_the_end(home: ms.Home, flow: ms.Flow) -> float:
    """The seconds in which a flow performs all epochs there are to do."""
    begin = time.perf_counter()
    loop = home.loop(plan(flow))
    while loop.step() is not None:
        pass
    seconds = time.perf_counter() - begin
    loop.close()
    return seconds


def file_by_file(home: ms.Home, flow: ms.Flow, folder: feed.Folder, keys: feed.Longs) -> tuple[float, Any]:
    """The seconds in which a flow, spread over the executors, takes one bid per key, in files that appear one by one;
    and the column `n` of its view `result`, which has one row.
    """
    loop = home.loop(plan(flow), placement="spread")
    begin = time.perf_counter()
    for number, part in enumerate(np.array_split(keys, FILES)):
        folder.release(folder.stage(feed.one_each(part)))
        if number == WARM_FILES:
            begin = time.perf_counter()
        while loop.step() is not None:
            pass
    seconds = time.perf_counter() - begin
    found = engine.scalar(home, "SELECT n FROM result")
    loop.close()
    return seconds, found


def middle(values: Sequence[float]) -> float:
    """The median."""
    return statistics.median(values)


def ratio(
    over: Sequence[float], under: Sequence[float], goal: float | None = None, at_least: float | None = None
) -> dict[str, Any]:
    """The median of the ratios, round by round, as a figure with its goal."""
    ratios = [a / b for a, b in zip(over, under, strict=True)]
    aims = {"goal": goal, "at_least": at_least}
    return {"value": middle(ratios), **{k: v for k, v in aims.items() if v is not None}, "all": ratios}


def check(case: str, right: Path, rows: pa.Table, folder: Path) -> None:
    """End the case when rows are not the right ones (see `oracle`)."""
    write_result(rows, str(folder / "given.parquet"))
    fault = oracle.difference(right, folder / "given.parquet")
    if fault is not None:
        raise SystemExit(f"{case}: {fault}")
