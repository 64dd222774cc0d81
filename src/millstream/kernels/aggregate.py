"""The aggregation kernel: fold an epoch's partials into state, and say what changed in the windows.

Order within an epoch: windows that the watermark has passed close first, on the state before this epoch (rows of this
epoch are late for them); then the rows are folded in and the open windows they touch are answered anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import polars as pl

from millstream.kernels.combine import fold, group_columns, results
from millstream.kernels.slices import closes_between, expiry, window_ends
from millstream.model.window import Window
from millstream.plan.stages import Aggregation

TIMESTAMP = pl.Datetime("us", "UTC")

CLOSE_ROWS = 2_000_000
"""Slices are copied to the windows that close in stretches of about this many rows."""


class State(Protocol):
    """State of one step as a kernel sees it (see `state/shard.py`)."""

    def lookup(self, hashes: np.ndarray, after: int) -> pl.DataFrame | None:
        """The rows for these hashes that expire after an instant."""
        ...

    def scan(self, after: int) -> pl.DataFrame | None:
        """All rows that expire after an instant."""
        ...


@dataclass(frozen=True)
class StageClock:
    """The watermarks a stage works by: that of the epoch before, and that of this one."""

    before: int
    watermark: int


@dataclass(frozen=True)
class Outcome:
    """What an epoch did to one stage: changes of its windows, and the state rows to keep with their expiry."""

    changes: pl.DataFrame | None
    rows: pl.DataFrame | None
    expiry: np.ndarray


def advance(spec: Aggregation, partials: pl.DataFrame | None, state: State, clock: StageClock) -> Outcome:
    """Run one epoch of an aggregation. `partials` hold one row per key and slice, and none that is late."""
    changes = []
    if spec.on_close and closes_between(spec.window, clock.before, clock.watermark):
        closed = _close(spec, state, clock)
        if closed is not None:
            changes.append(closed)
    if partials is None or not len(partials):
        return Outcome(_joined(changes), None, np.empty(0, dtype=np.int64))
    columns = group_columns(spec)
    hashes = partials["$h"].unique().sort().to_numpy()
    held = state.lookup(hashes, clock.watermark)
    old = None if held is None else held.join(partials.select(columns), on=columns, how="semi", nulls_equal=True)
    folded = _fold_in(spec, old, partials, columns)
    if not spec.on_close:
        changes.append(_revise(spec, held, old, folded, clock))
    return Outcome(_joined(changes), folded, expiry(spec.window, folded["$s"].to_numpy()))


def late(spec: Aggregation, starts: pl.Series, watermark: int) -> pl.Series:
    """Which slices are behind the watermark for every window over them."""
    return pl.Series(expiry(spec.window, starts.to_numpy()) <= watermark)


def _fold_in(spec: Aggregation, old: pl.DataFrame | None, partials: pl.DataFrame, columns: list[str]) -> pl.DataFrame:
    if old is None or not len(old):
        return partials
    together = pl.concat([old.select(partials.columns), partials], how="vertical_relaxed", rechunk=False)
    return fold(spec, together, columns).select(partials.columns)


def _close(spec: Aggregation, state: State, clock: StageClock) -> pl.DataFrame | None:
    """The final answers of the windows that end in (before, watermark]."""
    held = state.scan(clock.before)
    if held is None:
        return None
    answers = []
    for after, upto in _stretches(spec.window, held, clock):
        windows = _by_window(spec, held, after, upto)
        if len(windows):
            answers.append(_rows(spec, windows, "+I"))
    return _joined(answers)


def _stretches(window: Window, held: pl.DataFrame, clock: StageClock) -> Iterator[tuple[int, int]]:
    """(before, watermark] cut at window ends, so that the slices copied to their windows stay few at a time."""
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
    clock: StageClock,
) -> pl.DataFrame:
    """The changed answers of the open windows over the slices that changed."""
    if spec.window.is_global or spec.window.is_tumbling:
        before, after = old, new
        if not spec.window.is_global:
            before = None if old is None else window_ends(spec.window, old, clock.watermark)
            after = window_ends(spec.window, new, clock.watermark)
    else:
        where = [c for c in group_columns(spec) if c != "$s"] + ["$end"]
        touched = window_ends(spec.window, new.select(group_columns(spec)), clock.watermark).select(where).unique()
        changed = group_columns(spec)
        others = None if held is None else held.join(new.select(changed), on=changed, how="anti", nulls_equal=True)
        now = new if others is None else pl.concat([others.select(new.columns), new], how="vertical_relaxed")
        before = None if held is None else _touched(spec, held, touched, where, clock)
        after = _touched(spec, now, touched, where, clock)
    return _compare(spec, before, after)


def _touched(
    spec: Aggregation, slices: pl.DataFrame, touched: pl.DataFrame, where: list[str], clock: StageClock
) -> pl.DataFrame:
    expanded = window_ends(spec.window, slices.sort("$s"), clock.watermark)
    return fold(spec, expanded.join(touched, on=where, how="semi", nulls_equal=True, maintain_order="left"), where)


def _by_window(spec: Aggregation, slices: pl.DataFrame, after: int, upto: int) -> pl.DataFrame:
    if spec.window.is_tumbling:
        return window_ends(spec.window, slices, after, upto)
    assert spec.window.size is not None
    within = slices.filter((pl.col("$s") < upto) & (pl.col("$s") >= after - spec.window.size.micros))
    expanded = window_ends(spec.window, within.sort("$s"), after, upto)
    return fold(spec, expanded, [c for c in group_columns(spec) if c != "$s"] + ["$end"])


def _compare(spec: Aggregation, before: pl.DataFrame | None, after: pl.DataFrame) -> pl.DataFrame:
    """Changes from the old answers to the new: +I where there was none, else -U and +U where they differ."""
    new = _rows(spec, after, "+I")
    if before is None or not len(before):
        return new
    old = _rows(spec, before, "-U")
    identity = list(spec.identity)
    shown = [m.name for m in spec.measures]
    if not identity:
        if old.select(shown).equals(new.select(shown)):
            return new.clear()
        new = new.with_columns(pl.lit("+U").alias("op"))
        return pl.concat([old, new]) if spec.retract else new
    same = old.join(new, on=identity + shown, how="semi", nulls_equal=True) if _comparable(new, shown) else old.clear()
    if len(same):
        old = old.join(same, on=identity, how="anti", nulls_equal=True)
        new = new.join(same, on=identity, how="anti", nulls_equal=True)
    marked = new.join(old.select(*identity, pl.lit(1).alias("$old")), on=identity, how="left", nulls_equal=True)
    op = pl.when(pl.col("$old").is_not_null()).then(pl.lit("+U")).otherwise(pl.lit("+I")).alias("op")
    new = marked.with_columns(op).drop("$old")
    return pl.concat([old, new]) if spec.retract else new


def _comparable(frame: pl.DataFrame, columns: list[str]) -> bool:
    return not any(isinstance(frame.schema[c], pl.List | pl.Struct) for c in columns)


def _rows(spec: Aggregation, windows: pl.DataFrame, op: str) -> pl.DataFrame:
    """Result rows: op, window borders, keys, answers."""
    borders = []
    if spec.borders:
        assert spec.window.size is not None
        start = (pl.col("$end") - spec.window.size.micros).cast(TIMESTAMP)
        borders = [start.alias("window_start"), pl.col("$end").cast(TIMESTAMP).alias("window_end")]
    answers = results(spec, windows)
    return windows.select(pl.lit(op).alias("op"), *borders, *spec.keys, *answers)


def _joined(changes: list[pl.DataFrame]) -> pl.DataFrame | None:
    filled = [c for c in changes if len(c)]
    return pl.concat(filled, how="vertical_relaxed") if filled else None
