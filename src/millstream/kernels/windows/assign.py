"""Window assignment: maps a record's time, or a slice of time, to the windows over it, in columns ``$s`` and ``$e``.

Windows that consist of slices (aligned and cumulating ones) are assigned late, to partials; others are assigned early,
to rows. Custom windows are assigned late if the kernel must know which records it refused: to partials of one event
time. The slice and pane kernels use the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl

from millstream.clock import ALL_READ, BEGINNING, END_OF_TIME, Micros
from millstream.errors import UserCodeFailed
from millstream.kernels.windows.slice_times import window_ends
from millstream.model.windows.kinds import Calendar, Cumulating, Custom, SessionWindow, Span
from millstream.model.windows.trigger import finishes
from millstream.model.windows.window import Window
from millstream.plan.operators.aggregates.aggregation import Aggregation

_TRUNCATE = {"day": "1d", "week": "1w", "month": "1mo", "quarter": "1q", "year": "1y"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICRO = timedelta(microseconds=1)


def by_slices(spec: Aggregation) -> bool:
    """Whether rows are combined by slice, and windows assembled from slices."""
    if isinstance(spec.window, Custom):  # a slice is one event time
        return spec.window.merge is not None or finishes(spec.windowing.trigger)
    return isinstance(spec.window, Window | Cumulating)


def sliced(spec: Aggregation, frame: pl.DataFrame) -> pl.DataFrame:
    """Replace times in ``$s`` by the starts of their slices."""
    window = spec.window
    if isinstance(window, Cumulating):
        width, offset = window.step.micros, window.offset.micros
    else:
        assert isinstance(window, Window)
        if window.size is None:
            return frame.with_columns(pl.lit(0, pl.Int64).alias("$s"))
        width, offset = window.slice.micros, window.offset.micros
    return frame.with_columns((pl.col("$s") - (pl.col("$s") - offset) % width).alias("$s"))


def rows(spec: Aggregation, frame: pl.DataFrame) -> pl.DataFrame:
    """Rows (``$s`` is their time; ``$gap`` where a session needs it) with their windows; one row per window."""
    window = spec.window
    if isinstance(window, SessionWindow):
        if window.gap is not None:
            return frame.with_columns((pl.col("$s") + window.gap.micros).alias("$e"))
        return frame.filter(pl.col("$gap") > 0).with_columns((pl.col("$s") + pl.col("$gap")).alias("$e")).drop("$gap")
    if isinstance(window, Calendar):
        return _in_calendar(window, frame)
    assert isinstance(window, Custom)
    return _custom(window, frame)


def slices(spec: Aggregation, frame: pl.DataFrame, after: Micros) -> pl.DataFrame:
    """Partials of slices (kept in ``$slice``), copied to the windows over them that end after an instant."""
    window = spec.window
    frame = frame.with_columns(pl.col("$s").alias("$slice"))
    if isinstance(window, Cumulating):
        return _cumulated(window, frame, after)
    if isinstance(window, Custom):
        windowed = _custom(window, frame)
        return windowed if window.merge is not None else windowed.filter(pl.col("$e") > after)
    assert isinstance(window, Window)
    if window.size is None:
        return frame.with_columns(pl.lit(ALL_READ, dtype=pl.Int64).alias("$e"))
    ended = window_ends(window, frame, after)
    return ended.with_columns((pl.col("$end") - window.size.micros).alias("$s")).rename({"$end": "$e"})


def slice_borders(spec: Aggregation) -> tuple[pl.Expr, pl.Expr]:
    """Start and end of the slice in ``$slice``."""
    window = spec.window
    if isinstance(window, Cumulating):
        return pl.col("$slice"), pl.col("$slice") + window.step.micros
    if isinstance(window, Custom):
        return pl.col("$slice"), pl.col("$slice") + 1
    assert isinstance(window, Window)
    if window.size is None:
        return pl.lit(BEGINNING, dtype=pl.Int64), pl.lit(ALL_READ, dtype=pl.Int64)
    return pl.col("$slice"), pl.col("$slice") + window.slice.micros


def sessions(frame: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Rows or partials of sessions, each with the span of the whole session it belongs to."""
    merged = spans(frame, keys)
    return merged.with_columns(pl.col("$s2").alias("$s"), pl.col("$e2").alias("$e")).drop("$s2", "$e2")


