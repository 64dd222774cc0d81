"""The slice kernel: folds an epoch's partials into slices that windows share, and emits the changes of the windows.

It serves aligned windows that emit on change or on close. Within an epoch, windows that the watermark has passed close
first, on the state before this epoch (rows of this epoch are late for them). Then the rows are folded in and the
windows they touch are recomputed; windows that have closed are recomputed only within the allowed lateness.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from millstream.clock import END_OF_TIME
from millstream.kernels.aggregates.combine import fold, group_columns, results
from millstream.kernels.outcome import Kept, OperatorClock, Outcome, State, together
from millstream.kernels.windows.slice_times import closes_between, expiry, window_ends
from millstream.model.reserved import OP
from millstream.model.windows.trigger import ON_CLOSE
from millstream.model.windows.window import Window
from millstream.plan.operators.aggregates.aggregation import Aggregation

TIMESTAMP = pl.Datetime("us", "UTC")

CLOSE_ROWS = 2_000_000
"""Slices are copied to closing windows in ranges of about this many rows."""


def advance(spec: Aggregation, partials: pl.DataFrame | None, state: State, clock: OperatorClock) -> Outcome:
    """Run one epoch of an aggregation. `partials` hold one row per key and slice, and none that is late."""
    changes = []
    on_close, late = spec.windowing.trigger == ON_CLOSE, spec.windowing.lateness.micros
    if on_close and closes_between(spec.grid, clock.before, clock.watermark):
        closed = _close(spec, state, clock)
        if closed is not None:
            changes.append(closed)
    if partials is None or not len(partials):
        return Outcome(together(changes))
    columns = group_columns(spec)
    hashes = partials["$h"].unique().sort().to_numpy()
    held = state.lookup(hashes, clock.watermark)
    old = None if held is None else held.join(partials.select(columns), on=columns, how="semi", nulls_equal=True)
    some = (
        old.filter(pl.col("$n") > 0) if old is not None and spec.is_never_empty else old
    )  # removes the row that stood for no rows
    folded = _fold_in(spec, some, partials, columns)
    if not on_close or late:
        upto = clock.watermark if on_close else END_OF_TIME
        changes.append(_revise(spec, held, old, folded, clock.horizon(spec), upto))
    return Outcome(together(changes), {"windows": Kept(folded, leaving(spec, folded))})


def leaving(spec: Aggregation, rows: pl.DataFrame) -> np.ndarray:
    """When each slice leaves state: when no window over it accepts late records any more."""
    ends = expiry(spec.grid, rows["$s"].to_numpy())
    leaves: np.ndarray = np.minimum(ends + spec.windowing.lateness.micros, END_OF_TIME)
    return leaves


def _fold_in(spec: Aggregation, old: pl.DataFrame | None, partials: pl.DataFrame, columns: list[str]) -> pl.DataFrame:
    if old is None or not len(old):
        return partials
    together = pl.concat([old.select(partials.columns), partials], how="vertical_relaxed", rechunk=False)
    return fold(spec, together, columns).select(partials.columns)


def _close(spec: Aggregation, state: State, clock: OperatorClock) -> pl.DataFrame | None:
    """The final results of the windows that end in (before, watermark]."""
    held = state.scan(clock.before)
    if held is None:
        return None
    answers = []
    for after, upto in _stretches(spec.grid, held, clock):
        windows = _by_window(spec, held, after, upto)
        if len(windows):
            answers.append(_rows(spec, windows, "+I"))
    return together(answers)


def _stretches(window: Window, held: pl.DataFrame, clock: OperatorClock) -> Iterator[tuple[int, int]]:
    """Cut (before, watermark] at window ends, so that few slices are copied to their windows at a time."""
    assert window.size is not None and window.slide is not None
    slide = window.slide.micros
    starts = held["$s"].to_numpy()
    first = max(clock.before, int(starts.min()))
    last = min(clock.watermark, int(expiry(window, starts).max()))
    copies = len(held) * max(1, window.size.micros // slide)
    width = max(slide, (last - first) // max(1, copies // CLOSE_ROWS) // slide * slide)
    while first < last:
        yield first, min(first + width, last)
        first += width


def _revise(
    spec: Aggregation,
    held: pl.DataFrame | None,
    old: pl.DataFrame | None,
    new: pl.DataFrame,
    ended: int,
    upto: int,
) -> pl.DataFrame:
    """The changed results of windows over the changed slices that end in (ended, upto]."""
    if spec.grid.is_global or spec.grid.is_tumbling:
        before, after = old, new
        if not spec.grid.is_global:
            before = None if old is None else window_ends(spec.grid, old, ended, upto)
            after = window_ends(spec.grid, new, ended, upto)
    else:
        where = [c for c in group_columns(spec) if c != "$s"] + ["$end"]
        touched = window_ends(spec.grid, new.select(group_columns(spec)), ended, upto).select(where).unique()
        changed = group_columns(spec)
        others = None if held is None else held.join(new.select(changed), on=changed, how="anti", nulls_equal=True)
        now = new if others is None else pl.concat([others.select(new.columns), new], how="vertical_relaxed")
        before = None if held is None else _touched(spec, held, touched, where, ended, upto)
        after = _touched(spec, now, touched, where, ended, upto)
    return _compare(spec, before, after)


def _touched(
    spec: Aggregation, slices: pl.DataFrame, touched: pl.DataFrame, where: list[str], ended: int, upto: int
) -> pl.DataFrame:
    expanded = window_ends(spec.grid, slices.sort("$s"), ended, upto)
    return fold(spec, expanded.join(touched, on=where, how="semi", nulls_equal=True, maintain_order="left"), where)


def _by_window(spec: Aggregation, slices: pl.DataFrame, after: int, upto: int) -> pl.DataFrame:
    if spec.grid.is_tumbling:
        return window_ends(spec.grid, slices, after, upto)
    assert spec.grid.size is not None
    within = slices.filter((pl.col("$s") < upto) & (pl.col("$s") >= after - spec.grid.size.micros))
    expanded = window_ends(spec.grid, within.sort("$s"), after, upto)
    return fold(spec, expanded, [c for c in group_columns(spec) if c != "$s"] + ["$end"])


def _compare(spec: Aggregation, before: pl.DataFrame | None, after: pl.DataFrame) -> pl.DataFrame:
    """Changes from the old results to the new: +I if there was none, else -U and +U if they differ."""
    new = _rows(spec, after, "+I")
    if before is None or not len(before):
        return new
    old = _rows(spec, before, "-U")
    identity = list(spec.identity)
    shown = [m.name for m in spec.measures]
    if not identity:
        if old.select(shown).equals(new.select(shown)):
            return new.clear()
        new = new.with_columns(pl.lit("+U").alias(OP))
        return pl.concat([old, new]) if spec.retract else new
    same = _unchanged(old, new, identity, shown)
    if len(same):
        old = old.join(same, on=identity, how="anti", nulls_equal=True)
        new = new.join(same, on=identity, how="anti", nulls_equal=True)
    marked = new.join(old.select(*identity, pl.lit(1).alias("$old")), on=identity, how="left", nulls_equal=True)
    op = pl.when(pl.col("$old").is_not_null()).then(pl.lit("+U")).otherwise(pl.lit("+I")).alias(OP)
    new = marked.with_columns(op).drop("$old")
    return pl.concat([old, new]) if spec.retract else new


def _unchanged(old: pl.DataFrame, new: pl.DataFrame, identity: list[str], shown: list[str]) -> pl.DataFrame:
    """The old results that equal the new ones."""
    if not any(isinstance(new.schema[c], pl.List | pl.Struct) for c in shown):
        return old.join(new, on=identity + shown, how="semi", nulls_equal=True)
    renamed = new.select(*identity, *(pl.col(c).alias(f"{c}$new") for c in shown))
    both = old.join(renamed, on=identity, how="inner", nulls_equal=True)
    return both.filter(pl.all_horizontal(pl.col(c).eq_missing(pl.col(f"{c}$new")) for c in shown)).select(old.columns)


def _rows(spec: Aggregation, windows: pl.DataFrame, op: str) -> pl.DataFrame:
    """Result rows: op, window borders, keys, results."""
    borders = []
    if spec.borders:
        assert spec.grid.size is not None
        start = (pl.col("$end") - spec.grid.size.micros).cast(TIMESTAMP)
        borders = [start.alias("window_start"), pl.col("$end").cast(TIMESTAMP).alias("window_end")]
    answers = results(spec, windows)
    return windows.select(pl.lit(op).alias(OP), *borders, *spec.keys, *answers)
