"""The pane kernel: keeps one row per key and window, with partials, trigger state and the last shown results.

An epoch has two halves (docs/decisions/0008-panes.md): the clock advances, then records arrive. `_Windows` is the table
of the windows to process. Both halves evaluate the trigger over it and emit panes for the windows that fire.

This is the state of all windows that are not made of slices, sessions included. `kernels/windows/window_state.py` lists
its columns; `Aggregation.states` names those that identify a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from millstream.clock import ALL_READ, END_OF_TIME, Micros
from millstream.kernels.aggregates.combine import fold, partial_columns
from millstream.kernels.frames import concat_rows
from millstream.kernels.outcome import (
    BEHIND,
    DUE_BY_CLOCK,
    DUE_BY_FRACTION,
    DUE_BY_WATERMARK,
    FINISHED,
    Dropped,
    OperatorClock,
    Outcome,
    State,
    StateRows,
    due_columns,
)
from millstream.kernels.windows import assign
from millstream.kernels.windows.corrections import Revised, revise
from millstream.kernels.windows.count_windows import keys_of
from millstream.kernels.windows.firing import Firing, answers, shown_names
from millstream.kernels.windows.triggers import Machine, Moment
from millstream.kernels.windows.window_state import (
    ARRIVED_AT,
    FIRST_UNSHOWN,
    FLAGS,
    MERGED_FIRST,
    MERGED_UNSHOWN,
    NEW_RECORDS,
    ON_TIME_PAST,
    PANE_STATE,
    PANES,
    UNSHOWN,
    VISIBLE,
    shown_column,
    trigger_columns,
)
from millstream.model.windows.kinds import CountWindow, Custom
from millstream.plan.operators.aggregates.aggregation import Aggregation


def identity(spec: Aggregation) -> list[str]:
    """The columns that make a row of this kernel's state unique."""
    return ["$h", "$s", "$e", *spec.keys]


def _leaving(spec: Aggregation, rows: pl.DataFrame) -> np.ndarray:
    """When each window leaves state: its end plus the allowed lateness."""
    leaves: np.ndarray = np.minimum(rows["$end"].to_numpy() + spec.windowing.lateness.micros, END_OF_TIME - 1)
    return leaves


def advance(
    spec: Aggregation, partials: pl.DataFrame | None, state: State, clock: OperatorClock, records: State | None = None
) -> Outcome:
    """Run one epoch of an operator. `partials` are combined rows by slice or by window (see
    `kernels/windows/assign.py`). For count windows they are the rows themselves, and `records` is the state of kept
    rows.
    """
    epoch = _Epoch(spec, state, clock)
    if spec.corrected:
        assert records is not None
        return epoch.corrected(partials, records)
    windows = epoch.lookup(partials)
    expired = epoch.clock_moves(windows)
    has_records = partials is not None and len(partials) > 0
    if isinstance(spec.window, CountWindow):
        assert records is not None
        return epoch.counted(windows, expired, partials if has_records else None, records)
    if has_records:
        assert partials is not None
        arrivals = assign.slices(spec, partials, clock.horizon(spec)) if assign.by_slices(spec) else partials
        epoch.records_come(windows, arrivals)
    return epoch.outcome()


@dataclass
class _Windows:
    """The windows to process: their rows, and the state of their trigger."""

    rows: pl.DataFrame
    machine: Machine

    def moment(self, clock: OperatorClock) -> Moment:
        return Moment(self.rows["$end"].to_numpy(), clock.watermark, clock.now, clock.fractions)


