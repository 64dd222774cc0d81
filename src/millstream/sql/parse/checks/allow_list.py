"""The allow-list of a statement: which tree nodes and functions it may contain."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from math import isinf

import sqlglot
from sqlglot import exp
from sqlglot.tokens import TokenType  # type: ignore[attr-defined]

from millstream.errors import Origin, StatementRefused, Unsupported
from millstream.model import functions
from millstream.sql.query.duckdb_sql import duck_sql

WINDOW = frozenset(
    "row_number rank dense_rank lag lead ntile first_value last_value nth_value percent_rank cume_dist".split()
)
CLOCK = frozenset({"now", "current_timestamp", "current_date", "localtimestamp"})
"""Functions of the time at which a query runs; they are not allowed in a live view."""

KEYWORDS = functions.KEYWORDS | {
    "on", "select", "where", "having", "by", "using", "exists", "all", "any", "some", "distinct", "union", "except",
    "intersect", "join", "over", "within", "filter", "values", "limit", "offset", "qualify", "grouping", "sets",
    "rollup", "cube", "partition", "explode", "unnest", "asc", "desc", "into", "with", "recursive", "view", "lateral",
    "set", "table", "rename", "exclude", "group", "within group", "grouping sets", "group by", "order by",
    "partition by",
}  # fmt: skip

GROUPS = frozenset(
    """
    tumble hop cumulate session count_window calendar window session_window descriptor partition_by history_of proctime
    tumble_start tumble_end tumble_rowtime tumble_proctime hop_start hop_end hop_rowtime session_start session_end
    session_rowtime window_start window_end window_time state match_recognize
    """.split()
)
"""Names with a meaning in FROM, in GROUP BY, or over groups."""

CHANGELOG = "changelog_of"
"""The name of CHANGELOG OF and CHANGELOG(TABLE ...) in the tree of a query."""

STREAMING = (
    GROUPS
    | {CHANGELOG}
    | {
        "asof_nearest",
        "match_condition",
        "sentence",
        "timestampdiff",
        "timestampadd",
        "to_timestamp_ltz",
    }
)
"""Those, and names that are parsed as other functions."""

_BARE = frozenset(
    """
    current_catalog current_database current_date current_role current_schema current_time current_timestamp
    current_user localtime localtimestamp session_user sysdate system_user user
    """.split()
)
"""Functions that are called without parentheses. Columns of these names must be quoted."""

_NO_CALLS = frozenset({
    exp.Column, exp.Identifier, exp.Literal, exp.Null, exp.Boolean, exp.Paren, exp.Neg, exp.Add, exp.Sub, exp.Mul,
    exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Is, exp.Between,
})  # fmt: skip
"""Nodes that no dialect renders as a function call, so that a tree of only these need not be rendered for the check."""

FORBIDDEN = (exp.Command, exp.QueryTransform, exp.DDL, exp.DML, exp.Into, exp.Placeholder, exp.Parameter,
             exp.SessionParameter, exp.Set, exp.Pragma, exp.Attach, exp.Detach, exp.Copy, exp.Use, exp.LoadData,
             exp.TableSample, exp.ReadCSV, exp.ReadParquet, exp.Pivot, exp.Describe, exp.Drop, exp.Alter, exp.Analyze,
             exp.Cache, exp.Uncache, exp.Refresh, exp.Comment, exp.Transaction, exp.Commit, exp.Rollback, exp.Kill,
             exp.TruncateTable, exp.Summarize, exp.Show, exp.Grant, exp.Revoke, exp.Export, exp.Declare, exp.Execute,
             exp.Heredoc, exp.JSONTable, exp.XMLTable, exp.OpenJSON, exp.Block, exp.Posexplode)  # fmt: skip

_ROWS = (exp.Select, exp.SetOperation, exp.Subquery, exp.Values)
"""Nodes that produce rows, where a nested query is expected."""

_READS = ("read_", "parquet_", "glob", "sniff_", "getenv", "query", "duckdb_")
"""Prefixes of DuckDB functions that read files, settings or other text as SQL."""


def forbidden(tree: exp.Expr) -> exp.Expr | None:
    """The first part of a tree that no query may contain: another statement, files, settings, or a SELECT without
    columns.
    """
    for node in tree.walk():
        inner = node.args.get("this") if isinstance(node, exp.CTE | exp.Subquery | exp.Exists) else None
        rows = (*_ROWS, exp.Table, exp.Join) if isinstance(node, exp.Subquery) else _ROWS
        listed = isinstance(node, exp.Exists) and not isinstance(
            inner, exp.Query | exp.Subquery
        )  # exists(array, x -> ..)
        if isinstance(inner, exp.Expr) and not isinstance(inner, rows) and not listed:
            return node
        if isinstance(node, FORBIDDEN) or (isinstance(node, exp.Select) and not node.expressions):
            return node
    return None


_WHY: tuple[tuple[type[exp.Expr], str, str], ...] = (
    (
        exp.TableSample,
        "TABLESAMPLE",
        "a result must be the same every time: filter on a column instead, e.g. WHERE id % 10 = 0",
    ),
    (exp.Placeholder, "a placeholder", "write the value itself; strings are written in single quotes"),
    (exp.Parameter, "a placeholder", "write the value itself; strings are written in single quotes"),
    (exp.SessionParameter, "a variable", "write the value itself; SET shows the options of a session"),
    (exp.Heredoc, "a string in dollar signs", "write it in single quotes: 'text'"),
    (exp.Into, "INTO", "write CREATE TABLE name (columns) and INSERT INTO name SELECT ..."),
    (exp.Posexplode, "posexplode", "write CROSS JOIN UNNEST(array) WITH ORDINALITY AS t(element, number)"),
)
"""Parts that no query may contain, their common names, and what to write instead."""


def not_allowed(node: exp.Expr, origin: Origin | None = None) -> StatementRefused:
    """The error for a part that no query may contain."""
    for kind, called_so, instead in _WHY:
        if isinstance(node, kind):
            return StatementRefused(f"{called_so} is not allowed in a query", hint=instead, origin=origin)
    if isinstance(node, exp.Select) and not node.expressions:
        return StatementRefused(
            "SELECT names no columns", hint="name them before FROM, or write SELECT * FROM ...", origin=origin
        )
    return StatementRefused(
        f"`{node.sql(dialect='spark')[:60]}` is not allowed in a query",
        hint="a query is a SELECT over sources, views and tables; docs/language.md lists the forms",
        origin=origin,
    )


def beyond_double(number: exp.Literal) -> bool:
    """Whether a number with an exponent is too large for DOUBLE: DuckDB would convert it to infinity."""
    text = "" if number.is_string else number.name.lower()
    try:
        return "e" in text and isinf(float(text))
    except ValueError:  # with a type suffix, like 1e5BD
        return False


def reads(tree: exp.Expr) -> str | None:
    """The first function of a tree, as rendered for DuckDB, that reads something outside of the store."""
    written = _written(tree, "duckdb")
    if not any(name in written.lower() for name in _READS):
        return None
    return next((name for name in _calls(written, "duckdb") if name.startswith(_READS)), None)


def unrepeatable(name: str, origin: Origin | None) -> Unsupported:
    """The error for a non-deterministic function."""
    return Unsupported(
        f"`{name}` cannot be used here",
        detail="its result changes from run to run, so a repeated epoch would differ",
        hint="use the event time; or use it in a query: SELECT ... FROM view WHERE ts > now() - INTERVAL 1 HOUR",
        origin=origin,
    )


def called(tree: exp.Expr, dialect: str = "spark") -> Iterator[str]:
    """The functions of a tree as it would be rendered, in lower case: names before an opening parenthesis, and
    functions that need none.
    """
    return _calls(_written(tree, dialect), dialect)


def _written(tree: exp.Expr, dialect: str) -> str:
    """The text of a tree in which names before an opening parenthesis are calls; none if nothing in it is a call."""
    if all(type(node) in _NO_CALLS for node in tree.walk()):
        return ""
    plain = _without_column_names(tree)
    if dialect == "duckdb":
        return duck_sql(plain, copy=False)
    return plain.sql(dialect=dialect, copy=False, identify=True, comments=False)


def _calls(written: str, dialect: str) -> Iterator[str]:
    tokens = sqlglot.tokenize(written, dialect=dialect) if written else []
    for token, following in zip_longest(tokens, tokens[1:]):
        if token.token_type == TokenType.STRING:
            continue
        name = token.text.lower()
        if following is not None and following.token_type == TokenType.L_PAREN:
            if name[:1].isalpha() or name[:1] == "_":
                yield name
        elif name in _BARE and token.token_type != TokenType.IDENTIFIER:
            yield name


def _without_column_names(tree: exp.Expr) -> exp.Expr:
    """A copy in which no alias names columns, as in ``AS t(a, b)`` and ``WITH t(a) AS``, which look like calls. And no
    alias has the name of a function that needs no parentheses.
    """
    plain = tree.copy()
    for node in list(plain.find_all(exp.GenerateSeries, exp.Unnest, exp.TableAlias)):
        if isinstance(node, exp.GenerateSeries):
            if isinstance(node.parent, exp.Table):  # it would be rendered with its own names
                node.replace(exp.Anonymous(this="sequence", expressions=list(node.args.values())))
        elif isinstance(node, exp.Unnest):
            node.set("offset", None)  # it would be rendered as an additional name
        elif isinstance(node, exp.TableAlias):
            if all(isinstance(c, exp.Identifier) for c in node.columns):
                node.set("columns", None)
            if isinstance(node.this, exp.Identifier):
                node.set("this", exp.to_identifier("alias", quoted=True))
    return plain
