"""Slice arithmetic on columns: which windows a slice belongs to (see `model/windows/window.py`). For the slice
kernel.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from millstream.clock import END_OF_TIME, Micros
from millstream.model.windows.window import Window


def expiry(window: Window, starts: np.ndarray) -> np.ndarray:
    """When each slice leaves state: the end of the last window over it."""
    if window.size is None or window.slide is None:
        return np.full(len(starts), END_OF_TIME, dtype=np.int64)
    slide, offset = window.slide.micros, window.offset.micros
    return (starts - offset) // slide * slide + offset + window.size.micros


def window_ends(window: Window, frame: pl.DataFrame, after: Micros, upto: Micros = END_OF_TIME) -> pl.DataFrame:
    """The frame with one row per window over each row's slice that ends in (after, upto], in column ``$end``."""
    if window.is_global:
        return frame.with_columns(pl.lit(END_OF_TIME, dtype=pl.Int64).alias("$end"))
    assert window.size is not None and window.slide is not None
    size, slide, offset = window.size.micros, window.slide.micros, window.offset.micros
    starts = frame["$s"].to_numpy()
    last = expiry(window, starts)
    first = -((starts + window.slice.micros - size - offset) // -slide) * slide + offset + size
    if after >= first.min(initial=END_OF_TIME):
        bound = (after - offset - size) // slide * slide + offset + size
        first = np.maximum(first, bound + slide if bound <= after else bound)
    if upto < END_OF_TIME:
        last = np.minimum(last, (upto - offset - size) // slide * slide + offset + size)
    counts = np.maximum((last - first) // slide + 1, 0)
    rows = np.repeat(np.arange(len(frame)), counts)
    offsets = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    ends = first[rows] + offsets * slide
    return frame[pl.Series(rows, dtype=pl.UInt32)].with_columns(pl.Series("$end", ends, dtype=pl.Int64))


def closes_between(window: Window, before: Micros, watermark: Micros) -> bool:
    """Whether some window may end in (before, watermark]."""
    if window.size is None or window.slide is None or watermark <= before:
        return False
    slide, offset = window.slide.micros, window.offset.micros + window.size.micros
    return (watermark - offset) // slide > (before - offset) // slide