def spans(frame: pl.DataFrame, keys: Sequence[str], merge: Custom | None = None) -> pl.DataFrame:
    """For windows (``$h``, keys, ``$s``, ``$e``; rows may repeat): the merged window of each, as ``$s2`` and ``$e2``.
    Windows that overlap or touch are merged transitively, or as a custom function decides.
    """
    by = ["$h", *keys]
    if merge is not None:
        return _merged_by(merge, frame, by)
    ordered = frame.sort([*by, "$s"], maintain_order=True)
    if not len(ordered):
        return ordered.with_columns(pl.col("$s").alias("$s2"), pl.col("$e").alias("$e2"))
    changed = ordered.select(pl.any_horizontal(pl.col(c).ne_missing(pl.col(c).shift(1)) for c in by)).to_series()
    key_begins = changed.to_numpy().copy()
    key_begins[0] = True
    starts, ends = ordered["$s"].to_numpy(), ordered["$e"].to_numpy()
    begins = key_begins.copy()
    begins[1:] |= starts[1:] > _reach(ends, key_begins)[:-1]
    first = np.flatnonzero(begins)
    lengths = np.diff(np.append(first, len(ordered)))
    return ordered.with_columns(
        pl.Series("$s2", np.repeat(starts[first], lengths), dtype=pl.Int64),
        pl.Series("$e2", np.repeat(np.maximum.reduceat(ends, first), lengths), dtype=pl.Int64),
    )


def _reach(ends: np.ndarray, key_begins: np.ndarray) -> np.ndarray:
    """The running maximum of the ends, restarted at every key. Keys are shifted so far apart that one maximum serves
    all.
    """
    least = int(ends.min())
    width = int(ends.max()) - least + 1
    keys = np.cumsum(key_begins) - 1
    if width * (int(keys[-1]) + 1) >= END_OF_TIME:  # too far apart for 64 bits, so go key by key
        reach = ends.copy()
        for part in np.split(np.arange(len(ends)), np.flatnonzero(key_begins)[1:]):
            reach[part] = np.maximum.accumulate(ends[part])
        return reach
    shifted = (ends - least) + keys * width
    reached: np.ndarray = np.maximum.accumulate(shifted) - keys * width + least
    return reached


def cycle_start(window: Cumulating, starts: np.ndarray) -> np.ndarray:
    """The start of the cycle that each slice belongs to."""
    size, offset = window.size.micros, window.offset.micros
    return (starts - offset) // size * size + offset


