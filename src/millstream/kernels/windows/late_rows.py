"""Late rows: which rows of a scan no window of an aggregation accepts any more.

A row is late if the last window over it ended at or before the watermark minus the allowed lateness. This module
decides it for all windows whose borders follow from a row alone. Elsewhere the decision needs more:

- windows that merge: `panes.py`, once the merged windows are known (`_refuse`)
- count windows: `count_windows.py`
- corrections: `corrections.py`, after a lookup of the record that is revised (`_refuse`)
- rows without a window: `kernels/relations/pass_through.py`

`kernels/intake.py` counts late rows; `engine/input/rejects.py` collects them for the ``$late`` table.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from millstream.clock import Micros
from millstream.kernels.windows import assign
from millstream.kernels.windows.slice_times import expiry
from millstream.model.windows.kinds import CountWindow, Cumulating
from millstream.model.windows.window import Window
from millstream.plan.operators.aggregates.aggregation import Aggregation


def in_time(spec: Aggregation, frame: pl.DataFrame, watermark: Micros) -> tuple[pl.DataFrame, pl.Series]:
    """The rows that some window still accepts (once per window, if windows are assigned to rows), and a mask of the
    late rows of the frame. For windows that merge, the kernel decides once it knows the merged windows.
    """
    ended = watermark - spec.windowing.lateness.micros
    if assign.by_slices(spec):
        ends = last_ends(spec, frame)
        late = ends.is_null() if spec.windowing.merges else (ends <= ended).fill_null(value=True)
        return (frame.filter(~late) if late.any() else frame), late
    if isinstance(spec.window, CountWindow):
        return frame, pl.repeat(value=False, n=len(frame), eager=True)
    windowed = assign.rows(spec, frame.with_row_index("$row"))
    if spec.windowing.merges:
        return windowed.drop("$row"), pl.Series(~np.isin(np.arange(len(frame)), windowed["$row"].to_numpy()))
    live = windowed.filter(pl.col("$e") > ended)
    late = pl.Series(~np.isin(np.arange(len(frame)), live["$row"].to_numpy()))
    return live.drop("$row"), late


def last_ends(spec: Aggregation, frame: pl.DataFrame) -> pl.Series:
    """The end of the last window of each row; null for a row that belongs to none."""
    if isinstance(spec.window, Window | Cumulating):
        return pl.Series("$e", last_end(spec, frame["$s"].to_numpy()), dtype=pl.Int64)
    numbered = frame.with_row_index("$row")
    ends = assign.rows(spec, numbered).group_by("$row").agg(pl.col("$e").max())
    return numbered.select("$row").join(ends, on="$row", how="left", maintain_order="left")["$e"]


def last_end(spec: Aggregation, starts: np.ndarray) -> np.ndarray:
    """The end of the last window over each slice."""
    window = spec.window
    if isinstance(window, Cumulating):
        return assign.cycle_start(window, starts) + window.size.micros
    assert isinstance(window, Window)
    return expiry(window, starts)
