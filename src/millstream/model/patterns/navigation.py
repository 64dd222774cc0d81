"""Navigation: how conditions and measures of a pattern refer to rows other than the current one.

A text like ``b.price > LAST(a.price, 1)`` becomes a **reading**: a tree in which every navigation is a separate column,
and the definitions of these columns. Parts that refer to a single row are left to be computed natively.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from millstream.errors import DefinitionError, Origin, SchemaError, Unsupported
from millstream.model.expression import Expr, expr, is_lambda_parameter
from millstream.model.origin import here
from millstream.model.types.scalars import mean_type
from millstream.model.types.schema import Field, Schema

TOTALS = ("count", "sum", "min", "max", "avg")
_LOGICAL = ("nav_first", "nav_last")
_PHYSICAL = ("nav_prev", "nav_next")
_MODES = {"FINAL": "final", "RUNNING": "running"}
_STRICT = (
    exp.Column,
    exp.Identifier,
    exp.Literal,
    exp.Paren,
    exp.Neg,
    exp.Add,
    exp.Sub,
    exp.Mul,
    exp.EQ,
    exp.NEQ,
    exp.LT,
    exp.LTE,
    exp.GT,
    exp.GTE,
    exp.Dot,
    exp.Cast,
    exp.DataType,
    exp.Upper,
    exp.Lower,
    exp.Trim,
    exp.Length,
    exp.Abs,
    exp.Like,
)
"""Nodes that are NULL if a row that they refer to does not exist."""
NAMES = frozenset(
    {*_LOGICAL, *_PHYSICAL, "classifier", "match_number"}
    | {f"{m}_{n}" for m in _MODES.values() for n in (*_LOGICAL, *TOTALS)}
)
"""Functions that a prepared text may call in addition to Spark's."""


@dataclass(frozen=True)
class Navigation:
    """A value derived from a match: a value at a row, an aggregate over its rows, or a property of the match."""

    kind: str
    """``at``, one of TOTALS, ``classifier`` or ``number``."""
    of: tuple[str, ...] = ()
    """The variables whose rows are meant; empty means all rows."""
    argument: Expr | None = field(default=None, compare=False)
    """The expression computed over the row; None means none, as in COUNT(*)."""
    said: str = ""
    """The argument as Spark SQL."""
    first: bool = False
    """Count from the first row of the variables instead of the last."""
    offset: int = 0
    """How many rows of the variables to move forward (from the last row: backward)."""
    shift: int = 0
    """How many rows to move after that, counting all rows; negative means backward."""
    mode: str = ""
    """``final`` or ``running``, if specified."""

    def type_in(self, schema: Schema) -> pa.DataType | None:
        """The type of its values."""
        if self.kind == "classifier":
            return pa.string()
        if self.kind in ("number", "count"):
            return pa.int64()
        assert self.argument is not None
        of = self.argument.type_in(schema)
        if self.kind == "at" or of is None:
            return of
        from millstream.model.steps.aggregation import summed_type  # that module imports this one

        return mean_type(of) if self.kind == "avg" else summed_type(self.kind, of)


@dataclass(frozen=True, eq=False)
class Reading:
    """An expression with its navigations: ``$n0`` and so on in `tree` stand for them."""

    tree: Expr
    navigations: Mapping[str, Navigation]

    def type_in(self, schema: Schema) -> pa.DataType | None:
        """The type of the whole expression."""
        known = Schema(tuple(Field(n, nav.type_in(schema)) for n, nav in self.navigations.items()))
        return self.tree.type_in(known)


def tokens_prepared(source_tokens: Iterable[Token]) -> list[Token]:
    """Tokens in which the names of navigations are not parsed as Spark functions, which have different arguments."""
    tokens, done, i = list(source_tokens), [], 0
    while i < len(tokens):
        token = tokens[i]
        keyword = _word(token)
        following = tokens[i + 1] if i + 1 < len(tokens) else None
        mode = _MODES.get(keyword)
        if mode and following is not None and _calls(tokens, i + 1) and _name(following) is not None:
            done.append(_renamed(token, f"{mode}_{_name(following)}"))
            i += 2
            continue
        name = _name(token) if _calls(tokens, i) else None
        done.append(_renamed(token, name) if name is not None and name.startswith("nav_") else token)
        i += 1
    return done


def parsed(text: str | Expr) -> exp.Expr:
    """The tree of a condition or a measure, in which navigations keep their own names."""
    if isinstance(text, Expr):
        return text.node.copy()
    if not isinstance(text, str):
        raise DefinitionError(f"{text!r} is not an expression", hint="write SQL text", origin=here())
    try:
        tokens = tokens_prepared(sqlglot.tokenize(text, dialect="spark"))
        trees = [t for t in Spark().parser().parse(tokens, text) if t is not None]
    except (SqlglotError, ValueError, RecursionError) as error:
        raise DefinitionError(
            f"the expression cannot be parsed: {text!r}", detail=str(error).splitlines()[0][:200], origin=here()
        ) from None
    if len(trees) != 1:
        raise DefinitionError(f"{text!r} is not one expression", origin=here())
    return trees[0]


