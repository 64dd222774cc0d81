"""The kernel of patterns against a plain search: random rows, patterns, conditions and cuts into epochs."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from millstream.errors import MillstreamError
from millstream.kernels.patterns import search
from millstream.model.expression import col
from millstream.model.patterns.navigation import parsed
from millstream.model.patterns.pattern import PAST_LAST, TO_NEXT, Skip
from millstream.model.patterns.tree import (
    Choice,
    Excluded,
    Gap,
    Never,
    NotNext,
    Part,
    Repeat,
    Sequence,
    Variable,
    checked,
    named,
    unwanted,
)
from millstream.model.steps.pattern import Matched, matched
from millstream.model.steps.step import Select
from millstream.model.types.duration import Duration
from tests.unit.kernels.match_kit import GIVEN, Row, Stage, Taken, expected, row

Test = Callable[[list[Row], Taken, int], Any]


def _compare(sign: str, a: Any, b: Any) -> bool | None:
    if a is None or b is None:
        return None
    return {"<": a < b, ">": a > b, ">=": a >= b, "<>": a != b}[sign]


def _x(rows: list[Row], place: int) -> Any:
    return rows[place]["x"] if 0 <= place < len(rows) else None


def _of(taken: Taken, *names: str) -> list[int]:
    return [p for p, n, _ in taken if not names or n in names]


def _back(places: list[int], offset: int) -> int:
    return places[-1 - offset] if offset < len(places) else -100


def _sum(rows: list[Row], places: list[int]) -> int | None:
    found = [rows[p]["x"] for p in places if rows[p]["x"] is not None]
    return sum(found) if found else None


def conditions_of(rng: random.Random, mine: str, other: str) -> tuple[str, Test]:
    """A condition as it is written, and as a function."""
    n = rng.randrange(4)
    menu: list[tuple[str, Test]] = [
        (f"x > {n}", lambda rows, taken, i: _compare(">", _x(rows, i), n)),
        (f"x < {n + 1}", lambda rows, taken, i: _compare("<", _x(rows, i), n + 1)),
        (f"{mine}.x > prev({mine}.x)", lambda rows, taken, i: _compare(">", _x(rows, i), _x(rows, i - 1))),
        (f"x < prev(x, 2) + {n}", lambda rows, taken, i: _compare("<", _x(rows, i), _plus(_x(rows, i - 2), n))),
        ("x >= next(x)", lambda rows, taken, i: _compare(">=", _x(rows, i), _x(rows, i + 1))),
        ("next(x) is null", lambda rows, taken, i: _x(rows, i + 1) is None),
        (
            f"{mine}.x > {other}.x",
            lambda rows, taken, i: _compare(">", _x(rows, i), _x(rows, _back(_of(taken, other), 0))),
        ),
        (
            f"x > {n} and x <> last({mine}.x, 1)",
            lambda rows, taken, i: _both(
                _compare(">", _x(rows, i), n), _compare("<>", _x(rows, i), _x(rows, _back(_of(taken, mine), 1)))
            ),
        ),
        (f"sum({mine}.x) < {3 * n}", lambda rows, taken, i: _compare("<", _sum(rows, _of(taken, mine)), 3 * n)),
        (f"count(*) < {n + 2}", lambda rows, taken, i: len(_of(taken)) < n + 2),
        ("x >= first(x)", lambda rows, taken, i: _compare(">=", _x(rows, i), _x(rows, _of(taken)[0]))),
        (f"{other}.x is null or x < {n}", lambda rows, taken, i: _either(
            _x(rows, _back(_of(taken, other), 0)) is None, _compare("<", _x(rows, i), n))),
        ("not (x < last(both.x, 1))", lambda rows, taken, i: _not(
            _compare("<", _x(rows, i), _x(rows, _back(_of(taken, "a", "b"), 1))))),
    ]  # fmt: skip
    return rng.choice(menu)


def _plus(a: int | None, b: int) -> int | None:
    return None if a is None else a + b


def _both(a: bool | None, b: bool | None) -> bool | None:
    return False if a is False or b is False else None if a is None or b is None else True


def _either(a: bool | None, b: bool | None) -> bool | None:
    return True if a is True or b is True else None if a is None or b is None else False


def _not(a: bool | None) -> bool | None:
    return None if a is None else not a


def tree_of(rng: random.Random, depth: int = 0) -> Part:
    """A random part of a pattern."""
    kind = rng.random()
    if depth > 2 or kind < 0.35:
        return Variable(rng.choice("abc"))
    if kind < 0.65:
        return Sequence(tuple(tree_of(rng, depth + 1) for _ in range(rng.randint(2, 3))))
    if kind < 0.75:
        return Choice(tuple(tree_of(rng, depth + 1) for _ in range(2)))
    if kind < 0.92:
        least = rng.choice([0, 0, 1, 1, 2])
        most = rng.choice([None, None, least + 1, max(1, least)])
        return Repeat(tree_of(rng, depth + 1), least, most, rng.random() < 0.4)
    if kind < 0.95:
        return Excluded(tree_of(rng, depth + 1))
    gap = Gap(tuple(rng.sample("abcd", rng.randint(0, 2))))
    return rng.choice([Repeat(gap, 0, None, rng.random() < 0.5), gap, NotNext("d")])


def step(rng: random.Random) -> tuple[Select, dict[str, Test]]:
    """A random step, with its conditions as functions."""
    while True:
        tree: Part = Sequence((Variable("a"), Variable("b"), tree_of(rng)))
        if rng.random() < 0.5:
            tree = Sequence((tree_of(rng), tree_of(rng), Variable("a"), Variable("b")))
        within = rng.choice([None, None, Duration.of("5 seconds"), Duration.of("9 seconds")])
        if within is not None and rng.random() < 0.2:
            tree = Sequence((tree, Never("d")))
        try:
            checked(tree)
        except MillstreamError:
            continue
        if not {"a", "b"} <= set(named(tree)):
            continue
        break
    names = (*named(tree), *unwanted(tree))
    chosen = {n: conditions_of(rng, n, "a" if n == "b" else "b") for n in names if n in "abd" or rng.random() < 0.5}
    skip = rng.choice([PAST_LAST, PAST_LAST, TO_NEXT, Skip("to first", "b"), Skip("to last", "a")])
    all_rows = rng.random() < 0.5
    measures = ONE_ROW if not all_rows else ALL_ROWS
    lagging = any("next" in text for text, _ in chosen.values())
    made = matched(
        GIVEN,
        (("k", col("k")),),
        None,
        tree,
        {n: parsed(text) for n, (text, _) in chosen.items()},
        {n: parsed(m) for n, m in measures.items()},
        skip=skip,
        within=within,
        subsets={"both": ("a", "b")},
        all_rows=all_rows,
        timeouts=within is not None and not lagging and rng.random() < 0.3,
    )
    return made, {n: test for n, (_, test) in chosen.items()}


ONE_ROW = {
    "start": "first(f)",
    "num": "match_number()",
    "cl": "classifier()",
    "rows": "count(*)",
    "na": "count(a.*)",
    "nb": "count(b.x)",
    "sa": "sum(a.x)",
    "hi": "max(both.x)",
    "mean": "avg(x)",
    "fa": "first(a.f, 1)",
    "lb": "last(b.f)",
    "pb": "prev(last(b.f), 2)",
    "both_": "last(both.f, 1) + 1",
}
ALL_ROWS = {
    "start": "first(f)",
    "num": "match_number()",
    "cl": "classifier()",
    "r": "count(*)",
    "low": "min(b.x)",
    "sums": "sum(both.x)",
    "whole": "final sum(both.x)",
    "n": "final count(*)",
    "before": "prev(f)",
    "la": "last(a.f)",
    "fb": "first(b.f)",
    "fl": "final last(x, 1)",
}


def shown(step: Matched, rows: list[Row], taken: Taken, number: int, timed_out: bool) -> list[Row]:
    """What a match gives, computed one by one."""
    late = {"timed_out": timed_out} if step.timeouts else {}

    def f(place: int) -> Any:
        return rows[place]["f"] if 0 <= place < len(rows) else None

    def xs(part: Taken, *names: str) -> list[int]:
        return [v for p in _of(part, *names) if (v := rows[p]["x"]) is not None]

    if not step.all_rows:
        a, b, both = _of(taken, "a"), _of(taken, "b"), _of(taken, "a", "b")
        values = xs(taken)
        return [
            {
                "k": rows[0]["k"],
                "start": f(taken[0][0]),
                "num": number,
                "cl": taken[-1][1],
                "rows": len(taken),
                "na": len(a),
                "nb": len(xs(taken, "b")),
                "sa": _sum(rows, a),
                "hi": max(xs(taken, "a", "b"), default=None),
                "mean": sum(values) / len(values) if values else None,
                "fa": f(a[1]) if len(a) > 1 else None,
                "lb": f(b[-1]) if b else None,
                "pb": f(b[-1] - 2) if b else None,
                "both_": f(both[-2]) + 1 if len(both) > 1 else None,
                **late,
            }
        ]
    found = []
    for i, (place, name, hidden) in enumerate(taken):
        upto = taken[: i + 1]
        a, b = _of(upto, "a"), _of(upto, "b")
        if not hidden:
            found.append(
                {
                    **rows[place],
                    "start": f(taken[0][0]),
                    "num": number,
                    "cl": name,
                    "r": i + 1,
                    "low": min(xs(upto, "b"), default=None),
                    "sums": _sum(rows, _of(upto, "a", "b")),
                    "whole": _sum(rows, _of(taken, "a", "b")),
                    "n": len(taken),
                    "before": f(place - 1),
                    "la": f(a[-1]) if a else None,
                    "fb": f(b[0]) if b else None,
                    "fl": rows[taken[-2][0]]["x"] if len(taken) > 1 else None,
                    **late,
                }
            )
    return found


def case(seed: int) -> None:
    """One random pattern over random rows: any cut into epochs gives what the plain search gives."""
    rng = random.Random(seed)
    select, tests = step(rng)
    made = select.input
    assert isinstance(made, Matched)
    rows, second = [], 0
    for i in range(rng.randint(1, 30)):
        second += rng.choice([0, 1, 1, 2, 4])
        rows.append(row(rng.randrange(2), second, rng.choice([None, 0, 1, 2, 3, 4]), f=float(i)))
    wanted: dict[int, list[Row]] = {}
    for key in (0, 1):
        mine = [r for r in rows if r["k"] == key]
        for number, (taken, timed_out) in enumerate(expected(made, mine, tests), 1):
            wanted.setdefault(key, []).extend(shown(made, mine, taken, number, timed_out))
    stage, at = Stage(select), 0
    while at < len(rows):
        piece = rows[at : at + rng.randint(1, 8)]
        while at + len(piece) < len(rows) and rows[at + len(piece)]["t"] == piece[-1]["t"]:
            piece.append(rows[at + len(piece)])  # rows of one time come together
        at += len(piece)
        stage.take(*piece)
    stage.end()
    for key in (0, 1):
        found = [r for r in stage.given if r["k"] == key]
        mine = wanted.get(key, [])
        if made.skip == TO_NEXT:  # they are numbered as they are told
            found = sorted(({**r, "num": 0} for r in found), key=lambda r: (r["start"], r.get("f", 0)))
            mine = [{**r, "num": 0} for r in mine]
        assert found == mine, f"seed {seed}"
    most = 2 * (1 + stage.spec.lag)
    assert stage.held <= most, "no more is kept at the end than rows to look back at, and how many matches there were"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("block", range(3))
def test_any_pattern_over_any_rows_gives_what_a_plain_search_gives(block: int) -> None:
    for seed in range(block * 25, block * 25 + 25):
        case(seed)


def test_patterns_over_long_runs_are_searched_by_steps_with_the_same_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_LONG", 2)
    for seed in range(200, 220):
        case(seed)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_many_more_patterns_give_what_a_plain_search_gives(block: int) -> None:
    for seed in range(10_000 + block * 150, 10_000 + block * 150 + 150):
        case(seed)
