"""The kernel of joins: keeps the rows of both sides, and emits the pairs that changes add and remove.

The pairs of an epoch are changed left rows with all right rows, and unchanged left rows with changed right rows. An
epoch therefore costs in proportion to what changed and what it matches. Each side's rows are kept under the hash of
their key until no row can match them any more (``$x``). Where results depend on whether a row has a match at all,
``$m`` counts the matches it has had, including those that have expired since.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from millstream.clock import END_OF_TIME
from millstream.kernels import native_expressions
from millstream.kernels.changes import (
    CONTENT,
    GROUP,
    arrived,
    first_of_each,
    hashes_of,
    lived,
    lookup_rows,
    repeated,
    types_of,
    whole,
    written,
)
from millstream.kernels.frames import concat_rows
from millstream.kernels.hashing import mixed
from millstream.kernels.kernel import Inputs, Kernel, Services, States
from millstream.kernels.outcome import OperatorClock, Outcome, State, keeping
from millstream.model.reserved import OP
from millstream.plan.operators.inputs import Side
from millstream.plan.operators.operator import ROW
from millstream.plan.operators.relations.join import UNTIL, Join

_COUNT = "$m"


def advance(operator: Join, inputs: Inputs, states: States, clock: OperatorClock, services: Services) -> Outcome:
    """Run one epoch of a join."""
    sides = [states[name] for name in operator.side_names]
    news = [
        _news(side, operator.keys, inputs[name], clock)
        for side, name in zip(operator.sides, operator.side_names, strict=True)
    ]
    rows = _rows(operator, news, sides, clock)
    results: list[pl.DataFrame] = []
    if rows is not None:
        pairs = _pairs(operator, rows, services)
        if operator.how not in ("semi", "anti"):
            results.append(_paired(operator, rows, _first(operator, rows, pairs)))
        for i in (0, 1):
            if operator.counts[i]:
                rows[i] = _counted(rows[i], rows[1 - i], pairs, i)
                results.append(_alone(operator, rows[i], i))
    if operator.certain and operator.how != "semi":
        for i in (j for j in (0, 1) if operator.counts[j]):
            results.append(_lonely(operator, None if rows is None else rows[i], sides[i], i, clock))
    left, right = (None, None) if rows is None else (_new_state(operator, rows[i], i, clock) for i in (0, 1))
    return keeping(concat_rows([r for r in results if len(r)]), left=left, right=right)


def is_due(operator: Join, state: State, clock: OperatorClock) -> bool:
    """Whether the clock alone makes an unmatched row due."""
    return operator.certain and bool(len(state.due({"$x": (clock.before, clock.watermark)}, clock.before)))


def _news(side: Side, keys: tuple[str, ...], changes: pl.DataFrame | None, clock: OperatorClock) -> pl.DataFrame | None:
    if changes is None or not len(changes):
        return None
    arrivals = arrived(side, keys, changes, clock, () if side.append_only else None)
    return arrivals if len(arrivals) else None


def _rows(
    operator: Join,
    news: list[pl.DataFrame | None],
    states: list[State],
    clock: OperatorClock,
) -> list[pl.DataFrame] | None:
    """The rows of both sides that changes touch; None if there are none."""
    if all(n is None for n in news):
        return None
    sides = []
    for i, side in enumerate(operator.sides):
        own = None if side.append_only else news[i]
        before = lookup_rows(states[i], hashes_of(news[1 - i], own), clock)
        state_columns = (*((_COUNT,) if operator.counts[i] else ()), *(("$x",) if side.bounded else ()))
        none = pl.DataFrame(schema={**dict.fromkeys((*GROUP, *CONTENT, "$d"), pl.Int64), **types_of(side)})
        new = news[i]
        rows = whole(side, before, none if new is None else new, state_columns)
        if side.bounded:
            until = pl.col(UNTIL).fill_null(0).clip(lower_bound=clock.watermark + 1)
            rows = rows.with_columns(pl.when(pl.col("$x") > 0).then(pl.col("$x")).otherwise(until).alias("$x"))
        sides.append(rows.with_row_index("$at"))
    return sides


def _pairs(operator: Join, rows: list[pl.DataFrame], services: Services) -> pl.DataFrame:
    """The pairs in which a row changed, by the positions of their rows: ``$0`` and ``$1``."""
    columns = () if operator.test is None else operator.test.columns
    sides = []
    for i, side in enumerate(operator.sides):
        known = pl.all_horizontal(pl.lit(value=True), *(pl.col(k).is_not_null() for k in operator.keys))
        changed = (pl.col("$n") != pl.col("$was")).alias(f"$new{i}")
        needed = [c for c in columns if c in side.columns]
        counts = (pl.col("$was").alias(f"$was{i}"), pl.col("$n").alias(f"$n{i}"))
        sides.append(rows[i].filter(known).select(*GROUP, pl.col("$at").alias(f"${i}"), changed, *counts, *needed))
    left, right = sides
    parts = []
    if left["$new0"].any():
        parts.append(left.filter("$new0").join(right, on=GROUP, how="inner"))
    if right["$new1"].any():
        parts.append(left.filter(~pl.col("$new0")).join(right.filter("$new1"), on=GROUP, how="inner"))
    more = (pl.col("$n0") * pl.col("$n1") - pl.col("$was0") * pl.col("$was1")).alias("$more")
    pairs = concat_rows([p.select("$0", "$1", more, *columns) for p in parts])
    if pairs is None:
        return pl.DataFrame(schema={"$0": pl.UInt32, "$1": pl.UInt32})
    if operator.test is not None:
        met = None if operator.test.quick is None else native_expressions.holds(operator.test.quick, pairs)
        pairs = pairs.filter(services.holds(operator, operator.test, pairs) if met is None else met)
    return pairs.select("$0", "$1").sort("$0", "$1")


def _first(operator: Join, rows: list[pl.DataFrame], pairs: pl.DataFrame) -> pl.DataFrame:
    """The pairs that the reader can use: the first of each key, and all that are equal to the last of these."""
    if operator.first is None or len(pairs) <= operator.first.count:
        return pairs
    needed = operator.first.columns
    columns = [
        rows[i].select(c for c in needed if c in (operator.right if i else operator.left))[pairs[f"${i}"]]
        for i in (0, 1)
    ]
    deciding = pl.concat(columns, how="horizontal")
    if any(t.is_nested() for t in deciding.dtypes):
        return pairs
    return pairs.filter(first_of_each(deciding, operator.first))


def _paired(operator: Join, rows: list[pl.DataFrame], pairs: pl.DataFrame) -> pl.DataFrame:
    """The pairs as results that are added and removed."""
    marks = [] if operator.append_only else list(CONTENT)
    left, right = (
        rows[i].select("$was", "$n", *marks, *(operator.right if i else operator.left))[pairs[f"${i}"]] for i in (0, 1)
    )
    before = (left["$was"] * right["$was"]).to_numpy()
    after = (left["$n"] * right["$n"]).to_numpy()
    columns = [*(left[c] for c in operator.left), *(right[c] for c in operator.right)]
    identities = [*left.select(marks), *(s.alias(f"{s.name}2") for s in right.select(marks))]
    return _changed(operator, pl.DataFrame([*columns, *identities]), before, after)


def _changed(operator: Join, rows: pl.DataFrame, before: np.ndarray, after: np.ndarray, salt: int = 0) -> pl.DataFrame:
    """Changes of results, from their numbers of copies before and after. `salt` distinguishes kinds of results."""
    parts = []
    for op, copies, start in (("-D", before - after, after), ("+I", after - before, before)):
        more = np.clip(copies, 0, None)
        if not more.any():
            continue
        some = more > 0
        affected = rows.filter(pl.Series(some)) if not some.all() else rows
        affected = repeated(affected.with_columns(pl.Series("$first", start[some])), more[some])
        if not operator.append_only:
            affected = _named(affected, salt)
        parts.append(affected.select(pl.lit(op).alias(OP), *operator.result))
    if not parts:
        return pl.DataFrame(schema={OP: pl.String})
    return parts[0] if len(parts) == 1 else pl.concat(parts, how="vertical_relaxed")


def _named(rows: pl.DataFrame, salt: int) -> pl.DataFrame:
    """Add identity to results: the rows they consist of, and the number of the copy."""
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
    """Add the number of matches of each row, before (``$met``) and after (``$m``) the epoch."""
    met = mine[pairs[f"${i}"]].select("$at", "$was")
    theirs = others[pairs[f"${1 - i}"]]
    more = theirs["$n"] - pl.select(pl.when(met["$was"] > 0).then(theirs["$was"]).otherwise(0)).to_series()
    counted = met.select("$at", more.alias("$more")).group_by("$at").agg(pl.col("$more").sum())
    joined = mine.join(counted, on="$at", how="left", maintain_order="left")
    now = pl.col(_COUNT) + pl.col("$more").fill_null(0)
    return joined.with_columns(pl.col(_COUNT).alias("$met"), now.alias(_COUNT)).drop("$more")


def _alone(operator: Join, rows: pl.DataFrame, i: int) -> pl.DataFrame:
    """Results that depend on whether a row has a match: the row itself, or the row padded with NULLs."""
    if operator.certain and operator.how != "semi":
        return pl.DataFrame(schema={OP: pl.String})
    met, now = (pl.col(c) > 0 if operator.how == "semi" else pl.col(c) == 0 for c in ("$met", _COUNT))
    was = pl.when(met).then(pl.col("$was")).otherwise(0).alias("$before")
    is_now = pl.when(now).then(pl.col("$n")).otherwise(0).alias("$after")
    touched = rows.with_columns(was, is_now).filter(pl.col("$before") != pl.col("$after"))
    return _changed(
        operator, _padded(operator, touched, i), touched["$before"].to_numpy(), touched["$after"].to_numpy(), 1 + i
    )


def _padded(operator: Join, rows: pl.DataFrame, i: int) -> pl.DataFrame:
    """Rows of one side as results, with NULLs for the columns of the other side."""
    other = types_of(operator.sides[1 - i])
    names = operator.left + (() if operator.how in ("semi", "anti") else operator.right)
    mine = operator.right if i else operator.left
    columns = [pl.col(c) if c in mine else pl.lit(None, other[c]).alias(c) for c in names]
    return rows.select(*columns, *CONTENT)


def _lonely(operator: Join, touched: pl.DataFrame | None, state: State, i: int, clock: OperatorClock) -> pl.DataFrame:
    """Results of rows that had no match and can no longer get one."""
    hashes = state.due({"$x": (clock.before, clock.watermark)}, clock.before)
    state_rows = state.lookup(hashes, clock.before) if len(hashes) else None
    if state_rows is None:
        return pl.DataFrame(schema={OP: pl.String})
    needed = [*GROUP, *CONTENT, "$n", "$x", _COUNT, *operator.sides[i].columns]
    over = (pl.col("$x") > clock.before) & (pl.col("$x") <= clock.watermark) & (pl.col(_COUNT) == 0)
    parts = [state_rows.filter(over & ~pl.col("$gone")).select(needed)]
    if touched is not None:
        parts[0] = parts[0].join(touched, on=[*GROUP, *CONTENT], how="anti")
        parts.append(touched.filter(over & (pl.col("$n") > 0)).select(needed))
    due = pl.concat(parts, how="vertical_relaxed").sort("$x", *CONTENT)
    copies = due["$n"].to_numpy()
    return _changed(operator, _padded(operator, due, i), np.zeros(len(due), dtype=np.int64), copies, 1 + i)


def _new_state(operator: Join, rows: pl.DataFrame, i: int, clock: OperatorClock) -> pl.DataFrame | None:
    """The rows of a side that state must keep or drop."""
    side = operator.sides[i]
    changed = pl.col("$n") != pl.col("$was")
    counts = operator.counts[i]
    if counts:
        changed = changed | (pl.col(_COUNT) != pl.col("$met"))
    until = pl.col("$x") if side.bounded else pl.lit(END_OF_TIME, pl.Int64)
    if not side.stored:
        until = lived(operator, clock, until)
    useless = pl.lit(value=False)
    if side.append_only and not counts:
        useless = pl.any_horizontal(pl.lit(value=False), *(pl.col(k).is_null() for k in operator.keys))
    columns = [*([_COUNT] if counts else []), *side.columns]
    new_state = written(rows.filter(changed & ~useless), until, columns)
    return new_state if len(new_state) else None


KERNEL = Kernel(advance, is_due)
