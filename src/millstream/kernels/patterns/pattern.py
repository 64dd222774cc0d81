"""The kernel of patterns: searches the rows of each key, in event-time order, and emits the matches.

Its state is the **tail** of each key: the rows from the first one at which a match may still begin, and the few rows
before it that conditions may refer to. An epoch appends new rows to the tail, searches, emits the matches that are
decided, and drops the rows that can take part in none. A search that waits for rows ends when its time (`within`) has
passed, by the watermark alone.

Columns of state: ``$h`` and ``$a`` hashes of the key, ``$b`` the position of the row within its key, ``$open`` whether
a match may begin there, ``$wd`` the watermark at which to search again, ``$num`` how many matches the key has had (on a
separate row, with ``$b`` -1), ``$x`` expiry, ``$gone`` for a deleted row, and the row.
"""

from __future__ import annotations

import numpy as np
import polars as pl
import pyarrow as pa

from millstream.clock import ALL_READ, END_OF_TIME
from millstream.kernels.hashing import hashed
from millstream.kernels.kernel import Inputs, Kernel, Services, States
from millstream.kernels.outcome import OperatorClock, Outcome, State, keeping
from millstream.kernels.patterns.outputs import outputs
from millstream.kernels.patterns.search import FoundMatches, PatternRows, search
from millstream.model.patterns.pattern import TO_NEXT
from millstream.model.reserved import OP
from millstream.plan.operators.patterns.pattern import PatternMatch

UNIQUE = ("$h", "$a", "$b")
_GROUP = ("$h", "$a")
_COUNTED = -1
"""The `$b` of the row that counts the matches of a key."""


def advance(
    operator: PatternMatch, inputs: Inputs, states: States, clock: OperatorClock, services: Services
) -> Outcome:
    """Run one epoch. The input is new rows, none of them before a row of an earlier epoch."""
    del services
    changes, state = inputs["rows"], states["rows"]
    came = None if changes is None or not len(changes) else _arranged(operator, changes)
    hashes = state.due({"$wd": (clock.before, clock.watermark)}, clock.before)
    if came is not None:
        hashes = np.unique(np.concatenate([hashes, came["$h"].to_numpy()]))
    held = state.lookup(hashes, clock.before) if len(hashes) else None
    held = None if held is None else held.filter(~pl.col("$gone"))
    if came is None and (held is None or not len(held)):
        return Outcome()
    rows, counted = _rows(operator, held, came, clock)
    if not len(rows.frame):
        return Outcome()
    found = search(operator, rows)
    numbers, counts = _numbered(operator, rows, counted, found)
    changed = None
    if found.first:
        changed = outputs(operator, operator.keys, rows, found, numbers)
        changed = changed.select(pl.lit("+I").alias(OP), *operator.result) if len(changed) else None
    kept = _kept(operator, rows, found)
    parts = [part for part in (kept, counts) if part is not None and len(part)]
    if not parts:
        return Outcome(changed)
    columns = [*UNIQUE, "$open", "$wd", "$num", "$x", "$gone", *operator.columns]
    written = pl.concat([p.select(columns) for p in parts], how="vertical_relaxed").sort("$h", "$a", "$b")
    return keeping(changed, rows=written)


def _arranged(operator: PatternMatch, changes: pl.DataFrame) -> pl.DataFrame:
    """New rows with the hashes of their keys, in order."""
    empty = pl.from_arrow(pa.schema(list(zip(operator.columns, operator.types, strict=True))).empty_table())
    assert isinstance(empty, pl.DataFrame)
    rows = changes.select(*operator.columns).cast(dict(empty.schema))  # type: ignore[arg-type]
    rows = rows.with_columns(pl.col(k) + 0.0 for k in operator.keys if rows.schema[k].is_float())
    first, second = hashed(rows, operator.keys)
    rows = rows.with_columns(pl.Series("$h", first), pl.Series("$a", second))
    by = [operator.time, *(c for c, _, _ in operator.order)]
    down = [False, *(d for _, d, _ in operator.order)]
    last = [False, *(not n for _, _, n in operator.order)]
    if operator.order or not rows[operator.time].is_sorted():
        rows = rows.sort(by, descending=down, nulls_last=last, maintain_order=True)
    return _by_key(rows)


def _by_key(rows: pl.DataFrame) -> pl.DataFrame:
    """Group rows by key, preserving their order."""
    h = rows["$h"].to_numpy()
    together = rows[pl.Series(np.argsort(h, kind="stable"), dtype=pl.UInt32)]
    h, a = together["$h"].to_numpy(), together["$a"].to_numpy()
    if ((h[1:] == h[:-1]) & (a[1:] != a[:-1])).any():  # two keys share one hash
        return together.sort(_GROUP, maintain_order=True)
    return together


