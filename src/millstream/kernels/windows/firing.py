"""Firing: turns windows that fire into panes, changes of the view, and the windows' state afterwards.

The pane kernel calls it. It stores the results shown for a window with the window, as ``^name``. For count windows that
includes the borders, which move when a record arrives in between.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import polars as pl

from millstream.clock import BEGINNING, Micros
from millstream.kernels.aggregates.combine import partial_columns, results
from millstream.kernels.outcome import OperatorClock
from millstream.kernels.windows.window_state import ON_TIME_PAST, PANES, UNSHOWN, VISIBLE, shown_column
from millstream.model.reserved import OP
from millstream.model.steps.aggregation import INDEX
from millstream.model.windows.accumulation import Accumulation
from millstream.model.windows.kinds import CountWindow
from millstream.plan.operators.aggregates.aggregation import Aggregation

TIMESTAMP = pl.Datetime("us", "UTC")
EARLY, ON_TIME, LATE = "early", "on time", "late"
LAST_INSTANT = 253402300799_000000
"""The latest instant that is shown: the end of the year 9999."""


def shown_watermark(watermark: Micros) -> Micros | None:
    """A watermark for display: none before the first one, and the end of time as the end of the year 9999."""
    return None if watermark <= BEGINNING else min(watermark, LAST_INSTANT)


def shown_names(spec: Aggregation) -> list[str]:
    """The columns whose shown values are remembered."""
    moving = ["window_start", "window_end"] if isinstance(spec.window, CountWindow) else []
    return [*moving, *(m.name for m in spec.measures)]


def answers(spec: Aggregation, rows: pl.DataFrame) -> pl.DataFrame:
    """The results of windows, computed from their contents."""
    moving = []
    if isinstance(spec.window, CountWindow):
        moving = [
            pl.col("$from").cast(TIMESTAMP).alias("window_start"),
            pl.col("$to").cast(TIMESTAMP).alias("window_end"),
        ]
    return rows.select(*moving, *results(spec, rows))


def result_rows(spec: Aggregation, rows: pl.DataFrame, result_columns: pl.DataFrame, op: str) -> pl.DataFrame:
    """Result rows: op, borders, keys, results."""
    whole = pl.concat([rows.select("$s", "$e", *spec.keys), result_columns], how="horizontal")
    named = {
        INDEX: pl.col("$s").alias(INDEX),
        "window_start": pl.col("$s").cast(TIMESTAMP).alias("window_start"),
        "window_end": pl.col("$e").cast(TIMESTAMP).alias("window_end"),
    }
    borders = [pl.col(b) if b in result_columns.columns else named[b] for b in spec.borders]
    return whole.select(pl.lit(op).alias(OP), *borders, *spec.keys, *(m.name for m in spec.measures))


@dataclass
class Firing:
    """The panes and changes that an epoch of an operator emits."""

    spec: Aggregation
    clock: OperatorClock
    changes: list[pl.DataFrame] = field(default_factory=list)
    panes: list[pl.DataFrame] = field(default_factory=list)

    @property
    def discarding(self) -> bool:
        """Whether a pane covers new records only."""
        return self.spec.windowing.accumulation is Accumulation.DISCARDING

    def fire(
        self, rows: pl.DataFrame, fired: np.ndarray, finished: np.ndarray, expired: np.ndarray, *, by_clock: bool
    ) -> pl.DataFrame:
        """Emit the panes of the windows that fire. Returns all windows in their new state."""
        reached = rows["$end"].to_numpy() <= self.clock.watermark
        past = rows[ON_TIME_PAST].to_numpy()
        on_time = fired & reached & ~past & by_clock
        emitting = fired & ((rows[UNSHOWN].to_numpy() > 0) | on_time)
        rows = rows.with_columns(pl.Series(ON_TIME_PAST, past | (fired & reached)))
        if not emitting.any():
            return rows
        timing = np.where(on_time, ON_TIME, np.where(reached, LATE, EARLY))
        firing = rows.filter(pl.Series(emitting))
        new = self._nothing(firing, answers(self.spec, firing))
        self._give(firing, new, pl.Series(timing[emitting]), pl.Series((expired | finished)[emitting]))
        self._change(firing, new)
        return self._after(rows, emitting, new)

    def gone(self, rows: pl.DataFrame) -> None:
        """Remove windows that no longer exist from the view."""
        visible = rows.filter(pl.col(VISIBLE))
        if len(visible):
            self.changes.append(result_rows(self.spec, visible, self._old(visible), "-D"))

    def _nothing(self, firing: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
        """Results over no records (an empty pane in discarding mode)."""
        if not self.discarding or (firing["$n"] > 0).all():
            return new
        empty = firing["$n"] == 0
        zero = {"count": 0, "count_distinct": 0, "collect": [], "ordered_list": []}
        return new.with_columns(
            pl.when(empty)
            .then(pl.lit(zero.get(m.kind), dtype=new.schema[m.name]))
            .otherwise(pl.col(m.name))
            .alias(m.name)
            for m in self.spec.measures
            if m.user is None
        )

    def _give(self, firing: pl.DataFrame, new: pl.DataFrame, timing: pl.Series, last: pl.Series) -> None:
        if self.spec.windowing.panes is None:
            return
        watermark = shown_watermark(self.clock.watermark)
        marks = [
            firing[PANES].alias("pane"),
            timing.alias("timing"),
            (firing[PANES] == 0).alias("is_first"),
            last.alias("is_last"),
            pl.Series("watermark", [watermark] * len(firing), dtype=pl.Int64).cast(TIMESTAMP),
        ]
        row = result_rows(self.spec, firing, new, "").drop(OP)
        self.panes.append(pl.concat([row, pl.DataFrame(marks)], how="horizontal"))

    def _change(self, firing: pl.DataFrame, new: pl.DataFrame) -> None:
        """The changes of the view that a firing causes."""
        visible, differs = firing[VISIBLE], firing[UNSHOWN] > 0
        old = self._old(firing)
        if not self.discarding:
            same = visible
            for name in shown_names(self.spec):
                same = same & old[name].eq_missing(new[name])
            differs = differs & ~same
        first, again = differs & ~visible, differs & visible
        for op, chosen, result_columns in (("-U", again, old), ("+I", first, new), ("+U", again, new)):
            if chosen.any() and (op != "-U" or self.spec.retract):
                self.changes.append(result_rows(self.spec, firing, result_columns, op).filter(chosen))

    def _old(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.select(pl.col(shown_column(name)).alias(name) for name in shown_names(self.spec))

    def _after(self, rows: pl.DataFrame, emitting: np.ndarray, new: pl.DataFrame) -> pl.DataFrame:
        """The windows after firing: everything is shown, and discarded contents are removed."""
        fired = pl.Series(emitting)
        place = np.zeros(len(rows), dtype=np.uint32)
        place[emitting] = np.arange(len(new), dtype=np.uint32)
        spread = new[pl.Series(place)]
        mark = fired & (rows[UNSHOWN] > 0)
        visible = [
            pl.when(mark).then(spread[name]).otherwise(pl.col(shown_column(name))).alias(shown_column(name))
            for name in shown_names(self.spec)
        ]
        rows = rows.with_columns(
            (pl.col(PANES) + fired.cast(pl.Int64)).alias(PANES),
            pl.when(fired).then(0).otherwise(pl.col(UNSHOWN)).cast(pl.Int64).alias(UNSHOWN),
            (pl.col(VISIBLE) | mark).alias(VISIBLE),
            *visible,
        )
        if self.discarding:
            contents = partial_columns(self.spec, rows)
            rows = rows.with_columns(
                pl.when(fired).then(0).otherwise(pl.col("$n")).cast(pl.Int64).alias("$n"),
                *(pl.when(fired).then(None).otherwise(pl.col(c)).alias(c) for c in contents),
            )
        return rows