def checked(tree: exp.Expr) -> Expr:
    """A tree as an expression, checked to be valid in a flow."""
    return expr(tree.sql(dialect="spark", identify=True))


@dataclass(frozen=True)
class Names:
    """The names that a condition or a measure may refer to: variables (including subsets) and the columns of a row."""

    variables: Mapping[str, tuple[str, ...]]
    """From a lower-case name to the variables it stands for."""
    schema: Schema
    current: str | None = None
    """The variable whose condition it is; None in a measure."""
    build: Callable[[exp.Expr], Expr] = checked
    """Builds an expression from a tree without navigations, or rejects it."""

    def condition(self, tree: exp.Expr, origin: Origin | None) -> tuple[Reading, ...]:
        """The conjuncts of a condition; all must be true."""
        parts = list(tree.flatten()) if isinstance(tree, exp.And) else [tree]
        return tuple(self._read(p, origin) for p in parts)

    def measure(self, tree: exp.Expr, origin: Origin | None) -> Reading:
        """The reading of a measure."""
        return self._read(tree, origin)

    def _read(self, tree: exp.Expr, origin: Origin | None) -> Reading:
        navigations: dict[str, Navigation] = {}
        expression = self._replaced(tree.copy(), navigations, origin)
        return Reading(replace(self.build(expression), origin=origin), navigations)

    def _replaced(self, node: exp.Expr, navigations: dict[str, Navigation], origin: Origin | None) -> exp.Expr:
        navigation = self._navigation(node, origin)
        if navigation is not None:
            name = next((n for n, known in navigations.items() if known == navigation), f"$n{len(navigations)}")
            navigations[name] = navigation
            return exp.column(name, quoted=True)
        for child in list(node.iter_expressions()):
            new = self._replaced(child, navigations, origin)
            if new is not child:
                child.replace(new)
        return node

    def _navigation(self, node: exp.Expr, origin: Origin | None) -> Navigation | None:
        """The navigation for a part of a tree, if it refers to other rows."""
        called = _called(node)
        mode = next((m for m in _MODES.values() if called.startswith(f"{m}_")), "")
        called = called.removeprefix(f"{mode}_")
        if called in ("classifier", "match_number"):
            return Navigation("number" if called == "match_number" else called)
        if called in _PHYSICAL:
            return self._physical(node, called, origin)
        if called in _LOGICAL:
            argument, offset = _arguments(node, called, origin)
            at = self._at(argument, origin, local=False)
            return replace(at, first=called == "nav_first", offset=offset, mode=mode)
        if called in TOTALS:
            return self._total(node, called, mode, origin)
        if self._local(node):
            return self._at(node, origin)
        return None

    def _physical(self, node: exp.Expr, called: str, origin: Origin | None) -> Navigation:
        argument, steps = _arguments(node, called, origin, default=1)
        inner = self._navigation(argument, origin)
        if inner is None or inner.kind != "at" or inner.shift:
            inner = self._at(argument, origin)
        return replace(inner, shift=-steps if called == "nav_prev" else steps)

    def _total(self, node: exp.Expr, called: str, mode: str, origin: Origin | None) -> Navigation:
        argument = node.expressions[0] if isinstance(node, exp.Anonymous) and node.expressions else node.this
        if isinstance(argument, exp.Distinct) or not isinstance(argument, exp.Expr):
            raise Unsupported(f"`{_plain(node)}` over the rows of a match", origin=origin)
        if isinstance(argument, exp.Star):
            return Navigation("count", mode=mode)
        if isinstance(argument, exp.Column) and isinstance(argument.this, exp.Star):
            return Navigation("count", self._of(argument, origin) or (), mode=mode)
        return replace(self._at(argument, origin, local=False), kind=called, mode=mode)

    def _local(self, node: exp.Expr) -> bool:
        """Whether a part refers to one row only and can be computed there as a whole.

        In a measure this is true only of columns and of parts with a lambda, so that nothing is computed for rows
        outside of a match; in a condition the part is as large as possible.
        """
        if isinstance(node, exp.Column):
            return not is_lambda_parameter(node)
        if self.current is None and node.find(exp.Lambda) is None:
            return False
        plain = exp.Literal | exp.Null | exp.Boolean | exp.Interval | exp.Lambda | exp.Identifier
        if not isinstance(node, exp.Condition) or isinstance(node, plain) or _navigates(node):
            return False
        columns = [c for c in node.find_all(exp.Column) if not is_lambda_parameter(c)]
        rows = {self._rows_of(c, local=True) for c in columns}
        if len(rows) > 1:
            return False
        here_only = all(self.current in of for of in rows) and self.current is not None
        return here_only or all(isinstance(n, _STRICT) for n in node.walk())

    def _rows_of(self, column: exp.Column, *, local: bool) -> tuple[str, ...]:
        """The variables whose row a column refers to; without one, the current row or any row of the match."""
        of = self._of(column, None)
        if of is not None:
            return of
        return (self.current,) if local and self.current is not None else ()

    def _at(self, node: exp.Expr, origin: Origin | None, *, local: bool = True) -> Navigation:
        """A value computed over one row; with `local`, over the current row if no variable is named."""
        tree = node.copy()
        if _navigates(tree):
            raise Unsupported(
                f"`{_plain(node)}` navigates twice", hint="PREV and NEXT take only FIRST or LAST", origin=origin
            )
        columns = [c for c in tree.find_all(exp.Column) if not is_lambda_parameter(c)]
        rows = {self._rows_of(c, local=local) for c in columns}
        if len(rows) > 1:
            raise DefinitionError(
                f"`{_plain(node)}` refers to rows of different variables",
                hint="FIRST, LAST, PREV, NEXT and totals take columns of one variable",
                origin=origin,
            )
        nothing = (self.current,) if local and self.current is not None else ()
        of = next(iter(rows), nothing)
        for column in columns:
            tree = self._without_variable(tree, column, origin)
        argument = replace(self.build(tree), origin=origin).bind(self.schema)
        return Navigation("at", of, argument, argument.spark())

    def _of(self, column: exp.Column, origin: Origin | None) -> tuple[str, ...] | None:
        """The variables that qualify a column; None if it is not qualified."""
        parts = [p.name for p in column.parts]
        named = self.variables.get(parts[0].lower()) if len(parts) > 1 else None
        if named is None and len(parts) > 1 and parts[0] not in self.schema:
            raise SchemaError(
                f"`{parts[0]}` is not a variable of the pattern",
                detail="there are: " + ", ".join(sorted({n for v in self.variables.values() for n in v})),
                origin=origin or here(),
            )
        return named

    def _without_variable(self, tree: exp.Expr, column: exp.Column, origin: Origin | None) -> exp.Expr:
        parts = [p.name for p in column.parts]
        if self._of(column, origin) is not None:
            parts = parts[1:]
        name = next((n for n in self.schema.names if n.lower() == parts[0].lower()), parts[0])
        reference: exp.Expr = exp.column(name)
        for part in parts[1:]:
            reference = exp.Dot(this=reference, expression=exp.to_identifier(part))
        if column is tree:
            return reference
        column.replace(reference)
        return tree


