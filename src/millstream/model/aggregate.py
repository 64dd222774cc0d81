"""Aggregates: what is computed per key and window.

The value here says *what*; how rows are combined and merged into state is in `kernels/aggregates.py`, which has one
entry for every name in KINDS (a test holds them together).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from millstream.errors import DefinitionError, SchemaError
from millstream.model.expression import Expr, expr
from millstream.model.origin import here
from millstream.model.schema import Schema, ddl_type

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
)
_NUMERIC_ONLY = {"sum", "avg", "variance", "stddev"}


@runtime_checkable
class Aggregator(Protocol):
    """A user-defined aggregate. The accumulator is JSON data (numbers, text, lists, dicts), kept in state.

    Values that are not NULL are added in the order of event time. `add` and `merge` return the new accumulator.
    """

    def create(self) -> Any:
        """An empty accumulator."""
        ...

    def add(self, accumulator: Any, value: Any) -> Any:
        """Take one value in."""
        ...

    def merge(self, left: Any, right: Any) -> Any:
        """Join two accumulators; `left` has seen the earlier values."""
        ...

    def result(self, accumulator: Any) -> Any:
        """The answer for an accumulator."""
        ...


@dataclass(frozen=True, eq=False)
class Aggregate:
    """One aggregate: its kind and what it is computed of. Made by `count`, `sum`, ..."""

    kind: str
    argument: Expr | None = None
    user: Aggregator | None = None
    returns: pa.DataType | None = None

    def check(self, name: str, schema: Schema) -> Aggregate:
        """Bind the argument and refuse types that are known not to fit."""
        if self.argument is None:
            return self
        argument = self.argument.bind(schema)
        kind = argument.type_in(schema)
        if kind is not None and self.kind in _NUMERIC_ONLY and not _is_numeric(kind):
            raise SchemaError(
                f"{name}={self.kind}(...) needs numbers, but `{argument.spark()}` is {ddl_type(kind)}",
                hint="cast it, as in ms.sum('CAST(price AS DOUBLE)')",
                origin=self.argument.origin,
            )
        return Aggregate(self.kind, argument, self.user, self.returns)

    def __str__(self) -> str:
        inner = self.argument.spark() if self.argument is not None else "*"
        name = type(self.user).__name__ if self.user is not None else self.kind
        return f"{name}({inner})"


def count(column: str | Expr | None = None) -> Aggregate:
    """How many records; with a column, how many where it is not NULL."""
    return Aggregate("count", None if column is None else expr(column))


def sum(column: str | Expr) -> Aggregate:
    """The sum of a number, NULL when there is none."""
    return Aggregate("sum", expr(column))


def min(column: str | Expr) -> Aggregate:
    """The smallest value."""
    return Aggregate("min", expr(column))


def max(column: str | Expr) -> Aggregate:
    """The greatest value."""
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
    """All values that are not NULL, as a list in the order of event time."""
    return Aggregate("collect", expr(column))


def count_distinct(column: str | Expr) -> Aggregate:
    """How many different values, exactly."""
    return Aggregate("count_distinct", expr(column))


def user_aggregate(aggregator: Aggregator, column: str | Expr, *, returns: str) -> Aggregate:
    """An aggregate written in Python; `returns` is the SQL type of its result, e.g. ``"DOUBLE"``."""
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
