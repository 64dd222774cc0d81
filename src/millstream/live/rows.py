"""INSERT, UPDATE and DELETE: rows of stored tables and of topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp
from sqlglot.tokens import TokenType  # type: ignore[attr-defined]

from millstream.errors import DefinitionError, RecordRefused, SchemaError, StatementRefused
from millstream.live import questions, removal
from millstream.live.answer import Answer
from millstream.live.literals import NOT_LITERAL, literal
from millstream.model.assignment import Unfit, assigned, from_values
from millstream.model.schema import Schema, ddl_type
from millstream.model.values import python_values
from millstream.result import shown
from millstream.sql.catalog import KIND_OF, schema_of
from millstream.sql.duck import duck_sql
from millstream.sql.growth import may_grow
from millstream.sql.places import topic_of
from millstream.sql.statements import CreateSink, CreateSource, CreateTable, Delete, Insert, Update
from millstream.store.names import quoted

if TYPE_CHECKING:
    from millstream.live.live import Live
    from millstream.live.session import Session

_COMPUTED = 500
"""Values of VALUES that the store computes in one question."""


_NAME_THEM = "name the columns that values are given for: INSERT INTO name (a, b) VALUES (1, 2)"


def insert(live: Live, statement: Insert, session: Session) -> Answer:
    """Rows for a table, a source's topic or a topic; a query into a sink goes on for good."""
    removal.finish(live, statement.target)
    entry = live.catalog.get(statement.target)
    if isinstance(entry, CreateSink):
        if statement.query is None:
            raise DefinitionError(f"`{entry.name}` is a sink: only INSERT INTO {entry.name} SELECT ... fits")
        start = min(m["start"] for n in statement.query.walk() if "start" in (m := n.meta))
        return live.attach(entry, _query_text(statement, start), session)
    if isinstance(entry, CreateTable):
        schema = schema_of(live.catalog, entry)
        assert schema is not None
        added = _rows(live, statement, schema, session)
        _check_required(entry, added)
        with live.home.table_lock:
            live.home.put_table(
                entry.name, _unique(entry, pa.concat_tables([_present(live, entry.name, schema), added]))
            )
        session.written.add(entry.name)
        return Answer(said=_said("inserted", added.num_rows))
    name = statement.target if entry is None else topic_of(entry)
    if entry is None and not live.home.log.exists(statement.target):
        raise live.catalog.missing(statement.target, "table, topic or sink")
    if name is None:
        raise DefinitionError(
            f"`{statement.target}` is a {KIND_OF[type(entry)]}: rows cannot be inserted into it",  # type: ignore[index]
            hint="a table, or a source over LOG(...), takes rows",
        )
    topic = live.home.log.topic(name)
    added = _rows(live, statement, Schema.from_arrow(topic.schema), session)
    topic.append(added)
    session.written |= {e.name for e in live.catalog.of(CreateSource) if topic_of(e) == name}
    return Answer(said=_said("inserted", added.num_rows))


def update(live: Live, statement: Update) -> Answer:
    """New values for rows of a stored table."""
    entry, schema = _table(live, statement.table)
    values: dict[str, exp.Expr] = {}
    for each in statement.tree.expressions:
        column = _spelled(schema, each.this.name) if isinstance(each, exp.EQ) else None
        if column is None:
            raise DefinitionError("SET column = value, ...")
        values[column] = each.expression
    condition = _condition(statement.tree)
    asked = [f'CASE WHEN "$chosen" THEN {_duck(v)} END AS "$new{i}"' for i, v in enumerate(values.values())]
    with live.home.table_lock:
        chosen = f'SELECT *, {condition} AS "$chosen" FROM {quoted(entry.name)}'
        found = live.home.store.query(
            f"SELECT *, {', '.join(asked)} FROM ({chosen}) AS {quoted(entry.name)}",
            apart=_apart([statement.tree], entry.name),
        )
        rows = found["$chosen"]
        new = _assigned(schema, {c: found[f"$new{i}"] for i, c in enumerate(values)}, found.num_rows)
        _check_required(entry, new.select(list(values)).filter(rows))
        columns = [pc.if_else(rows, new[n], found[n].cast(t)) if n in values else found[n].cast(t)
                   for n, t in ((f.name, f.type) for f in schema)]  # fmt: skip
        count = pc.sum(rows).as_py() or 0
        live.home.put_table(entry.name, _unique(entry, pa.table(columns, schema=schema.to_arrow())))
    return Answer(said=_said("updated", count))


