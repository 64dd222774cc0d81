"""ON CONFLICT and MERGE: rows that match rows of a stored table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from sqlglot import exp

from millstream.errors import DefinitionError, RecordRefused, SchemaError
from millstream.live import select
from millstream.live.answer import Answer
from millstream.live.tables.changes import (
    Chosen,
    Clause,
    RowsSide,
    TableEdit,
    bound,
    change_summary,
    chosen,
    held,
    matches,
    present,
)
from millstream.live.tables.constraints import assigned_columns, check_required, key_of, spelled, values_text
from millstream.model.types.schema import Schema
from millstream.model.types.values import python_values
from millstream.sql.catalog import tables_of
from millstream.sql.parse.statement_values import Assignments, CreateTable, Insert, Merge, OnConflict, When
from millstream.store.names import quoted

if TYPE_CHECKING:
    from millstream.live.deployment import Deployment
    from millstream.live.session import Session

EXCLUDED = "excluded"
"""The name of the row to be inserted in DO UPDATE."""


# ---------------------------------------------------------------- ON CONFLICT


def check_conflict(entry: CreateTable, schema: Schema, conflict: OnConflict) -> None:
    """Refuse ON CONFLICT without a key, or with columns that are not the key."""
    key = key_of(entry, schema)
    if not key:
        raise DefinitionError(
            f"`{entry.name}` has no PRIMARY KEY, so no row is in conflict with another",
            hint="declare one in CREATE TABLE, or use MERGE with a condition",
        )
    named = {spelled(schema, c) for c in conflict.columns}
    if named and named != set(key):
        raise DefinitionError(
            f"ON CONFLICT ({', '.join(conflict.columns)}): the PRIMARY KEY of `{entry.name}` is ({', '.join(key)})"
        )


def insert_or_change(session: Session, changes: TableEdit, added: pa.Table, statement: Insert) -> dict[str, int]:
    """Insert rows; those whose key exists already are handled by the ON CONFLICT clause.
    Returns how many those were.
    """
    conflict = statement.conflict
    assert conflict is not None
    key = key_of(changes.entry, changes.schema)
    there, several, nth, of = _met(session, changes.present, added, key)
    if conflict.action == "nothing":
        new = (there < 0) & (nth == 1)
        changes.insert(added.filter(pa.array(new)), np.flatnonzero(new) + 1)
        return {"inserted": int(new.sum()), "left out": int(len(new) - new.sum())}
    winners = nth == of if conflict.action == "replace" else np.ones(len(nth), bool)
    if conflict.action != "replace" and (nth > 1).any():
        _refuse_twice(added, key, int(np.flatnonzero(nth > 1)[0]))
    met = np.flatnonzero(winners & (there >= 0))
    for row in met[several[met] > 1][:1]:
        values = values_text({k: python_values(added[k].slice(row, 1))[0] for k in key})
        raise RecordRefused(
            f"row {row + 1}: `{changes.entry.name}` has several rows with {values} already",
            hint="DELETE all but one first",
        )
    new = winners & (there < 0)
    changes.insert(added.filter(pa.array(new)), np.flatnonzero(new) + 1)
    if conflict.action == "update":
        changed = _do_update(session, changes, added, statement, there, met)
    else:
        named = [spelled(changes.schema, c) for c in statement.columns] or list(changes.schema.names)
        columns = list(changes.schema.names) if conflict.action == "replace" else [c for c in named if c not in key]
        if columns:
            changes.update(there[met], {c: added[c].take(pa.array(met)) for c in columns}, met + 1)
        changed = len(met) if columns else 0
    count = {"inserted": int(new.sum()), "updated": changed}
    left = len(nth) - sum(count.values())
    return {**count, "left out": left} if left else count


def _do_update(
    session: Session, changes: TableEdit, added: pa.Table, statement: Insert, there: np.ndarray, met: np.ndarray
) -> int:
    """DO UPDATE SET ... WHERE ... for rows that match one of the table."""
    assert statement.conflict is not None
    sides = _named_sides(
        RowsSide(statement.alias or changes.entry.name, changes.present.take(pa.array(there[met])), "t"),
        RowsSide(EXCLUDED, added.take(pa.array(met)), "s", only_qualified=True),
    )
    where = statement.conflict.where
    clause = Clause(
        None if where is None else bound(where, sides), _bound_values(statement.conflict.values, changes.schema, sides)
    )
    (matches,) = chosen(session, _beside(sides), [clause])
    changes.update(there[met][matches.rows], matches.values, met[matches.rows] + 1)
    return len(matches.rows)


def _met(
    session: Session, rows: pa.Table, added: pa.Table, key: list[str]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """For each added row: the index of the row with the same key (-1: none), the number of such rows, its position
    among the added rows with the same key, and the number of those.
    """
    names = [f"$k{i}" for i in range(len(key))]
    old = pa.table({**{n: rows[k] for n, k in zip(names, key, strict=True)}, "$p": np.arange(rows.num_rows)})
    new = pa.table({**{n: added[k] for n, k in zip(names, key, strict=True)}, "$a": np.arange(added.num_rows)})
    by = ", ".join(quoted(n) for n in names)
    on = " AND ".join(f"o.{quoted(n)} = n.{quoted(n)}" for n in names)
    counts = session.deployment.home.store.query(
        f'WITH o AS (SELECT {by}, min("$p") AS p, count(*) AS c FROM "$old" GROUP BY {by}) '
        f"SELECT coalesce(o.p, -1) AS p, coalesce(o.c, 0) AS c, n.nth, n.parts FROM "
        f'(SELECT *, row_number() OVER (PARTITION BY {by} ORDER BY "$a") AS nth, '
        f'count(*) OVER (PARTITION BY {by}) AS parts FROM "$new") n LEFT JOIN o ON {on} ORDER BY n."$a"',
        {"$old": old, "$new": new},
    )
    one, two, three, four = (counts.column(i).to_numpy() for i in range(4))
    return one, two, three, four


def _refuse_twice(added: pa.Table, key: list[str], row: int) -> None:
    values = values_text({k: python_values(added[k].slice(row, 1))[0] for k in key})
    raise RecordRefused(
        f"row {row + 1}: another row of this statement has {values}, too: DO UPDATE would change one row twice",
        hint="keep one row of each key: SELECT DISTINCT ON (key) ..., or INSERT OR REPLACE, where the last row wins",
    )


# ---------------------------------------------------------------- MERGE


def merge(deployment: Deployment, statement: Merge, session: Session, entry: CreateTable, schema: Schema) -> Answer:
    """Change the rows of a table by those of a query."""
    session.settle(tables_of(statement.source))
    warnings = select.check_views(deployment, statement.source, session)
    query = select.with_files(statement.source)  # before the lock: files may be large
    with held(deployment, entry, statement.what):
        source = select.answered(deployment, query, session)
        rows = present(deployment, entry.name, schema)
        target, other = _named_sides(
            RowsSide(statement.alias, rows, "t"), RowsSide(statement.source_alias or "the source", source, "s")
        )
        changes = TableEdit(entry, schema, rows)
        ours, theirs = matches(session, (target, other), statement.on)
        _matched(session, statement, changes, (target, other), ours, theirs)
        _not_matched(session, statement, changes, other, np.setdiff1d(np.arange(source.num_rows), theirs))
        _not_matched_by_source(session, statement, changes, target, np.setdiff1d(np.arange(rows.num_rows), ours))
        changes.store(deployment, named=None)
    session.written.add(entry.name)
    kinds = {"UPDATE": ("updated",), "DELETE": ("deleted",)}.get(statement.what, ("inserted", "updated", "deleted"))
    return Answer(
        message="\n".join([change_summary({w: changes.count[w] for w in kinds}), *(f"note: {w}" for w in warnings)])
    )


def _matched(
    session: Session,
    statement: Merge,
    changes: TableEdit,
    sides: tuple[RowsSide, RowsSide],
    ours: np.ndarray,
    theirs: np.ndarray,
) -> None:
    whens = [w for w in statement.whens if w.kind == "matched"]
    if not whens or not len(ours):
        return
    target, other = sides
    pairs = (
        RowsSide(target.name, target.rows.take(pa.array(ours)), target.code),
        RowsSide(other.name, other.rows.take(pa.array(theirs)), other.code),
    )
    matches = chosen(session, _beside(pairs), [_clause(w, changes.schema, pairs) for w in whens])
    acted = [(w, c) for w, c in zip(whens, matches, strict=True) if w.action != "nothing"]
    if statement.what == "DELETE":
        changes.deleted = np.unique(np.concatenate([ours[c.rows] for _, c in acted]))
        return
    touched = np.concatenate([ours[c.rows] for _, c in acted]) if acted else np.array([], np.int64)
    places, times = np.unique(touched, return_counts=True)
    if (times > 1).any():
        _refuse_several(changes, int(places[times > 1][0]), statement)
    for when, mine in acted:
        _change(changes, when, ours[mine.rows], mine.values)


def _not_matched_by_source(
    session: Session, statement: Merge, changes: TableEdit, target: RowsSide, alone: np.ndarray
) -> None:
    for when, mine in _chosen_alone(session, statement, changes.schema, target, alone, "not matched by source"):
        _change(changes, when, alone[mine.rows], mine.values)


def _change(changes: TableEdit, when: When, places: np.ndarray, values: Mapping[str, pa.ChunkedArray]) -> None:
    if when.action == "update":
        changes.update(places, values)
    elif when.action == "delete":
        changes.deleted = np.concatenate([changes.deleted, places])


def _not_matched(session: Session, statement: Merge, changes: TableEdit, other: RowsSide, alone: np.ndarray) -> None:
    for when, mine in _chosen_alone(session, statement, changes.schema, other, alone, "not matched"):
        if when.action == "insert" and len(mine.rows):
            rows = assigned_columns(changes.schema, dict(mine.values), len(mine.rows))
            check_required(changes.entry, rows, named=None)
            changes.insert(rows)


def _chosen_alone(
    session: Session, statement: Merge, schema: Schema, side: RowsSide, alone: np.ndarray, kind: str
) -> list[tuple[When, Chosen]]:
    """The unmatched rows of one side that each WHEN of a kind applies to."""
    whens = [w for w in statement.whens if w.kind == kind]
    if not whens or not len(alone):
        return []
    rows = RowsSide(side.name, side.rows.take(pa.array(alone)), side.code)
    matches = chosen(session, rows.flat(), [_clause(w, schema, (rows,)) for w in whens])
    return list(zip(whens, matches, strict=True))


def _clause(when: When, schema: Schema, sides: tuple[RowsSide, ...]) -> Clause:
    condition = None if when.condition is None else bound(when.condition, sides)
    if not when.every:
        return Clause(condition, _bound_values(when.values, schema, sides))
    source = sides[-1]
    values: dict[str, exp.Expr] = {}
    for name in schema.names:
        column = source.find(name)
        if column is None:
            raise SchemaError(
                f"{'UPDATE SET' if when.action == 'update' else 'INSERT'} * needs a column `{name}` in the source",
                detail="it has: " + ", ".join(source.rows.column_names),
                hint="SET column = value, ..."
                if when.action == "update"
                else "INSERT (column, ...) VALUES (value, ...)",
            )
        values[name] = exp.Column(this=exp.to_identifier(column, quoted=True))
    return Clause(condition, values)


def _bound_values(values: Assignments, schema: Schema, sides: tuple[RowsSide, ...]) -> dict[str, exp.Expr]:
    if values and not values[0][0]:  # INSERT VALUES (...) without a list of columns
        if len(values) != len(schema.names):
            raise SchemaError(f"{len(values)} values for {len(schema.names)} columns: {', '.join(schema.names)}")
        values = tuple((n, v) for n, (_, v) in zip(schema.names, values, strict=True))
    bound_values: dict[str, exp.Expr] = {}
    for name, value in values:
        column = spelled(schema, name)
        if column in bound_values:
            raise SchemaError(f"the column `{column}` is set twice")
        bound_values[column] = bound(value, sides)
    return bound_values


def _refuse_several(changes: TableEdit, place: int, statement: Merge) -> None:
    key = key_of(changes.entry, changes.schema) or list(changes.schema.names)[:3]
    values = values_text({k: python_values(changes.present[k].slice(place, 1))[0] for k in key})
    raise RecordRefused(
        f"several rows of the source match the row of `{changes.entry.name}` with {values}",
        detail=f"{statement.what} would change it more than once",
        hint="make the source unique: USING (SELECT ... GROUP BY key), or add a condition to ON or WHEN",
    )


def _named_sides(target: RowsSide, other: RowsSide) -> tuple[RowsSide, RowsSide]:
    if target.name.lower() == other.name.lower():
        raise DefinitionError(
            f"`{target.name}` names both the target and the source", hint="give one of them an alias: USING source AS s"
        )
    return target, other


def _beside(sides: tuple[RowsSide, ...]) -> pa.Table:
    """The rows of two sides, pair by pair."""
    one, other = (s.flat() for s in sides)
    return pa.table([*one.columns, *other.columns], names=[*one.column_names, *other.column_names])