@dataclass
class _Epoch:
    spec: Aggregation
    state: State
    clock: OperatorClock
    new_state: list[pl.DataFrame] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.firing = Firing(self.spec, self.clock)

    def lookup(self, partials: pl.DataFrame | None) -> _Windows | None:
        """The windows of all keys that have records or are due."""
        hashes = self.state.due(due_columns(self.clock), self.clock.before)
        if partials is not None and len(partials):
            hashes = np.sort(np.concatenate([hashes, partials["$h"].to_numpy()]))
            hashes = hashes[np.concatenate(([True], hashes[1:] != hashes[:-1]))]
        state_rows = self.state.lookup(hashes, self.clock.before) if len(hashes) else None
        if state_rows is None:
            return None
        rows = state_rows.filter((pl.col("$x") > self.clock.before) & ~pl.col("$gone"))
        return self._windows(rows) if len(rows) else None

    def clock_moves(self, windows: _Windows | None) -> pl.DataFrame | None:
        """The first half: windows fire or expire by the clock alone. Live windows stay in `windows`. Returns those that
        expired.
        """
        if windows is None:
            return None
        rows, machine, moment = windows.rows, windows.machine, windows.moment(self.clock)
        due = np.logical_or.reduce([rows[c].to_numpy() <= upto for c, (_, upto) in due_columns(self.clock).items()])
        unfinished = ~machine.finished
        unshown = rows[UNSHOWN].to_numpy() > 0
        on_time = ~rows[ON_TIME_PAST].to_numpy() & (moment.end <= self.clock.watermark)
        ready = machine.ready(moment) & unfinished & (unshown | on_time)
        expired = _leaving(self.spec, rows) <= self.clock.watermark
        closing = expired & unfinished & unshown
        machine.fire(ready, moment)
        windows.rows = after = self.firing.fire(rows, ready | closing, machine.finished, expired, by_clock=True)
        self._keep(windows, (due | ready) & ~expired)
        self._bury(windows, expired)
        windows.rows = after.with_columns(_trigger_state(machine)).filter(pl.Series(~expired))
        machine.columns = [c[~expired] for c in machine.columns]
        return after.filter(pl.Series(expired))

    def records_come(self, windows: _Windows | None, arrivals: pl.DataFrame) -> None:
        """The second half: records are assigned to windows, windows merge, and windows with new records may fire."""
        targeted, gone = self._targets(windows, arrivals)
        arrivals = self._refuse(windows, targeted, gone)
        if not len(arrivals) and (gone is None or not len(gone)):
            return
        self._changed(self._with_records(windows, arrivals, gone))

    def corrected(self, arrivals: pl.DataFrame | None, records: State) -> Outcome:
        """An epoch of records that revise others: the windows they touch are recomputed."""
        revised = (
            Revised() if arrivals is None or not len(arrivals) else revise(self.spec, records, self.clock, arrivals)
        )
        windows = self.lookup(revised.contents)
        self.clock_moves(windows)
        self.dropped += revised.dropped
        if revised.contents is not None:
            empty = revised.contents.filter(pl.col("$n") == 0)
            if windows is not None and len(empty):
                self._emptied(windows, empty)
            filled = revised.contents.filter(pl.col("$n") > 0)
            if len(filled):
                self._contents(windows, filled)
        return self.outcome(revised.records)

    def _emptied(self, windows: _Windows, empty: pl.DataFrame) -> None:
        """Remove windows that have lost their last record from the view and from state."""
        rows = windows.rows.join(empty, on=identity(self.spec), how="semi", nulls_equal=True)
        if len(rows):
            self.firing.gone(rows)
            dead = _dead(rows)
            self.new_state.append(_in_order(self.spec, dead))

    def counted(
        self, windows: _Windows | None, expired: pl.DataFrame | None, arrivals: pl.DataFrame | None, records: State
    ) -> Outcome:
        """The second half for count windows: rows are renumbered, and windows recomputed over them."""
        keys = keys_of(self.spec, records, self.clock, expired, arrivals)
        if keys is None:
            return self.outcome()
        if expired is not None and len(expired):
            keys.let_go(expired)
        if arrivals is not None:
            self.dropped += keys.take(arrivals)
            contents = keys.contents()
            if contents is not None:
                done = self._contents(windows, contents)
                if len(done):
                    keys.let_go(done)
        return self.outcome(keys.changed())

    def _contents(self, windows: _Windows | None, contents: pl.DataFrame) -> pl.DataFrame:
        """Replace changed windows with their complete contents; they may fire. Returns those that have expired."""
        where = identity(self.spec)
        old = None if windows is None else windows.rows.join(contents, on=where, how="semi", nulls_equal=True)
        return self._changed(self._with_pane_state(contents, old, None))

    def _changed(self, windows: _Windows) -> pl.DataFrame:
        """Fire windows with new records that are ready. A count window may be complete and expire at once."""
        machine, moment = windows.machine, windows.moment(self.clock)
        ready = machine.ready(moment) & (windows.rows[UNSHOWN].to_numpy() > 0)
        machine.fire(ready, moment)
        expired = _leaving(self.spec, windows.rows) <= self.clock.watermark
        windows.rows = self.firing.fire(windows.rows, ready | expired, machine.finished, expired, by_clock=False)
        self._keep(windows, ~expired)
        self._bury(windows, expired)
        return windows.rows.filter(pl.Series(expired))

    def outcome(self, records: pl.DataFrame | None = None) -> Outcome:
        """The outcome of the epoch. If a window was kept twice, the newer row counts. `records` are single rows to
        keep.
        """
        rows = concat_rows(self.new_state)
        if rows is not None:
            rows = rows.unique(identity(self.spec), keep="last", maintain_order=True)
        states = {"windows": rows, "records": records}
        state_rows = {n: StateRows(r, r["$x"].to_numpy()) for n, r in states.items() if r is not None}
        return Outcome(concat_rows(self.firing.changes), state_rows, concat_rows(self.firing.panes), self.dropped)

    def _windows(self, rows: pl.DataFrame) -> _Windows:
        width = Machine(self.spec.windowing.trigger).width
        return _Windows(
            rows, Machine(self.spec.windowing.trigger, [rows[c].to_numpy().copy() for c in trigger_columns(width)])
        )

    def _targets(self, windows: _Windows | None, arrivals: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """New partials with their target windows, and the held windows that are merged into another one (their new
        window in ``$s2``, ``$e2``).
        """
        if not self.spec.windowing.merges:
            return arrivals, None
        custom = self.spec.window if isinstance(self.spec.window, Custom) else None
        place = ["$h", "$s", "$e", *self.spec.keys]
        mine = arrivals.with_row_index("$a").select("$a", *place)
        known = mine.clear() if windows is None else windows.rows.select(pl.lit(None, pl.UInt32).alias("$a"), *place)
        by = ["$h", *self.spec.keys]
        known = known.join(mine.select(by).unique(), on=by, how="semi", nulls_equal=True)
        merged = assign.spans(pl.concat([known, mine]), self.spec.keys, custom)
        homes = merged.filter(pl.col("$a").is_not_null()).sort("$a")
        targeted = arrivals.with_columns(homes["$s2"].alias("$s"), homes["$e2"].alias("$e"))
        others = merged.filter(pl.col("$a").is_null()).drop("$a")
        grown = (pl.col("$s") != pl.col("$s2")) | (pl.col("$e") != pl.col("$e2"))
        moved = others.filter(grown | (pl.len().over([*by, "$s2", "$e2"]) > 1))
        return targeted, moved

    def _refuse(self, windows: _Windows | None, arrivals: pl.DataFrame, gone: pl.DataFrame | None) -> pl.DataFrame:
        """Drop arrivals whose window has expired or has a finished trigger (and does not restart), unless another
        window accepted them. The outcome reports them.
        """
        late = self.spec.windowing.lateness.micros
        behind = pl.col("$e") + late <= self.clock.watermark
        marked = arrivals.with_columns(pl.when(behind).then(pl.lit(BEHIND)).alias("$why"))
        if windows is not None:
            done = windows.rows.filter(pl.Series(windows.machine.finished)).select(
                *identity(self.spec), pl.lit(FINISHED).alias("$done")
            )
            if gone is not None:
                done = done.join(gone, on=identity(self.spec), how="anti", nulls_equal=True)
            if len(done):
                marked = marked.join(done, on=identity(self.spec), how="left", nulls_equal=True, maintain_order="left")
                marked = marked.with_columns(pl.coalesce("$why", "$done").alias("$why")).drop("$done")
        refused = marked.filter(pl.col("$why").is_not_null())
        if len(refused):
            marked = marked.filter(pl.col("$why").is_null())
            times = [pl.col("$s").alias("$from"), pl.col("$e").alias("$to")]
            if assign.by_slices(self.spec):
                by = ["$h", "$slice", *self.spec.keys]
                refused = refused.join(marked.select(by), on=by, how="anti", nulls_equal=True)
                refused = refused.group_by(*by, "$why").agg(pl.col("$e").max(), pl.col("$n").first())  # all windows
                start, end = assign.slice_borders(self.spec)
                times = [start.alias("$from"), end.alias("$to")]
            listed = refused.group_by("$h", *times, "$why").agg(pl.col("$e").max(), pl.col("$n").sum())
            self.dropped += [Dropped(*row) for row in listed.iter_rows()]
        return marked.drop("$why")

    def _with_records(self, windows: _Windows | None, arrivals: pl.DataFrame, gone: pl.DataFrame | None) -> _Windows:
        """The windows that received records, with their new contents and state."""
        spec, where = self.spec, identity(self.spec)
        parts = partial_columns(spec, arrivals)
        new_partials = fold(spec, arrivals.select(*where, "$n", *parts), where)
        count = new_partials.select(*where, pl.col("$n").alias(NEW_RECORDS))
        old = None if windows is None else windows.rows
        moved = self._moved(old, gone)
        same = None if old is None else old.join(new_partials.select(where), on=where, how="semi", nulls_equal=True)
        if same is not None and gone is not None:
            same = same.join(gone, on=where, how="anti", nulls_equal=True)
        before = [f.select(*where, "$n", *parts) for f in (moved, same) if f is not None and len(f)]
        if before:
            pieces = pl.concat([*before, new_partials.select(*where, "$n", *parts)], how="vertical_relaxed")
            filled = pieces.filter(pl.col("$n") > 0)
            contents = fold(spec, filled, where)
            if len(filled) < len(pieces):  # windows that merge may have discarded all their contents
                empty = pieces.unique(where).join(contents, on=where, how="anti", nulls_equal=True)
                contents = pl.concat([contents, empty.select(contents.columns)], how="vertical_relaxed")
        else:
            contents = new_partials
        frame = contents.join(count, on=where, how="left", nulls_equal=True, maintain_order="left")
        return self._with_pane_state(frame, same, moved)

    def _moved(self, old: pl.DataFrame | None, gone: pl.DataFrame | None) -> pl.DataFrame | None:
        """The rows of held windows that were merged into another window, under that window's identity."""
        if gone is None or old is None or not len(gone):
            return None
        rows = old.join(gone, on=identity(self.spec), how="inner", nulls_equal=True)
        if not len(rows):
            return None
        self.firing.gone(rows)
        rows = rows.sort("$h", "$s")
        dead = _dead(rows.drop("$s2", "$e2"))
        self.new_state.append(_in_order(self.spec, dead))
        return rows.with_columns(pl.col("$s2").alias("$s"), pl.col("$e2").alias("$e")).drop("$s2", "$e2")

    def _with_pane_state(self, frame: pl.DataFrame, same: pl.DataFrame | None, moved: pl.DataFrame | None) -> _Windows:
        """The windows with these contents, with the state of their panes and triggers after new records. `same` are the
        rows that state has for them, `moved` those of windows that were merged into them.
        """
        width = Machine(self.spec.windowing.trigger).width
        if "$end" not in frame.columns:
            frame = frame.with_columns(pl.col("$e").alias("$end"))
        frame = _with_old_state(self.spec, frame, same)
        is_new = frame[UNSHOWN].is_null()
        frame = _with_merged_records(self.spec, frame, moved, self.clock.now)
        frame = frame.with_columns(
            pl.when(pl.col(UNSHOWN).fill_null(0) > 0)
            .then(pl.col(FIRST_UNSHOWN))
            .otherwise(pl.col(ARRIVED_AT))
            .alias(FIRST_UNSHOWN),
            (pl.col(UNSHOWN).fill_null(0) + pl.col(NEW_RECORDS)).alias(UNSHOWN),
            pl.col(PANES).fill_null(0),
            pl.col(ON_TIME_PAST).fill_null(pl.col("$end") <= self.clock.watermark),
            pl.col(VISIBLE).fill_null(value=False),
            pl.lit(value=False).alias("$gone"),
            *(pl.col(c).fill_null(0) for c in trigger_columns(width)),
        )
        windows = self._windows(frame)
        windows.machine.reset(is_new.to_numpy())
        windows.machine.records(frame[NEW_RECORDS].to_numpy(), frame[ARRIVED_AT].to_numpy())
        windows.rows = frame.drop(NEW_RECORDS, ARRIVED_AT)
        return windows

    def _bury(self, windows: _Windows, expired: np.ndarray) -> None:
        """Delete windows whose end was not known from the start: they do not expire by themselves."""
        if isinstance(self.spec.window, CountWindow) and expired.any():
            windows = _Windows(_dead(windows.rows), windows.machine)
            self._keep(windows, expired)

    def _keep(self, windows: _Windows, which: np.ndarray) -> None:
        """Rows for state, with the trigger's columns and the next due times."""
        if not which.any():
            return
        chosen = pl.Series(which)
        ends = windows.rows["$end"].to_numpy()
        leaving = _leaving(self.spec, windows.rows)
        moves = isinstance(self.spec.window, CountWindow)
        new_state = windows.rows.with_columns(
            *_trigger_state(windows.machine),
            pl.Series(DUE_BY_WATERMARK, np.where(ends > self.clock.watermark, ends, leaving), dtype=pl.Int64),
            pl.Series(DUE_BY_FRACTION, windows.machine.fraction(ends, self.clock.earliest), dtype=pl.Int64),
            pl.Series(DUE_BY_CLOCK, windows.machine.deadline(self.clock.now), dtype=pl.Int64),
            pl.lit(ALL_READ, pl.Int64).alias("$x") if moves else pl.Series("$x", leaving, dtype=pl.Int64),
        )
        self.new_state.append(_in_order(self.spec, new_state.filter(chosen)))


def _trigger_state(machine: Machine) -> list[pl.Series]:
    names = trigger_columns(len(machine.columns))
    return [pl.Series(n, c, dtype=pl.Int64) for n, c in zip(names, machine.columns, strict=True)]


def _with_old_state(spec: Aggregation, frame: pl.DataFrame, same: pl.DataFrame | None) -> pl.DataFrame:
    """Windows with the state that earlier epochs left; NULL for a new window."""
    triggers = trigger_columns(Machine(spec.windowing.trigger).width)
    if same is not None and len(same):
        where = identity(spec)
        old = same.select(*where, *PANE_STATE, *triggers, *map(shown_column, shown_names(spec)))
        return frame.join(old, on=where, how="left", nulls_equal=True, maintain_order="left")
    types: dict[str, Any] = {c: pl.Boolean if c in FLAGS else pl.Int64 for c in (*PANE_STATE, *triggers)}
    types |= {shown_column(n): t for n, t in answers(spec, frame).schema.items()}
    return frame.with_columns(pl.lit(None, t).alias(c) for c, t in types.items())


def _with_merged_records(
    spec: Aggregation, frame: pl.DataFrame, moved: pl.DataFrame | None, now: Micros
) -> pl.DataFrame:
    """Windows with the number of new records and the time of the first. Unshown records of windows that were merged
    into another count as new there.
    """
    if moved is None:
        count, first = pl.col(NEW_RECORDS).fill_null(0), pl.lit(now, pl.Int64)
        return frame.with_columns(count.alias(NEW_RECORDS), first.alias(ARRIVED_AT))
    where = identity(spec)
    unshown = moved.group_by(where).agg(
        pl.col(UNSHOWN).sum().alias(MERGED_UNSHOWN),
        pl.col(FIRST_UNSHOWN).filter(pl.col(UNSHOWN) > 0).min().alias(MERGED_FIRST),
    )
    frame = frame.join(unshown, on=where, how="left", nulls_equal=True, maintain_order="left")
    count = pl.col(NEW_RECORDS).fill_null(0) + pl.col(MERGED_UNSHOWN).fill_null(0)
    first = pl.min_horizontal(pl.col(MERGED_FIRST).fill_null(now), pl.lit(now, pl.Int64))
    return frame.with_columns(count.alias(NEW_RECORDS), first.alias(ARRIVED_AT)).drop(MERGED_UNSHOWN, MERGED_FIRST)


def _in_order(spec: Aggregation, rows: pl.DataFrame) -> pl.DataFrame:
    """Put the columns of all state rows into one order."""
    first: Sequence[str] = [*identity(spec), "$end", "$n", *partial_columns(spec, rows)]
    return rows.select(*first, *sorted(c for c in rows.columns if c not in first))


def _dead(rows: pl.DataFrame) -> pl.DataFrame:
    """State rows that mark their windows as deleted."""
    return rows.with_columns(pl.lit(value=True).alias("$gone"))
