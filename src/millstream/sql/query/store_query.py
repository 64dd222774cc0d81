"""Queries to the store: translates Spark SQL, checked against an allow-list, to the store's dialect.

Only a single SELECT (with joins, subqueries, CTEs and set operations) over the views and tables of the home is allowed.
The check applies to the tree, never to the text: no other statement, no function that reads files, network or settings.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import sqlglot
from sqlglot import exp

from millstream.errors import QueryError, StatementRefused, Unsupported, ViewNotFound
from millstream.model.functions import AGGREGATE, SCALAR
from millstream.sql.bind import pivot
from millstream.sql.dialects.function_names import in_spark, instead_of
from millstream.sql.parse.checks.allow_list import (
    CHANGELOG,
    CLOCK,
    KEYWORDS,
    WINDOW,
    beyond_double,
    called,
    forbidden,
    not_allowed,
    reads,
)
from millstream.sql.parse.text import Bounded
from millstream.sql.query.clauses import in_store
from millstream.sql.query.duckdb_sql import duck_sql
from millstream.sql.query.growth import may_grow
from millstream.sql.relations import array_functions, as_of_syntax

logging.getLogger("sqlglot").setLevel(logging.ERROR)  # our errors report it

_DOLLAR = re.compile(
    r"""('(?:[^'\\]|\\.|'')*')|"(?:[^"\\]|\\.)*"|`[^`]*`|--[^\n]*|/\*.*?\*/|(?:['"`]|/\*).*|"""
    r"""(?<![\w$])([A-Za-z_]\w*\$[a-z]+)(?![\w$])""",
    re.DOTALL,
)
"""A name with a dollar sign; quoted text and comments are skipped. An unclosed quote or comment consumes the rest of
the text, so that the search for its end runs only once.
"""
_ALLOWED = SCALAR | AGGREGATE | WINDOW | CLOCK | KEYWORDS | {"explode", "range", "timestampdiff"}


_TWICE = re.compile(r"\\.|''", re.DOTALL)


@dataclass(frozen=True)
class StoreQuery:
    """A query that was checked to be safe."""

    sql: str
    """In DuckDB's SQL."""
    tables: tuple[str, ...] = ()
    """The tables it reads."""
    apart: tuple[str, ...] | None = None
    """The tables it reads, if it may need so much memory that it runs in a separate process."""


def translate(sql: str, tables: Mapping[str, Sequence[str]]) -> str:
    """The query in DuckDB's SQL; rejects everything but a SELECT over `tables`."""
    return read_query(sql, tables).sql


DIALECTS = frozenset({"duckdb"})
"""The dialects that queries can be written in for a store."""


def read_query(sql: str, tables: Mapping[str, Sequence[str]], *, dialect: str = "duckdb") -> StoreQuery:
    """The query in the dialect of a store, and where to run it; rejects everything but a SELECT over `tables`."""
    if dialect not in DIALECTS:
        raise Unsupported(
            f"a store that is queried in {dialect}", hint="queries are written for: " + ", ".join(DIALECTS)
        )
    known = _known_queries(tuple((name, tuple(columns)) for name, columns in tables.items()))
    query = known.get(sql)
    if query is None:
        query = _read_query(sql, tables)
        if len(known) >= _KNOWN:
            known.clear()
        known[sql] = query
    return query


_KNOWN = 256
"""The number of queries whose translation is kept: programs repeat their queries, and a translation takes 5 ms."""


@lru_cache(maxsize=2)
def _known_queries(tables: tuple[tuple[str, tuple[str, ...]], ...]) -> dict[str, StoreQuery]:
    """The translated queries over these tables, by their text."""
    del tables
    return {}


def _read_query(sql: str, tables: Mapping[str, Sequence[str]]) -> StoreQuery:
    if len(sql) > 100_000:
        raise StatementRefused("the statement is longer than 100,000 characters")
    try:
        statements = [s for s in sqlglot.parse(_quoted(sql), dialect=Bounded) if s is not None]
    except (sqlglot.errors.SqlglotError, RecursionError) as error:
        raise QueryError(
            "the query cannot be parsed", detail=_problem(error), hint="queries are written in Spark SQL"
        ) from None
    if len(statements) != 1:
        raise StatementRefused(f"only one statement is allowed; there are {len(statements)}")
    tree = pivot.spelled_out(in_spark(statements[0]))
    if not isinstance(tree, exp.Query):
        raise StatementRefused(
            f"only SELECT can be run here, not {_kind(tree)}", hint="views are read with SELECT ... FROM view"
        )
    return checked_query(tree, tables)


