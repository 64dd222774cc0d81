"""Aggregates: what is computed per key and window.

An aggregate here is a description. `kernels/aggregates/partials.py` implements how rows are combined and merged into
state; it has one entry for every name in KINDS (a test enforces this). Aggregates whose name starts with ``approx_``
keep bounded state and return approximate results; `model/aggregates/approximate.py` defines them.
`model/aggregates/distribution.py` defines the statistics of distributions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa
from sqlglot import exp

from millstream.errors import DefinitionError, SchemaError
from millstream.model.expression import Expr, expr, shown
from millstream.model.origin import here
from millstream.model.types.scalars import mean_type
from millstream.model.types.schema import Schema, ddl_type

KINDS = (
    "count",
    "sum",
    "min",
    "max",
    "avg",
    "first",
    "last",
    "variance",
    "stddev",
    "collect",
    "count_distinct",
    "user",
    "var_pop",
    "stddev_pop",
    "skewness",
    "kurtosis",
    "bool_and",
    "bool_or",
    "min_by",
    "max_by",
    "collect_set",
    "mode",
    "percentile",
    "percentile_disc",
    "sample",
    "approx_count_distinct",
    "approx_percentile",
    "approx_top_k",
    "approx_f2",
    "first_of",
    "last_of",
    "ordered_list",
    "ordered_text",
    "sum_distinct",
    "avg_distinct",
)
_SPREADS = frozenset({"variance", "stddev", "var_pop", "stddev_pop", "skewness", "kurtosis"})
NUMERIC_ONLY = _SPREADS | {
    *("sum", "avg", "sum_distinct", "avg_distinct", "percentile", "percentile_disc", "approx_percentile")
}
SPANS_TOO = frozenset({"sum", "avg", "sum_distinct", "avg_distinct"})
"""The numeric aggregates that also accept intervals, and then return an interval."""
BOOLEAN_ONLY = frozenset({"bool_and", "bool_or"})
STRUCTS = frozenset({"min_by", "max_by", "first_of", "last_of", "ordered_list", "ordered_text"})
"""Aggregates whose argument is a struct of the value and its ordering key."""
PLAIN_ONLY = frozenset({"min", "max", "count_distinct", "min_by", "max_by", "collect_set", "mode", "approx_top_k"})
"""Aggregates that need an ordering of values, which lists, structs and maps do not have."""


class Kind(str):
    """The name of an aggregate kind together with its settings. It equals the plain name; `repr` includes the settings,
    so that fingerprints of a plan differ if the settings differ.
    """

    settings: tuple[Any, ...]

    def __new__(cls, name: str, *settings: Any) -> Kind:
        """A kind with settings."""
        kind = super().__new__(cls, name)
        kind.settings = settings
        return kind

    def __getnewargs__(self) -> tuple[Any, ...]:
        return (str(self), *self.settings)

    def __repr__(self) -> str:
        return f"{str(self)!r}{self.settings!r}"


def settings_of(kind: str) -> tuple[Any, ...]:
    """The settings of a kind."""
    return kind.settings if isinstance(kind, Kind) else ()


@runtime_checkable
class Aggregator(Protocol):
    """A user-defined aggregate. The accumulator is JSON data (numbers, text, lists, dicts) and is stored in state.

    Non-NULL values are added in event-time order. `add` and `merge` return the new accumulator.

    If the result does not depend on the order of values, an aggregator may also define ``retract(accumulator, value)``.
    It removes a value that was added earlier and returns the new accumulator. Then only accumulators are stored for
    changing rows (after another aggregate, a top-N or a join); without it, all rows are stored.
    """

    def create(self) -> Any:
        """Return an empty accumulator."""
        ...

    def add(self, accumulator: Any, value: Any) -> Any:
        """Add one value."""
        ...

    def merge(self, left: Any, right: Any) -> Any:
        """Merge two accumulators; `left` has the earlier values."""
        ...

    def result(self, accumulator: Any) -> Any:
        """The result for an accumulator."""
        ...


@dataclass(frozen=True, eq=False)
class Aggregate:
    """One aggregate: its kind and its argument. Created by `count`, `sum`, ..."""

    kind: str
    argument: Expr | None = None
    user: Aggregator | None = None
    returns: pa.DataType | None = None

    def check(self, name: str, schema: Schema) -> Aggregate:
        """Bind the argument and reject types that are known not to fit."""
        if self.argument is None:
            return self
        argument = self.argument.bind(schema)
        kind = argument.type_in(schema)
        if kind is not None and not takes(self.kind, kind):
            raise SchemaError(
                f"{self.kind} of `{name}` needs numbers, but {shown(argument)} is {ddl_type(kind)}",
                hint="cast it: CAST(price AS DOUBLE)",
                origin=self.argument.origin,
            )
        if kind is not None and self.kind in BOOLEAN_ONLY and not pa.types.is_boolean(kind):
            raise SchemaError(
                f"{self.kind} of `{name}` needs a condition, but {shown(argument)} is {ddl_type(kind)}",
                hint="compare it: price > 0",
                origin=self.argument.origin,
            )
        return Aggregate(self.kind, argument, self.user, self.returns)

    def __str__(self) -> str:
        inner = self.argument.spark() if self.argument is not None else "*"
        name = type(self.user).__name__ if self.user is not None else self.kind
        return f"{name}({inner})"


def count(column: str | Expr | None = None) -> Aggregate:
    """The number of records; with a column, the number of records where it is not NULL."""
    return Aggregate("count", None if column is None else expr(column))


def sum(column: str | Expr) -> Aggregate:
    """The sum of a number, NULL if there are no values."""
    return Aggregate("sum", expr(column))


def min(column: str | Expr) -> Aggregate:
    """The smallest value."""
    return Aggregate("min", expr(column))


def max(column: str | Expr) -> Aggregate:
    """The largest value."""
    return Aggregate("max", expr(column))


def avg(column: str | Expr) -> Aggregate:
    """The mean, as DOUBLE."""
    return Aggregate("avg", expr(column))


def first(column: str | Expr) -> Aggregate:
    """The value of the earliest record by event time; ties by partition and offset."""
    return Aggregate("first", expr(column))


def last(column: str | Expr) -> Aggregate:
    """The value of the latest record by event time; ties by partition and offset."""
    return Aggregate("last", expr(column))


def variance(column: str | Expr) -> Aggregate:
    """The sample variance, NULL for fewer than two values."""
    return Aggregate("variance", expr(column))


def stddev(column: str | Expr) -> Aggregate:
    """The sample standard deviation, NULL for fewer than two values."""
    return Aggregate("stddev", expr(column))


def collect(column: str | Expr) -> Aggregate:
    """All non-NULL values, as a list in event-time order."""
    return Aggregate("collect", expr(column))


def count_distinct(column: str | Expr) -> Aggregate:
    """The exact number of distinct values."""
    return Aggregate("count_distinct", expr(column))


def any_value(column: str | Expr) -> Aggregate:
    """An arbitrary but deterministic value: that of the earliest record."""
    return first(column)


def count_if(condition: str | Expr) -> Aggregate:
    """The number of records for which a condition holds."""
    argument = expr(condition)
    ones = exp.Case(ifs=[exp.If(this=argument.node.copy(), true=exp.Literal.number(1))])
    return Aggregate("count", Expr(ones, argument.origin))


def bool_and(condition: str | Expr) -> Aggregate:
    """Whether a condition holds for every record where it is not NULL."""
    return Aggregate("bool_and", expr(condition))


def bool_or(condition: str | Expr) -> Aggregate:
    """Whether a condition holds for at least one record."""
    return Aggregate("bool_or", expr(condition))


def min_by(column: str | Expr, by: str | Expr) -> Aggregate:
    """The value of the record where `by` is smallest; ties return the smallest value."""
    return Aggregate("min_by", paired(expr(column), expr(by)))


def max_by(column: str | Expr, by: str | Expr) -> Aggregate:
    """The value of the record where `by` is largest; ties return the largest value."""
    return Aggregate("max_by", paired(expr(column), expr(by)))


def collect_set(column: str | Expr) -> Aggregate:
    """The distinct non-NULL values, as a sorted list."""
    return Aggregate("collect_set", expr(column))


def paired(value: Expr, by: Expr) -> Expr:
    """The argument of min_by and max_by: both expressions as one struct."""
    both = (("by", by), ("value", value))
    fields = [exp.PropertyEQ(this=exp.to_identifier(n), expression=e.node.copy()) for n, e in both]
    return Expr(exp.Struct(expressions=fields), value.origin)


def settled_type(kind: str, of: pa.DataType | None = None) -> pa.DataType | None:
    """The type of results that depend on the argument's type only in whether it is an interval."""
    if kind in ("avg", "avg_distinct"):
        return mean_type(of)
    if kind in ("count", "count_distinct", "approx_count_distinct"):
        return pa.int64()
    if kind == "ordered_text":
        return pa.string()
    if kind in _SPREADS or kind == "approx_f2":
        return pa.float64()
    if kind in ("percentile", "percentile_disc"):
        return pa.list_(pa.float64()) if settings_of(kind)[1] else pa.float64()
    return None


