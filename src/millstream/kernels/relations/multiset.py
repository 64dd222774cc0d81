"""The kernel of chained stages with one side: rows come and go in groups; what does a group answer before and after?

A group's present rows are its state (see `kernels/relations/changes.py`). An epoch looks up the groups that are
touched, takes the changes in, and gives the difference of their answers; so it is right for every kind of change. Of
rows that only grow, a first-n stage keeps no more than those that it shows. A change that takes back a row which is
not held (it is from before the stage was there) is passed over.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from millstream.clock import END_OF_TIME
from millstream.kernels.aggregates.combine import combine, over_nothing, results, total_keys
from millstream.kernels.outcome import Outcome, StageClock, State
from millstream.kernels.relations import window_function
from millstream.kernels.relations.changes import (
    CONTENT,
    GROUP,
    arrived,
    expiry,
    hashes_of,
    held,
    pair,
    repeated,
    types_of,
    whole,
    written,
)
from millstream.model.reserved import OP
from millstream.model.windows.windowing import Windowing
from millstream.plan.stages import (
    ROW,
    Aggregation,
    Chained,
    Every,
    First,
    Once,
    Over,
    Regroup,
    Sets,
    Stored,
    view_of,
)

_PLACE = ("$i", "$j")
_NOTHING = Outcome(None, None, np.empty(0, dtype=np.int64))


def advance(spec: Chained, changes: pl.DataFrame | None, state: State, clock: StageClock) -> Outcome:
    """Run one epoch of a chained stage. `changes` are rows with their kind of change, as the stage takes them."""
    if isinstance(spec.what, Stored) and changes is not None:
        changes = _since(spec, changes, state, clock)
    if spec.is_never_empty and changes is not None:
        return _never_empty(spec, changes, state, clock)
    if changes is None or not len(changes):
        return _NOTHING
    if isinstance(spec.what, Every) and spec.grows:
        return Outcome(changes.select(OP, *spec.result), None, np.empty(0, dtype=np.int64))
    side = spec.sides[0]
    came = arrived(side, spec.keys, changes, clock, _content(spec, changes))
    if not len(came):
        return _NOTHING
    rows = whole(side, held(state, hashes_of(came), clock), came)
    if isinstance(spec.what, Once) and spec.grows:
        rows = rows.with_columns(pl.col("$n").clip(upper_bound=1))  # copies that never go away need no counting
    before = _answers(spec, rows, "$was")
    if isinstance(spec.what, First) and spec.grows:
        rows = _taken(spec.what, rows, "$n")
        rows = rows.with_columns(pl.col("$take").alias("$n"))  # what is not among them now never will be
    after = _answers(spec, rows, "$n")
    kept = written(rows.filter(pl.col("$n") != pl.col("$was")), expiry(spec, clock), side.columns)
    found = _difference(spec, before, after)
    return Outcome(found if len(found) else None, kept if len(kept) else None, kept["$x"].to_numpy())


def _never_empty(spec: Chained, changes: pl.DataFrame, state: State, clock: StageClock) -> Outcome:
    """An aggregate with groups that answer also when they have no rows: of all rows, or of grouping sets without keys.
    State then has a row that stands for such an answer.
    """
    side = spec.sides[0]
    none = pl.DataFrame(schema={**dict.fromkeys((*GROUP, *CONTENT, "$d"), pl.Int64), **types_of(side)})
    came = arrived(side, spec.keys, changes, clock) if len(changes) else none
    totals = _totals(spec)
    rows = whole(side, held(state, hashes_of(totals, came), clock), came)
    stands = (pl.col("$a") == 0) & (pl.col("$b") == 0)
    answered = rows.filter(stands)
    rows = rows.filter(~stands)
    before, after = _answers(spec, rows, "$was"), _answers(spec, rows, "$n")
    empty = _over_nothing(spec, totals)
    was = empty.join(answered, left_on=_PLACE, right_on=GROUP, how="semi", maintain_order="left")
    before, after = _completed(before, was), _completed(after, empty)
    kept = written(rows.filter(pl.col("$n") != pl.col("$was")), expiry(spec, clock), side.columns)
    new = totals.join(answered, on=GROUP, how="anti", maintain_order="left")
    if len(new):
        missing = (pl.lit(None, t).alias(c) for c, t in types_of(side).items() if c not in spec.keys)
        zero = pl.lit(0, pl.Int64)
        mark = new.with_columns(zero.alias("$a"), zero.alias("$b"), pl.lit(1, pl.Int64).alias("$n"), *missing)
        kept = pl.concat([kept, written(mark, pl.lit(END_OF_TIME, pl.Int64), side.columns)], how="vertical_relaxed")
    found = _difference(spec, before, after)
    return Outcome(found if len(found) else None, kept if len(kept) else None, kept["$x"].to_numpy())


def _totals(spec: Chained) -> pl.DataFrame:
    """The keys of the groups that answer without rows, and their hashes."""
    kinds = dict(zip(spec.columns, spec.types, strict=True))
    keys = total_keys(spec.totals, {k: kinds[k] for k in spec.keys}) if spec.keys else pl.DataFrame({"$one": [0]})
    return keys.with_columns(pair(GROUP, keys, spec.keys))


def _over_nothing(spec: Chained, totals: pl.DataFrame) -> pl.DataFrame:
    """The answers of groups that have no rows."""
    what = spec.what
    assert isinstance(what, Regroup)
    view = Aggregation(view_of(spec.step), (), Windowing(), what.measures, ())
    partials = over_nothing(view)
    found = totals.select(*spec.keys, "$h").join(partials.select(results(view, partials)), how="cross").drop("$h")
    return _answered(spec, found.with_columns(pair(CONTENT, found, [m.name for m in what.measures])))


def _completed(answers: pl.DataFrame, empty: pl.DataFrame) -> pl.DataFrame:
    """Answers, with those of groups without rows where there are no others."""
    more = empty.join(answers, on=_PLACE, how="anti", maintain_order="left")
    return pl.concat([answers, more.select(answers.columns)], how="vertical_relaxed") if len(more) else answers


def _since(spec: Chained, rows: pl.DataFrame, state: State, clock: StageClock) -> pl.DataFrame:
    """The rows of a table that came and went since it was looked at: `rows` are all that it has now."""
    before = state.scan(clock.before)
    if before is None:
        return rows
    there = before.filter(~pl.col("$gone"))
    gone = repeated(there, there["$n"].to_numpy()).select(pl.lit("-D").alias(OP), *spec.columns)
    return pl.concat([gone, rows.select(OP, *spec.columns)], how="vertical_relaxed")


def _content(spec: Chained, changes: pl.DataFrame) -> tuple[str, ...] | None:
    """What tells rows apart: their content, but of a first-n stage's growing rows their number."""
    if not isinstance(spec.what, First):
        return None
    return () if _is_numbered(spec, changes) else spec.what.shown


