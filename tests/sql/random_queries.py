"""Random queries of the supported language, each said twice: for a live view and for a batch over the same rows."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

SCHEMA = "id BIGINT, a BIGINT, b BIGINT, c STRING, tags ARRAY<STRING>, ts TIMESTAMP"
SOURCE = f"CREATE SOURCE r ({SCHEMA}, WATERMARK FOR ts AS ts - INTERVAL '2' DAYS) FROM LOG('r')"
_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Query:
    """A query for a view, and the same for Spark's batch."""

    live: str
    batch: str


def rows_of(seed: int, number: int = 120) -> list[dict[str, Any]]:
    """Rows in disorder, with some NULL."""
    chance = random.Random(f"rows {seed}")

    def maybe(value: Any) -> Any:
        return None if chance.random() < 0.12 else value

    return [
        {
            "id": i,
            "a": maybe(chance.randrange(5)),
            "b": maybe(chance.randrange(-20, 60)),
            "c": maybe(chance.choice(["x", "y", "Zz", "", "a b"])),
            "tags": maybe([maybe(chance.choice("pqr")) for _ in range(chance.randrange(4))]),
            "ts": (_BEGIN + timedelta(milliseconds=chance.randrange(120_000))).isoformat(),
        }
        for i in range(number)
    ]


