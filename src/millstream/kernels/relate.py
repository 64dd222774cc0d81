"""The kernel of chained stages: rows that come and go in groups, and what a group answers before and after.

A group's present rows are its state, with ``$n``, how often each is there. An epoch looks up the groups that are
touched, takes the changes in, and gives the difference of their answers; so it is right for every kind of change. Of
rows that only grow, a first-n stage keeps no more than those that it shows. A change that takes back a row which is not
held (it is from before the stage was there) is passed over.

Columns of state: ``$h`` and ``$g`` hashes of the group's key, ``$a`` and ``$b`` hashes of the row and of what its input
tells it apart by, ``$n``, ``$x`` when it is forgotten, ``$gone`` for a row that is no more, and the row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from millstream.clock import END_OF_TIME
from millstream.kernels.combine import combine, results
from millstream.kernels.hashing import hashed
from millstream.kernels.outcome import Outcome, StageClock, State
from millstream.model.windowing import Windowing
from millstream.plan.stages import ROW, Aggregation, Chained, First, Once, Regroup, view_of

UNIQUE = ("$h", "$a", "$b")
_GROUP = ("$h", "$g")
_CONTENT = ("$a", "$b")
_PLACE = ("$i", "$j")


def advance(spec: Chained, changes: pl.DataFrame | None, state: State, clock: StageClock) -> Outcome:
    """Run one epoch of a chained stage. `changes` are rows with their ``op``, as the stage takes them."""
    nothing = Outcome(None, None, np.empty(0, dtype=np.int64))
    if changes is None or not len(changes):
        return nothing
    came = _net(spec, changes)
    if not len(came):
        return nothing
    rows = _joined(spec, _held(state, came, clock), came)
    before = _answers(spec, rows, "$was")
    if isinstance(spec.what, First) and spec.grows:
        rows = _taken(spec.what, rows, "$n")
        rows = rows.with_columns(pl.col("$take").alias("$n"))  # what is not among them now never will be
    after = _answers(spec, rows, "$n")
    written = rows.filter(pl.col("$n") != pl.col("$was")).select(
        *_GROUP, *_CONTENT, "$n", _expiry(spec).alias("$x"), (pl.col("$n") == 0).alias("$gone"), *spec.columns
    )
    found = _difference(spec, before, after)
    return Outcome(found if len(found) else None, written if len(written) else None, written["$x"].to_numpy())


def _net(spec: Chained, changes: pl.DataFrame) -> pl.DataFrame:
    """What the changes come to for each row: ``$d`` copies more, or fewer."""
    taken = dict.fromkeys((*spec.columns, *spec.names))
    rows = changes.select("op", *taken).cast(_types(spec))  # type: ignore[arg-type]
    if isinstance(spec.what, Regroup):  # -0.0 and 0.0 are one key
        rows = rows.with_columns(pl.col(k) + 0.0 for k in spec.keys if rows.schema[k].is_float())
    content = spec.what.shown if isinstance(spec.what, First) else spec.columns
    told_by = dict.fromkeys((*content, *spec.names))
    more = pl.when(pl.col("op").is_in(["+I", "+U"])).then(1).otherwise(-1).cast(pl.Int64).alias("$d")
    marked = rows.with_columns(*_pair(_GROUP, rows, spec.keys), *_pair(_CONTENT, rows, list(told_by)), more)
    by = [*_GROUP, *_CONTENT]
    net = marked.group_by(by, maintain_order=True).agg(pl.col("$d").sum(), *(pl.col(c).first() for c in spec.columns))
    return net.filter(pl.col("$d") != 0).sort(by)


def _held(state: State, came: pl.DataFrame, clock: StageClock) -> pl.DataFrame | None:
    """The rows of the groups that are touched."""
    held = state.lookup(came["$h"].unique().sort().to_numpy(), clock.before)
    return None if held is None else held.filter(~pl.col("$gone") & (pl.col("$x") > clock.before))


def _joined(spec: Chained, held: pl.DataFrame | None, came: pl.DataFrame) -> pl.DataFrame:
    """All rows of the groups: how often each was there (``$was``), and is (``$n``)."""
    by = [*_GROUP, *_CONTENT]
    none = pl.lit(0, pl.Int64)
    parts = [came.select(*by, *spec.columns, none.alias("$was"), "$d")]
    if held is not None and len(held):
        parts.insert(0, held.select(*by, *spec.columns, pl.col("$n").alias("$was"), none.alias("$d")))
    both = pl.concat(parts, how="vertical_relaxed").group_by(by, maintain_order=True)
    rows = both.agg(*(pl.col(c).first() for c in spec.columns), pl.col("$was").sum(), pl.col("$d").sum())
    count = pl.max_horizontal(pl.col("$was") + pl.col("$d"), none)
    if isinstance(spec.what, Once) and spec.grows:
        count = pl.min_horizontal(count, pl.lit(1, pl.Int64))  # copies that never go away need no counting
    return rows.with_columns(count.alias("$n"))


def _answers(spec: Chained, rows: pl.DataFrame, count: str) -> pl.DataFrame:
    """The results of all groups, with what tells them apart (``$i``, ``$j``) and what is in them (``$a``, ``$b``)."""
    there = rows.filter(pl.col(count) > 0)
    if isinstance(spec.what, Once):
        found = there.unique(_GROUP, keep="first", maintain_order=True)
        marks = [pl.col(c).alias(n) for c, n in zip(_GROUP * 2, (*_CONTENT, *_PLACE), strict=True)]
        return found.select(*spec.result, *marks)
    if isinstance(spec.what, First):
        found = _first(spec.what, there, count)
    else:
        found = _regrouped(spec, spec.what, there, count)
    return found.select(*spec.result, *_CONTENT).with_columns(_pair(_PLACE, found, spec.identity))


def _taken(what: First, rows: pl.DataFrame, count: str) -> pl.DataFrame:
    """Rows in the order of their groups, with how many copies are before each (``$at``) and are shown of it
    (``$take``).
    """
    sorts = {s.column: (s.descending, not s.nulls_first) for s in reversed(what.order)}
    order = list(dict.fromkeys(s.column for s in what.order))
    ties = [c for c in what.shown if c not in order and not rows.schema[c].is_nested()]
    by = [*_GROUP, *order, *ties, *_CONTENT]
    ways = [sorts.get(c, (False, False)) for c in by]
    ordered = rows.sort(by, descending=[d for d, _ in ways], nulls_last=[n for _, n in ways])
    at = (pl.col(count).cum_sum() - pl.col(count)).over(*_GROUP)
    left = (what.count - pl.col("$at")).clip(0)
    return ordered.with_columns(at.alias("$at")).with_columns(pl.min_horizontal(count, left).alias("$take"))


def _first(what: First, rows: pl.DataFrame, count: str) -> pl.DataFrame:
    """The first rows of every group, once per copy."""
    taken = _taken(what, rows, count).filter(pl.col("$take") > 0)
    copies = taken["$take"].to_numpy()
    shown = _repeated(taken, copies)
    shown = shown.with_columns(_pair(_CONTENT, shown, what.shown))
    number = pl.int_range(pl.len(), dtype=pl.Int64)
    if what.rank is not None:
        shown = shown.with_columns((number.over(*_GROUP) + 1).alias(what.rank))
    shown = shown.with_columns(number.over(*_CONTENT).alias("$copy"))
    return shown.with_columns(_pair(ROW, shown, (*_CONTENT, "$copy")))


def _regrouped(spec: Chained, what: Regroup, rows: pl.DataFrame, count: str) -> pl.DataFrame:
    """The aggregates of every group over its rows."""
    view = Aggregation(view_of(spec.step), spec.keys, Windowing(), what.measures, ())
    partials = combine(view, _repeated(rows, rows[count].to_numpy()), [*_GROUP, *spec.keys]).sort(_GROUP)
    found = partials.select(*spec.keys, *results(view, partials))
    return found.with_columns(_pair(_CONTENT, found, [m.name for m in what.measures]))


def _pair(names: Sequence[str], rows: pl.DataFrame, columns: Sequence[str]) -> list[pl.Series]:
    """The two hashes of columns, under names."""
    return [pl.Series(n, v, dtype=pl.Int64) for n, v in zip(names, hashed(rows, columns), strict=True)]


def _repeated(rows: pl.DataFrame, copies: np.ndarray) -> pl.DataFrame:
    return rows if (copies == 1).all() else rows[pl.Series(np.repeat(np.arange(len(rows)), copies), dtype=pl.UInt32)]


def _difference(spec: Chained, before: pl.DataFrame, after: pl.DataFrame) -> pl.DataFrame:
    """The changes from one set of results to another."""
    name, whole = list(_PLACE), [*_PLACE, *_CONTENT]
    old, new = before, after
    if len(before) and len(after):
        old = before.join(after, on=whole, how="anti", maintain_order="left")
        new = after.join(before, on=whole, how="anti", maintain_order="left")
    if not len(old) or not len(new):
        rows, op = (new, "+I") if len(new) else (old, "-D")
        return rows.select(pl.lit(op).alias("op"), *spec.result)
    parts = [
        (old.join(new, on=name, how="anti", maintain_order="left"), "-D"),
        (old.join(new, on=name, how="semi", maintain_order="left"), "-U"),
        (new.join(old, on=name, how="anti", maintain_order="left"), "+I"),
        (new.join(old, on=name, how="semi", maintain_order="left"), "+U"),
    ]
    return pl.concat([rows.select(pl.lit(op).alias("op"), *spec.result) for rows, op in parts])


def _expiry(spec: Chained) -> pl.Expr:
    """When rows are forgotten: when the window that their key is the end of changes no more."""
    never = pl.lit(END_OF_TIME, pl.Int64)
    if spec.ends is None:
        return never
    end, late = spec.ends
    return (pl.col(end).cast(pl.Datetime("us", "UTC")).cast(pl.Int64) + late).fill_null(END_OF_TIME)


def _types(spec: Chained) -> dict[str, pl.DataType]:
    empty = pl.from_arrow(pa.schema(list(zip(spec.columns, spec.types, strict=True))).empty_table())
    assert isinstance(empty, pl.DataFrame)
    return dict(empty.schema)
