"""Expressions: SQL text or ``col("price") > 100``, both represented as a sqlglot tree.

An expression is checked on creation: it must parse, use only allowed functions, and (once bound to a schema) refer to
known columns. `Expr.spark()` renders it for Spark.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.tokens import TokenType  # type: ignore[attr-defined]

from millstream.errors import DefinitionError, Origin, SchemaError, Unsupported
from millstream.model.functions import AGGREGATE, GENERATOR, KEYWORDS, SCALAR, UNREPEATABLE
from millstream.model.origin import here
from millstream.model.types import interval_types
from millstream.model.types.duration import LONGEST, UNITS
from millstream.model.types.interval_types import has_months
from millstream.model.types.schema import Schema, ddl_type, type_from_sqlglot

_AMOUNT = re.compile(r"[+-]?\d+(\.\d+)?")
_DAY = UNITS["day"]
_CALENDAR_UNITS = {"month": 30 * _DAY, "quarter": 90 * _DAY, "year": 365 * _DAY}
"""Calendar units and their minimum length in micros."""

_FORBIDDEN_NODES = (
    exp.Query,
    exp.Subquery,
    exp.QueryTransform,
    exp.Command,
    exp.Star,
    exp.Window,
    exp.DDL,
    exp.Placeholder,
    exp.Parameter,
    exp.SessionParameter,
    exp.SessionUser,
    exp.Alias,
    exp.ReadCSV,
    exp.ReadParquet,
)


_CLOCK_WORDS = frozenset({"now", "today", "tomorrow", "yesterday"})
_TIMES = frozenset(exp.DataType.Type[k] for k in ("DATE", "TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ", "TIMESTAMPNTZ"))

CLOCK = frozenset({"now", "current_timestamp", "current_date", "curdate", "localtimestamp"})
"""Functions of the current time. A condition may compare them with a time of the row
(`model/steps/temporal_conditions.py`).
"""

_QUOTED = (TokenType.STRING, TokenType.IDENTIFIER)
"""Tokens that are quoted strings or quoted names."""


@dataclass(frozen=True, eq=False)
class Expr:
    """A scalar expression over the columns of a stream.

    >>> (col("price") * 2 > 100).spark()
    '(`price` * 2) > 100'
    >>> expr("upper(name)").columns()
    ('name',)
    """

    node: exp.Expr
    origin: Origin | None = None

    def spark(self) -> str:
        """The expression as Spark SQL, with every column quoted."""
        return self._spark

    @cached_property
    def _spark(self) -> str:
        name = plain_column(self.node)
        return f"`{name}`" if name else self.node.sql(dialect="spark", identify=True, comments=False)

    def columns(self) -> tuple[str, ...]:
        """The columns it reads, in order of first use."""
        return self._columns

    @cached_property
    def _columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(c.name for c in self.node.find_all(exp.Column)))

    def bind(self, schema: Schema) -> Expr:
        """Check the columns against a schema; ``a.b`` becomes field b where a is a column."""
        node = self.node.copy()
        for column in list(node.find_all(exp.Column)):
            parts = [p.name for p in column.parts]
            if len(parts) > 1:
                if parts[0] not in schema:
                    raise schema.unknown(".".join(parts), self.origin)
                fielded: exp.Expr = exp.column(parts[0])
                for part in parts[1:]:
                    fielded = exp.Dot(this=fielded, expression=exp.to_identifier(part))
                node = _replace(node, column, fielded)
            elif parts[0] not in schema and not is_lambda_parameter(column):
                raise schema.unknown(parts[0], self.origin)
        return Expr(node, self.origin)

    def type_in(self, schema: Schema) -> pa.DataType | None:
        """The type over this schema, or None if only the engine can determine it."""
        read = {c.name for c in self.node.find_all(exp.Column)}
        known = (f for f in schema if f.type is not None and f.name in read)
        return _type_of(self.node.copy(), tuple((f.name, interval_types.parser_type(ddl_type(f.type))) for f in known))

    def substitute(self, definitions: Mapping[str, Expr]) -> Expr:
        """Replace columns by the expressions that define them."""
        node = self.node.copy()
        if node.find(exp.Lambda) is not None:
            _rename_parameters(node, {c for d in definitions.values() for c in d.columns()})
        for column in list(node.find_all(exp.Column)):
            definition = definitions.get(column.name)
            if definition is not None and not is_lambda_parameter(column):
                inner = definition.node.copy()
                node = _replace(node, column, inner if isinstance(inner, exp.Column) else exp.paren(inner, copy=False))
        return Expr(node, self.origin)

    def _binary(self, kind: type[exp.Binary], other: Any, *, flip: bool = False) -> Expr:
        left, right = _operand(self), _operand(literal(other))
        return Expr(kind(this=right, expression=left) if flip else kind(this=left, expression=right), here())

    def __gt__(self, other: Any) -> Expr:
        return self._binary(exp.GT, other)

    def __ge__(self, other: Any) -> Expr:
        return self._binary(exp.GTE, other)

    def __lt__(self, other: Any) -> Expr:
        return self._binary(exp.LT, other)

    def __le__(self, other: Any) -> Expr:
        return self._binary(exp.LTE, other)

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return self._binary(exp.EQ, other)

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return self._binary(exp.NEQ, other)

    __hash__ = None  # type: ignore[assignment]

    def __add__(self, other: Any) -> Expr:
        return self._binary(exp.Add, other)

    def __radd__(self, other: Any) -> Expr:
        return self._binary(exp.Add, other, flip=True)

    def __sub__(self, other: Any) -> Expr:
        return self._binary(exp.Sub, other)

    def __rsub__(self, other: Any) -> Expr:
        return self._binary(exp.Sub, other, flip=True)

    def __mul__(self, other: Any) -> Expr:
        return self._binary(exp.Mul, other)

    def __rmul__(self, other: Any) -> Expr:
        return self._binary(exp.Mul, other, flip=True)

    def __truediv__(self, other: Any) -> Expr:
        return self._binary(exp.Div, other)

    def __mod__(self, other: Any) -> Expr:
        return self._binary(exp.Mod, other)

    def __and__(self, other: Any) -> Expr:
        return self._binary(exp.And, other)

    def __or__(self, other: Any) -> Expr:
        return self._binary(exp.Or, other)

    def __invert__(self) -> Expr:
        return Expr(exp.Not(this=_operand(self)), here())

    def is_null(self) -> Expr:
        """True where the value is NULL."""
        return Expr(exp.Is(this=_operand(self), expression=exp.Null()), here())

    def is_in(self, *values: Any) -> Expr:
        """True where the value is one of these."""
        if not values:
            raise DefinitionError("is_in needs at least one value", hint='e.g. col("a").is_in(1, 2)', origin=here())
        return Expr(exp.In(this=_operand(self), expressions=[literal(v).node for v in values]), here())

    def __bool__(self) -> bool:
        raise DefinitionError(
            "an expression has no truth value while the flow is being built",
            hint="join conditions with & and |, and negate with ~",
            origin=here(),
        )

    def __repr__(self) -> str:
        return f"expr({self.spark()!r})"


@lru_cache(maxsize=4096)
def _type_of(node: exp.Expr, types: tuple[tuple[str, str], ...]) -> pa.DataType | None:
    """The type of an expression over columns of these types. The same expressions recur while views are bound, and type
    inference dominates the cost, so results are cached; `node` must not be shared.
    """
    tree = exp.select(interval_types.plain(node.copy())).from_("t")
    for column in tree.find_all(exp.Column):
        column.set("table", exp.to_identifier("t"))
    known: dict[str, object] | None = {"t": dict(types)} if types else None
    select = annotate_types(tree, schema=known, expression_metadata=interval_types.rules(), dialect="spark")
    kind = type_from_sqlglot(select.expressions[0].type)
    return None if kind is not None and pa.types.is_duration(kind) and has_months(node) else kind


def plain_column(node: exp.Expr) -> str | None:
    """The name of a column that is nothing but a name, the most frequent expression: it need not be rendered."""
    if type(node) is not exp.Column or any(v for part, v in node.args.items() if part != "this"):
        return None
    name = node.this.this if type(node.this) is exp.Identifier else None
    return name if isinstance(name, str) and name and "`" not in name and not node.comments else None


def col(name: str) -> Expr:
    """A column by name: ``col("price") > 100``."""
    if not isinstance(name, str):
        raise DefinitionError(f"{name!r} is not the name of a column", hint='e.g. ms.col("price")', origin=here())
    return Expr(exp.column(name), here())


def literal(value: Any) -> Expr:
    """A constant; an expression is returned unchanged."""
    if isinstance(value, Expr):
        return value
    try:
        return Expr(exp.convert(value), here())
    except ValueError:
        raise DefinitionError(
            f"{value!r} cannot be used in an expression",
            hint="use numbers, text, dates or ms.col(...)",
            origin=here(),
        ) from None


def expr(text: str | Expr, *, clock: bool = False) -> Expr:
    """Parse an expression in Spark SQL: ``expr("price > 100 AND channel = 'Google'")``. With `clock` it may read the
    current time, as ``now()``.
    """
    if isinstance(text, Expr):
        return text
    origin = here()
    if not isinstance(text, str):
        raise DefinitionError(
            f"{text!r} is not an expression", hint="write SQL text, or use ms.col(...)", origin=origin
        )
    try:
        node = sqlglot.parse_one(text, dialect="spark")
        _check(node, text, origin, CLOCK if clock else frozenset())
    except RecursionError:
        raise DefinitionError(
            "the expression is nested too deeply",
            detail=text[:100],
            hint="split it with .with_columns(...)",
            origin=origin,
        ) from None
    except sqlglot.errors.SqlglotError as error:
        raise DefinitionError(
            f"the expression cannot be parsed: {text!r}",
            detail=_first_problem(error),
            hint="expressions are written in Spark SQL",
            origin=origin,
        ) from None
    return Expr(node, origin)


def check_interval(node: exp.Expr, origin: Origin | None) -> None:
    """Reject an interval literal that exceeds the longest duration, before a computation overflows on it."""
    if not isinstance(node, exp.Interval) or not isinstance(node.this, exp.Literal) or node.unit is None:
        return
    unit, amount = node.unit.name.lower().removesuffix("s"), str(node.this.this).strip()
    length = UNITS.get(unit) or _CALENDAR_UNITS.get(unit)
    if length is None or not _AMOUNT.fullmatch(amount):
        return
    if len(amount) > 40 or abs(Fraction(amount)) * length > LONGEST:
        raise DefinitionError(
            f"the interval of {amount[:40]} {unit}s is out of range",
            hint="an interval has at most 10,000 years",
            origin=origin,
        )


def clock_word(tree: exp.Expr) -> str | None:
    """The first string like 'now' in a CAST to DATE or TIMESTAMP: Spark would read its clock for it."""
    for cast in tree.find_all(exp.Cast):
        value = cast.this.unnest()
        if cast.to.this in _TIMES and isinstance(value, exp.Literal) and value.name.strip().lower() in _CLOCK_WORDS:
            return str(value.name.strip().lower())
    return None


_CLOCKS = (exp.CurrentTimestamp, exp.CurrentDate, exp.Localtimestamp)


def is_clock(node: exp.Expr) -> bool:
    """Whether an expression is the current time or the current date."""
    if isinstance(node, exp.Anonymous):
        return node.name.lower() in ("now", "localtimestamp") and not node.expressions
    return isinstance(node, _CLOCKS) and node.args.get("this") is None


def has_clock(tree: exp.Expr) -> bool:
    """Whether an expression contains the current time."""
    return any(isinstance(n, _CLOCKS) or is_clock(n) for n in tree.walk())


def _check(node: exp.Expr, text: str, origin: Origin | None, also: frozenset[str]) -> None:
    clock = clock_word(node)
    if clock is not None:
        raise _refused(clock, origin)
    for part in node.walk():
        check_interval(part, origin)
        if isinstance(part, _FORBIDDEN_NODES) or (part is node and not isinstance(part, exp.Condition | exp.Interval)):
            raise Unsupported(
                f"`{text}` is more than an expression over columns",
                detail=f"`{part.sql(dialect='spark')}` is not allowed here",
                hint="give the column a name with a keyword argument, as in select(double_price='price * 2')"
                if isinstance(part, exp.Alias)
                else None,
                origin=origin,
            )
    tokens = sqlglot.tokenize(node.sql(dialect="spark"), dialect="spark")
    for token, following in pairwise(tokens):
        if following.token_type != TokenType.L_PAREN or not (token.text[:1].isalpha() or token.text[:1] == "_"):
            continue
        name = token.text.lower()
        if name not in SCALAR | KEYWORDS | also and token.token_type != TokenType.STRING:
            raise _refused(name, origin)
    for name in ("current_timestamp", "current_date", "current_time", "localtimestamp", "current_user"):
        if name not in also and any(t.text.lower() == name and t.token_type not in _QUOTED for t in tokens):
            raise _refused(name, origin)


def _refused(name: str, origin: Origin | None) -> Unsupported:
    hint = "docs/guide/steps.md lists what expressions may call"
    detail = None
    if name in AGGREGATE:
        hint = f"aggregates go into .aggregate(x=ms.{name}(...)), after .key_by(...)"
    elif name in UNREPEATABLE or name in _CLOCK_WORDS:
        detail = "its result changes from run to run, so a repeated epoch would differ"
        hint = "use the event time, or add the value to the records before they are read"
        if name in CLOCK:
            hint += "; .where(\"ts > now() - INTERVAL '1' HOUR\") keeps rows while that is true"
    elif name in GENERATOR:
        hint = "use .flat_map(name='an array expression') to turn one row into several"
    return Unsupported(f"the function `{name}` cannot be used here", detail=detail, hint=hint, origin=origin)


def shown(value: Expr) -> str:
    """An expression as quoted in an error message: a plain name already has its backticks."""
    sql = value.spark()
    return sql if re.fullmatch(r"`[^`]+`", sql) else f"`{sql.replace('`', '')}`"


def boolean(text: str | Expr, schema: Schema, what: str, *, clock: bool = False) -> Expr:
    """Parse a condition and reject one whose type is known not to be boolean; with `clock` it may read the time."""
    condition = expr(text, clock=clock).bind(schema)
    kind = condition.type_in(schema)
    if kind is not None and not pa.types.is_boolean(kind):
        raise SchemaError(
            f"{what} needs a condition, but {shown(condition)} is {ddl_type(kind)}",
            hint="compare it with something, as in `price > 100`",
            origin=condition.origin or here(),
        )
    return condition


def _first_problem(error: sqlglot.errors.SqlglotError) -> str:
    problems = getattr(error, "errors", None)
    if problems:
        first = problems[0]
        return f"{first['description']} at line {first['line']}, column {first['col']}"
    return str(error).splitlines()[0]


def _operand(value: Expr) -> exp.Expr:
    node = value.node.copy()
    return exp.paren(node, copy=False) if isinstance(node, exp.Binary | exp.Not | exp.Neg | exp.Predicate) else node


def _replace(root: exp.Expr, old: exp.Expr, new: exp.Expr) -> exp.Expr:
    if old is root:
        return new
    old.replace(new)
    return root


def _rename_parameters(root: exp.Expr, names_in_use: set[str]) -> None:
    """Rename lambda parameters that could collide with a column of the same name."""
    for inner in reversed(list(root.find_all(exp.Lambda))):
        for parameter in inner.expressions:
            name = parameter.name
            if name in names_in_use:
                fresh = next(
                    f"{name}_{i}" for i in range(1, len(names_in_use) + 2) if f"{name}_{i}" not in names_in_use
                )
                for node in (parameter, *inner.this.find_all(exp.Column, exp.Identifier)):
                    if node.name == name:
                        node.set("this", exp.to_identifier(fresh) if isinstance(node, exp.Column) else fresh)


def is_lambda_parameter(column: exp.Column) -> bool:
    """Whether a name is the parameter of an enclosing lambda, not a column."""
    parent = column.find_ancestor(exp.Lambda)
    while parent is not None:
        if any(p.name == column.name for p in parent.expressions):
            return True
        parent = parent.find_ancestor(exp.Lambda)
    return False


def both(left: Expr | None, right: Expr) -> Expr:
    """The conjunction of both conditions; the right one alone if there is no left one."""
    return right if left is None else Expr(exp.and_(left.node.copy(), right.node.copy()), right.origin)
