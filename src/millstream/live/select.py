"""Queries: the store answers a SELECT over views and tables; Spark answers one over the history of a source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from millstream.errors import QueryError, Unsupported, ViewFailed, ViewNotFound
from millstream.limits import Watch
from millstream.live import inspect
from millstream.live.answer import Answer
from millstream.live.tables import copy
from millstream.result import Result
from millstream.runtime.inspect.status import ERROR, has_failed
from millstream.sql.catalog import tables_of
from millstream.sql.connectors import files_of
from millstream.sql.parse.checks.allow_list import CHANGELOG
from millstream.sql.parse.dml import FILES, place_of
from millstream.sql.parse.statement_values import Ask, CreateSource
from millstream.sql.query import clauses, store_query
from millstream.sql.relations import array_functions
from millstream.sql.relations.windows import name_of
from millstream.store.port import AsOf, epochs_read

if TYPE_CHECKING:
    from millstream.live.deployment import Deployment
    from millstream.live.session import Session
    from millstream.runtime.open_home import OpenHome


def ask(deployment: Deployment, statement: Ask, session: Session) -> Answer:
    """Answer a SELECT."""
    unsettled = session.settle(tables_of(statement.query))
    warnings = check_views(deployment, statement.query, session)
    as_of: AsOf = {}
    table = answered(deployment, with_files(statement.query), session, as_of)
    return Answer(result=Result(table, (*unsettled, *warnings), epochs_read(as_of, tables_of(statement.query))))


def check_views(deployment: Deployment, query: exp.Query, session: Session) -> tuple[str, ...]:
    """Return the warnings about the views of a query: those that no longer work, and those whose flow has failed.
    Raises ViewFailed instead where a failed view is an error.
    """
    how, names = str(session.settings["failed_views"]), list(dict.fromkeys(tables_of(query)))
    warnings = []
    for name in names:
        error = deployment.broken.get(name.lower())
        if error is not None and how == ERROR:
            raise ViewFailed(
                f"the view `{name}` is broken",
                detail=error.message,
                hint=f"fix the cause, then RESUME {name}; SET failed_views = 'warn' shows the old rows",
            )
        if error is not None:
            warnings.append(f"the view `{name}` is broken and no longer changes: {error.message}")
    return (*warnings, *deployment.home.warnings_for(names, how))


def rows_of(home: OpenHome, sql: str) -> pa.Table:
    """The rows of a SELECT over the store alone, whatever the state of its flows."""
    query = store_query.read_query(sql, home.store.tables(), dialect=home.store.dialect)
    return home.store.query(query.sql, apart=query.apart)


@dataclass(frozen=True)
class WithFiles:
    """A query and the rows of the FILES(...) in it, by their placeholder names."""

    query: exp.Query
    rows: Mapping[str, pa.Table] = field(default_factory=dict)


def with_files(query: exp.Query) -> WithFiles:
    """Read the files of a query. A statement that changes a table does this before it locks the tables."""
    if _reads_history(query):
        return WithFiles(query)
    rows: dict[str, pa.Table] = {}
    rewritten = query.copy()
    for table in list(rewritten.find_all(exp.Table)):
        if name_of(table.this) == FILES:
            name = f"files${len(rows)}"
            rows[name] = copy.rows_of(files_of(place_of(table.this)))
            alias = table.args.get("alias") or exp.TableAlias(this=exp.to_identifier("files"))
            table.replace(exp.Table(this=exp.to_identifier(name, quoted=True), alias=alias))
    return WithFiles(rewritten, rows)


def _reads_history(query: exp.Query) -> bool:
    return any(isinstance(t.this, exp.Anonymous) and name_of(t.this) == "history_of" for t in query.find_all(exp.Table))


def answered(deployment: Deployment, of: WithFiles, session: Session, as_of: AsOf | None = None) -> pa.Table:
    """Return the current rows of a SELECT; the epochs that they reflect are added to `as_of`."""
    if _reads_history(of.query):
        return _history(deployment, of.query, session)
    extra_tables = dict(of.rows)
    rewritten = of.query.copy()
    for table in list(rewritten.find_all(exp.Table)):
        if name_of(table.this) == "state":
            view = _argument(table.this)
            extra_tables[f"state${view}"] = inspect.state(deployment, view)
            alias = table.args.get("alias")
            table.replace(exp.Table(this=exp.to_identifier(f"state${view}", quoted=True), alias=alias))
        elif isinstance(table.this, exp.Anonymous) and not _is_told_elsewhere(table):
            raise QueryError(f"`{table.sql(dialect='spark')[:60]}` is not a view or table")
    known = {**deployment.home.store.tables(), **{n: t.column_names for n, t in extra_tables.items()}}
    _explain_sources(deployment, rewritten, known)
    store_sql = store_query.checked_query(rewritten, known)
    apart = None if store_sql.apart is None else [t for t in store_sql.apart if t not in extra_tables]
    return deployment.home.store.query(store_sql.sql, extra_tables, limits=session.limits, apart=apart, as_of=as_of)


def _is_told_elsewhere(table: exp.Table) -> bool:
    """Whether a call in FROM is one that the store has, or one that is refused with a specific error."""
    return array_functions.call_of(table) is not None or name_of(table.this) == CHANGELOG


def _explain_sources(deployment: Deployment, query: exp.Query, known: dict[str, list[str]]) -> None:
    """Explain that a source has no rows of its own, and suggest alternatives."""
    there = {n.lower() for n in known}
    for name in tables_of(query):
        entry = deployment.catalog.get(name)
        if name.lower() in there:
            continue
        if isinstance(entry, CreateSource) or deployment.home.log.exists(name):
            raise QueryError(
                f"`{name}` is a {'source' if entry is not None else 'topic'}, whose records keep arriving",
                hint=f"for existing records, SELECT ... FROM HISTORY OF {name}; for new ones, SUBSCRIBE TO {name}",
            )
        kept = deployment.definitions.entries.get(name.lower())
        state = deployment.home.flow_state(kept.flow) if kept is not None and kept.flow else ""
        if kept is not None and has_failed(state):
            raise ViewFailed(
                f"the view `{name}` has failed, and has no rows yet",
                detail=f"the flow `{kept.flow}` {state}",
                hint=f"fix the cause, then RESUME {kept.flow}",
            )
        if entry is not None:
            reason = deployment.broken.get(name.lower())
            raise ViewNotFound(
                f"the view `{name}` has no rows yet" if reason is None else f"the view `{name}` is broken",
                detail=None if reason is None else reason.message,
                hint="its flow is starting; try again in a moment" if reason is None else None,
            )


def _history(deployment: Deployment, query: exp.Query, session: Session) -> pa.Table:
    """Run a SELECT over what a source currently holds, as an ordinary batch query of Spark."""
    spark_query = query.copy()
    clauses.without_ties(spark_query)
    names: set[str] = set()
    for table in list(spark_query.find_all(exp.Table)):
        if name_of(table.this) == "history_of":
            name = _argument(table.this)
            names.add(name)
            alias = table.args.get("alias") or exp.TableAlias(this=exp.to_identifier(name))
            table.replace(exp.Table(this=exp.to_identifier(f"history_{name.lower()}"), alias=alias))
        elif table.name not in {c.alias for c in spark_query.find_all(exp.CTE)}:
            raise Unsupported(
                f"`{table.name}` together with the history of a source in one query",
                hint="read one of them through a view",
            )
    budget = deployment.home.store.budget
    limits = budget.at_most(session.limits)
    with budget.claim() as claim:
        with Watch(limits, lambda: None) as watch:
            claim.reserve(limits.bytes, watch)
        table = inspect.history(deployment, names, spark_query.sql(dialect="spark", identify=True), limits)
        claim.pass_on(table)
        return table


def _argument(call: exp.Anonymous) -> str:
    arguments = call.expressions
    if len(arguments) != 1:
        raise QueryError(f"{call.name.upper()} takes one name")
    return str(arguments[0].name if isinstance(arguments[0], exp.Column) else arguments[0].this)