def _rows(
    operator: PatternMatch, held: pl.DataFrame | None, came: pl.DataFrame | None, clock: OperatorClock
) -> tuple[PatternRows, pl.DataFrame | None]:
    """The rows of the keys to search, and how many matches each key has had."""
    counted = None
    parts = []
    if held is not None and len(held):
        counted = held.filter(pl.col("$b") == _COUNTED).select(*_GROUP, "$num")
        tail = held.filter(pl.col("$b") != _COUNTED).sort("$b")
        parts.append(tail.select(*UNIQUE, "$open", "$wd", *operator.columns, pl.lit(True).alias("$held")))
    if came is not None:
        place = pl.int_range(pl.len(), dtype=pl.Int64).over(*_GROUP)
        if parts and len(parts[0]):
            next_no = parts[0].group_by(_GROUP).agg((pl.col("$b").max() + 1).alias("$next"))
            came = came.join(next_no, on=list(_GROUP), how="left", maintain_order="left")
            place = place + pl.col("$next").fill_null(0)
        new = came.with_columns(place.alias("$b"))
        marks = [pl.lit(True).alias("$open"), pl.lit(END_OF_TIME, pl.Int64).alias("$wd")]
        parts.append(new.select(*UNIQUE, *marks, *operator.columns, pl.lit(False).alias("$held")))
    frame = pl.concat(parts, how="vertical_relaxed")
    if held is not None:
        frame = _by_key(frame)
    h, g = frame["$h"].to_numpy(), frame["$a"].to_numpy()
    new_key = np.flatnonzero(np.concatenate(([len(h) > 0], (h[1:] != h[:-1]) | (g[1:] != g[:-1]))))
    ends = np.append(new_key[1:], len(h))[: len(new_key)]
    closed = clock.watermark >= ALL_READ
    passed = clock.watermark - operator.slack + 1
    ready = ends if closed else np.maximum(new_key, ends - operator.lead)
    times = frame[operator.time].cast(pl.Datetime("us", "UTC")).cast(pl.Int64).to_numpy()
    may_begin = frame["$open"].to_numpy()
    return PatternRows(frame, new_key, ends, ready, times, may_begin, passed, closed), counted


def _numbered(
    operator: PatternMatch, rows: PatternRows, counted: pl.DataFrame | None, found: FoundMatches
) -> tuple[np.ndarray, pl.DataFrame | None]:
    """The numbers of the matches, and the rows that store the new match counts of their keys."""
    first = np.array(found.first, dtype=np.int64)
    if not operator.numbered or not len(first):
        return first, None
    key = np.searchsorted(rows.starts, first, side="right") - 1
    heads = rows.frame[pl.Series(rows.starts, dtype=pl.UInt32)]
    before = heads.select(*_GROUP)
    if counted is not None:
        before = before.join(counted, on=list(_GROUP), how="left", maintain_order="left")
    had = before["$num"].fill_null(0).to_numpy() if "$num" in before.columns else np.zeros(len(before), np.int64)
    order = np.argsort(key, kind="stable")
    counts = np.bincount(key, minlength=len(had))
    numbers = np.empty(len(key), dtype=np.int64)
    numbers[order] = np.arange(len(key)) - np.repeat(np.cumsum(counts) - counts, counts) + 1
    numbers += had[key]
    touched = counts > 0
    kept = heads.filter(pl.Series(touched)).with_columns(
        pl.lit(_COUNTED, pl.Int64).alias("$b"),
        pl.lit(False).alias("$open"),
        pl.lit(END_OF_TIME, pl.Int64).alias("$wd"),
        pl.Series("$num", (had + counts)[touched], dtype=pl.Int64),
        pl.lit(END_OF_TIME, pl.Int64).alias("$x"),
        pl.lit(False).alias("$gone"),
    )
    return numbers, kept


def _kept(operator: PatternMatch, rows: PatternRows, found: FoundMatches) -> pl.DataFrame | None:
    """The rows of the tails that are new or changed, and those that are deleted."""
    count = len(rows.frame)
    if not count:
        return None
    waiting = np.zeros(count, dtype=bool)
    waiting[np.array(found.waiting, dtype=np.int64)] = True
    place = np.arange(count)
    lengths = rows.ends - rows.starts
    unready = place >= np.repeat(rows.ready, lengths)
    open_now = waiting | (unready & rows.may_begin)
    begin = np.full(len(rows.starts), count, dtype=np.int64)  # by key: its first row that may begin a match
    key = rows.keys
    np.minimum.at(begin, key[open_now], place[open_now])
    begin = np.minimum(begin, rows.ends)
    needed = place >= np.repeat(np.maximum(rows.starts, begin - operator.lag), lengths)
    if rows.closed:
        needed[:] = False
    may_begin = (open_now if operator.skip == TO_NEXT else place >= np.repeat(begin, lengths)) & needed
    until = np.where(waiting | unready, ALL_READ, END_OF_TIME)
    if operator.within is not None:
        over = rows.times + operator.within
        until = np.where(waiting & (over > rows.passed), over + operator.slack - 1, until)
    frame = rows.frame.with_columns(
        pl.Series("$open", may_begin),
        pl.Series("$wd", until, dtype=pl.Int64),
        pl.lit(None, pl.Int64).alias("$num"),
        pl.lit(END_OF_TIME, pl.Int64).alias("$x"),
        pl.Series("$gone", ~needed),
    )
    was = rows.frame["$held"].to_numpy()
    same = (rows.frame["$open"].to_numpy() == may_begin) & (rows.frame["$wd"].to_numpy() == until)
    return frame.filter(pl.Series(np.where(was, ~needed | ~same, needed)))


def is_due(operator: PatternMatch, state: State, clock: OperatorClock) -> bool:
    """Whether the time of a pending match has passed, by the clock alone."""
    del operator
    hashes = state.due({"$wd": (clock.before, clock.watermark)}, clock.before)
    found = state.lookup(hashes, clock.before) if len(hashes) else None
    return found is not None and bool(((found["$wd"] <= clock.watermark) & ~found["$gone"]).any())


KERNEL = Kernel(advance, is_due)
