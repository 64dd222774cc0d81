"""Slow tests are dealt into shards: each is in one, none is long. Two processes share the others."""

from __future__ import annotations

import subprocess
import sys
from itertools import zip_longest
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import shards as shards_module
from tests.lanes import Lane
from tests.shards import GREEN, LONGEST, UNKNOWN, count, dealt, function_of, green

ROOT = Path(__file__).parents[2]
SECONDS = {"a.py::long": 300.0, "a.py::short": 1.0}
TESTS = [*(f"a.py::long[{i}]" for i in range(9)), *(f"a.py::short[{i}]" for i in range(200)), "b.py::new"]


def test_every_test_is_in_one_shard_and_none_is_longer_than_it_may_be() -> None:
    shards = count(TESTS, SECONDS)
    found = dealt(TESTS, shards, SECONDS)
    assert sorted(t for shard in found for t in shard) == sorted(TESTS)
    cost = [sum(SECONDS.get(function_of(t), UNKNOWN) for t in shard) for shard in found]
    assert max(cost) <= LONGEST and max(cost) - min(cost) <= max(SECONDS.values()), cost


def test_cases_of_a_function_stay_together_as_far_as_a_shard_has_room() -> None:
    for shard in dealt(TESTS, count(TESTS, SECONDS), SECONDS):
        short = [t for t in shard if function_of(t) == "a.py::short"]
        assert len(short) in (0, 20, 180, 200)


def test_green_tests_are_functions_with_all_their_cases_and_single_cases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "green.txt"
    file.write_text("# said of the file\na.py::short\n\na.py::long[3]\n", encoding="utf-8")
    monkeypatch.setattr(shards_module, "GREEN", file)
    assert green(TESTS) == ["a.py::long[3]", *(t for t in TESTS if function_of(t) == "a.py::short")]


def test_every_green_test_exists() -> None:
    names = {line for line in GREEN.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")}
    unknown = [n for n in names if f"def {function_of(n).split('::')[1]}(" not in (ROOT / n.split("::")[0]).read_text()]
    assert names and not unknown


def test_a_test_is_in_the_same_shard_in_whatever_order_they_are_found() -> None:
    assert [sorted(s) for s in dealt(TESTS, 5, SECONDS)] == [sorted(s) for s in dealt(TESTS[::-1], 5, SECONDS)]


def test_a_sample_is_spread_over_the_parameters_and_the_rest_is_slow(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "@pytest.mark.sampled(4)\n"
        "@pytest.mark.parametrize('a', range(4))\n"
        "@pytest.mark.parametrize('b', range(4))\n"
        "def test_it(a, b): pass\n"
    )
    (tmp_path / "conftest.py").write_text((ROOT / "tests/conftest.py").read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "pytest.ini").write_text(
        f"[pytest]\nmarkers =\n    slow\n    sampled\n    spark\npythonpath = {ROOT}\n"
    )

    def found(which: str) -> list[str]:
        command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", "-m", which]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        return [line.split("[")[1].rstrip("]") for line in done.stdout.splitlines() if "::" in line]

    sample, rest = found("not slow"), found("slow")
    assert len(sample) == 4 and len(rest) == 12 and not set(sample) & set(rest)
    assert {case.split("-")[0] for case in sample} == {case.split("-")[1] for case in sample} == set("0123")


def test_two_processes_run_every_test_once_and_share_no_module(tmp_path: Path) -> None:
    items: list[Any] = [SimpleNamespace(nodeid=f"m{m}.py::test_{t}") for m in range(7) for t in range(m % 3 + 1)]
    front, back = (Lane(f"{side}:{tmp_path}").claimed(items) for side in ("front", "back"))
    pairs = list(zip_longest(front, back))
    ran = [[item.nodeid for item in lane if item is not None] for lane in zip(*pairs, strict=True)]
    assert sorted(ran[0] + ran[1]) == sorted(item.nodeid for item in items)
    modules = [{function_of(test).split("::")[0] for test in lane} for lane in ran]
    assert all(modules) and not modules[0] & modules[1]
    assert max(modules[0]) < min(modules[1]), "they meet in the middle"
