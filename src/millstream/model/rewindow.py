"""Windows over rows that change: each row gets the borders of its windows as columns, and is grouped by them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from millstream.errors import Unsupported
from millstream.model.accumulation import Accumulation
from millstream.model.expression import col, expr
from millstream.model.origin import here
from millstream.model.reserved import free_name
from millstream.model.step import Select
from millstream.model.times import nearest
from millstream.model.trigger import ON_CHANGE, ON_CLOSE
from millstream.model.window import Window
from millstream.model.window_kinds import AnyWindow, Cumulating
from millstream.model.windowing import Windowing

if TYPE_CHECKING:
    from millstream.model.aggregate import Aggregate
    from millstream.model.keyed import Keyed
    from millstream.model.stream import Stream

_BORDERS = ("window_start", "window_end")


def with_borders(stream: Stream, window: AnyWindow, time: str) -> Stream:
    """Rows with `window_start` and `window_end` of the window that a time falls into; one copy for each of several."""
    if not isinstance(window, Window | Cumulating) or window.is_global:
        raise Unsupported(
            f"`{window}` over rows one by one, or over rows that change",
            detail="its borders are known only when it has closed",
            hint="tumbling, hopping and cumulating windows can be used here",
            origin=here(),
        )
    at = f"unix_micros(`{time}`)"
    if isinstance(window, Window) and window.is_tumbling:
        assert window.size is not None
        made = stream.with_columns(window_start=f"timestamp_micros({window.slice_sql(at)})")
        made = made.with_columns(window_end=f"timestamp_micros(unix_micros(window_start) + {window.size.micros}L)")
    else:
        array = free_name("windows_of_row", stream.schema.names)
        each = free_name("e", [time]), free_name("w", [time])
        made = stream._flattened(array, _borders(window, at, each))
        kept = {n: col(n) for n in stream.schema.names if n not in _BORDERS}
        made = made._project((*kept.items(), *((b, expr(f"{array}.{b}")) for b in _BORDERS)))
    assert isinstance(made.step, Select)
    return made._with(replace(made.step, after=(("window_end", time),)))


def aggregated(keyed: Keyed, aggregates: dict[str, Aggregate]) -> Stream:
    """Aggregates per key and window over rows that change."""
    how, stream = keyed.windowing, keyed.stream
    plain = how.accumulation is Accumulation.RETRACTING and not how.lateness.micros and how.panes is None
    if not plain or how.trigger not in (ON_CHANGE, ON_CLOSE):
        raise Unsupported(
            f"`{how}` over rows that change",
            hint="windows that answer on_change() or on_close(), without panes or lateness, can be used here",
            origin=here(),
        )
    time = keyed.time or nearest(stream.step, certain=False)
    if time is None or time not in stream.schema:
        raise Unsupported(
            "a window needs a time, and no column is one here",
            hint='name it: .window(..., time="window_end")',
            origin=here(),
        )
    rows = with_borders(stream, how.window, time)
    borders = {"window_start": col("window_start"), "window_end": col("window_end")}
    made = replace(keyed, stream=rows, keys=(*borders.items(), *keyed.keys), windowing=Windowing(), time=None)
    found = made.aggregate(**aggregates)
    return found.settled("window_end") if how.trigger == ON_CLOSE else found


def _borders(window: Window | Cumulating, at: str, each: tuple[str, str]) -> str:
    """Spark SQL for the windows of a time: an array of structs. `each` are names for the parameters of its lambdas."""
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
    made = f"named_struct('window_start', timestamp_micros({start}), 'window_end', timestamp_micros({end}))"
    return f"transform({ends}, {e} -> {made})"
