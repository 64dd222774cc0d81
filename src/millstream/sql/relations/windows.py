"""Windows in SQL: table functions in FROM, functions in GROUP BY, and Spark's own functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from millstream.errors import DefinitionError, SchemaError, Unsupported
from millstream.model.expression import col
from millstream.model.steps.aggregation import INDEX, Aggregated
from millstream.model.steps.columns import plain_column
from millstream.model.steps.event_times import times_of
from millstream.model.steps.relations.stored_table import TableRows
from millstream.model.steps.step import Select, Source, Step, changes, inputs
from millstream.model.streams.stream import Stream
from millstream.model.types.duration import Duration
from millstream.model.windows import borders
from millstream.model.windows.borders import with_time
from millstream.model.windows.kinds import (
    AnyWindow,
    Calendar,
    SessionWindow,
    calendar,
    count_window,
    cumulating,
    session,
)
from millstream.model.windows.window import hopping, tumbling
from millstream.model.windows.window_columns import has_watermark, with_borders
from millstream.sql.parse.text import Text, plain_value
from millstream.sql.relations.relation import BORDERS, Relation, WindowedColumns

STARTS = {"tumble_start", "hop_start", "session_start", "window_start"}
ENDS = {"tumble_end", "hop_end", "session_end", "window_end"}
TIMES = {"tumble_rowtime", "hop_rowtime", "session_rowtime", "tumble_proctime", "window_time"}
GROUPING = {"tumble", "hop", "cumulate", "session", "window", "session_window", "count_window", "calendar"}
_SHAPES = {
    "tumble": ("size", "offset"),
    "hop": ("slide", "size", "offset"),
    "cumulate": ("step", "size", "offset"),
    "session": ("gap",),
    "count_window": ("size", "slide"),
    "calendar": ("unit", "zone"),
    "window": ("size", "slide", "offset"),
    "session_window": ("gap",),
}
_FORMS = {
    "tumble": "TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)",
    "hop": "HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND): first the slide, then the size",
    "cumulate": "CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '1' DAY): first the step, then the size",
    "session": "SESSION(TABLE t PARTITION BY user, DESCRIPTOR(ts), INTERVAL '30' MINUTE)",
    "count_window": "COUNT_WINDOW(TABLE t, 100), or COUNT_WINDOW(TABLE t, 100, 10) for one every 10 rows",
    "calendar": "CALENDAR(TABLE t, DESCRIPTOR(ts), 'day', 'Europe/Berlin')",
    "window": "window(ts, '10 seconds', '5 seconds')",
    "session_window": "session_window(ts, '30 minutes')",
}


@dataclass(frozen=True)
class WindowTableCall:
    """The call of a window function."""

    name: str
    table: str | None
    time: exp.Expr | None
    partition: tuple[exp.Expr, ...]
    values: dict[str, exp.Expr]
    node: exp.Expr


def name_of(node: exp.Expr) -> str:
    """The lower-case name of a function without a class in sqlglot."""
    return str(node.this).lower() if isinstance(node, exp.Anonymous) else ""


def table_call(text: Text, node: exp.Anonymous) -> WindowTableCall:
    """A window function in FROM: its table, its time, then its lengths; by position or by name."""
    name = name_of(node)
    arguments = list(node.expressions)
    table = partition = time = None
    named: dict[str, exp.Expr] = {}
    placed: list[exp.Expr] = []
    for argument in arguments:
        if isinstance(argument, exp.Kwarg | exp.PropertyEQ):
            named[argument.this.name.lower()] = argument.expression
        elif name_of(argument) == "partition_by":
            partition = tuple(argument.expressions)
        else:
            placed.append(argument)
    table = named.pop("data", None) or (placed.pop(0) if placed else None)
    if not isinstance(table, exp.Column) or len(table.parts) != 1:
        raise _wrong(text, node, name, "it begins with a table")
    if name != "count_window":
        time = named.pop("timecol", None) or (placed.pop(0) if placed else None)
        if name_of(time) == "descriptor" if time is not None else False:
            time = time.expressions[0] if time is not None and time.expressions else None
        if not isinstance(time, exp.Column):
            raise _wrong(text, node, name, "the time follows the table: DESCRIPTOR(ts)")
    return WindowTableCall(name, table.name, time, partition or (), _lengths(text, node, name, placed, named), node)


def group_call(text: Text, node: exp.Anonymous) -> WindowTableCall:
    """A window function in GROUP BY: its time, then its lengths."""
    name = name_of(node)
    placed = list(node.expressions)
    time = placed.pop(0) if placed and name != "count_window" else None
    if name != "count_window" and not isinstance(time, exp.Column):
        raise _wrong(text, node, name, "it begins with the time column")
    return WindowTableCall(name, None, time, (), _lengths(text, node, name, placed, {}), node)


def check_border(text: Text, node: exp.Expr, window: AnyWindow) -> None:
    """Reject ``TUMBLE_START(ts, INTERVAL '1' MINUTE)`` over windows of another length, whose start it would return."""
    kind, _, border = name_of(node).partition("_")
    if kind not in ("tumble", "hop", "session") or not border or len(node.expressions) < 2:
        return
    call = group_call(text, exp.Anonymous(this=kind, expressions=[e.copy() for e in node.expressions]))
    call_window = window_of(text, call)
    computed = [isinstance(w, SessionWindow) and w.gap_by is not None for w in (call_window, window)]
    if computed[0] != computed[1] or (not computed[0] and call_window != window):  # computed gaps are not compared
        raise DefinitionError(
            f"`{node.sql(dialect='spark')[:60]}` is not the window of GROUP BY",
            hint="write the same arguments as in GROUP BY, or window_start and window_end",
            origin=text.of_node(node),
        )


def window_of(text: Text, call: WindowTableCall) -> AnyWindow:
    """The window of a call."""
    v = call.values
    with text.at(call.node):
        if call.name == "count_window":
            return count_window(
                _number(text, call, "size"), slide=_number(text, call, "slide") if "slide" in v else None
            )
        if call.name == "calendar":
            zone = {"zone": _string(text, call, "zone")} if "zone" in v else {}
            return calendar(_string(text, call, "unit"), **zone)
        if call.name in ("session", "session_window"):
            gap = _duration(text, v["gap"], optional=True)
            return session(gap) if gap is not None else session(gap_by=v["gap"].sql(dialect="spark"))
        offset = _duration(text, v["offset"]) if "offset" in v else Duration(0)
        assert offset is not None
        size = _duration(text, v["size"])
        assert size is not None
        if call.name == "cumulate":
            step = _duration(text, v["step"])
            assert step is not None
            return cumulating(step, size, offset=offset)
        slide = _duration(text, v["slide"]) if "slide" in v else size
        assert slide is not None
        return tumbling(size, offset=offset) if slide == size else hopping(size, slide, offset=offset)


def windowed(text: Text, call: WindowTableCall, relation: Relation) -> Relation:
    """A relation with a window that a later GROUP BY applies."""
    time = check_time(text, call, relation)
    named = (*BORDERS, INDEX) if call.name == "count_window" else BORDERS
    clash = [n for n in relation.stream.schema.names if n.lower() in named and not _is_border(relation.stream.step, n)]
    if clash:
        raise SchemaError(
            f"`{clash[0]}` is a column of the rows, and of their windows",
            hint=f"rename it first: WITH renamed AS (SELECT {clash[0]} AS other_name, ... FROM ...)",
            origin=text.of_node(call.node),
        )
    columns = tuple(relation.resolved(text, p).name for p in call.partition)
    pending = WindowedColumns(window_of(text, call), columns, time)
    windowed_relation = Relation(relation.stream, relation.aliases, relation.times, relation.clocks, pending)
    return windowed_relation.called(next(iter(relation.aliases), None))


def _is_border(step: Step, name: str) -> bool:
    """Whether a column is a bound of an earlier window, which the new one replaces."""
    return changes(step) and (name in times_of(step, certain=False) or not _is_given(step, name))


def _is_given(step: Step, name: str) -> bool:
    """Whether a column is an unchanged column of a source or a table."""
    if isinstance(step, Source | TableRows):
        return name in step.schema
    named = dict(step.columns if isinstance(step, Select) else step.keys if isinstance(step, Aggregated) else ())
    if isinstance(step, Select | Aggregated):
        inner = plain_column(named[name]) if name in named else None
        return inner is not None and _is_given(step.input, inner)
    return any(name in s.schema and _is_given(s, name) for s in inputs(step))


def rows(text: Text, relation: Relation, node: exp.Expr) -> Relation:
    """The individual rows of a window function, each with the bounds of its window (one copy per window)."""
    pending = relation.windowed
    assert pending is not None
    time = pending.time or next(iter(sorted(relation.times)), None)
    if time is None or time in relation.clocks:
        raise Unsupported(
            "the rows of this window function without GROUP BY are not supported",
            hint="add GROUP BY window_start, window_end, ...",
            origin=text.of_node(node),
        )
    with text.at(node):
        keys = tuple((n, col(n)) for n in pending.partition)
        stream = with_borders(known_times(relation, pending.window, time), pending.window, time, keys)
        stream = stream.with_columns(window_time="window_end - INTERVAL '1' MILLISECOND")
    aliases = {a: {**c, **{b: b for b in BORDERS}} for a, c in relation.aliases.items()}
    return Relation(stream, aliases, relation.times, relation.clocks)


def known_times(relation: Relation, window: AnyWindow, time: str) -> Stream:
    """The rows of a relation without those that are in no window because their time column is NULL. (An event time is
    never NULL; calendar windows and sessions exclude such rows themselves.)
    """
    stream = relation.stream
    if isinstance(window, SessionWindow | Calendar) or has_watermark(stream, time):
        return stream
    return with_time(stream, time)


def check_time(text: Text, call: WindowTableCall, relation: Relation) -> str | None:
    """The time column of a window: any TIMESTAMP or DATE. A watermark determines the end of a window only for event
    times, and for the processing time of a source without an event time.
    """
    if call.time is None:
        return None
    column = relation.resolved(text, call.time)
    name, spelling = column.name, call.time.sql(dialect="spark")[:60]
    if not isinstance(column, exp.Column):
        raise Unsupported(
            f"a window over `{spelling}`, a field of a column",
            hint=f"make it a column first: FROM (SELECT *, {spelling} AS happened FROM ...)",
            origin=text.of_node(call.time),
        )
    if name in relation.clocks:
        if relation.times:
            raise Unsupported(
                f"a window over `{name}`, a PROCTIME() in a query over a source with a WATERMARK",
                hint=f"declare it as a column of the source: CREATE SOURCE ... ({name} AS PROCTIME(), ...)",
                origin=text.of_node(call.time),
            )
    elif name not in relation.times:
        with text.at(call.time):
            borders.check_time(relation.stream, name)
    return name


def _lengths(
    text: Text, node: exp.Expr, name: str, placed: Sequence[exp.Expr], named: dict[str, exp.Expr]
) -> dict[str, exp.Expr]:
    shape = _SHAPES[name]
    if len(placed) > len(shape):
        raise _wrong(text, node, name, f"at most {len(shape)} values can follow")
    values = {**dict(zip(shape, placed, strict=False)), **named}
    unknown = [n for n in values if n not in shape]
    if unknown:
        raise _wrong(text, node, name, f"there is no `{unknown[0]}`")
    needed = {"tumble": ("size",), "hop": ("slide", "size"), "cumulate": ("step", "size"), "calendar": ("unit",)}
    missing = [n for n in needed.get(name, shape[:1]) if n not in values]
    if missing:
        raise _wrong(text, node, name, f"its {missing[0]} is missing")
    return values


def _duration(text: Text, node: exp.Expr, *, optional: bool = False) -> Duration | None:
    if isinstance(node, exp.Literal) and node.is_string:
        with text.at(node):
            return Duration.of(str(node.this), what="the length of a window")
    if isinstance(node, exp.Interval) and isinstance(node.this, exp.Literal) and node.unit is not None:
        with text.at(node):
            return Duration.of(f"{node.this.this} {node.unit.name.lower()}", what="the length of a window")
    if optional:
        return None
    raise DefinitionError(
        f"`{node.sql(dialect='spark')[:60]}` is not a duration",
        hint="e.g. INTERVAL '10' SECOND",
        origin=text.of_node(node),
    )


def _number(text: Text, call: WindowTableCall, what: str) -> int:
    try:
        value = plain_value(call.values[what])
    except ValueError:
        value = None
    if not isinstance(value, int):
        raise _wrong(text, call.node, call.name, f"its {what} is a whole number")
    return value


def _string(text: Text, call: WindowTableCall, what: str) -> str:
    try:
        return str(plain_value(call.values[what]))
    except ValueError:
        raise _wrong(text, call.node, call.name, f"its {what} is a string") from None


def _wrong(text: Text, node: exp.Expr, name: str, why: str) -> DefinitionError:
    return DefinitionError(
        f"{name.upper()} cannot be read: {why}", hint=f"e.g. {_FORMS[name]}", origin=text.of_node(node)
    )