def epochs_of(seed: int, rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The rows, cut into epochs."""
    chance = random.Random(f"epochs {seed}")
    cuts = sorted({0, len(rows), *(chance.randrange(1, len(rows)) for _ in range(chance.choice((1, 1, 2))))})
    return [rows[start:end] for start, end in pairwise(cuts)]


def query_of(seed: int, number: int) -> Query:
    """The query of this number."""
    return _Making(random.Random(f"query {seed} {number}")).query()


class _Making:
    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def one(self, *given: Callable[[], Any]) -> Any:
        return self.chance.choice(given)()

    # ------------------------------------------------------------ expressions

    def number(self, depth: int = 2) -> str:
        if depth == 0 or self.chance.random() < 0.3:
            return self.chance.choice(["a", "b", "id", "a", "b", str(self.chance.randrange(-9, 10))])
        inner = lambda: self.number(depth - 1)  # noqa: E731
        return str(
            self.one(
                lambda: f"({inner()} {self.chance.choice('+-*')} {inner()})",
                lambda: f"coalesce({inner()}, {inner()})",
                lambda: f"abs({inner()})",
                lambda: f"pmod({inner()}, {self.chance.randrange(2, 7)})",
                lambda: f"({inner()} % {self.chance.randrange(2, 7)})",
                lambda: f"greatest({inner()}, {inner()})",
                lambda: f"least({inner()}, {inner()})",
                lambda: f"nullif({inner()}, {inner()})",
                lambda: f"CASE WHEN {self.condition(depth - 1)} THEN {inner()} ELSE {inner()} END",
                lambda: f"if({self.condition(depth - 1)}, {inner()}, {inner()})",
                lambda: f"CAST(length({self.text(depth - 1)}) AS BIGINT)",
                lambda: f"CAST(size(tags) AS BIGINT) + {inner()}",
            )
        )

    def text(self, depth: int = 2) -> str:
        if depth == 0 or self.chance.random() < 0.3:
            return self.chance.choice(["c", "c", "'k'", "''"])
        inner = lambda: self.text(depth - 1)  # noqa: E731
        return str(
            self.one(
                lambda: f"upper({inner()})",
                lambda: f"concat({inner()}, {inner()})",
                lambda: f"coalesce({inner()}, 'none')",
                lambda: f"substring({inner()}, 1, {self.chance.randrange(1, 3)})",
                lambda: f"CAST({self.number(depth - 1)} AS STRING)",
                lambda: f"CASE WHEN {self.condition(depth - 1)} THEN {inner()} END",
                lambda: f"trim({inner()})",
                lambda: f"replace({inner()}, 'x', 'w')",
            )
        )

    def condition(self, depth: int = 2) -> str:
        compare = self.chance.choice(["=", "<>", "<", "<=", ">", ">="])
        if depth <= 0:
            return self.chance.choice([f"a {compare} 2", "c IS NULL", f"b {compare} 20", "a IN (1, 2, 3)"])
        return str(
            self.one(
                lambda: f"{self.number(depth - 1)} {compare} {self.number(depth - 1)}",
                lambda: f"({self.condition(depth - 1)} AND {self.condition(depth - 1)})",
                lambda: f"({self.condition(depth - 1)} OR {self.condition(depth - 1)})",
                lambda: f"NOT ({self.condition(depth - 1)})",
                lambda: f"{self.number(depth - 1)} IS NOT NULL",
                lambda: (
                    f"{self.number(depth - 1)} BETWEEN {self.chance.randrange(5)} AND {self.chance.randrange(5, 40)}"
                ),
                lambda: f"{self.text(depth - 1)} LIKE '{self.chance.choice(['%x%', 'a%', '_', '%'])}'",
                lambda: f"{self.text(depth - 1)} IN ('x', 'Y', '')",
                lambda: f"{self.number(depth - 1)} <=> {self.number(depth - 1)}",
            )
        )

    def where(self) -> str:
        return f" WHERE {self.condition()}" if self.chance.random() < 0.5 else ""

    def aggregate(self) -> str:
        value = self.number(1)
        return str(
            self.one(
                lambda: "count(*)",
                lambda: f"count({value})",
                lambda: f"sum({value})",
                lambda: f"min({value})",
                lambda: f"max({self.chance.choice([value, self.text(1)])})",
                lambda: f"avg({value})",
                lambda: f"count(DISTINCT {value})",
                lambda: f"count_if({self.condition(1)})",
                lambda: f"count(*) FILTER (WHERE {self.condition(1)})",
                lambda: f"sum({value}) FILTER (WHERE {self.condition(1)})",
                lambda: f"count(DISTINCT {self.text(1)}) FILTER (WHERE {self.condition(1)})",
                lambda: f"max({value}) - min({self.number(1)})",
                lambda: f"coalesce(sum({value}), 0) + count(*)",
                lambda: f"bool_or({self.condition(1)})",
                lambda: f"variance({value})",
            )
        )

    # ------------------------------------------------------------ queries

    def query(self) -> Query:
        made = self.one(self.plain, self.plain, self.grouped, self.grouped, self.grouped, self.windowed, self.windowed,
                        self.windowed, self.union, self.distinct, self.numbered, self.first, self.regrouped,
                        self.sets, self.exploded)  # fmt: skip
        return made if isinstance(made, Query) else Query(made, made)

    def relation(self) -> str:
        """Something in FROM that has the columns of the source."""
        return str(
            self.one(
                lambda: "r",
                lambda: "r",
                lambda: f"(SELECT * FROM r{self.where()})",
                lambda: f"(SELECT id, {self.number(1)} AS a, b, {self.text(1)} AS c, tags, ts FROM r{self.where()})",
            )
        )

    def keys(self) -> list[str]:
        every = ["a", "c", self.number(1), self.text(1), self.condition(1)]
        found = self.chance.sample(every, self.chance.randrange(1, 3))
        return [
            k for k in found if (any(n in k for n in ("a", "b", "c", "id")) and not k.strip("'").isalpha()) or k in "ac"
        ]

    def plain(self) -> str:
        columns = [self.one(self.number, self.text, self.condition) for _ in range(self.chance.randrange(1, 4))]
        listed = ", ".join(f"{c} AS x{i}" for i, c in enumerate(columns))
        return f"SELECT id, {listed} FROM {self.relation()}{self.where()}"

    def _measures(self) -> str:
        return ", ".join(f"{self.aggregate()} AS m{i}" for i in range(self.chance.randrange(1, 4)))

    def having(self) -> str:
        return f" HAVING {self.chance.choice(['count(*) > 3', 'max(b) > 10', 'sum(a) <= 20', 'min(b) IS NULL'])}"

    def grouped(self) -> str:
        keys = self.keys()
        having = self.having() if self.chance.random() < 0.4 else ""
        if not keys:
            return f"SELECT {self._measures()} FROM {self.relation()} HAVING count(*) > 0"
        shown = ", ".join(f"{k} AS k{i}" for i, k in enumerate(keys))
        by = ", ".join(keys if self.chance.random() < 0.6 else (str(i + 1) for i in range(len(keys))))
        return f"SELECT {shown}, {self._measures()} FROM {self.relation()}{self.where()} GROUP BY {by}{having}"

    def windowed(self) -> Query:
        size = self.chance.choice([5, 10, 30, 60])
        slide = self.chance.choice([None, None, size // 5, size // 2 if size % 2 == 0 else None])
        keys = self.keys() if self.chance.random() < 0.7 else []
        shown = "".join(f", {k} AS k{i}" for i, k in enumerate(keys))
        by = "".join(f", {k}" for k in keys)
        measures, where = self._measures(), self.where()
        having = self.having() if self.chance.random() < 0.3 else ""
        inner = self.relation()
        name, given = ("r", "") if inner == "r" else ("x", f"WITH x AS {inner} ")
        call = f"TUMBLE(TABLE {name}, DESCRIPTOR(ts), INTERVAL '{size}' SECOND)"
        native = f"window(ts, '{size} seconds')"
        if slide:
            call = f"HOP(TABLE {name}, DESCRIPTOR(ts), INTERVAL '{slide}' SECOND, INTERVAL '{size}' SECOND)"
            native = f"window(ts, '{size} seconds', '{slide} seconds')"
        rest = f"{shown}, {measures} FROM"
        batch = f"{given}SELECT window.start AS s, window.end AS e{rest} {name}{where} GROUP BY {native}{by}{having}"
        live = (
            f"{given}SELECT window_start AS s, window_end AS e{rest} TABLE({call}){where} "
            f"GROUP BY window_start, window_end{by}{having}"
        )
        return Query(self.chance.choice([live, live, batch]), batch)

    def union(self) -> str:
        one, other = (f"CAST({self.number()} AS BIGINT)" for _ in range(2))
        texts = self.text(), self.text()
        return (
            f"SELECT {one} AS x, {texts[0]} AS y FROM {self.relation()}{self.where()} UNION ALL "
            f"SELECT {other}, {texts[1]} FROM {self.relation()}{self.where()}"
        )

    def distinct(self) -> str:
        return f"SELECT DISTINCT {self.number(1)} AS x, {self.text(1)} AS y FROM {self.relation()}{self.where()}"

    def numbered(self) -> str:
        by, down = self.number(1), self.chance.choice(["", " DESC", " DESC NULLS FIRST", " NULLS LAST"])
        key = self.chance.choice(["a", "c", "a, c"])
        number = self.chance.choice([", place", ""])
        return (
            f"SELECT id, a, c{number} FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY {key} ORDER BY {by}{down}, id) "
            f"AS place FROM {self.relation()}) WHERE place <= {self.chance.randrange(1, 4)}"
        )

    def first(self) -> str:
        return (
            f"SELECT id, b, c FROM {self.relation()}{self.where()} ORDER BY coalesce({self.number(1)}, 0) "
            f"{self.chance.choice(['', 'DESC'])}, id LIMIT {self.chance.randrange(1, 9)}"
        )

    def regrouped(self) -> str:
        inner = f"SELECT a, c, count(*) AS n, sum(b) AS s FROM {self.relation()}{self.where()} GROUP BY a, c"
        outer = self.chance.choice(["a", "c", "n", "n % 3"])
        condition = self.chance.choice(["", " WHERE n > 1", " WHERE s IS NOT NULL AND n < 9"])
        return (
            f"SELECT {outer} AS k, count(*) AS m, sum(n) AS t, max(s) AS u FROM ({inner}){condition} GROUP BY {outer}"
        )

    def sets(self) -> str:
        by = self.chance.choice(
            ["ROLLUP (a, c)", "CUBE (a, c)", "GROUPING SETS ((a), (c), ())", "a, ROLLUP (c)", "ROLLUP (a), ROLLUP (c)"]
        )
        # Over no rows Spark gives no row for the set (), where SQL has one: tests/sql/test_no_rows.py holds that.
        having = "" if by.startswith("a,") else " HAVING count(*) > 0"
        return f"SELECT a, c, grouping(c) AS g, {self._measures()} FROM r{self.where()} GROUP BY {by}{having}"

    def exploded(self) -> str:
        outer = self.chance.choice(["", "OUTER "])
        if self.chance.random() < 0.5:
            return f"SELECT id, tag FROM r LATERAL VIEW {outer}explode(tags) t AS tag{self.where()}"
        return f"SELECT tag, count(*) AS n, sum(b) AS s FROM r LATERAL VIEW {outer}explode(tags) t AS tag GROUP BY tag"
