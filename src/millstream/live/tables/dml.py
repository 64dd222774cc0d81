"""INSERT, UPDATE, DELETE and MERGE: rows of stored tables and of topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp
from sqlglot.tokens import TokenType  # type: ignore[attr-defined]

from millstream.errors import DefinitionError, SchemaError, StatementRefused
from millstream.live import cleanup, select
from millstream.live.answer import Answer
from millstream.live.tables import copy as loading
from millstream.live.tables import merge as merging
from millstream.live.tables.changes import Clause, RowsSide, TableEdit, bound, change_summary, chosen, held, present
from millstream.live.tables.constraints import assigned_columns, check_required, refused, spelled
from millstream.model.types.assignment import Unfit, from_values
from millstream.model.types.schema import Schema
from millstream.model.types.values import python_values
from millstream.sql.catalog import KIND_OF, schema_of
from millstream.sql.connectors import topic_of
from millstream.sql.parse.literals import NOT_LITERAL, literal
from millstream.sql.parse.statement_values import (
    Copy,
    CreateSink,
    CreateSource,
    CreateTable,
    Delete,
    Insert,
    Merge,
    Update,
)
from millstream.sql.query import functions
from millstream.sql.query.duckdb_sql import duck_sql
from millstream.sql.query.growth import may_grow

if TYPE_CHECKING:
    from millstream.live.deployment import Deployment
    from millstream.live.session import Session

_COMPUTED = 500
"""The number of expressions in VALUES that the store computes in one query."""


_NAME_THEM = "name the columns of the values: INSERT INTO name (a, b) VALUES (1, 2)"


def insert(deployment: Deployment, statement: Insert, session: Session) -> Answer:
    """INSERT rows into a table, a source's topic or a topic; a query into a sink runs continuously."""
    cleanup.finish(deployment, statement.target)
    entry = deployment.catalog.get(statement.target)
    if isinstance(entry, CreateTable):
        return _insert(deployment, statement, session, *_table(deployment, entry.name))
    if entry is None and not deployment.home.log.exists(statement.target):
        raise deployment.catalog.missing(statement.target, "table, topic or sink")
    if statement.conflict is not None or statement.alias:
        raise DefinitionError(
            f"`{statement.target}` is not a stored table: its records have no key to be in conflict with",
            hint="leave out the alias, OR REPLACE and ON CONFLICT",
        )
    if isinstance(entry, CreateSink):
        if statement.query is None:
            raise DefinitionError(f"`{entry.name}` is a sink: only INSERT INTO {entry.name} SELECT ... is possible")
        start = min(m["start"] for n in statement.query.walk() if "start" in (m := n.meta))
        return deployment.attach(entry, _query_text(statement, start), session)
    name = statement.target if entry is None else topic_of(entry)
    if name is None:
        raise DefinitionError(
            f"`{statement.target}` is a {KIND_OF[type(entry)]}: rows cannot be inserted into it",  # type: ignore[index]
            hint="a table, or a source over LOG(...), accepts rows",
        )
    topic = deployment.home.log.topic(name)
    if statement.query is not None:
        session.settle()
    query = None if statement.query is None else select.with_files(statement.query)
    added = _rows(deployment, statement, Schema.from_arrow(topic.schema, exact=True), session, query)
    topic.append(added)
    session.written |= {e.name for e in deployment.catalog.of(CreateSource) if topic_of(e) == name}
    return Answer(message=change_summary({"inserted": added.num_rows}))


def _insert(deployment: Deployment, statement: Insert, session: Session, entry: CreateTable, schema: Schema) -> Answer:
    """INSERT rows into a stored table."""
    if statement.conflict is not None:
        merging.check_conflict(entry, schema, statement.conflict)
    query = None
    if statement.query is not None:
        session.settle()  # before the lock: the wait may be long
        query = select.with_files(statement.query)
    with held(deployment, entry, "INSERT"):
        added = _rows(deployment, statement, schema, session, query)
        check_required(entry, added)
        changes = TableEdit(entry, schema, present(deployment, entry.name, schema))
        if statement.conflict is None:
            changes.insert(added)
            count = {"inserted": added.num_rows}
        else:
            count = merging.insert_or_change(session, changes, added, statement)
        changes.store(deployment)
    session.written.add(entry.name)
    return Answer(message=change_summary(count))


def update(deployment: Deployment, statement: Update, session: Session) -> Answer:
    """UPDATE rows of a stored table."""
    entry, schema = _table(deployment, statement.table)
    values: dict[str, exp.Expr] = {}
    for each in statement.tree.expressions:
        column = spelled(schema, each.this.name)
        if column in values:
            raise SchemaError(f"the column `{column}` is set twice")
        values[column] = each.expression
    with held(deployment, entry, "UPDATE"):
        changes = TableEdit(entry, schema, present(deployment, entry.name, schema))
        side = RowsSide(entry.name, changes.present, "t")
        bound_values = {c: bound(v, (side,)) for c, v in values.items()}
        (matches,) = chosen(session, side.flat(), [Clause(_condition(statement.tree, side), bound_values)])
        changes.update(matches.rows, matches.values)
        changes.store(deployment, named=None)
    return Answer(message=change_summary({"updated": len(matches.rows)}))


