"""The slow tests in shards of at most a quarter of an hour: ``pytest -m slow --shard 3/40``.

`slow_seconds.json` holds the seconds that one case of a slow test function takes on two cores. Cases of a function are
dealt out in blocks, the longest first, each to the shard with the least to do. A test is in the same shard every time.
`python -m tests.shards` prints how many shards there are; pytest with `--record-seconds` writes down what a run took.

`slow_green.txt` names the tests that have passed with all their cases, and single cases of others. CI runs shards of
these alone: ``--shard green:3/9``, counted by `python -m tests.shards green`.
"""

from __future__ import annotations

import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import redirect_stdout
from io import StringIO
from itertools import groupby
from pathlib import Path

import pytest

SECONDS = Path(__file__).with_name("slow_seconds.json")
GREEN = Path(__file__).with_name("slow_green.txt")
GREEN_SHARD = "green:"
LONGEST = 12 * 60.0
"""Seconds of tests that a shard is planned for; the rest of the quarter of an hour is for a slower machine."""
BLOCK = 3 * 60.0
"""Seconds of the cases of a function that stay together."""
UNKNOWN = 20.0
"""Seconds of a test that was never timed."""


def function_of(test: str) -> str:
    """The name of a test without its parameters."""
    return test.split("[", 1)[0]


def timed() -> dict[str, float]:
    """Seconds of one case by test function."""
    return dict(json.loads(SECONDS.read_text(encoding="utf-8")))


def green(tests: Iterable[str]) -> list[str]:
    """Those of the tests that are known to pass."""
    known = {line for line in GREEN.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")}
    return [test for test in tests if test in known or function_of(test) in known]


def blocks(tests: Iterable[str], seconds: Mapping[str, float]) -> list[tuple[float, list[str]]]:
    """Cases of one function that run together, because they share what is costly to set up, and what they cost."""
    found: list[tuple[float, list[str]]] = []
    for function, cases in groupby(sorted(tests), function_of):
        cost = seconds.get(function, UNKNOWN)
        each, size = list(cases), max(1, int(BLOCK / max(cost, 0.01)))
        found += [(cost * len(part), part) for part in (each[i : i + size] for i in range(0, len(each), size))]
    return found


def dealt(tests: Iterable[str], shards: int, seconds: Mapping[str, float]) -> list[list[str]]:
    """The tests of each shard."""
    work = [(0.0, k) for k in range(shards)]
    found: list[list[str]] = [[] for _ in range(shards)]
    for cost, cases in sorted(blocks(tests, seconds), key=lambda block: (-block[0], block[1])):
        load, least = min(work)
        work[least] = (load + cost, least)
        found[least] += cases
    return found


def count(tests: Iterable[str], seconds: Mapping[str, float]) -> int:
    """How many shards it takes."""
    return max(1, math.ceil(sum(seconds.get(function_of(test), UNKNOWN) for test in tests) / LONGEST))


class Shards:
    """The plugin: leaves one shard of the collected tests, and writes down what they took."""

    def __init__(self, shard: str | None, *, record: bool) -> None:
        self.shard, self.record = shard, record
        self.took: dict[str, list[float]] = defaultdict(list)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """After the markers have left the slow tests alone."""
        tests = [item.nodeid for item in items]
        if self.shard is not None:
            k, n = (int(part) for part in self.shard.removeprefix(GREEN_SHARD).split("/"))
            if self.shard.startswith(GREEN_SHARD):
                tests = green(tests)
            mine = set(dealt(tests, n, timed())[k - 1])
            config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in mine])
            items[:] = [item for item in items if item.nodeid in mine]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Set-up, call and the end of a test count."""
        if self.record and report.passed:
            if report.when == "setup":
                self.took[report.nodeid].append(0.0)
            self.took[report.nodeid][-1] += report.duration

    def pytest_sessionfinish(self) -> None:
        """The mean over the cases of a function."""
        if not self.took:
            return
        cases: dict[str, list[float]] = defaultdict(list)
        for test, seconds in self.took.items():
            cases[function_of(test)] += seconds
        now = timed() | {name: round(sum(each) / len(each), 1) for name, each in cases.items()}
        SECONDS.write_text(json.dumps(dict(sorted(now.items())), indent=1) + "\n", encoding="utf-8")


class _Counted:
    """A plugin that counts the shards of the collected tests."""

    def __init__(self, *, only_green: bool) -> None:
        self.only_green = only_green

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        tests = [item.nodeid for item in session.items]
        self.shards = count(green(tests) if self.only_green else tests, timed())


def main() -> None:
    """Print how many shards there are, of all slow tests or of the green ones."""
    counted = _Counted(only_green="green" in sys.argv[1:])
    with redirect_stdout(StringIO()):
        pytest.main(["-q", "--collect-only", "-m", "slow"], plugins=[counted])
    print(counted.shards)  # noqa: T201


if __name__ == "__main__":
    main()
