"""Completeness: rejects what the parser accepts but the binder does not implement, so that nothing is silently ignored.

Two rules enforce this for every query. A clause that a later parser version learns is therefore rejected until it is
bound:

- a clause (SELECT, JOIN, LIMIT, OVER, ...) may have only the parts that the binder implements: `CARRIED_OUT`;
- every literal of the text is in the tree, and the tree can be rendered for the engine that computes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from sqlglot import ErrorLevel, exp
from sqlglot.errors import UnsupportedError
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from millstream.errors import Origin, Unsupported
from millstream.model.expression import plain_column
from millstream.sql.parse.text import DIALECT, Text

CARRIED_OUT: dict[type[exp.Expr], frozenset[str]] = {
    kind: frozenset(parts.split())
    for kind, parts in {
        exp.Select: "expressions from_ joins laterals where group having qualify order limit offset distinct with_ "
        "windows",
        exp.Subquery: "this alias with_ joins order limit offset",
        exp.Union: "this expression distinct with_ order limit offset",
        exp.Intersect: "this expression distinct with_ order limit offset",
        exp.Except: "this expression distinct with_ order limit offset",
        exp.With: "expressions recursive",
        exp.CTE: "this alias",
        exp.TableAlias: "this columns",
        exp.From: "this",
        exp.Table: "this alias joins version",
        exp.Version: "this kind expression",
        exp.Join: "this side kind on using method match_condition",
        exp.Lateral: "this alias view outer",
        exp.Unnest: "expressions alias offset",
        exp.Values: "expressions alias",
        exp.Where: "this",
        exp.Group: "expressions grouping_sets cube rollup all",
        exp.GroupingSets: "expressions",
        exp.Cube: "expressions",
        exp.Rollup: "expressions",
        exp.Having: "this",
        exp.Qualify: "this",
        exp.Order: "this expressions",
        exp.Ordered: "this desc nulls_first",
        exp.Limit: "expression limit_options",
        exp.Fetch: "direction count limit_options",
        exp.Offset: "expression",
        exp.Distinct: "expressions on",
        exp.Window: "this partition_by order spec alias over",
        exp.WindowSpec: "kind start start_side end end_side exclude",
        exp.Filter: "this expression",
        exp.Star: "except_ replace rename",
    }.items()
}
"""For each clause, the parts that the binder implements."""

_SPELLED = {
    "by_name": "BY NAME",
    "cluster": "CLUSTER BY",
    "connect": "CONNECT BY",
    "distribute": "DISTRIBUTE BY",
    "hint": "a hint",
    "kind": "SELECT AS",
    "locks": "FOR UPDATE",
    "materialized": "MATERIALIZED",
    "sample": "TABLESAMPLE",
    "sort": "SORT BY",
}
"""Parts whose name in the tree differs from the SQL keyword."""


_INSTEAD = {
    "by_name": "name the columns of both parts in the same order",
    "cluster": "leave it out: a view has no order",
    "distribute": "leave it out: a view has no order",
    "hint": "leave it out: the plan of a view does not depend on hints",
    "locks": "leave it out: a view always shows whole epochs",
    "sort": "leave it out: a view has no order; ORDER BY ... LIMIT n keeps the first n rows",
}
"""What to write instead of a part that is not implemented."""


def check_clauses(text: Text, query: exp.Expr) -> None:
    """Reject a view query that has a part which is not implemented."""
    for node in query.walk():
        known = CARRIED_OUT.get(type(node))
        if known is None:
            continue
        for part, value in node.args.items():
            if part not in known and _says_something(value):
                what = _spelled(node, part)
                raise Unsupported(
                    f"{what} is not supported in a view",
                    hint=_INSTEAD.get(part, "leave it out"),
                    origin=_origin(text, node, value),
                )


def _spelled(node: exp.Expr, part: str) -> str:
    return _SPELLED.get(part, part.strip("_").replace("_", " ").upper())


def _origin(text: Text, node: exp.Expr, part: object) -> Origin | None:
    """The position of the part, or of the enclosing clause: many parts are flags without a position."""
    if isinstance(part, exp.Hint):  # positions inside a hint are relative to the start of the hint
        return text.of_node(node.expressions[0])
    origin = text.of_node(part) if isinstance(part, exp.Expr) else None
    around: exp.Expr | None = node
    while origin is None and around is not None:
        origin, around = text.of_node(around), around.parent
    return origin


def _says_something(value: object) -> bool:
    return bool(value) and value != []


def check_literals(text: Text, tokens: Sequence[Token], tree: exp.Expr) -> None:
    """Reject a statement if the parser dropped a number or a string."""
    written = tree.sql(dialect="spark", comments=False, unsupported_level=ErrorLevel.IGNORE)
    left = Counter(_value(t) for t in _literals(DIALECT.tokenize(written)))
    left |= Counter(_number(n.name) if not n.is_string else "'" + n.name.lower() for n in tree.find_all(exp.Literal))
    for names in (exp.Var, exp.Identifier):  # date_trunc('month', ts); named_struct('a', 1) is STRUCT(1 AS a)
        left |= Counter("'" + n.name.lower() for n in tree.find_all(names))
    for token in _literals(tokens):
        left[_value(token)] -= 1
        if left[_value(token)] < 0:
            raise Unsupported(
                f"`{token.text[:60]}` is not supported here: it would be ignored",
                hint="leave it out, or write the same with another function; docs/guide/steps.md lists them",
                origin=text.of_token(token),
            )


_SPELLED_OTHERWISE = ("INTERVAL", "->", "->>", "#>", "#>>")


def _literals(tokens: Sequence[Token]) -> Iterator[Token]:
    """Numbers and strings, except the lengths of intervals and the keys of JSON, which can be
    written in several ways.
    """
    before = ""
    for token in tokens:
        if token.token_type in (TokenType.NUMBER, TokenType.STRING) and before not in _SPELLED_OTHERWISE:
            yield token
        before = token.text.upper() if token.text not in ("(", "-", "+") else before


def _value(token: Token) -> str:
    return _number(token.text) if token.token_type is TokenType.NUMBER else "'" + str(token.text).lower()


def _number(text: str) -> str:
    try:
        return repr(float(text.rstrip("LSYDFBlsydfb")))
    except ValueError:
        return text


def check_expression(text: Text, tree: exp.Expr) -> None:
    """Reject an expression if a part would be lost when it is rendered for Spark."""
    if plain_column(tree):
        return
    try:
        tree.sql(dialect="spark", unsupported_level=ErrorLevel.RAISE)
    except UnsupportedError:
        raise Unsupported(
            f"only `{tree.sql(dialect='spark')[:60]}` would be computed here: a part of it is not supported",
            hint="leave that part out, or write it with another function; docs/guide/steps.md lists them",
            origin=text.of_node(tree),
        ) from None
