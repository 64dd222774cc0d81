"""The kernel of joins: rows of two sides that come and go, and the pairs that come and go with them.

An epoch's pairs are those of changed rows of the left with all rows of the right, and of the other rows of the left
with changed rows of the right; so it costs what changed and what that meets. Each side's rows are kept under the hash
of their key until no row can meet them any more (``$x``). Where it matters whether a row has a partner at all, ``$m``
counts the partners that it met, also those that are forgotten since.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl

from millstream.clock import END_OF_TIME
from millstream.kernels import native_expressions
from millstream.kernels.hashing import mixed
from millstream.kernels.outcome import Outcome, StageClock, State, together
from millstream.kernels.relations.changes import (
    CONTENT,
    GROUP,
    arrived,
    hashes_of,
    held,
    lived,
    repeated,
    types_of,
    whole,
    written,
)
from millstream.model.reserved import OP
from millstream.plan.operators.chained import UNTIL
from millstream.plan.stages import ROW, Chained, Join, Side, Test

Holds = Callable[[Test, pl.DataFrame], pl.Series]
"""Tells for which pairs a condition holds."""

_COUNT = "$m"


def advance(
    spec: Chained,
    came: tuple[pl.DataFrame | None, pl.DataFrame | None],
    states: tuple[State, State],
    clock: StageClock,
    holds: Holds,
) -> Outcome:
    """Run one epoch of a join."""
    join = spec.what
    assert isinstance(join, Join)
    news = [_news(side, spec.keys, rows, clock) for side, rows in zip(spec.sides, came, strict=True)]
    rows = _rows(spec, join, news, states, clock)
    results: list[pl.DataFrame] = []
    if rows is not None:
        pairs = _pairs(spec, join, rows, holds)
        if join.how not in ("semi", "anti"):
            results.append(_paired(spec, join, rows, pairs))
        for i in (0, 1):
            if join.counts[i]:
                rows[i] = _counted(rows[i], rows[1 - i], pairs, i)
                results.append(_alone(spec, join, rows[i], i))
    if join.certain and join.how != "semi":
        for i in (j for j in (0, 1) if join.counts[j]):
            results.append(_lonely(spec, join, None if rows is None else rows[i], states[i], i, clock))
    changes = together([r for r in results if len(r)])
    kept = [None, None] if rows is None else [_kept(spec, join, rows[i], i, clock) for i in (0, 1)]
    expiry = np.empty(0, dtype=np.int64) if kept[0] is None else kept[0]["$x"].to_numpy()
    return Outcome(changes, kept[0], expiry, records=kept[1])


def is_due(spec: Chained, state: State, clock: StageClock) -> bool:
    """Whether a row without a partner is to come by the clock alone."""
    return spec.what.certain and bool(len(state.due({"$x": (clock.before, clock.watermark)}, clock.before)))


def _news(side: Side, keys: tuple[str, ...], changes: pl.DataFrame | None, clock: StageClock) -> pl.DataFrame | None:
    if changes is None or not len(changes):
        return None
    found = arrived(side, keys, changes, clock, () if side.grows else None)
    return found if len(found) else None


def _rows(
    spec: Chained,
    join: Join,
    news: list[pl.DataFrame | None],
    states: tuple[State, State],
    clock: StageClock,
) -> list[pl.DataFrame] | None:
    """The rows of both sides that changes touch; None when there are none."""
    if all(n is None for n in news):
        return None
    found = []
    for i, side in enumerate(spec.sides):
        own = None if side.grows else news[i]
        before = held(states[i], hashes_of(news[1 - i], own), clock)
        kept = (*((_COUNT,) if join.counts[i] else ()), *(("$x",) if side.bounded else ()))
        none = pl.DataFrame(schema={**dict.fromkeys((*GROUP, *CONTENT, "$d"), pl.Int64), **types_of(side)})
        new = news[i]
        rows = whole(side, before, none if new is None else new, kept)
        if side.bounded:
            until = pl.col(UNTIL).fill_null(0).clip(lower_bound=clock.watermark + 1)
            rows = rows.with_columns(pl.when(pl.col("$x") > 0).then(pl.col("$x")).otherwise(until).alias("$x"))
        found.append(rows.with_row_index("$at"))
    return found


def _pairs(spec: Chained, join: Join, rows: list[pl.DataFrame], holds: Holds) -> pl.DataFrame:
    """The pairs that something changed in, by the places of their rows: ``$0`` and ``$1``."""
    wanted = () if join.test is None else join.test.columns
    sides = []
    for i, side in enumerate(spec.sides):
        known = pl.all_horizontal(pl.lit(value=True), *(pl.col(k).is_not_null() for k in spec.keys))
        changed = (pl.col("$n") != pl.col("$was")).alias(f"$new{i}")
        needed = [c for c in wanted if c in side.columns]
        counts = (pl.col("$was").alias(f"$was{i}"), pl.col("$n").alias(f"$n{i}"))
        sides.append(rows[i].filter(known).select(*GROUP, pl.col("$at").alias(f"${i}"), changed, *counts, *needed))
    left, right = sides
    parts = []
    if left["$new0"].any():
        parts.append(left.filter("$new0").join(right, on=GROUP, how="inner"))
    if right["$new1"].any():
        parts.append(left.filter(~pl.col("$new0")).join(right.filter("$new1"), on=GROUP, how="inner"))
    more = (pl.col("$n0") * pl.col("$n1") - pl.col("$was0") * pl.col("$was1")).alias("$more")
    found = together([p.select("$0", "$1", more, *wanted) for p in parts])
    if found is None:
        return pl.DataFrame(schema={"$0": pl.UInt32, "$1": pl.UInt32})
    if join.test is not None:
        met = None if join.test.quick is None else native_expressions.holds(join.test.quick, found)
        found = found.filter(holds(join.test, found) if met is None else met)
    return found.select("$0", "$1").sort("$0", "$1")


def _paired(spec: Chained, join: Join, rows: list[pl.DataFrame], pairs: pl.DataFrame) -> pl.DataFrame:
    """The pairs as results that come and go."""
    marks = [] if spec.only_inserts else list(CONTENT)
    left, right = (
        rows[i].select("$was", "$n", *marks, *(join.right if i else join.left))[pairs[f"${i}"]] for i in (0, 1)
    )
    before = (left["$was"] * right["$was"]).to_numpy()
    after = (left["$n"] * right["$n"]).to_numpy()
    columns = [*(left[c] for c in join.left), *(right[c] for c in join.right)]
    told = [*left.select(marks), *(s.alias(f"{s.name}2") for s in right.select(marks))]
    return _changed(spec, pl.DataFrame([*columns, *told]), before, after)


def _changed(spec: Chained, rows: pl.DataFrame, before: np.ndarray, after: np.ndarray, salt: int = 0) -> pl.DataFrame:
    """Results of which there were and are so many copies, as changes; `salt` tells kinds of results apart."""
    parts = []
    for op, copies, start in (("-D", before - after, after), ("+I", after - before, before)):
        more = np.clip(copies, 0, None)
        if not more.any():
            continue
        some = more > 0
        given = rows.filter(pl.Series(some)) if not some.all() else rows
        given = repeated(given.with_columns(pl.Series("$first", start[some])), more[some])
        if not spec.only_inserts:
            given = _named(given, salt)
        parts.append(given.select(pl.lit(op).alias(OP), *spec.result))
    if not parts:
        return pl.DataFrame(schema={OP: pl.String})
    return parts[0] if len(parts) == 1 else pl.concat(parts, how="vertical_relaxed")


def _named(rows: pl.DataFrame, salt: int) -> pl.DataFrame:
    """Results with what tells them apart: the rows they are made of, and which copy it is."""
    marks = [c for c in ("$a", "$b", "$a2", "$b2") if c in rows.columns]
    first, second = (rows[c].to_numpy().view(np.uint64) for c in marks[:2])
    if len(marks) > 2:
        other, more = (rows[c].to_numpy().view(np.uint64) for c in marks[2:])
        first, second = mixed(mixed(first) + other), mixed(mixed(second) + more + np.uint64(1))
    copy = pl.int_range(pl.len(), dtype=pl.Int64).over(*marks) + pl.col("$first")
    number = rows.select(copy.alias("$copy"))["$copy"].to_numpy().view(np.uint64)
    second = mixed(mixed(second + np.uint64(salt)) + number)
    named = [pl.Series(n, v.view(np.int64), dtype=pl.Int64) for n, v in zip(ROW, (first, second), strict=True)]
    return rows.with_columns(named)


def _counted(mine: pl.DataFrame, others: pl.DataFrame, pairs: pl.DataFrame, i: int) -> pl.DataFrame:
    """Rows with the number of their partners, before (``$met``) and now (``$m``)."""
    met = mine[pairs[f"${i}"]].select("$at", "$was")
    theirs = others[pairs[f"${1 - i}"]]
    more = theirs["$n"] - pl.select(pl.when(met["$was"] > 0).then(theirs["$was"]).otherwise(0)).to_series()
    counted = met.select("$at", more.alias("$more")).group_by("$at").agg(pl.col("$more").sum())
    joined = mine.join(counted, on="$at", how="left", maintain_order="left")
    now = pl.col(_COUNT) + pl.col("$more").fill_null(0)
    return joined.with_columns(pl.col(_COUNT).alias("$met"), now.alias(_COUNT)).drop("$more")


def _alone(spec: Chained, join: Join, rows: pl.DataFrame, i: int) -> pl.DataFrame:
    """Results that hang on whether a row has a partner: itself, or with nothing beside it."""
    if join.certain and join.how != "semi":
        return pl.DataFrame(schema={OP: pl.String})
    met, now = (pl.col(c) > 0 if join.how == "semi" else pl.col(c) == 0 for c in ("$met", _COUNT))
    was = pl.when(met).then(pl.col("$was")).otherwise(0).alias("$before")
    is_now = pl.when(now).then(pl.col("$n")).otherwise(0).alias("$after")
    touched = rows.with_columns(was, is_now).filter(pl.col("$before") != pl.col("$after"))
    return _changed(
        spec, _padded(spec, join, touched, i), touched["$before"].to_numpy(), touched["$after"].to_numpy(), 1 + i
    )


def _padded(spec: Chained, join: Join, rows: pl.DataFrame, i: int) -> pl.DataFrame:
    """Rows of one side as results, with nothing for the columns of the other."""
    other = types_of(spec.sides[1 - i])
    shown = join.left + (() if join.how in ("semi", "anti") else join.right)
    mine = join.right if i else join.left
    columns = [pl.col(c) if c in mine else pl.lit(None, other[c]).alias(c) for c in shown]
    return rows.select(*columns, *CONTENT)


def _lonely(
    spec: Chained, join: Join, touched: pl.DataFrame | None, state: State, i: int, clock: StageClock
) -> pl.DataFrame:
    """Results of rows that no partner can come for any more, and none came for."""
    hashes = state.due({"$x": (clock.before, clock.watermark)}, clock.before)
    found = state.lookup(hashes, clock.before) if len(hashes) else None
    if found is None:
        return pl.DataFrame(schema={OP: pl.String})
    wanted = [*GROUP, *CONTENT, "$n", "$x", _COUNT, *spec.sides[i].columns]
    over = (pl.col("$x") > clock.before) & (pl.col("$x") <= clock.watermark) & (pl.col(_COUNT) == 0)
    parts = [found.filter(over & ~pl.col("$gone")).select(wanted)]
    if touched is not None:
        parts[0] = parts[0].join(touched, on=[*GROUP, *CONTENT], how="anti")
        parts.append(touched.filter(over & (pl.col("$n") > 0)).select(wanted))
    due = pl.concat(parts, how="vertical_relaxed").sort("$x", *CONTENT)
    copies = due["$n"].to_numpy()
    return _changed(spec, _padded(spec, join, due, i), np.zeros(len(due), dtype=np.int64), copies, 1 + i)


def _kept(spec: Chained, join: Join, rows: pl.DataFrame, i: int, clock: StageClock) -> pl.DataFrame | None:
    """The rows of a side that state has to keep, or to forget."""
    side = spec.sides[i]
    changed = pl.col("$n") != pl.col("$was")
    counts = join.counts[i]
    if counts:
        changed = changed | (pl.col(_COUNT) != pl.col("$met"))
    until = pl.col("$x") if side.bounded else pl.lit(END_OF_TIME, pl.Int64)
    if not side.stored:
        until = lived(spec, clock, until)
    useless = pl.lit(value=False)
    if side.grows and not counts:
        useless = pl.any_horizontal(pl.lit(value=False), *(pl.col(k).is_null() for k in spec.keys))
    columns = [*([_COUNT] if counts else []), *side.columns]
    kept = written(rows.filter(changed & ~useless), until, columns)
    return kept if len(kept) else None
