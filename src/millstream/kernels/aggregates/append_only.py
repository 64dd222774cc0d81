"""Aggregates over a chained stage's rows that only grow: one row of partials per key, in the place of all the rows."""

from __future__ import annotations

import numpy as np
import polars as pl

from millstream.kernels.aggregates.combine import combine, fold, partial_columns, results
from millstream.kernels.aggregates.partials import is_exact
from millstream.kernels.outcome import Outcome, StageClock, State
from millstream.kernels.relations.changes import GROUP, arrived, expiry, hashes_of, held
from millstream.model.reserved import OP
from millstream.model.windows.windowing import Windowing
from millstream.plan.stages import Aggregation, Chained, Regroup, view_of


def fits(spec: Chained) -> bool:
    """Whether partials are enough: nothing is taken back, and no aggregate goes by the order of rows."""
    what = spec.what
    return isinstance(what, Regroup) and spec.grows and not what.order and all(is_exact(m) for m in what.measures)


def advance(spec: Chained, changes: pl.DataFrame | None, state: State, clock: StageClock) -> Outcome:
    """Run one epoch: fold the rows that came into what is known of their keys."""
    if changes is None or not len(changes):
        return Outcome(None, None, np.empty(0, dtype=np.int64))
    what = spec.what
    assert isinstance(what, Regroup)
    view = Aggregation(view_of(spec.step), spec.keys, Windowing(), what.measures, ())
    by = [*GROUP, *spec.keys]
    came = combine(view, arrived(spec.sides[0], spec.keys, changes, clock, ()), by)
    before = held(state, hashes_of(came), clock)
    parts = [came]
    if before is not None and len(before):
        before = before.select(came.columns).join(came, on=list(GROUP), how="semi")
        parts.insert(0, before)
    after = came if len(parts) == 1 else fold(view, pl.concat(parts, how="vertical_relaxed"), by)
    after = after.sort(GROUP)
    marks = [pl.col("$g").alias("$a"), pl.lit(0, pl.Int64).alias("$b"), expiry(spec, clock).alias("$x")]
    gone = pl.lit(value=False).alias("$gone")
    kept = after.select(*GROUP, *marks, gone, "$n", *spec.keys, *partial_columns(view, after))
    return Outcome(_changes(spec, view, before, after), kept, kept["$x"].to_numpy())


def _changes(spec: Chained, view: Aggregation, before: pl.DataFrame | None, after: pl.DataFrame) -> pl.DataFrame | None:
    """What the answers of keys were and are, where they differ."""
    new = after.select(*GROUP, *spec.keys, *results(view, after))
    if before is None or not len(before):
        return new.select(pl.lit("+I").alias(OP), *spec.result)
    old = before.select(*GROUP, *spec.keys, *results(view, before))
    measures = [m.name for m in view.measures]
    both = new.join(old.select(*GROUP, *measures), on=list(GROUP), how="left", maintain_order="left", suffix="$was")
    there = new.join(old.select(GROUP), on=list(GROUP), how="semi", maintain_order="left").select(GROUP)
    changed = both.filter(pl.any_horizontal(pl.col(m).ne_missing(pl.col(f"{m}$was")) for m in measures)).select(GROUP)
    touched = there.join(changed, on=list(GROUP), how="semi", maintain_order="left")
    parts = [
        (old.join(touched, on=list(GROUP), how="semi").sort(GROUP), "-U"),
        (new.join(there, on=list(GROUP), how="anti", maintain_order="left"), "+I"),
        (new.join(touched, on=list(GROUP), how="semi", maintain_order="left"), "+U"),
    ]
    found = pl.concat([rows.select(pl.lit(op).alias(OP), *spec.result) for rows, op in parts])
    return found if len(found) else None
