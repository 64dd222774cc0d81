"""Window bounds as columns: the Spark SQL for windows over any time column, and sessions built from window functions.

Windows over event time have their own kernels (`kernels/windows/assign.py`), which know when a window closes. A column
without a watermark has none: there a window is a group like any other, and its bounds are computed from the row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.errors import SchemaError, Unsupported
from millstream.model.expression import Expr, col, expr
from millstream.model.origin import here
from millstream.model.reserved import free_name
from millstream.model.steps.columns import Named, Order, plain_column
from millstream.model.steps.relations.window_function import WindowFunction
from millstream.model.steps.step import Source, changes, upstream
from millstream.model.types.schema import ddl_type
from millstream.model.windows.kinds import Calendar, Cumulating, SessionWindow
from millstream.model.windows.window import Window

if TYPE_CHECKING:
    from millstream.model.streams.stream import Stream

BORDERS = ("window_start", "window_end")
_PERIODS = {
    "day": "INTERVAL '1' DAY",
    "week": "INTERVAL '7' DAY",
    "month": "INTERVAL '1' MONTH",
    "quarter": "INTERVAL '3' MONTH",
    "year": "INTERVAL '1' YEAR",
}


def check_time(stream: Stream, time: str) -> None:
    """Reject a column that cannot be the time of windows."""
    kind = stream.schema.field(time, origin=here()).type
    if kind is not None and not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
        raise SchemaError(
            f"a window needs a TIMESTAMP or a DATE, but `{time}` is {ddl_type(kind)}",
            hint=f"convert it first: SELECT *, timestamp_millis({time}) AS happened FROM ...",
            origin=here(),
        )


def with_time(stream: Stream, time: str) -> Stream:
    """The rows that have a time: a row without one is in no window."""
    return stream.where(f"`{time}` IS NOT NULL")


def micros_of(stream: Stream, time: str) -> str:
    """Spark SQL for a time in micros."""
    kind = stream.schema.field(time, origin=here()).type
    is_date = kind is not None and pa.types.is_date(kind)
    return f"unix_micros(CAST(`{time}` AS TIMESTAMP))" if is_date else f"unix_micros(`{time}`)"


def overlapping(window: Window | Cumulating, at: str, each: tuple[str, str]) -> str:
    """Spark SQL for the windows of a time, as an array of structs. `each` names the parameters of its lambdas."""
    e, w = each
    if isinstance(window, Cumulating):
        size, step, offset = window.size.micros, window.step.micros, window.offset.micros
        first = f"({at} - pmod({at} - {offset}L, {size}L))"
        ends = f"sequence({at} - pmod({at} - {offset}L, {step}L) + {step}L, {first} + {size}L, {step}L)"
        start, end = first, e
    else:
        assert window.size is not None and window.slide is not None
        size, slide, offset = window.size.micros, window.slide.micros, window.offset.micros
        last = f"({at} - pmod({at} - {offset}L, {slide}L) + {size}L)"
        ends = f"filter(sequence({last} - {size // slide * slide}L, {last}, {slide}L), {w} -> {w} > {at})"
        start, end = f"{e} - {size}L", e
    borders = f"named_struct('window_start', timestamp_micros({start}), 'window_end', timestamp_micros({end}))"
    return f"transform({ends}, {e} -> {borders})"


def in_calendar(window: Calendar, at: str) -> tuple[str, str]:
    """Spark SQL for the bounds of the local day (week, month, ...) that contains a time in micros.

    If the clock is set back across midnight, a day ends the first time it is midnight, as in the kernels.
    """
    zone = window.zone.replace("'", "''")
    wall = f"date_trunc('{window.unit.upper()}', from_utc_timestamp(timestamp_micros({at}), '{zone}'))"
    period = _PERIODS[window.unit]
    borders = [f"to_utc_timestamp({wall}, '{zone}')"]
    borders += [f"to_utc_timestamp({wall}{f' + {period}' * n}, '{zone}')" for n in (1, 2)]
    start, end, after = (f"unix_micros({b})" for b in borders)
    again = f"{at} >= {end}"
    return f"IF({again}, {end}, {start})", f"IF({again}, {after}, {end})"


def in_sessions(stream: Stream, keys: Named, window: SessionWindow, time: str) -> tuple[Stream, str, str]:
    """Rows with the start of their session and their own end (their time plus the gap), both in micros, and the names
    of these columns. Sessions that touch are merged, as in the kernels.

    A row starts a session if its time is after the end of all rows before it; its session starts at the last such row.
    """
    source = next((s for s in upstream(stream.step) if isinstance(s, Source) and s.options.corrections), None)
    if source is not None and not changes(stream.step):
        raise Unsupported(
            f"sessions cannot be combined with the corrections of the source `{source.name}` yet",
            hint="docs/limits.md lists what can",
            origin=here(),
        )
    names_in_use = list(stream.schema.names)
    end, reach, begins, start = (free_name(n, names_in_use) for n in ("row_end", "reach", "begins", "session_start"))
    at, parts = micros_of(stream, time), _partition(keys)
    gap = f"{window.gap.micros}L" if window.gap is not None else _gap(window)
    rows = with_time(stream, time).with_columns(**{end: f"{at} + {gap}"})
    if window.gap is None:
        rows = rows.where(f"`{end}` > {at}")
    order = [Order(expr(at))]
    before = (
        WindowFunction("lag", col(end))
        if window.gap is not None
        else WindowFunction("max", col(end), frame=("rows", None, -1))
    )
    rows = rows._windowed(parts, order, {reach: before})
    rows = rows.with_columns(**{begins: f"CASE WHEN `{reach}` IS NULL OR {at} > `{reach}` THEN {at} END"})
    rows = rows._windowed(parts, order, {start: WindowFunction("max", col(begins))})
    kept = tuple((n, col(n)) for n in (*names_in_use, end, start))
    return rows._project(kept), start, end


def session_rows(stream: Stream, keys: Named, window: SessionWindow, time: str) -> Stream:
    """Individual rows, each with the bounds of its session."""
    names = [n for n in stream.schema.names if n not in BORDERS]
    rows, start, own = in_sessions(stream, keys, window, time)
    end = free_name("session_end", rows.schema.names)
    rows = rows._windowed((*_partition(keys), (start, col(start))), [], {end: WindowFunction("max", col(own))})
    borders = (
        ("window_start", expr(f"timestamp_micros(`{start}`)")),
        ("window_end", expr(f"timestamp_micros(`{end}`)")),
    )
    return rows._project((*((n, col(n)) for n in names), *borders))


def _partition(keys: Named) -> Named:
    return tuple((n if plain_column(e) == n else f"$p{i}", e) for i, (n, e) in enumerate(keys))


def _gap(window: SessionWindow) -> str:
    assert isinstance(window.gap_by, Expr)
    return f"unix_micros(TIMESTAMP '1970-01-01 00:00:00+00:00' + ({window.gap_by.spark()}))"
