"""Patterns without Spark: a stage with its state on disk, and a plain search from the standard's words.

The search is deliberately naive: it holds all rows of a key, tries all ways in the order they are preferred, and knows
nothing of epochs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import sqlglot

from millstream.clock import ALL_READ, BEGINNING
from millstream.kernels.outcome import OperatorClock
from millstream.kernels.patterns.pattern import UNIQUE
from millstream.model.connectors import memory
from millstream.model.expression import col
from millstream.model.flow import Flow
from millstream.model.patterns.pattern import Pattern
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
)
from millstream.model.steps.pattern import Matched, of_pattern
from millstream.model.steps.step import Select
from millstream.model.types.schema import Schema
from millstream.plan.lowering.pattern import lowered
from millstream.plan.operators.inputs import Side, Take
from millstream.plan.operators.patterns.pattern import PatternMatch
from millstream.state.run import StateRun
from millstream.state.shard import RunCache, StateReader
from tests.kernel_kit import advance, write_first

SCHEMA = Schema.parse("k BIGINT, t TIMESTAMP, x BIGINT, f DOUBLE, s STRING, d DECIMAL(10, 2)")
Row = dict[str, Any]


def at(second: float) -> datetime:
    """An instant of a test."""
    return datetime(2020, 1, 1, tzinfo=UTC) + timedelta(seconds=second)


def row(k: int, second: float, x: int | None, **more: Any) -> Row:
    """A row of a test."""
    return {"k": k, "t": at(second), "x": x, "f": None, "s": None, "d": None, **more}


GIVEN = Flow("test").source("rows", memory(), schema=SCHEMA, event_time="t").step


def step_of(pattern: Pattern, measures: Mapping[str, str], *, keys: str = "k", **more: Any) -> Select:
    """The step of a pattern over rows of tests, with its measures."""
    return of_pattern(GIVEN, tuple((k, col(k)) for k in keys), None, pattern, measures, **more)


def computed(columns: tuple[tuple[str, Any], ...], rows: pa.Table) -> pa.Table:
    """Columns by DuckDB, in place of Spark."""
    parts = ", ".join(f'{_in_duckdb(e.spark())} AS "{n}"' for n, e in columns)
    connection = _duckdb()
    connection.register("given", rows)
    return connection.sql(f"SELECT {parts} FROM given").to_arrow_table()


@functools.cache
def _in_duckdb(sql: str) -> str:
    return sqlglot.transpile(sql, read="spark", write="duckdb")[0]


@functools.cache
def _duckdb() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    return connection


@dataclass
class InMemory:
    """State as a kernel sees it, without files."""

    frames: list[pl.DataFrame] = field(default_factory=list)

    def scan(self, after: int) -> pl.DataFrame | None:
        if not self.frames:
            return None
        return pl.concat(self.frames[::-1]).unique(UNIQUE, keep="first", maintain_order=True)

    def lookup(self, hashes: np.ndarray, after: int) -> pl.DataFrame | None:
        rows = self.scan(after)
        return None if rows is None else rows.filter(pl.col("$h").is_in(hashes.tolist()))

    def due(self, columns: Mapping[str, tuple[int, int]], after: int) -> np.ndarray:
        found = [
            f.filter((pl.col(c) > a) & (pl.col(c) <= b))["$h"] for f in self.frames for c, (a, b) in columns.items()
        ]
        return np.unique(pl.concat(found).to_numpy()) if found else np.empty(0, np.int64)

    def first(self) -> int:
        raise NotImplementedError


@dataclass
class Stage:
    """A pattern's stage with its state, and all that it has given."""

    select: Select
    root: Path | None = None
    """Where its state lies; None: in memory."""
    memory: InMemory = field(default_factory=InMemory)
    runs: list[StateRun] = field(default_factory=list)
    epoch: int = 0
    watermark: int = BEGINNING
    given: list[Row] = field(default_factory=list)

    def __post_init__(self) -> None:
        assert isinstance(self.select.input, Matched)
        self.step = self.select.input
        self.taken, own = lowered(self.step)
        names = tuple(n for n, _ in self.taken)
        empty = computed(self.taken, SCHEMA.to_arrow().empty_table())
        keys = tuple(n for n, _ in self.step.keys)
        types = tuple(empty.schema.field(n).type for n in names)
        side = Side((Take("in"),), names, append_only=True, types=types)
        self.spec = PatternMatch("v", **own, sides=(side,), keys=keys)

    def take(self, *rows: Row, watermark: float | None = None) -> list[Row]:
        """Run an epoch; gives its results as people see them. Without a watermark, that of the last row."""
        before = self.watermark
        if watermark is not None:
            self.watermark = micros(at(watermark))
        elif rows:
            self.watermark = max(before, micros(rows[-1]["t"]))
        return self._run(list(rows), OperatorClock(before, self.watermark))

    def end(self) -> list[Row]:
        """Run the last epoch: no more rows come."""
        before, self.watermark = self.watermark, ALL_READ
        return self._run([], OperatorClock(before, ALL_READ))

    def _run(self, rows: list[Row], clock: OperatorClock) -> list[Row]:
        self.epoch += 1
        frame = None
        if rows:
            table = computed(self.taken, pa.Table.from_pylist(rows, schema=SCHEMA.to_arrow()))
            made = pl.from_arrow(table)
            assert isinstance(made, pl.DataFrame)
            frame = made.with_columns(pl.lit("+I").alias("$op"))
        outcome = advance(self.spec, frame, self.state(), clock)
        if self.root is not None:
            self.runs += write_first(self.root, self.spec, outcome, f"{self.epoch:012d}-0")
        elif outcome.kept:
            self.memory.frames.append(outcome.kept["rows"].rows)
        if outcome.changes is None:
            return []
        assert set(outcome.changes["$op"]) == {"+I"}
        _, wanted = self.spec.bind(dict(zip(self.spec.columns, self.spec.types, strict=True)))
        found_types = outcome.changes.to_arrow().schema
        for name, kind in wanted.items():
            assert _same_type(found_types.field(name).type, kind), (name, found_types.field(name).type, kind)
        found: list[Row] = computed(self.select.columns, outcome.changes.to_arrow()).to_pylist()
        self.given += found
        return found

    def state(self) -> StateReader | InMemory:
        """Its state, as the next epoch finds it."""
        return self.memory if self.root is None else StateReader(RunCache(self.root), self.runs, UNIQUE)

    @property
    def held(self) -> int:
        """Rows of state that are there."""
        rows = self.state().scan(BEGINNING)
        return 0 if rows is None else len(rows.filter(~pl.col("$gone")))


