"""Computed columns of a source: ``ts AS timestamp_millis(ms)``, and a WATERMARK on one of them."""

from __future__ import annotations

from dataclasses import replace

from millstream.errors import DefinitionError
from millstream.model.connector import Connector
from millstream.model.expression import Expr, col
from millstream.model.flow import Flow
from millstream.model.steps.step import Source
from millstream.model.streams.stream import Stream
from millstream.model.types.schema import Schema
from millstream.sql.parse.statement_values import ColumnDef, CreateSource
from millstream.sql.relations import windows
from millstream.sql.relations.relation import Relation


def event_time(entry: CreateSource, connector: Connector, schema: Schema | None) -> dict[str, Expr] | None:
    """The name and expression of a computed event time, over the columns that are read; None if it is not computed."""
    named = "" if entry.watermark is None else entry.watermark[0].lower()
    watermark_column = next((c for c in _computed(entry) if c.name.lower() == named), None)
    if watermark_column is None:
        return None
    text = entry.piece.text
    relation = Relation(Flow("trial").source(entry.name, connector, schema=schema)).called(entry.name)
    known: dict[str, Expr] = {}
    for column in _computed(entry):
        assert column.computed is not None
        if windows.name_of(column.computed) == "proctime":
            if column is watermark_column:
                raise DefinitionError(
                    f"`{column.name}` is the time of processing, which needs no WATERMARK",
                    hint="leave the WATERMARK out: windows over it close with the clock",
                    origin=text.of_node(column.computed),
                )
            continue
        expression = relation.expr(text, column.computed)
        known[column.name] = expression.substitute(known)
        if column is watermark_column:
            break
        with text.at(column.computed):
            relation = _added(relation, column, expression).called(entry.name)
    return {watermark_column.name: known[watermark_column.name]}


def processing_time(entry: CreateSource) -> str | None:
    """The first PROCTIME() column of a source with a WATERMARK: an ordinary column with the clock of the epoch. Without
    a WATERMARK it is only a name for the time that windows use.
    """
    if entry.watermark is None:
        return None
    named = (c.name for c in _computed(entry) if c.computed is not None and windows.name_of(c.computed) == "proctime")
    return next(named, None)


def relation(entry: CreateSource, stream: Stream) -> Relation:
    """The relation of a source: the columns that are read, and its computed columns in declaration order."""
    assert isinstance(stream.step, Source)
    text, time = entry.piece.text, stream.step.options.event_time
    result = Relation(stream, times=frozenset() if time is None else frozenset({time}))
    clocks: set[str] = set()
    clock = stream.step.options.processing_time
    for column in _computed(entry):
        assert column.computed is not None
        if windows.name_of(column.computed) == "proctime":
            if clock is None:
                clocks.add(column.name)
            elif column.name != clock:
                result = _added(result, column, col(clock))
        elif stream.step.options.computed_time is None or column.name != time:
            expression = result.expr(text, column.computed)
            with text.at(column.computed):
                result = _added(result, column, expression)
    if stream.step.options.computed_time is not None or clock is not None:
        result = replace(result, stream=_in_order(entry, result.stream))
    return replace(result, clocks=frozenset(clocks)).called(entry.name)


def _computed(entry: CreateSource) -> list[ColumnDef]:
    return [c for c in entry.columns if c.computed is not None]


def _added(relation: Relation, column: ColumnDef, expression: Expr) -> Relation:
    return replace(relation, stream=relation.stream.with_columns(**{column.name: expression}))


def _in_order(entry: CreateSource, stream: Stream) -> Stream:
    """Columns in declaration order, if the event time or the processing time was added too early."""
    last = [c.name for c in _computed(entry) if c.name in stream.schema]
    names = [*(n for n in stream.schema.names if n not in last), *last]
    return stream if names == list(stream.schema.names) else stream.select(**{n: col(n) for n in names})
