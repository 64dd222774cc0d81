"""Stream methods that call Python code: keyed processes, table functions, and lookups in external systems."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from millstream.errors import DefinitionError, SchemaError, Unsupported
from millstream.model.connectors import check_name
from millstream.model.expression import Expr, col
from millstream.model.origin import here
from millstream.model.python.function import Function
from millstream.model.python.process import FAIL, POLICIES, Hooks, Output, name_of
from millstream.model.python.typed_state import TypedState
from millstream.model.steps.columns import Named
from millstream.model.steps.event_times import times_of
from millstream.model.steps.lookup import Asked
from millstream.model.steps.process import TO, Processed, column_of
from millstream.model.steps.relations.hold_until import Settling
from millstream.model.steps.step import FlatMap, Select, Step, Where, changes
from millstream.model.types.duration import Duration
from millstream.model.types.schema import Field, Schema, ddl_type
from millstream.model.windows.windowing import Windowing

if TYPE_CHECKING:
    from millstream.model.flow import Flow
    from millstream.model.streams.process_outputs import ProcessedStream
    from millstream.model.streams.stream import Stream

Span = str | timedelta | Duration
_ROW = "$row"


class Operators:
    """Mixin for streams: operators that call Python functions row by row."""

    flow: Flow
    step: Step

    def flat_map_rows(
        self, function: Callable[..., Iterable[Any] | None], *, on: str | Sequence[str], schema: str | Schema
    ) -> Stream:
        """A table function: zero or more output rows per input row.

        The function is called with the columns `on` and returns rows of `schema` as tuples or dicts. An input row for
        which it returns nothing has no output rows. Output rows start with the columns of the input row.

        >>> import millstream as ms
        >>> bids = ms.Flow("shop").source("bids", ms.memory(), schema="text STRING")
        >>> def words(text):
        ...     return [(word, len(word)) for word in text.split()]
        >>> bids.flat_map_rows(words, on="text", schema="word STRING, length BIGINT").schema.names
        ('text', 'word', 'length')
        """
        if not callable(function):
            raise DefinitionError(f"{function!r} is not a function", origin=here())
        arguments = (on,) if isinstance(on, str) else tuple(on)
        mine = self.step.schema
        for column in arguments:
            mine.field(column, origin=here())
        added = _parsed(schema)
        name = self._registered(TableFunction(function, added))
        array = Expr(exp.Anonymous(this=name, expressions=[exp.column(c) for c in arguments]), here())
        return self._rows_of(array, added, added.names, keep_empty=False)

    def _rows_of(self, array: Expr, row_schema: Schema, names: Sequence[str], *, keep_empty: bool) -> Stream:
        """Each row combined with every struct of an array, whose fields become columns."""
        mine = self.step.schema
        added = Schema.of(Field(n, f.type) for n, f in zip(names, row_schema, strict=True))
        _refuse_taken(mine, added, "a table function")
        many = FlatMap(self.step, _ROW, array, keep_empty, Schema((*mine.fields, Field(_ROW, _struct(row_schema)))))
        columns = [(n, col(n)) for n in mine.names]
        for name, field in zip(names, row_schema, strict=True):
            path = exp.Dot(this=exp.column(_ROW), expression=exp.to_identifier(field.name))
            columns.append((name, Expr(path, here())))
        return self._with(Select(many, tuple(columns), Schema.of([*mine, *added])))

    def ask(
        self,
        function: Callable[[list[Any]], Any],
        *,
        on: str | Sequence[str],
        schema: str | Schema,
        required: bool = False,
        batch: int = 100,
        parallel: int = 8,
        timeout: Span | None = "10 seconds",
        retries: int = 3,
        cache: Span | None = None,
        errors: str = FAIL,
        redact: bool = False,
    ) -> Stream:
        """Add columns from a lookup function: a service, a model or another database.

        The function is called with a list of lookup values (the values of `on`; rows if `on` has several columns). It
        returns a list of results of `schema`: each is a tuple, a dict, or None for no result. The function may be
        ``async``. Up to `parallel` calls of `batch` lookups run concurrently. A call that exceeds `timeout` or raises
        is retried `retries` times. A result is cached for `cache`, by default permanently. Results are persisted before
        they are used, so an epoch that runs again sees the same results.
        """
        if not callable(function):
            raise DefinitionError(f"{function!r} is not a function", origin=here())
        if changes(self.step):
            raise Unsupported(
                "ask after a stateful step is not supported",
                hint="ask before the aggregate, or enrich from a stored table",
                origin=here(),
            )
        mine, added = self.step.schema, _without_maps(schema)
        names = (on,) if isinstance(on, str) else tuple(on)
        if not names:
            raise DefinitionError(
                "ask needs `on`: the columns that it passes to the function", hint="e.g. on='auction'", origin=here()
            )
        for column in names:
            mine.field(column, origin=here())
        _refuse_taken(mine, added, "ask")
        for what, number, least in (("batch", batch, 1), ("parallel", parallel, 1), ("retries", retries, 0)):
            if type(number) is not int or number < least:
                raise DefinitionError(f"{what}={number!r} is not a number of at least {least}", origin=here())
        step = Asked(
            self.step,
            names,
            function,
            name_of(function),
            Output("", added),
            required,
            batch,
            parallel,
            None if timeout is None else Duration.positive(timeout, what="timeout").micros,
            retries,
            None if cache is None else Duration.positive(cache, what="cache").micros,
            _policy(errors),
            redact,
            here(),
        )
        return self._with(step)

    def _registered(self, function: TableFunction) -> str:
        plain = re.sub(r"\W+", "_", name_of(function.function)).strip("_").lower() or "function"
        name = f"rows_of_{plain}_{len(self.flow.functions) + 1}"
        kind = ddl_type(pa.list_(_struct(function.schema)))
        self.flow.functions[name] = Function(name, function, kind)
        return name

    def _with(self, step: Step) -> Stream:
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class TableFunction:
    """Wraps a function that returns rows as a function that returns an array of rows."""

    function: Callable[..., Iterable[Any] | None]
    schema: Schema

    def __call__(self, *values: Any) -> list[tuple[Any, ...]]:
        """The rows for these values."""
        pick = Output("", self.schema).picker()
        return [pick(row) for row in self.function(*values) or ()]


class KeyedOperators:
    """Mixin for keyed streams: operators that call Python with the state of each key."""

    stream: Stream
    keys: Named
    windowing: Windowing

    def process(
        self,
        process: Any,
        *,
        schema: str | Schema,
        state: type | str | Schema | None = None,
        ordered: bool = False,
        time: str | None = None,
        ttl: Span | None = None,
        ttl_by: str | None = None,
        side: Mapping[str, str | Schema] | None = None,
        errors: str = FAIL,
        redact: bool = False,
    ) -> ProcessedStream:
        """Run a `Process`, or a function of ``(row, state, ctx)``, over the rows of each key.

        `state` is a dataclass or a schema; a process may define it as an attribute instead. Every key has its own
        state, stored as columns. Rows are processed in arrival order, by partition and offset. With `ordered` they are
        processed in event-time order, once the watermark has passed them. `time` names the event-time column if the
        source does not define one. A key without new rows expires after `ttl` of event time, or of processing time with
        ``ttl_by="processing_time"``.

        `side` maps names to the schemas of side outputs. Write to one with ``ctx.emit(row, to=name)``, and read it with
        `side` of the returned stream. `errors` defines what happens to a row on which the code fails: ``"fail"`` fails
        the epoch, ``"skip"`` skips and counts the row, and ``"quarantine"`` moves it to ``<view>$errors``. With
        `redact`, messages do not show the values of the row.
        """
        from millstream.model.streams.process_outputs import ProcessedStream

        stream = self.stream
        hooks = Hooks.of(process)
        if not self.windowing.window.is_global:
            raise Unsupported("process within a window is not supported", hint="use timers instead", origin=here())
        stream._refuse_panes("process")
        declaration = state if state is not None else getattr(process, "state", None)
        clock = self._clock(time, required=ordered)
        kept = None if ttl is None else Duration.positive(ttl, what="ttl").micros
        if ttl_by not in (None, "event_time", "processing_time"):
            raise DefinitionError(f"ttl_by={ttl_by!r}", hint='"event_time" or "processing_time"', origin=here())
        if ttl_by == "event_time" and clock is None:
            self._clock(None, required=True)
        if hooks.on_idle is not None and kept is None:
            raise DefinitionError("on_idle is never called without a ttl", hint='e.g. ttl="1 hour"', origin=here())
        outputs = [Output("", _without_maps(schema))]
        for name, columns in (side or {}).items():
            check_name(name, "side output")
            outputs.append(Output(name, _without_maps(columns)))
        step = Processed(
            Settling(stream.step, clock, here()) if ordered and clock and changes(stream.step) else stream.step,
            self.keys,
            process,
            name_of(process),
            tuple(outputs),
            None if declaration is None else TypedState.of(declaration),
            clock,
            ordered,
            kept,
            ttl_by == "processing_time" or clock is None,
            _policy(errors),
            redact,
            here(),
        )
        return ProcessedStream.of(stream, step)

    def _clock(self, time: str | None, *, required: bool) -> str | None:
        step = self.stream.step
        if time is not None:
            kind = step.schema.field(time, origin=here()).type
            if kind is not None and not pa.types.is_timestamp(kind):
                raise SchemaError(f"time=`{time}` is {ddl_type(kind)}, not a TIMESTAMP", origin=here())
        times = sorted(times_of(step, certain=False).items(), key=lambda c: c[1])
        if required and not any(time in (None, n) for n, _ in times):
            raise DefinitionError(
                "there is no event time here" if time is None else f"`{time}` is not the event time here",
                hint="declare it: flow.source(..., event_time='ts'), and keep that column",
                origin=here(),
            )
        return time if time is not None else times[0][0] if times else None


def _parsed(schema: str | Schema) -> Schema:
    return schema if isinstance(schema, Schema) else Schema.parse(schema)


def _without_maps(schema: str | Schema) -> Schema:
    parsed = _parsed(schema)
    for field in parsed:
        if field.type is not None and pa.types.is_map(field.type):
            raise SchemaError(
                f"the column `{field.name}` is a MAP, which Python operators cannot return",
                hint="use ARRAY<STRUCT<key: ..., value: ...>>",
                origin=here(),
            )
    return parsed


def _struct(schema: Schema) -> pa.DataType:
    return pa.struct([(f.name, f.type) for f in schema])


def _policy(errors: str) -> str:
    if errors not in POLICIES:
        raise DefinitionError(f"errors={errors!r}", hint="one of: " + ", ".join(POLICIES), origin=here())
    return errors


def _refuse_taken(mine: Schema, added: Schema, what: str) -> None:
    for field in added:
        if field.name in mine:
            raise SchemaError(
                f"{what} would add a second column `{field.name}`",
                hint=f"rename the stream's own first: .select(..., other_name='{field.name}')",
                origin=here(),
            )


def output_of(step: Processed, number: int) -> Step:
    """The rows of one output of a process."""
    if len(step.outputs) == 1:
        return step
    only = Where(step, Expr(exp.EQ(this=exp.column(TO), expression=exp.Literal.number(number)), step.origin))
    schema = step.outputs[number].schema
    return Select(only, tuple((n, col(column_of(number, n))) for n in schema.names), schema)
