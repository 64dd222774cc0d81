"""Windows as groups: each row gets the bounds of its windows as columns and is grouped by them. This implements windows
over changing rows and over a time without a watermark.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from millstream.errors import Unsupported
from millstream.model.aggregates.aggregate import Aggregate
from millstream.model.expression import col, expr
from millstream.model.origin import here
from millstream.model.reserved import free_name
from millstream.model.steps.columns import Named
from millstream.model.steps.event_times import event_times, nearest, times_of
from millstream.model.steps.step import Select, changes
from millstream.model.windows.accumulation import Accumulation
from millstream.model.windows.borders import (
    BORDERS,
    check_time,
    in_calendar,
    in_sessions,
    micros_of,
    overlapping,
    session_rows,
    with_time,
)
from millstream.model.windows.kinds import AnyWindow, Calendar, CountWindow, Cumulating, SessionWindow
from millstream.model.windows.trigger import ON_CHANGE, ON_CLOSE
from millstream.model.windows.window import Window
from millstream.model.windows.windowing import Windowing

if TYPE_CHECKING:
    from millstream.model.streams.keyed import Keyed
    from millstream.model.streams.stream import Stream


def with_borders(stream: Stream, window: AnyWindow, time: str, keys: Named = ()) -> Stream:
    """Rows with `window_start` and `window_end` of the window that contains a time; one copy per window if there are
    several. Sessions are per key.
    """
    _refuse_kinds(window)
    check_time(stream, time)
    at = micros_of(stream, time)
    if isinstance(window, SessionWindow):
        return session_rows(stream, keys, window, time)
    if isinstance(window, Calendar):
        start, end = in_calendar(window, at)
        stream = with_time(stream, time)
        bordered = stream.with_columns(window_start=f"timestamp_micros({start})", window_end=f"timestamp_micros({end})")
    elif isinstance(window, Window) and window.is_tumbling:
        assert window.size is not None
        bordered = stream.with_columns(window_start=f"timestamp_micros({window.slice_sql(at)})")
        bordered = bordered.with_columns(
            window_end=f"timestamp_micros(unix_micros(window_start) + {window.size.micros}L)"
        )
    else:
        assert isinstance(window, Window | Cumulating)
        array = free_name("windows_of_row", stream.schema.names)
        each = free_name("e", [time]), free_name("w", [time])
        bordered = stream._flattened(array, overlapping(window, at, each))
        kept = {n: col(n) for n in stream.schema.names if n not in BORDERS}
        bordered = bordered._project((*kept.items(), *((b, expr(f"{array}.{b}")) for b in BORDERS)))
    assert isinstance(bordered.step, Select)
    return bordered._with(replace(bordered.step, after=(("window_end", time),)))


def has_watermark(stream: Stream, time: str) -> bool:
    """Whether a watermark covers a column: the event time, or a column derived from it."""
    step = stream.step
    return time in (times_of(step, certain=False) if changes(step) else event_times(step))


def aggregated(keyed: Keyed, aggregates: dict[str, Aggregate]) -> Stream:
    """Aggregates per key and window over changing rows, or over a time without a watermark."""
    how, stream = keyed.windowing, keyed.stream
    _refuse_kinds(how.window)
    time = keyed.time or nearest(stream.step, certain=False)
    if time is None or time not in stream.schema:
        raise Unsupported(
            "a window needs a time, and there is no time column here",
            hint='name it: .window(..., time="window_end")',
            origin=here(),
        )
    _check_how(how, stream, time)
    if isinstance(how.window, SessionWindow):
        return _by_session(keyed, how.window, time, aggregates)
    if not changes(stream.step):
        stream = with_time(stream, time)
    rows = with_borders(stream, how.window, time)
    borders = {"window_start": col("window_start"), "window_end": col("window_end")}
    grouped = replace(keyed, stream=rows, keys=(*borders.items(), *keyed.keys), windowing=Windowing(), time=None)
    aggregated_stream = grouped.aggregate(**aggregates)
    return aggregated_stream.settled("window_end") if how.trigger == ON_CLOSE else aggregated_stream


def _by_session(keyed: Keyed, window: SessionWindow, time: str, aggregates: dict[str, Aggregate]) -> Stream:
    """Aggregates per key and session."""
    check_time(keyed.stream, time)
    rows, start, own = in_sessions(keyed.stream, keyed.keys, window, time)
    end = free_name("session_end", [*rows.schema.names, *aggregates, *(n for n, _ in keyed.keys)])
    keys = ((start, col(start)), *keyed.keys)
    grouped = replace(keyed, stream=rows, keys=keys, windowing=Windowing(), time=None)
    aggregated_stream = grouped.aggregate(**{end: Aggregate("max", col(own))}, **aggregates)
    borders = zip(BORDERS, (expr(f"timestamp_micros(`{n}`)") for n in (start, end)), strict=True)
    names = (*(n for n, _ in keyed.keys), *aggregates)
    return aggregated_stream._project((*borders, *((n, col(n)) for n in names)))


def _refuse_kinds(window: AnyWindow) -> None:
    if isinstance(window, Window | Cumulating | Calendar | SessionWindow) and not window.is_global:
        return
    counted = isinstance(window, CountWindow)
    raise Unsupported(
        f"{'COUNT_WINDOW' if counted else f'`{window}`'} needs a GROUP BY over append-only rows with a watermark",
        detail="records are counted in the order of their event time"
        if counted
        else "its borders are known only when it has closed",
        hint="number the rows and group by the number: floor((row_number() OVER (ORDER BY ts) - 1) / 100)"
        if counted
        else "tumbling, hopping, cumulating, calendar and session windows can be used here",
        origin=here(),
    )


def _check_how(how: Windowing, stream: Stream, time: str) -> None:
    """Reject triggers, lateness and panes that need information which is not available here."""
    plain = how.accumulation is Accumulation.RETRACTING and not how.lateness.micros and how.panes is None
    if not has_watermark(stream, time):
        if plain and how.trigger == ON_CHANGE:
            return
        raise Unsupported(
            f"EMIT ON CLOSE, lateness and triggers need a watermark, and `{time}` has none",
            detail="windows over this column emit on change, never close, and no row is late for them",
            hint="leave EMIT, ALLOWED LATENESS and panes out, or use the event time of a source as the time",
            origin=here(),
        )
    if not plain or how.trigger not in (ON_CHANGE, ON_CLOSE):
        raise Unsupported(
            f"`{how}` over rows that change",
            hint="windows that emit on_change() or on_close(), without panes or lateness, can be used here",
            origin=here(),
        )
    if isinstance(how.window, SessionWindow) and how.trigger == ON_CLOSE:
        raise Unsupported(
            "sessions over rows that change cannot emit on close",
            detail="a row that changes may join two sessions that have ended",
            hint="let them emit on change, or use sessions over the records of a source",
            origin=here(),
        )