def checked_query(tree: exp.Query, tables: Mapping[str, Sequence[str]]) -> StoreQuery:
    """A SELECT in DuckDB's SQL, after checking that all of it is safe."""
    try:
        tree = as_of_syntax.in_store(tree)
        _check_nodes(tree)
        _check_tables(tree, tables)
        _check_functions(tree)
        read = tuple(dict.fromkeys(t.name for t in tree.find_all(exp.Table) if t.name in tables))
        grows = may_grow(tree)  # as written: the store's equivalents count as steady
        return StoreQuery(duck_sql(in_store(tree, tables), whole=True), read, read if grows else None)
    except RecursionError:
        raise StatementRefused("the query is nested too deeply") from None


def _check_nodes(tree: exp.Expr) -> None:
    number = next(filter(beyond_double, tree.find_all(exp.Literal)), None)
    if number is not None:
        raise QueryError(f"the number {number.name[:60]} is outside the range of DOUBLE")
    node = forbidden(tree)
    if node is not None:
        raise not_allowed(node)


def _check_tables(tree: exp.Expr, tables: Mapping[str, Sequence[str]]) -> None:
    for table in tree.find_all(exp.Table):
        if array_functions.call_of(table) is not None:
            continue
        if isinstance(table.this, exp.Anonymous) and str(table.this.this).lower() == CHANGELOG:
            raise StatementRefused(
                "a changelog can be used in a view, not in a query: it contains future changes",
                hint="CREATE VIEW changes AS SELECT * FROM CHANGELOG OF v; SUBSCRIBE TO v keeps nothing",
            )
        if not isinstance(table.this, exp.Identifier):
            raise StatementRefused(f"`{table.sql(dialect='spark')[:60]}` is not a view or table")
        if table.args.get("db") or table.args.get("catalog"):
            raise StatementRefused(f"`{table.sql(dialect='spark')[:60]}`: name a view without a schema or path")
        if table.name not in tables and table.name not in in_sight(table):
            close = difflib.get_close_matches(table.name, tables, n=1)
            raise ViewNotFound(
                f"there is no view or table `{table.name}`",
                detail="there are: " + (", ".join(sorted(tables)) or "none yet"),
                hint=f"did you mean `{close[0]}`?" if close else None,
            )


def in_sight(table: exp.Expression) -> set[str]:
    """The CTEs that a table name may refer to: those of the enclosing queries and, inside a CTE, only earlier ones."""
    names: set[str] = set()
    node = table
    while (above := node.parent) is not None:
        if isinstance(above, exp.With):
            before = above.expressions[: above.expressions.index(node)]
            names.update(c.alias for c in (above.expressions if above.args.get("recursive") else before))
        elif (with_clause := above.args.get("with_")) is not None and with_clause is not node:
            names.update(c.alias for c in with_clause.expressions)
        node = above  # type: ignore[assignment]
    return names


def _check_functions(tree: exp.Expr) -> None:
    for name in called(tree, "spark"):
        if name not in _ALLOWED:
            raise StatementRefused(f"the function `{name}` cannot be used in a query", hint=instead_of(name))
    function = reads(tree)
    if function is not None:
        raise StatementRefused(f"the function `{function}` cannot be used in a query")


def _quoted(sql: str) -> str:
    """Quotes names like bids$errors, which Spark requires in backticks."""
    return _DOLLAR.sub(lambda found: f"`{found[2]}`" if found[2] else _escaped(found[1]) or found[0], sql)


def _escaped(text: str | None) -> str | None:
    """A text in which doubled quotes are replaced by escaped quotes."""
    return text and "'" + _TWICE.sub(lambda found: found[0].replace("''", "\\'"), text[1:-1]) + "'"


def _kind(tree: exp.Expr) -> str:
    return tree.key.upper() if not isinstance(tree, exp.Command) else str(tree.this).upper()


def _problem(error: Exception) -> str:
    errors = getattr(error, "errors", None)
    if errors:
        first = errors[0]
        problem = first["description"]
        if "<class" in str(problem):  # a part is missing; the parser's message names its class
            problem = "a part of it is missing"
        return f"{problem}, line {first['line']}, column {first['col']}: {first['highlight']}"
    return str(error).splitlines()[0] if str(error) else "it is nested too deeply"