def delete(live: Live, statement: Delete) -> Answer:
    """Rows of a stored table that are to go."""
    entry, schema = _table(live, statement.table)
    condition = _condition(statement.tree)
    with live.home.table_lock:
        count = _count(live, entry.name, condition, statement.tree)
        left = live.home.store.query(
            f"SELECT * FROM {quoted(entry.name)} WHERE NOT {condition}", apart=_apart([statement.tree], entry.name)
        )
        live.home.put_table(entry.name, left.cast(schema.to_arrow()))
    return Answer(said=_said("deleted", count))


def _rows(live: Live, statement: Insert, schema: Schema, session: Session) -> pa.Table:
    """The rows of an INSERT, as its target has them."""
    names = [_spelled(schema, c) for c in statement.columns] or list(schema.names)
    if len(set(names)) != len(names):
        raise SchemaError("a column is named twice")
    if statement.query is not None:
        session.settle()
        questions.check_views(live, statement.query, session)
        found = questions.answered(live, statement.query, session)
        if len(found.column_names) != len(names):
            raise SchemaError(
                f"{len(found.column_names)} values for {len(names)} columns: {', '.join(names)}", hint=_NAME_THEM
            )
        given = dict(zip(names, found.columns, strict=True))
        return _assigned(schema, given, found.num_rows)
    for i, row in enumerate(statement.rows, 1):
        if len(row) != len(names):
            raise SchemaError(
                f"row {i} has {len(row)} values for {len(names)} columns: {', '.join(names)}", hint=_NAME_THEM
            )
        for value in row:
            for column in value.find_all(exp.Column):
                raise SchemaError(f"`{column.name}` in VALUES", hint="a text stands in single quotes: 'text'")
    values = _values(live, statement.rows)
    columns = {}
    for field, place in ((f, names.index(f.name)) for f in schema.to_arrow() if f.name in names):
        try:
            columns[field.name] = from_values([row[place] for row in values], field.type)
        except Unfit as unfit:
            raise _refused(unfit, field.name, field.type) from None
    return _assigned(schema, columns, len(values))


def _values(live: Live, rows: Sequence[Sequence[exp.Expr]]) -> list[list[Any]]:
    """The values of VALUES. Literals are read here; the store computes all that is more than a literal."""
    found = [[literal(v) for v in row] for row in rows]
    asked = [(i, j) for i, row in enumerate(found) for j, v in enumerate(row) if v is NOT_LITERAL]
    for first in range(0, len(asked), _COMPUTED):
        some = asked[first : first + _COMPUTED]
        shown = ", ".join(f'{_duck(rows[i][j])} AS "{n}"' for n, (i, j) in enumerate(some))
        answer = live.home.store.query(f"SELECT {shown}", apart=_apart([rows[i][j] for i, j in some]))
        for n, (i, j) in enumerate(some):
            found[i][j] = python_values(answer.column(n))[0]
    return found


def _assigned(schema: Schema, given: Mapping[str, pa.Array | pa.ChunkedArray], rows: int) -> pa.Table:
    """Columns as a target has them, where nothing is lost; NULL where none is given."""
    columns = []
    for field in schema.to_arrow():
        if field.name not in given:
            columns.append(pa.nulls(rows, field.type))
            continue
        try:
            columns.append(assigned(given[field.name], field.type))
        except Unfit as unfit:
            raise _refused(unfit, field.name, field.type) from None
    return pa.table(columns, schema=schema.to_arrow())