def _arguments(node: exp.Expr, called: str, origin: Origin | None, *, default: int = 0) -> tuple[exp.Expr, int]:
    """The value argument and the row count argument of a navigation."""
    function = called.removeprefix("nav_").upper()
    arguments = list(node.expressions)
    if not 1 <= len(arguments) <= 2:
        raise DefinitionError(f"{function} takes a value and a number of rows", origin=origin or here())
    if len(arguments) == 1:
        return arguments[0], default
    number = arguments[1]
    if not isinstance(number, exp.Literal) or number.is_string or not number.this.isdigit():
        raise DefinitionError(f"the number of rows in {function} is not a whole number", origin=origin or here())
    return arguments[0], int(number.this)


def _called(node: exp.Expr) -> str:
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower()
    return node.key if isinstance(node, exp.Count | exp.Sum | exp.Min | exp.Max | exp.Avg) else ""


def _navigates(node: exp.Expr) -> bool:
    return any(_called(n) in NAMES or _called(n) in TOTALS for n in node.walk())


def _plain(node: exp.Expr) -> str:
    return node.sql(dialect="spark").replace("NAV_", "").replace("nav_", "")[:80]


def _word(token: Token) -> str:
    return "" if token.token_type in (TokenType.STRING, TokenType.IDENTIFIER) else str(token.text).upper()


def _name(token: Token) -> str | None:
    keyword = _word(token).lower()
    if keyword in ("first", "last", "prev", "next"):
        return f"nav_{keyword}"
    return keyword if keyword in TOTALS else None


def _calls(tokens: list[Token], at: int) -> bool:
    return at + 1 < len(tokens) and tokens[at + 1].token_type is TokenType.L_PAREN


def _renamed(token: Token, name: str) -> Token:
    return Token(TokenType.VAR, name, token.line, token.col, token.start, token.end)