def delete(deployment: Deployment, statement: Delete, session: Session) -> Answer:
    """DELETE rows of a stored table."""
    entry, schema = _table(deployment, statement.table)
    with held(deployment, entry, "DELETE"):
        changes = TableEdit(entry, schema, present(deployment, entry.name, schema))
        side = RowsSide(entry.name, changes.present, "t")
        (matches,) = chosen(session, side.flat(), [Clause(_condition(statement.tree, side))])
        changes.deleted = matches.rows
        changes.store(deployment)
    return Answer(message=change_summary({"deleted": len(matches.rows)}))


def merge(deployment: Deployment, statement: Merge, session: Session) -> Answer:
    """MERGE, UPDATE ... FROM and DELETE ... USING."""
    return merging.merge(deployment, statement, session, *_table(deployment, statement.table))


def copy(deployment: Deployment, statement: Copy, session: Session) -> Answer:
    """COPY ... FROM files."""
    return loading.copy(deployment, statement, session, *_table(deployment, statement.table))


def _condition(tree: exp.Expr, side: RowsSide) -> exp.Expr | None:
    where = tree.args.get("where")
    return None if where is None else bound(where.this, (side,))


def _rows(
    deployment: Deployment, statement: Insert, schema: Schema, session: Session, query: select.WithFiles | None
) -> pa.Table:
    """The rows of an INSERT, converted to its target; `query` is its query, if it has one."""
    names = [spelled(schema, c) for c in statement.columns] or list(schema.names)
    if len(set(names)) != len(names):
        raise SchemaError("a column is named twice")
    if statement.query is not None and query is not None:
        select.check_views(deployment, statement.query, session)
        rows = select.answered(deployment, query, session)
        if len(rows.column_names) != len(names):
            raise SchemaError(
                f"{len(rows.column_names)} values for {len(names)} columns: {', '.join(names)}", hint=_NAME_THEM
            )
        by_column = dict(zip(names, rows.columns, strict=True))
        return assigned_columns(schema, by_column, rows.num_rows)
    for i, row in enumerate(statement.rows, 1):
        if len(row) != len(names):
            raise SchemaError(
                f"row {i} has {len(row)} values for {len(names)} columns: {', '.join(names)}", hint=_NAME_THEM
            )
        for computed in (v for v in row if isinstance(v, exp.Expr)):
            for column in computed.find_all(exp.Column):
                raise SchemaError(f"`{column.name}` in VALUES", hint="a string is written in single quotes: 'text'")
    values = _values(deployment, statement.rows)
    columns = {}
    for field, place in ((f, names.index(f.name)) for f in schema.to_arrow() if f.name in names):
        try:
            columns[field.name] = from_values([row[place] for row in values], field.type)
        except Unfit as unfit:
            raise refused(unfit, field.name, field.type) from None
    return assigned_columns(schema, columns, len(values))


def _values(deployment: Deployment, rows: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
    """The values of VALUES. Literals are read here; the store computes everything else."""
    values: list[Any] = list(rows)
    expressions = []
    for i, row in enumerate(rows):
        if any(isinstance(v, exp.Expr) for v in row):
            values[i] = [literal(v) if isinstance(v, exp.Expr) else v for v in row]
            expressions += [(i, j) for j, v in enumerate(values[i]) if v is NOT_LITERAL]
    for first in range(0, len(expressions), _COMPUTED):
        some = expressions[first : first + _COMPUTED]
        columns = ", ".join(f'{_duck(rows[i][j])} AS "{n}"' for n, (i, j) in enumerate(some))
        answer = deployment.home.store.query(f"SELECT {columns}", apart=_apart([rows[i][j] for i, j in some]))
        for n, (i, j) in enumerate(some):
            values[i][j] = python_values(answer.column(n))[0]
    return values


def _apart(trees: Sequence[exp.Expr], *tables: str) -> tuple[str, ...] | None:
    """Whether expressions may need much memory, and if so the tables to copy for them."""
    return tables if any(t.find(exp.Func, exp.DPipe) and may_grow(t) for t in trees) else None


def _duck(node: exp.Expr) -> str:
    return f"({duck_sql(functions.in_store(exp.Paren(this=node.copy())))})"


def _table(deployment: Deployment, name: str) -> tuple[CreateTable, Schema]:
    cleanup.finish(deployment, name)
    entry = deployment.catalog.get(name)
    if not isinstance(entry, CreateTable):
        if entry is None:
            raise deployment.catalog.missing(name, "table")
        raise StatementRefused(
            f"`{name}` is a {KIND_OF[type(entry)]}: its rows follow from its definition",
            hint="change the rows of the sources and tables that it reads",
        )
    schema = schema_of(deployment.catalog, entry)
    assert schema is not None
    return entry, schema


def _query_text(statement: Insert, start: int) -> str:
    """The text of the query of an INSERT."""
    tokens = statement.piece.tokens
    first = next(t for t in tokens if t.token_type in (TokenType.SELECT, TokenType.WITH) and t.start <= start)
    return statement.piece.text.sql[first.start : tokens[-1].end + 1]