def _is_numbered(spec: Chained, rows: pl.DataFrame) -> bool:
    """Whether each row of a first-n stage has a number of its own: none goes away, and ties need no hash to break."""
    assert isinstance(spec.what, First)
    return spec.grows and not any(rows.schema[c].is_nested() for c in spec.what.shown)


def _answers(spec: Chained, rows: pl.DataFrame, count: str) -> pl.DataFrame:
    """The results of all groups, with what tells them apart (``$i``, ``$j``) and what is in them (``$a``, ``$b``)."""
    there = rows.filter(pl.col(count) > 0)
    what = spec.what
    if isinstance(what, Once) or (isinstance(what, Sets) and not what.copies):
        found = there.unique(GROUP, keep="first", maintain_order=True)
        if isinstance(what, Sets):
            found = found.join(_compared(what, there, count), on=GROUP, how="semi", maintain_order="left")
        marks = [pl.col(c).alias(n) for c, n in zip(GROUP * 2, (*CONTENT, *_PLACE), strict=True)]
        if isinstance(what, Sets):
            found = found.with_columns(pl.col("$h").alias(ROW[0]), pl.col("$g").alias(ROW[1]))
        return found.select(*spec.result, *marks)
    if isinstance(what, First):
        found = _first(what, there, count, numbered=_is_numbered(spec, rows))
    elif isinstance(what, Over):
        found = _copies(window_function.computed(what, repeated(there, there[count].to_numpy())), spec.result)
    elif isinstance(what, Every | Stored):
        found = _copies(repeated(there, there[count].to_numpy()), spec.columns)
    elif isinstance(what, Sets):
        once = there.unique(GROUP, keep="first", maintain_order=True)
        kept = once.join(_compared(what, there, count), on=GROUP, how="inner", maintain_order="left")
        found = _copies(repeated(kept, kept["$copies"].to_numpy()), spec.keys)
    else:
        found = _aggregated(spec, repeated(there, there[count].to_numpy()))
    return _answered(spec, found)


def _answered(spec: Chained, found: pl.DataFrame) -> pl.DataFrame:
    """Results with what tells them apart."""
    found = found.select(
        *spec.result, *CONTENT, *(GROUP if spec.identity == spec.keys and "$h" in found.columns else ())
    )
    if "$h" in found.columns:
        return found.rename(dict(zip(GROUP, _PLACE, strict=True)))
    return found.with_columns(pair(_PLACE, found, ROW if spec.identity is None else spec.identity))


