"""Rows that come and go at an operator: the net effect of an epoch's changes, and the rows that are held.

Columns of state: ``$h`` and ``$g`` hashes of the key, ``$a`` and ``$b`` what tells a row from others (hashes of what is
in it and of what its input tells it apart by; of rows that never go away, a number), ``$n`` how often it is there,
``$x`` when it is forgotten, ``$gone`` for a row that is no more, and the row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from millstream.clock import BEGINNING, END_OF_TIME
from millstream.kernels.aggregates.tallies import one_zero
from millstream.kernels.hashing import hashed
from millstream.kernels.outcome import StageClock, State
from millstream.model.reserved import OP
from millstream.plan.operators.inputs import Side
from millstream.plan.operators.operator import Operator

UNIQUE = ("$h", "$a", "$b")
GROUP = ("$h", "$g")
CONTENT = ("$a", "$b")
_EPOCH_ROWS = 1 << 32


def arrived(
    side: Side, keys: Sequence[str], changes: pl.DataFrame, clock: StageClock, content: Sequence[str] | None = None
) -> pl.DataFrame:
    """What the changes come to for each row: ``$d`` copies more, or fewer. `content` are the columns that tell rows
    apart (all, when nothing is said); none: each row is its own.
    """
    taken = dict.fromkeys((*side.columns, *side.names))
    rows = changes.select(OP, *taken).cast(types_of(side))  # type: ignore[arg-type]
    rows = rows.with_columns(one_zero(pl.col(k)).alias(k) for k in keys if rows.schema[k].is_float())
    groups = pair(GROUP, rows, keys)
    if side.append_only and content is not None and not content:
        number = clock.epoch * _EPOCH_ROWS + np.arange(len(rows), dtype=np.int64)
        marks = [pl.Series("$a", number, dtype=pl.Int64), pl.Series("$b", np.zeros(len(rows), np.int64))]
        return rows.select(*groups, *marks, pl.lit(1, pl.Int64).alias("$d"), *side.columns)
    told_by = dict.fromkeys((*(side.columns if content is None else content), *side.names))
    same = list(told_by) == list(keys)
    marks = [s.alias(n) for s, n in zip(groups, CONTENT, strict=True)] if same else pair(CONTENT, rows, list(told_by))
    more = pl.when(pl.col(OP).is_in(["+I", "+U"])).then(1).otherwise(-1).cast(pl.Int64).alias("$d")
    by = [*GROUP, *CONTENT]
    net = (
        rows.with_columns(*groups, *marks, more)
        .group_by(by, maintain_order=True)
        .agg(pl.col("$d").sum(), *(pl.col(c).first() for c in side.columns))
    )
    return net.filter(pl.col("$d") != 0).sort(by)


def held(state: State, hashes: np.ndarray, clock: StageClock) -> pl.DataFrame | None:
    """The rows that are there under hashes (sorted, each once)."""
    if not len(hashes):
        return None
    found = state.lookup(hashes, clock.before)
    return None if found is None else found.filter(~pl.col("$gone") & (pl.col("$x") > clock.before))


def whole(side: Side, before: pl.DataFrame | None, came: pl.DataFrame, kept: Sequence[str] = ()) -> pl.DataFrame:
    """All rows: how often each was there (``$was``), and is (``$n``). `kept` are more columns of state, 0 at first."""
    by = [*GROUP, *CONTENT]
    none = pl.lit(0, pl.Int64)
    if before is None or not len(before):
        new = came.select(*by, *side.columns, none.alias("$was"), *(none.alias(k) for k in kept), "$d")
        return new.with_columns(pl.col("$d").clip(0).alias("$n")).drop("$d")
    old = before.select(*by, *side.columns, pl.col("$n").alias("$was"), *kept, none.alias("$d"))
    new = came.select(*by, *side.columns, none.alias("$was"), *(none.alias(k) for k in kept), "$d")
    both = pl.concat([old, new], how="vertical_relaxed")
    if not side.append_only or (came["$b"] != 0).any():
        summed = (pl.col(c).sum() for c in ("$was", *kept, "$d"))
        both = both.group_by(by, maintain_order=True).agg(*(pl.col(c).first() for c in side.columns), *summed)
    return both.with_columns(pl.max_horizontal(pl.col("$was") + pl.col("$d"), none).alias("$n")).drop("$d")


def hashes_of(*frames: pl.DataFrame | None) -> np.ndarray:
    """The hashes of the keys in some rows, sorted, each once."""
    found = [f["$h"].to_numpy() for f in frames if f is not None and len(f)]
    unique: np.ndarray = np.unique(np.concatenate(found)) if found else np.empty(0, dtype=np.int64)
    return unique


def written(rows: pl.DataFrame, expiry: pl.Expr, columns: Sequence[str]) -> pl.DataFrame:
    """Rows as state keeps them."""
    marks = ("$n", expiry.alias("$x"), (pl.col("$n") == 0).alias("$gone"))
    return rows.select(*GROUP, *CONTENT, *marks, *columns)


def expiry(spec: Operator, clock: StageClock) -> pl.Expr:
    """When rows are forgotten: when the time that their key is changes no more, or nothing has come for so long."""
    if spec.ends is None:
        return lived(spec, clock, pl.lit(END_OF_TIME, pl.Int64))
    end, late = spec.ends
    until = (pl.col(end).cast(pl.Datetime("us", "UTC")).cast(pl.Int64) + late).fill_null(END_OF_TIME)
    return lived(spec, clock, until)


def lived(spec: Operator, clock: StageClock, until: pl.Expr) -> pl.Expr:
    """When rows are forgotten, at the latest their time to live after they changed."""
    if spec.ttl is None:
        return until
    since = max(clock.watermark, clock.newest)
    since = since if since > BEGINNING else clock.now
    return pl.min_horizontal(until, pl.lit(since + spec.ttl, pl.Int64))


def pair(names: Sequence[str], rows: pl.DataFrame, columns: Sequence[str]) -> list[pl.Series]:
    """The two hashes of columns, under names."""
    return [pl.Series(n, v, dtype=pl.Int64) for n, v in zip(names, hashed(rows, columns), strict=True)]


def repeated(rows: pl.DataFrame, copies: np.ndarray) -> pl.DataFrame:
    """Rows, each as often as it says."""
    return rows if (copies == 1).all() else rows[pl.Series(np.repeat(np.arange(len(rows)), copies), dtype=pl.UInt32)]


def types_of(side: Side) -> dict[str, pl.DataType]:
    """The types of a side's columns."""
    empty = pl.from_arrow(pa.schema(list(zip(side.columns, side.types, strict=True))).empty_table())
    assert isinstance(empty, pl.DataFrame)
    return dict(empty.schema)