def _same_type(found: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_decimal(wanted):
        return bool(pa.types.is_decimal(found)) and found.scale == wanted.scale
    if pa.types.is_string(wanted):
        return bool(pa.types.is_string(found) or pa.types.is_large_string(found) or pa.types.is_string_view(found))
    return bool(found == wanted)


def micros(time: datetime) -> int:
    """An instant as a whole number."""
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


# ---------------------------------------------------------------- the plain search

Taken = tuple[tuple[int, str, bool], ...]
"""Rows of a match: place, variable, whether hidden."""
Conditions = Mapping[str, Callable[[list[Row], Taken, int], Any]]
"""By variable: whether a row can be taken for it, given the rows taken so far (this one among them)."""


@dataclass(frozen=True)
class Reached:
    """A way that has come to an end: a match, or no more rows."""

    taken: Taken
    place: int
    whole: bool


class Search:
    """All ways of a pattern over the rows of a key, from one row on and up to a limit."""

    def __init__(self, rows: list[Row], conditions: Conditions, limit: int) -> None:
        self.rows, self.conditions, self.limit = rows, conditions, limit

    def fits(self, name: str, taken: Taken, place: int) -> bool:
        condition = self.conditions.get(name)
        return condition is None or condition(self.rows, (*taken, (place, name, False)), place) is True

    def ways(self, part: Part, taken: Taken, place: int, hidden: bool = False) -> Iterator[Reached]:
        """The ways to go through a part, those that are preferred first. A way that lacks rows is not whole."""
        if isinstance(part, Variable):
            if place == self.limit:
                yield Reached(taken, place, False)
            elif self.fits(part.name, taken, place):
                yield Reached((*taken, (place, part.name, hidden)), place + 1, True)
        elif isinstance(part, Gap):
            if place == self.limit:
                yield Reached(taken, place, False)
            elif not any(self.fits(n, taken, place) for n in part.unlike):
                yield Reached(taken, place + 1, True)
        elif isinstance(part, NotNext):
            if place == self.limit:
                yield Reached(taken, place, False)
                yield Reached(taken, place, True)
            elif not self.fits(part.name, taken, place):
                yield Reached(taken, place, True)
        elif isinstance(part, Never):
            if not any(self.fits(part.name, taken, p) for p in range(place, self.limit)):
                yield Reached(taken, self.limit, False)
                yield Reached(taken, self.limit, True)
        elif isinstance(part, Excluded):
            yield from self.ways(part.part, taken, place, True)
        elif isinstance(part, Choice):
            for inner in part.parts:
                yield from self.ways(inner, taken, place, hidden)
        elif isinstance(part, Sequence):
            yield from self.chain(list(part.parts), taken, place, hidden)
        else:
            yield from self.repeated(part, 0, taken, place, hidden)

    def chain(self, parts: list[Part], taken: Taken, place: int, hidden: bool) -> Iterator[Reached]:
        if not parts:
            yield Reached(taken, place, True)
            return
        for way in self.ways(parts[0], taken, place, hidden):
            if way.whole:
                yield from self.chain(parts[1:], way.taken, way.place, hidden)
            else:
                yield way

    def repeated(self, part: Repeat, times: int, taken: Taken, place: int, hidden: bool) -> Iterator[Reached]:
        enough, more = times >= part.least, part.most is None or times < part.most
        if enough and part.reluctant:
            yield Reached(taken, place, True)
        if more:
            for way in self.ways(part.part, taken, place, hidden):
                if way.whole:
                    yield from self.repeated(part, times + 1, way.taken, way.place, hidden)
                else:
                    yield way
        if enough and not part.reluctant:
            yield Reached(taken, place, True)


def expected(step: Matched, rows: list[Row], conditions: Conditions) -> list[tuple[Taken, bool]]:
    """The matches of one key's rows (and whether each is a time-out), in the order of their first rows."""
    found: list[tuple[Taken, bool]] = []
    place = 0
    while place < len(rows):
        limit = len(rows)
        if step.within is not None:
            over = rows[place]["t"] + timedelta(microseconds=step.within.micros)
            limit = next((i for i in range(place, len(rows)) if rows[i]["t"] >= over), limit)
        ways = list(Search(rows, conditions, limit).ways(step.pattern, (), place))
        whole = next((w for w in ways if w.whole), None)
        if whole is None:
            if step.timeouts and ways and ways[0].taken:
                found.append((ways[0].taken, True))
            place += 1
            continue
        found.append((whole.taken, False))
        place = _after(step, whole.taken, place)
    return found


def _after(step: Matched, taken: Taken, start: int) -> int:
    if step.skip.to == "past last row":
        return taken[-1][0] + 1
    of = [place for place, name, _ in taken if name == step.skip.variable]
    if step.skip.to == "to next row" or not of:
        return start + 1
    return max(start + 1, of[0] if step.skip.to == "to first" else of[-1])