def _compared(what: Sets, rows: pl.DataFrame, count: str) -> pl.DataFrame:
    """The groups whose row is a result, and how often."""
    sides = [pl.col(count).filter(pl.col("$side") == i).sum().alias(f"$n{i}") for i in (0, 1)]
    counted = rows.group_by(GROUP, maintain_order=True).agg(*sides)
    first, second = pl.col("$n0"), pl.col("$n1")
    if what.keep == "intersect":
        copies = pl.min_horizontal(first, second)
    elif what.copies:
        copies = (first - second).clip(0)
    else:
        copies = pl.when(second == 0).then(first).otherwise(0)
    return counted.select(*GROUP, copies.alias("$copies")).filter(pl.col("$copies") > 0)


def _taken(what: First, rows: pl.DataFrame, count: str) -> pl.DataFrame:
    """Rows in the order of their groups, with how many copies are before each (``$at``) and are shown of it
    (``$take``).
    """
    sorts = {s.column: (s.descending, not s.nulls_first) for s in reversed(what.order)}
    order = list(dict.fromkeys(s.column for s in what.order))
    ties = [c for c in what.shown if c not in order and not rows.schema[c].is_nested()]
    by = [*GROUP, *order, *ties, *CONTENT]
    ways = [sorts.get(c, (False, False)) for c in by]
    ordered = rows.sort(by, descending=[d for d, _ in ways], nulls_last=[n for _, n in ways])
    at = (pl.col(count).cum_sum() - pl.col(count)).over(*GROUP)
    left = (what.count - pl.col("$at")).clip(0)
    return ordered.with_columns(at.alias("$at")).with_columns(pl.min_horizontal(count, left).alias("$take"))


def _first(what: First, rows: pl.DataFrame, count: str, *, numbered: bool) -> pl.DataFrame:
    """The first rows of every group, once per copy; `numbered`: each row has a number that tells it apart."""
    taken = _taken(what, rows, count).filter(pl.col("$take") > 0)
    shown = repeated(taken, taken["$take"].to_numpy())
    if what.rank is not None:
        number = pl.int_range(pl.len(), dtype=pl.Int64)
        shown = shown.with_columns((number.over(*GROUP) + 1).alias(what.rank))
    if numbered:
        return shown.with_columns(pl.col("$a").alias(ROW[0]), pl.col("$b").alias(ROW[1]))
    return _copies(shown, what.shown)


def _copies(rows: pl.DataFrame, columns: tuple[str, ...]) -> pl.DataFrame:
    """Rows with hashes of what is in them, and of which copy each is."""
    known = [c for c in columns if c not in ROW]
    rows = rows.with_columns(pair(CONTENT, rows, known))
    rows = rows.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).over(*CONTENT).alias("$copy"))
    return rows.with_columns(pair(ROW, rows, (*CONTENT, "$copy")))


def _aggregated(spec: Chained, rows: pl.DataFrame) -> pl.DataFrame:
    """The aggregates of every group over its rows."""
    what = spec.what
    assert isinstance(what, Regroup)
    view = Aggregation(view_of(spec.step), spec.keys, Windowing(), what.measures, ())
    partials = combine(view, _numbered(what, rows), [*GROUP, *spec.keys]).sort(GROUP)
    found = partials.select(*spec.keys, *results(view, partials))
    return found.with_columns(pair(CONTENT, found, [m.name for m in what.measures]))


def _numbered(what: Regroup, rows: pl.DataFrame) -> pl.DataFrame:
    """Rows in the order that first, last and the like go by: a time, if there is one, and then what is in them."""
    if not any(m.kind in ("first", "last", "first_of", "last_of", "collect", "user") for m in what.measures):
        return rows
    at = pl.col(what.order[0]).cast(pl.Int64) if what.order else pl.lit(0, pl.Int64)
    marked = rows.with_columns(at.alias("$ts"), pl.lit(0, pl.Int32).alias("$part"))
    ordered = marked.sort("$ts", *CONTENT, nulls_last=False)
    return ordered.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("$pos"))


def _difference(spec: Chained, before: pl.DataFrame, after: pl.DataFrame) -> pl.DataFrame:
    """The changes from one set of results to another."""
    name, whole_row = list(_PLACE), [*_PLACE, *CONTENT]
    old, new = before, after
    if len(before) and len(after):
        old = before.join(after, on=whole_row, how="anti", maintain_order="left")
        new = after.join(before, on=whole_row, how="anti", maintain_order="left")
    if not len(old) or not len(new):
        rows, op = (new, "+I") if len(new) else (old, "-D")
        return rows.select(pl.lit(op).alias(OP), *spec.result)
    parts = [
        (old.join(new, on=name, how="anti", maintain_order="left"), "-D"),
        (old.join(new, on=name, how="semi", maintain_order="left"), "-U"),
        (new.join(old, on=name, how="anti", maintain_order="left"), "+I"),
        (new.join(old, on=name, how="semi", maintain_order="left"), "+U"),
    ]
    return pl.concat([rows.select(pl.lit(op).alias(OP), *spec.result) for rows, op in parts])
