"""Questions to the store: Spark SQL in, checked against an allow-list, out in the store's dialect.

Only one SELECT (with joins, subqueries, CTEs and set operations) over the views and tables of the home is let
through. What
is checked is the tree, never the text: no other statement, no function that reads files, network or settings.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Mapping, Sequence

import sqlglot
from sqlglot import exp
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from millstream.errors import QueryError, StatementRefused, ViewNotFound
from millstream.model.functions import AGGREGATE, KEYWORDS, SCALAR

logging.getLogger("sqlglot").setLevel(logging.ERROR)  # our errors say it

_DOLLAR = re.compile(
    r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|--[^\n]*|/\*.*?\*/|(?<![\w$])([A-Za-z_]\w*\$[a-z]+)(?![\w$])""",
    re.DOTALL,
)
"""A name with a dollar sign; what stands in quotes or comments is passed over."""
_WINDOW = {"row_number", "rank", "dense_rank", "lag", "lead", "ntile", "first_value", "last_value", "nth_value",
           "percent_rank", "cume_dist"}  # fmt: skip
_CLOCK = {"now", "current_timestamp", "current_date"}
_KEYWORDS = KEYWORDS | {
    "on", "select", "where", "having", "by", "using", "exists", "all", "any", "some", "distinct", "union", "except",
    "intersect", "join", "over", "within", "filter", "values", "limit", "offset", "qualify", "grouping", "sets",
    "rollup", "cube", "partition", "explode", "unnest", "asc", "desc", "into", "with", "recursive",
}  # fmt: skip
_ALLOWED = SCALAR | AGGREGATE | _WINDOW | _CLOCK | _KEYWORDS | {"explode"}
_FORBIDDEN = (exp.Command, exp.QueryTransform, exp.DDL, exp.DML, exp.Into, exp.Placeholder, exp.Parameter,
              exp.SessionParameter, exp.Set, exp.Pragma, exp.Attach, exp.Detach, exp.Copy, exp.Use, exp.LoadData,
              exp.TableSample)  # fmt: skip


def translate(sql: str, tables: Mapping[str, Sequence[str]]) -> str:
    """The same question in DuckDB's SQL; refuses everything but a SELECT over `tables`."""
    if len(sql) > 100_000:
        raise StatementRefused("the statement is longer than 100,000 characters")
    try:
        statements = [s for s in sqlglot.parse(_quoted(sql), dialect="spark") if s is not None]
    except (sqlglot.errors.SqlglotError, RecursionError) as error:
        raise QueryError(
            "the query cannot be read", detail=_problem(error), hint="queries are written in Spark SQL"
        ) from None
    if len(statements) != 1:
        raise StatementRefused(f"one statement at a time, please: these are {len(statements)}")
    tree = statements[0]
    if not isinstance(tree, exp.Query):
        raise StatementRefused(
            f"only SELECT can be run here, not {_kind(tree)}", hint="views are read with SELECT ... FROM view"
        )
    _check_nodes(tree)
    _check_tables(tree, tables)
    _check_functions(tree)
    return tree.sql(dialect="duckdb", identify=True)


def _check_nodes(tree: exp.Expr) -> None:
    for node in tree.walk():
        if isinstance(node, _FORBIDDEN):
            raise StatementRefused(f"`{node.sql(dialect='spark')[:60]}` is not allowed in a query")


def _check_tables(tree: exp.Expr, tables: Mapping[str, Sequence[str]]) -> None:
    for table in tree.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier):
            raise StatementRefused(f"`{table.sql(dialect='spark')[:60]}` is not a view or table")
        if table.args.get("db") or table.args.get("catalog"):
            raise StatementRefused(f"`{table.sql(dialect='spark')[:60]}`: name a view without a schema or path")
        if table.name not in tables and table.name not in _in_sight(table):
            close = difflib.get_close_matches(table.name, tables, n=1)
            raise ViewNotFound(
                f"there is no view or table `{table.name}`",
                detail="there are: " + (", ".join(sorted(tables)) or "none yet"),
                hint=f"did you mean `{close[0]}`?" if close else None,
            )


def _in_sight(table: exp.Expression) -> set[str]:
    """The CTEs a table name may mean where it stands: those of the queries around it, in a CTE only the ones before
    it.
    """
    names: set[str] = set()
    node = table
    while (above := node.parent) is not None:
        if isinstance(above, exp.With):
            before = above.expressions[: above.expressions.index(node)]
            names.update(c.alias for c in (above.expressions if above.args.get("recursive") else before))
        elif (given := above.args.get("with_")) is not None and given is not node:
            names.update(c.alias for c in given.expressions)
        node = above  # type: ignore[assignment]
    return names


def _check_functions(tree: exp.Expr) -> None:
    for dialect in ("spark", "duckdb"):
        tokens = sqlglot.tokenize(tree.sql(dialect=dialect), dialect=dialect)
        for before, token, following in zip([None, *tokens], tokens, tokens[1:], strict=False):
            if following.token_type != TokenType.L_PAREN or token.token_type == TokenType.STRING:
                continue
            name = token.text.lower()
            if not (name[:1].isalpha() or name[:1] == "_"):
                continue
            if dialect == "spark" and name not in _ALLOWED and not _names_columns(before):
                raise StatementRefused(f"the function `{name}` cannot be used in a query")
            if dialect == "duckdb" and name.startswith(
                ("read_", "parquet_", "glob", "sniff_", "getenv", "query", "duckdb_")
            ):
                raise StatementRefused(f"the function `{name}` cannot be used in a query")


def _names_columns(before: Token | None) -> bool:
    """Whether a name before a bracket is an alias with its columns, as in ``AS t(a, b)`` and ``WITH t(a) AS``."""
    return before is not None and before.token_type in (TokenType.ALIAS, TokenType.WITH, TokenType.RECURSIVE)


def _quoted(sql: str) -> str:
    """Names like bids$errors, which Spark would want in backticks."""
    return _DOLLAR.sub(lambda found: f"`{found[1]}`" if found[1] else found[0], sql)


def _kind(tree: exp.Expr) -> str:
    return tree.key.upper() if not isinstance(tree, exp.Command) else str(tree.this).upper()


def _problem(error: Exception) -> str:
    found = getattr(error, "errors", None)
    if found:
        first = found[0]
        return f"{first['description']}, line {first['line']}, column {first['col']}: {first['highlight']}"
    return str(error).splitlines()[0] if str(error) else type(error).__name__