def _refused(unfit: Unfit, column: str, kind: pa.DataType) -> RecordRefused:
    """The error for a value that a column cannot take; rows count from 1, as those of VALUES do."""
    if unfit.row is None:
        return RecordRefused(f"the values of `{column}` cannot become {ddl_type(kind)}", detail=unfit.why)
    return RecordRefused(
        f"row {unfit.row + 1}: the value of `{column}` cannot become {ddl_type(kind)}",
        detail=f"{_shown(unfit.value)}: {unfit.why}",
        hint="CAST it, or round it, where that is meant",
    )


def _shown(value: Any) -> str:
    return (repr(value) if isinstance(value, str) else shown(value))[:200]


def _apart(trees: Sequence[exp.Expr], *tables: str) -> tuple[str, ...] | None:
    """Whether expressions may need much memory, and if so the tables to copy for them."""
    return tables if any(t.find(exp.Func, exp.DPipe) and may_grow(t) for t in trees) else None


def _duck(node: exp.Expr) -> str:
    return f"({duck_sql(node)})"


def _condition(tree: exp.Expr) -> str:
    where = tree.args.get("where")
    return f"coalesce({_duck(where.this)}, false)" if where is not None else "true"


def _count(live: Live, name: str, condition: str, tree: exp.Expr) -> int:
    where = tree.args.get("where")
    apart = None if where is None else _apart([where], name)
    found = live.home.store.query(f"SELECT count(*) AS n FROM {quoted(name)} WHERE {condition}", apart=apart)
    return int(found["n"][0].as_py())


def _table(live: Live, name: str) -> tuple[CreateTable, Schema]:
    removal.finish(live, name)
    entry = live.catalog.get(name)
    if not isinstance(entry, CreateTable):
        if entry is None:
            raise live.catalog.missing(name, "table")
        raise StatementRefused(f"`{name}` is a {KIND_OF[type(entry)]}: its rows follow from its definition")
    schema = schema_of(live.catalog, entry)
    assert schema is not None
    return entry, schema


def _present(live: Live, name: str, schema: Schema) -> pa.Table:
    return live.home.store.query(f"SELECT * FROM {quoted(name)}").cast(schema.to_arrow())


def _spelled(schema: Schema, name: str) -> str:
    found = next((n for n in schema.names if n.lower() == name.lower()), None)
    if found is None:
        raise schema.unknown(name)
    return found


def _check_required(entry: CreateTable, rows: pa.Table) -> None:
    """Refuse NULL where the table says NOT NULL."""
    for name in (c.name for c in entry.columns if c.required and c.name in rows.column_names):
        if rows[name].null_count:
            raise RecordRefused(
                f"NULL in `{name}` of `{entry.name}`, which is NOT NULL", hint="give a value, as coalesce(value, other)"
            )


def _unique(entry: CreateTable, rows: pa.Table) -> pa.Table:
    """Refuse a second row with the same key."""
    keys = [next(n for n in rows.column_names if n.lower() == k.lower()) for k in entry.key]
    if not keys:
        return rows
    for key in keys:
        if rows[key].null_count:
            raise RecordRefused(f"NULL in the key `{key}` of `{entry.name}`")
    counted = rows.group_by(keys).aggregate([([], "count_all")])
    doubled = counted.filter(pc.greater(counted["count_all"], 1))
    if doubled.num_rows:
        first = ", ".join(f"{k} = {doubled[k][0].as_py()}" for k in keys)
        raise RecordRefused(
            f"`{entry.name}` would have two rows with {first}", hint="UPDATE the row that is there, or DELETE it first"
        )
    return rows


def _query_text(statement: Insert, start: int) -> str:
    """The query of an INSERT as it was written."""
    tokens = statement.piece.tokens
    first = next(t for t in tokens if t.token_type in (TokenType.SELECT, TokenType.WITH) and t.start <= start)
    return statement.piece.text.sql[first.start : tokens[-1].end + 1]


def _said(what: str, number: int) -> str:
    return f"{what} {number:,} row{'' if number == 1 else 's'}"
