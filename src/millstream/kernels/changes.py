"""Changes at an operator: the net effect of an epoch's changes, and the rows that state holds.

The relational kernels share these functions. Columns of state: ``$h`` and ``$g`` hashes of the key, ``$a`` and ``$b``
the identity of a row (hashes of its content and of its input's identity; for rows that are never retracted, a number),
``$n`` number of copies, ``$x`` expiry, ``$gone`` for a deleted row, and the row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from millstream.clock import BEGINNING, END_OF_TIME
from millstream.kernels.aggregates.tallies import one_zero
from millstream.kernels.frames import polars_types
from millstream.kernels.hashing import hashed
from millstream.kernels.outcome import OperatorClock, State
from millstream.model.reserved import OP
from millstream.plan.operators.inputs import FirstRows, Side, Sort
from millstream.plan.operators.operator import Operator

UNIQUE = ("$h", "$a", "$b")
GROUP = ("$h", "$g")
CONTENT = ("$a", "$b")


def arrived(
    side: Side,
    keys: Sequence[str],
    changes: pl.DataFrame | None,
    clock: OperatorClock,
    content: Sequence[str] | None = None,
) -> pl.DataFrame:
    """The net effect of the changes on each row: ``$d`` is the number of copies added or removed. `content` are the
    columns that identify rows (default: all; none: each row is unique).
    """
    if changes is None or not len(changes):
        return pl.DataFrame(schema={**dict.fromkeys((*GROUP, *CONTENT, "$d"), pl.Int64), **types_of(side)})
    columns = dict.fromkeys((*side.columns, *side.names))
    rows = changes.select(OP, *columns).cast(types_of(side))  # type: ignore[arg-type]
    rows = rows.with_columns(one_zero(pl.col(k)).alias(k) for k in keys if rows.schema[k].is_float())
    groups = pair(GROUP, rows, keys)
    if side.append_only and content is not None and not content:
        marks = [pl.Series(n, v, dtype=pl.Int64) for n, v in zip(CONTENT, clock.row_numbers(len(rows)), strict=True)]
        return rows.select(*groups, *marks, pl.lit(1, pl.Int64).alias("$d"), *side.columns)
    identifying = dict.fromkeys((*(side.columns if content is None else content), *side.names))
    same = list(identifying) == list(keys)
    marks = (
        [s.alias(n) for s, n in zip(groups, CONTENT, strict=True)] if same else pair(CONTENT, rows, list(identifying))
    )
    more = pl.when(pl.col(OP).is_in(["+I", "+U"])).then(1).otherwise(-1).cast(pl.Int64).alias("$d")
    by = [*GROUP, *CONTENT]
    net = (
        rows.with_columns(*groups, *marks, more)
        .group_by(by, maintain_order=True)
        .agg(pl.col("$d").sum(), *(pl.col(c).first() for c in side.columns))
    )
    return net.filter(pl.col("$d") != 0).sort(by)


def touched_rows(
    side: Side, keys: Sequence[str], changes: pl.DataFrame | None, state: State, clock: OperatorClock
) -> pl.DataFrame | None:
    """The rows that changes touch, as `whole` returns them; None if there are no changes."""
    if changes is None or not len(changes):
        return None
    arrivals = arrived(side, keys, changes, clock, () if side.append_only else None)
    return whole(side, None if side.append_only else lookup_rows(state, hashes_of(arrivals), clock), arrivals)


def in_order(
    rows: pl.DataFrame, order: Sequence[Sort], ties: Sequence[str], groups: Sequence[str] | None = None
) -> pl.DataFrame:
    """Sort rows by group and by an order. Ties are decided by further columns, then by content. `groups` are the
    columns of a group, if not its hashes.
    """
    ways = {s.column: (s.descending, not s.nulls_first) for s in reversed(order)}
    plain = (c for c in ties if not rows.schema[c].is_nested())
    groups = GROUP if groups is None else groups
    by = list(dict.fromkeys((*groups, *(s.column for s in order), *plain, *(c for c in CONTENT if c in rows.columns))))
    sorts = [ways.get(c, (False, False)) for c in by]
    return rows.sort(by, descending=[d for d, _ in sorts], nulls_last=[n for _, n in sorts])


def first_of_each(rows: pl.DataFrame, first: FirstRows) -> pl.Series:
    """For each row, whether it is among the first of its key, or equal in order to the last of these."""
    ordered = in_order(rows.select(first.columns).with_row_index("$at"), first.order, (), first.keys)
    at = np.arange(len(ordered))
    key_starts, tie_starts = (
        np.maximum.accumulate(np.where(_differs(ordered, columns), at, 0)) for columns in (first.keys, first.columns)
    )
    kept = np.zeros(len(ordered), dtype=bool)
    kept[ordered["$at"].to_numpy()] = tie_starts - key_starts < first.count
    return pl.Series(kept)


def _differs(rows: pl.DataFrame, columns: Sequence[str]) -> np.ndarray:
    """For each row, whether it differs from the one before it."""
    if not columns:
        return np.zeros(len(rows), dtype=bool)
    found = rows.select(pl.any_horizontal(pl.col(c).ne_missing(pl.col(c).shift()) for c in columns))
    return found.to_series().to_numpy()


def lookup_rows(state: State, hashes: np.ndarray, clock: OperatorClock) -> pl.DataFrame | None:
    """The rows in state under these hashes (sorted, distinct)."""
    if not len(hashes):
        return None
    state_rows = state.lookup(hashes, clock.before)
    return None if state_rows is None else state_rows.filter(~pl.col("$gone") & (pl.col("$x") > clock.before))


def whole(
    side: Side, before: pl.DataFrame | None, arrivals: pl.DataFrame, more_columns: Sequence[str] = ()
) -> pl.DataFrame:
    """All rows with the number of copies before (``$was``) and after (``$n``) the epoch. `more_columns` are further
    columns of state, initially 0.
    """
    by = [*GROUP, *CONTENT]
    none = pl.lit(0, pl.Int64)
    if before is None or not len(before):
        new = arrivals.select(*by, *side.columns, none.alias("$was"), *(none.alias(k) for k in more_columns), "$d")
        return new.with_columns(pl.col("$d").clip(0).alias("$n")).drop("$d")
    old = before.select(*by, *side.columns, pl.col("$n").alias("$was"), *more_columns, none.alias("$d"))
    new = arrivals.select(*by, *side.columns, none.alias("$was"), *(none.alias(k) for k in more_columns), "$d")
    both = pl.concat([old, new], how="vertical_relaxed")
    if not side.append_only or (arrivals["$b"] != 0).any():
        summed = (pl.col(c).sum() for c in ("$was", *more_columns, "$d"))
        both = both.group_by(by, maintain_order=True).agg(*(pl.col(c).first() for c in side.columns), *summed)
    return both.with_columns(pl.max_horizontal(pl.col("$was") + pl.col("$d"), none).alias("$n")).drop("$d")


def hashes_of(*frames: pl.DataFrame | None) -> np.ndarray:
    """The hashes of the keys of some rows, sorted and distinct."""
    hashes = [f["$h"].to_numpy() for f in frames if f is not None and len(f)]
    unique: np.ndarray = np.unique(np.concatenate(hashes)) if hashes else np.empty(0, dtype=np.int64)
    return unique


def written(rows: pl.DataFrame, expiry: pl.Expr, columns: Sequence[str]) -> pl.DataFrame:
    """Convert rows to the form that state keeps."""
    marks = ("$n", expiry.alias("$x"), (pl.col("$n") == 0).alias("$gone"))
    return rows.select(*GROUP, *CONTENT, *marks, *columns)


def expiry(spec: Operator, clock: OperatorClock) -> pl.Expr:
    """When rows expire: when the time in their key can no longer change, or after their time to live without a
    change.
    """
    if spec.ends is None:
        return lived(spec, clock, pl.lit(END_OF_TIME, pl.Int64))
    end, late = spec.ends
    until = (pl.col(end).cast(pl.Datetime("us", "UTC")).cast(pl.Int64) + late).fill_null(END_OF_TIME)
    return lived(spec, clock, until)


def lived(spec: Operator, clock: OperatorClock, until: pl.Expr) -> pl.Expr:
    """The expiry of rows, limited to their time to live after the last change."""
    if spec.ttl is None:
        return until
    since = max(clock.watermark, clock.newest)
    since = since if since > BEGINNING else clock.now
    return pl.min_horizontal(until, pl.lit(since + spec.ttl, pl.Int64))


def pair(names: Sequence[str], rows: pl.DataFrame, columns: Sequence[str]) -> list[pl.Series]:
    """The two hashes of columns, under these names."""
    return [pl.Series(n, v, dtype=pl.Int64) for n, v in zip(names, hashed(rows, columns), strict=True)]


def repeated(rows: pl.DataFrame, copies: np.ndarray) -> pl.DataFrame:
    """Repeat each row by its number of copies."""
    return rows if (copies == 1).all() else rows[pl.Series(np.repeat(np.arange(len(rows)), copies), dtype=pl.UInt32)]


def types_of(side: Side) -> dict[str, pl.DataType]:
    """The types of a side's columns."""
    return polars_types(side.columns, side.types)