def _cumulated(window: Cumulating, frame: pl.DataFrame, after: Micros) -> pl.DataFrame:
    step = window.step.micros
    starts = frame["$s"].to_numpy()
    cycle = cycle_start(window, starts)
    last = cycle + window.size.micros
    first = starts + step
    first = np.maximum(first, np.where(after >= first, first + ((after - first) // step + 1) * step, first))
    counts = np.maximum((last - first) // step + 1, 0)
    chosen = np.repeat(np.arange(len(frame)), counts)
    places = np.arange(len(chosen)) - np.repeat(np.cumsum(counts) - counts, counts)
    ends = first[chosen] + places * step
    return frame[pl.Series(chosen, dtype=pl.UInt32)].with_columns(
        pl.Series("$s", cycle[chosen], dtype=pl.Int64), pl.Series("$e", ends, dtype=pl.Int64)
    )


def _in_calendar(window: Calendar, frame: pl.DataFrame) -> pl.DataFrame:
    every = _TRUNCATE[window.unit]
    local = pl.from_epoch("$s", time_unit="us").dt.replace_time_zone("UTC").dt.convert_time_zone(window.zone)
    wall = local.dt.replace_time_zone(None).dt.truncate(every).alias("$wall")
    times = frame.select(pl.col("$s").unique()).with_columns(wall)
    following = pl.col("$wall").dt.offset_by(every)
    days = times.select(pl.col("$wall").unique()).with_columns(
        _instant(pl.col("$wall"), window.zone).alias("$start"),
        _instant(following, window.zone).alias("$end"),
        _instant(following.dt.offset_by(every), window.zone).alias("$after"),
    )
    again = pl.col("$s") >= pl.col("$end")  # clocks set back across midnight: a day ends at the first midnight
    borders = times.join(days, on="$wall", how="left").select(
        "$s",
        pl.when(again).then("$end").otherwise("$start").alias("$s2"),
        pl.when(again).then("$after").otherwise("$end").alias("$e"),
    )
    joined = frame.join(borders, on="$s", how="left", maintain_order="left")
    return joined.with_columns(pl.col("$s2").alias("$s")).drop("$s2")


def _instant(wall: pl.Expr, zone: str) -> pl.Expr:
    """The instant of a local midnight, or of the first instant of its day if the clock skips midnight."""
    instants = wall.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
    skipped = [
        wall.dt.offset_by(by).dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
        for by in ("15m", "30m", "40m", "45m", *(f"{hours}h" for hours in range(1, 9)), "1d")
    ]
    return pl.coalesce(instants, *skipped).dt.convert_time_zone("UTC").dt.epoch("us")


def _custom(window: Custom, frame: pl.DataFrame) -> pl.DataFrame:
    times = frame["$s"].unique().sort().to_list()
    spans_by_time: list[tuple[int, int, int]] = []
    for time in times:
        try:
            windows = list(window.assign(_EPOCH + time * _MICRO))
        except Exception as error:
            raise _failed(window, "assign", error) from error
        spans = sorted({_checked(window, span) for span in windows})
        if window.merge is not None and len(spans) > 1:
            raise UserCodeFailed(
                f"the custom window {window.name} merges, but returned {len(spans)} windows for one record",
                detail="a record would count twice in the window they become",
                hint="with merge, assign must return one window per record",
            )
        spans_by_time += [(time, *span) for span in spans]
    borders = pl.DataFrame(spans_by_time, schema={"$s": pl.Int64, "$s2": pl.Int64, "$e": pl.Int64}, orient="row")
    joined = frame.join(borders, on="$s", how="inner", maintain_order="left")
    return joined.with_columns(pl.col("$s2").alias("$s")).drop("$s2")


def _merged_by(window: Custom, frame: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    assert window.merge is not None
    distinct = frame.select(*by, "$s", "$e").unique().sort([*by, "$s", "$e"])
    parts: list[pl.DataFrame] = []
    for part in distinct.partition_by(by, maintain_order=True):
        input_windows = list(zip(part["$s"].to_list(), part["$e"].to_list(), strict=True))
        try:
            merged = list(window.merge([(_EPOCH + s * _MICRO, _EPOCH + e * _MICRO) for s, e in input_windows]))
        except Exception as error:
            raise _failed(window, "merge", error) from error
        become = [_checked(window, span) for span in merged]
        homes = [next(((a, b) for a, b in become if a <= s and e <= b), None) for s, e in input_windows]
        if None in homes:
            raise UserCodeFailed(
                f"the merge of the custom window {window.name} returned no window that contains "
                f"{input_windows[homes.index(None)]}",
                hint="every input window must lie within one of the returned windows",
            )
        parts.append(
            part.with_columns(
                pl.Series("$s2", [h[0] for h in homes if h], dtype=pl.Int64),
                pl.Series("$e2", [h[1] for h in homes if h], dtype=pl.Int64),
            )
        )
    return frame.join(pl.concat(parts), on=[*by, "$s", "$e"], how="left", nulls_equal=True, maintain_order="left")


def _checked(window: Custom, span: Span) -> tuple[int, int]:
    try:
        start, end = (_micros(t) for t in span)
    except (TypeError, ValueError) as error:
        raise _failed(window, "assign or merge", error) from error
    if end <= start:
        raise UserCodeFailed(
            f"the custom window {window.name} returned a window that ends before it begins: {span}",
            hint="return pairs of datetimes, start before end",
        )
    return start, end


def _micros(time: object) -> int:
    if not isinstance(time, datetime):
        msg = f"{time!r} is not a datetime"
        raise TypeError(msg)
    return (time.replace(tzinfo=time.tzinfo or UTC) - _EPOCH) // _MICRO


def _failed(window: Custom, where: str, error: Exception) -> UserCodeFailed:
    return UserCodeFailed(
        f"the custom window {window.name} failed in {where}: {type(error).__name__}: {error}",
        hint="fix the function and start the flow again; it resumes where it stopped",
    )