def takes(kind: str, of: pa.DataType) -> bool:
    """Whether a numeric aggregate accepts values of a type; all other aggregates accept any type."""
    return kind not in NUMERIC_ONLY or _is_numeric(of) or (kind in SPANS_TOO and pa.types.is_duration(of))


def typed_by(kind: str, of: pa.DataType) -> pa.DataType:
    """The type of results that are values of the argument, or lists of them."""
    if kind in ("collect", "collect_set", "sample") or (kind == "approx_percentile" and settings_of(kind)[1]):
        return pa.list_(of)
    if kind == "approx_top_k":
        return pa.list_(pa.struct([("item", of), ("count", pa.int64())]))
    if kind in ("min_by", "max_by"):
        return of.field("value").type
    if kind in STRUCTS:
        value = of.field("v").type
        return pa.list_(value) if kind == "ordered_list" else value
    return of


def user_aggregate(aggregator: Aggregator, column: str | Expr, *, returns: str) -> Aggregate:
    """An aggregate implemented in Python; `returns` is the SQL type of its result, e.g. ``"DOUBLE"``."""
    if not isinstance(aggregator, Aggregator):
        raise DefinitionError(
            f"{type(aggregator).__name__} is not an aggregator",
            hint="it needs the methods create(), add(acc, value), merge(left, right) and result(acc)",
            origin=here(),
        )
    kind = Schema.parse(f"x {returns}").fields[0].type
    return Aggregate("user", expr(column), aggregator, kind)


def _is_numeric(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
