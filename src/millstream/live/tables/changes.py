"""Computes what a statement does to the rows of a stored table: expressions over rows, and the resulting rows.

Used by UPDATE, DELETE, ON CONFLICT and MERGE. The affected rows are one Arrow table with numbered columns. The
expressions of the statement are bound to these, and the store evaluates them like those of a query, so that they mean
the same everywhere. One `put_table` stores the result: the commit point of a statement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from millstream.errors import SchemaError, StatementRefused
from millstream.live.tables.constraints import Named, assigned_columns, by_number, check_required, check_unique
from millstream.model.types.schema import Schema
from millstream.model.types.unknown_column import unknown_column
from millstream.sql.parse.statement_values import CreateTable
from millstream.sql.query import store_query
from millstream.store.names import quoted

if TYPE_CHECKING:
    from millstream.live.deployment import Deployment
    from millstream.live.session import Session

ROW = "$row"
_CLAUSE = "$clause"
_NONE = np.array([], np.int64)


@dataclass(frozen=True)
class RowsSide:
    """Rows whose columns an expression may name: those of the table, or the incoming ones."""

    name: str
    rows: pa.Table
    code: str
    only_qualified: bool = False
    """Whether its columns are qualified with the side, as in ``excluded.price``."""

    def flat(self) -> pa.Table:
        """The rows under the names that bound expressions use."""
        return self.rows.rename_columns([self.column(i) for i in range(self.rows.num_columns)])

    def column(self, number: int) -> str:
        """The name of a column in bound expressions."""
        return f"${self.code}{number}"

    def find(self, name: str) -> str | None:
        """The bound name of a column; None if there is no column of this name."""
        lower = name.lower()
        return next((self.column(i) for i, n in enumerate(self.rows.column_names) if n.lower() == lower), None)

    def unknown(self, name: str) -> SchemaError:
        """Return the error for an unknown column."""
        return Schema.from_arrow(self.rows.schema).unknown(name)


def present(deployment: Deployment, name: str, schema: Schema) -> pa.Table:
    """The current rows of a stored table."""
    return deployment.home.store.query(f"SELECT * FROM {quoted(name)}").cast(schema.to_arrow())


@contextmanager
def held(deployment: Deployment, entry: CreateTable, statement: str) -> Iterator[None]:
    """Lock stored tables while a statement changes one. Refuses a table that is no longer the one that the statement
    was checked against.
    """
    with deployment.home.table_lock:
        if deployment.catalog.get(entry.name) is not entry:
            raise StatementRefused(
                f"`{entry.name}` was dropped or replaced during the {statement}", hint="run the statement again"
            )
        yield


def bound(node: exp.Expr, sides: Sequence[RowsSide]) -> exp.Expr:
    """Bind an expression to the columns of some sides."""

    def resolved(part: exp.Expr) -> exp.Expr:
        return _resolved([p.name for p in part.parts], sides) if isinstance(part, exp.Column) else part

    return exp.Paren(this=node.transform(resolved))


def _resolved(parts: list[str], sides: Sequence[RowsSide]) -> exp.Expr:
    side = next((s for s in sides if len(parts) > 1 and s.name.lower() == parts[0].lower()), None)
    if side is not None:
        name, rest = side.find(parts[1]), parts[2:]
        if name is None:
            raise side.unknown(parts[1])
    else:
        having = [s for s in sides if not s.only_qualified and s.find(parts[0]) is not None]
        if len(having) > 1:
            one, other = having[0].name, having[1].name
            raise SchemaError(
                f"`{parts[0]}` is a column of `{one}` and of `{other}`", hint=f"{one}.{parts[0]} or {other}.{parts[0]}"
            )
        if not having:
            raise _missing(parts, sides)
        name, rest = having[0].find(parts[0]), parts[1:]
    column: exp.Expr = exp.Column(this=exp.to_identifier(name, quoted=True))
    for part in rest:
        column = exp.Dot(this=column, expression=exp.to_identifier(part, quoted=True))
    return column


def _missing(parts: list[str], sides: Sequence[RowsSide]) -> SchemaError:
    if len(sides) == 1:
        return sides[0].unknown(parts[0])
    return unknown_column(".".join(parts), [f"{s.name}.{c}" for s in sides for c in s.rows.column_names])


def query_tables(session: Session, query: exp.Query, tables: Mapping[str, pa.Table]) -> pa.Table:
    """Answer a query over its own tables."""
    translated = store_query.checked_query(query, {n: t.column_names for n, t in tables.items()})
    apart: tuple[str, ...] | None = None if translated.apart is None else ()
    return session.deployment.home.store.query(translated.sql, tables, limits=session.limits, apart=apart)


@dataclass(frozen=True)
class Clause:
    """A condition, and the values that columns get in rows for which it is the first that is true."""

    condition: exp.Expr | None
    values: Mapping[str, exp.Expr] = field(default_factory=dict)


@dataclass(frozen=True)
class Chosen:
    """The rows that a clause applies to, by index, and the values for them."""

    rows: np.ndarray
    values: Mapping[str, pa.ChunkedArray]


def chosen(session: Session, rows: pa.Table, clauses: Sequence[Clause]) -> list[Chosen]:
    """For each clause (bound to the columns of `rows`), the rows that it applies to. A value is computed only for the
    rows of its clause.
    """
    numbered = rows.append_column(ROW, pa.array(np.arange(rows.num_rows)))
    which: exp.Expr = exp.null()
    for number, clause in reversed(list(enumerate(clauses))):
        here: exp.Expr = exp.Literal.number(number)
        if clause.condition is not None:
            here = exp.Case(ifs=[exp.If(this=clause.condition, true=here)], default=which)
        which = here
    inner = exp.select("*", exp.alias_(which, _CLAUSE, quoted=True)).from_(exp.Table(this=_quoted("$rows")))
    columns: list[exp.Expr] = [exp.column(_quoted(ROW)), exp.column(_quoted(_CLAUSE))]
    for number, clause in enumerate(clauses):
        is_mine = exp.EQ(this=exp.column(_quoted(_CLAUSE)), expression=exp.Literal.number(number))
        for i, value in enumerate(clause.values.values()):
            case = exp.Case(ifs=[exp.If(this=is_mine.copy(), true=value)])
            columns.append(exp.alias_(case, f"$v{number}_{i}", quoted=True))
    outer = exp.select(*columns).from_(inner.subquery("chosen"))
    answer = query_tables(session, outer, {"$rows": numbered}).sort_by(ROW)
    choices = []
    for number, clause in enumerate(clauses):
        mine = np.flatnonzero(pc.fill_null(pc.equal(answer[_CLAUSE], number), False).to_numpy())
        places = pa.array(mine)
        values = {c: answer[f"$v{number}_{i}"].take(places) for i, c in enumerate(clause.values)}
        choices.append(Chosen(mine, values))
    return choices


def matches(session: Session, sides: Sequence[RowsSide], condition: exp.Expr) -> tuple[np.ndarray, np.ndarray]:
    """The pairs of rows of two sides that satisfy a condition, by index, in the order of the second side."""
    one, other = ("$one", "$other")
    tables = {
        n: s.flat().append_column(f"{ROW}{s.code}", pa.array(np.arange(s.rows.num_rows)))
        for n, s in zip((one, other), sides, strict=True)
    }
    columns = [exp.column(_quoted(f"{ROW}{s.code}")) for s in sides]
    query = exp.select(*columns).from_(exp.Table(this=_quoted(one)))
    join = exp.Join(this=exp.Table(this=_quoted(other)), on=bound(condition, sides))
    query.append("joins", join)
    rows = query_tables(session, query, tables).sort_by([(f"{ROW}{s.code}", "ascending") for s in reversed(sides)])
    return rows.column(0).to_numpy(), rows.column(1).to_numpy()


def _quoted(name: str) -> exp.Identifier:
    return exp.to_identifier(name, quoted=True)


@dataclass
class TableEdit:
    """A change of the rows of a table: the indexes of updated and deleted rows, and the added rows."""

    entry: CreateTable
    schema: Schema
    present: pa.Table
    updated: list[tuple[np.ndarray, pa.Table, np.ndarray | None]] = field(default_factory=list)
    deleted: np.ndarray = field(default_factory=lambda: _NONE)
    inserted: list[tuple[pa.Table, np.ndarray | None]] = field(default_factory=list)

    def update(
        self, places: np.ndarray, values: Mapping[str, pa.ChunkedArray], numbers: np.ndarray | None = None
    ) -> None:
        """Set new values in columns of some rows. `numbers` are those of the input rows that the values come from."""
        if not len(places):
            return
        new = assigned_columns(self.schema, dict(values), len(places)).select(list(values))
        check_required(self.entry, new, named=None)
        rows = self.present.take(pa.array(places))
        for name in values:
            rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), new[name])
        self.updated.append((places, rows, numbers))

    def insert(self, rows: pa.Table, numbers: np.ndarray | None = None) -> None:
        """Add validated rows. `numbers` are their numbers among the input rows; None means all of them."""
        self.inserted.append((rows, numbers))

    @property
    def count(self) -> dict[str, int]:
        """The numbers of inserted, updated and deleted rows."""
        return {
            "inserted": sum(r.num_rows for r, _ in self.inserted),
            "updated": sum(len(p) for p, _, _ in self.updated),
            "deleted": len(self.deleted),
        }

    def store(self, deployment: Deployment, *, named: Named | None = by_number) -> None:
        """Check the key and store the result. `named` returns the origin of an added row."""
        if not any(self.count.values()):
            return
        rows, places = [self.present], np.arange(self.present.num_rows)
        written = np.zeros(self.present.num_rows, np.int64)
        number, end = 1, self.present.num_rows
        for changed, table, numbers in self.updated:
            places[changed] = np.arange(end, end + len(changed))
            written[changed] = 1 if numbers is None else numbers
            rows.append(table)
            end += len(changed)
        keep = np.ones(self.present.num_rows, bool)
        keep[self.deleted] = False
        places, written = places[keep], written[keep]
        for table, numbers in self.inserted:
            places = np.concatenate([places, np.arange(end, end + table.num_rows)])
            mine = np.arange(number, number + table.num_rows) if numbers is None else numbers
            written = np.concatenate([written, mine])
            rows.append(table)
            number, end = number + table.num_rows, end + table.num_rows
        whole = pa.concat_tables(rows)
        if self.updated or len(self.deleted):
            whole = whole.take(pa.array(places))
        check_unique(deployment.home, self.entry, whole, written, named=named)
        deployment.home.store_table(self.entry.name, whole)


def change_summary(count: Mapping[str, int]) -> str:
    """Describe what a statement has done: ``inserted 2 rows, updated 1 row``."""
    return ", ".join(f"{what} {n:,} row{'' if n == 1 else 's'}" for what, n in count.items())
