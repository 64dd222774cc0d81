"""Evaluates conditions over other rows: as columns if rows are at fixed distances, else row by row during the search.

Both give Spark's results: NULL is unknown, NaN is greater than all numbers and equal to itself, and an overflow or a
division by zero is an error (only for rows that the search reaches). `kernels/patterns/search.py` uses both forms.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence, Set
from datetime import timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl

from millstream.errors import RunError
from millstream.kernels.aggregates.interval_sums import mean_of
from millstream.plan.operators.patterns.terms import ConstantValue, RowTotal, RowValue, Term, TermCall

_MOST = 2**63 - 1
_COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_COMPUTED: dict[str, Callable[[Any, Any], Any]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_MOMENTS = ("time", "wall time")


class NotVector(Exception):
    """A term that cannot be computed as a column with Spark's semantics."""


class Path:
    """The rows of a match so far, with the bounds of the known rows of its key."""

    def __init__(self, variables: int) -> None:
        self.by: list[list[int]] = [[] for _ in range(variables)]
        self.entries: list[tuple[int, int, bool]] = []
        """Row, variable, and whether it is hidden."""
        self.low = self.high = 0

    def cut(self, length: int) -> None:
        """Drop the rows after the first ones."""
        rows, by = self.entries, self.by
        while len(rows) > length:
            by[rows.pop()[1]].pop()

    def rows(self, of: tuple[int, ...]) -> list[int]:
        """The rows of some variables, in order; all rows if none is named."""
        if len(of) == 1:
            return self.by[of[0]]
        return [row for row, variable, _ in self.entries if not of or variable in of]


Evaluated = Callable[[Path, int], Any]


# ---------------------------------------------------------------- as columns


def column(term: Term, rows: pl.DataFrame, place: np.ndarray, left: np.ndarray) -> pl.Series:
    """Evaluate a condition for all rows at once. `place` and `left` are the numbers of rows of the key before and after
    each row.
    """
    vector = _vector(term, rows, place, left)
    if not isinstance(vector, pl.Series) or vector.dtype != pl.Boolean:
        raise NotVector
    return vector


def _vector(term: Term, rows: pl.DataFrame, place: np.ndarray, left: np.ndarray) -> Any:
    if isinstance(term, ConstantValue):
        return term.value
    if isinstance(term, RowValue):
        return _shifted(rows[term.column], term.shift, place, left)
    if isinstance(term, RowTotal):
        raise NotVector
    arguments = [_vector(a, rows, place, left) for a in term.arguments]
    name = term.name
    if name in _COMPARED or name in _COMPUTED or name == "/":
        return _binary(name, *arguments)
    whole = [v if isinstance(v, pl.Series) else pl.lit(v, pl.Boolean) for v in arguments]
    frame = pl.DataFrame([v.alias(f"v{i}") for i, v in enumerate(arguments) if isinstance(v, pl.Series)])
    exprs: list[pl.Expr] = [pl.col(f"v{i}") if isinstance(v, pl.Series) else v for i, v in enumerate(whole)]
    if name == "is null" and isinstance(arguments[0], pl.Series):
        return arguments[0].is_null()
    if name not in ("and", "or", "not") or not frame.width:
        raise NotVector
    if any(isinstance(v, pl.Series) and v.dtype != pl.Boolean for v in arguments):
        raise NotVector
    combined = ~exprs[0] if name == "not" else exprs[0] & exprs[1] if name == "and" else exprs[0] | exprs[1]
    return frame.select(combined).to_series()


def _shifted(values: pl.Series, shift: int, place: np.ndarray, left: np.ndarray) -> pl.Series:
    """Values some rows before or after; NULL where the key has no such row."""
    if values.dtype.is_decimal() or values.dtype.is_nested():
        raise NotVector
    if not shift:
        return values
    there = place >= -shift if shift < 0 else left >= shift
    moved = values.shift(-shift)
    return moved.zip_with(pl.Series(there), pl.Series([None], dtype=values.dtype).new_from_index(0, len(values)))


def _binary(name: str, left: Any, right: Any) -> Any:
    if not isinstance(left, pl.Series) and not isinstance(right, pl.Series):
        raise NotVector
    kinds = [_kind(v) for v in (left, right)]
    if kinds in (["float", "decimal"], ["decimal", "float"]):
        left, right = (float(v) if isinstance(v, Decimal) else v for v in (left, right))
        kinds = ["float", "float"]
    numbers = all(k in ("int", "float") for k in kinds)
    if name in _COMPARED:
        if not numbers and (kinds[0] != kinds[1] or kinds[0] in ("decimal", "other")):
            raise NotVector
        return _COMPARED[name](left, right)
    if not numbers:
        spans = name != "*" and kinds[0] in _MOMENTS and kinds[1] in (kinds[0], "span")
        if not spans or (name == "+" and kinds[1] in _MOMENTS) or name == "/":
            raise NotVector
        return _COMPUTED[name](left, right)
    if name == "/":
        divisor = right if isinstance(right, pl.Series) else pl.Series([right])
        if (divisor == 0).any():
            raise NotVector  # an error, but only if the search reaches the row
        return _float(left) / _float(right)
    if "float" in kinds:
        return _COMPUTED[name](_float(left), _float(right))
    rough = _COMPUTED[name](_float(left), _float(right))
    if (rough.abs() > 9e18).any():
        raise NotVector
    return _COMPUTED[name](_whole(left), _whole(right))


def _kind(value: Any) -> str:
    if not isinstance(value, pl.Series):
        kinds = {bool: "bool", int: "int", float: "float", str: "text", Decimal: "decimal", timedelta: "span"}
        return kinds.get(type(value), "other")
    kind = value.dtype
    if kind.is_integer() or kind.is_float():
        return "int" if kind.is_integer() else "float"
    if isinstance(kind, pl.Datetime):
        return "wall time" if kind.time_zone is None else "time"
    if isinstance(kind, pl.Duration):
        return "span"
    return {"String": "text", "Boolean": "bool", "Date": "date"}.get(str(kind), "other")


def _float(value: Any) -> Any:
    return value.cast(pl.Float64) if isinstance(value, pl.Series) else float(value)


def _whole(value: Any) -> Any:
    return value.cast(pl.Int64) if isinstance(value, pl.Series) else value


# ---------------------------------------------------------------- row by row


def columns_of(terms: list[Term]) -> set[str]:
    """The columns that terms read."""
    names: set[str] = set()
    while terms:
        term = terms.pop()
        if isinstance(term, TermCall):
            terms += term.arguments
        elif not isinstance(term, ConstantValue) and term.column is not None:
            names.add(term.column)
    return names


def all_of(terms: Sequence[Term], values: Mapping[str, list[Any]], exact: Set[str]) -> Evaluated | None:
    """Combine several conditions into one; None if there are none. Values of `exact` columns are compared as in
    Python.
    """
    if not terms:
        return None
    results = [_simple(t, values, exact) or evaluated(t, values) for t in terms]
    if len(results) == 1:
        return results[0]

    def holds(path: Path, row: int) -> bool:
        for one in results:
            if one(path, row) is not True:
                return False
        return True

    return holds


def _simple(term: Term, values: Mapping[str, list[Any]], exact: Set[str]) -> Evaluated | None:
    """A fast path for the usual case: the current row compared with the first or last row of one variable."""
    if not isinstance(term, TermCall) or term.name not in _COMPARED:
        return None
    left, right = term.arguments
    if not isinstance(left, RowValue) or not isinstance(right, RowValue) or not {left.column, right.column} <= exact:
        return None
    if left.of is not None or right.of is None or len(right.of) != 1 or right.offset or left.shift or right.shift:
        return None
    mine, theirs, compare = values[left.column], values[right.column], _COMPARED[term.name]
    (one,) = right.of
    end = 0 if right.first else -1

    def compared(path: Path, row: int) -> Any:
        rows = path.by[one]
        if not rows:
            return None
        a, b = mine[row], theirs[rows[end]]
        return None if a is None or b is None else compare(a, b)

    return compared


def evaluated(term: Term, values: Mapping[str, list[Any]]) -> Evaluated:
    """A term as a function of the match so far and the current row, which is already part of it."""
    if isinstance(term, ConstantValue):
        value = term.value
        return lambda path, row: value
    if isinstance(term, RowValue):
        return _at(term, values[term.column])
    if isinstance(term, RowTotal):
        return _over(term, values[term.column] if term.column is not None else None)
    arguments = [evaluated(a, values) for a in term.arguments]
    return _call(term.name, arguments)


def _at(term: RowValue, values: list[Any]) -> Evaluated:
    shift, offset = term.shift, term.offset
    if term.of is None and not shift:
        return lambda path, row: values[row]
    of = term.of

    def at(path: Path, row: int) -> Any:
        if of is not None:
            rows = path.rows(of)
            if offset >= len(rows):
                return None
            row = rows[offset] if term.first else rows[-1 - offset]
        row += shift
        return values[row] if path.low <= row < path.high else None

    if of is not None and len(of) == 1 and not shift and not offset:
        (one,) = of
        end = 0 if term.first else -1

        def near(path: Path, row: int) -> Any:
            rows = path.by[one]
            return values[rows[end]] if rows else None

        return near
    return at


def _over(term: RowTotal, values: list[Any] | None) -> Evaluated:
    def total(path: Path, row: int) -> Any:
        rows = path.rows(term.of)
        if values is None:
            return len(rows)
        there = [v for r in rows if (v := values[r]) is not None]
        if term.kind == "count":
            return len(there)
        if not there:
            return None
        if term.kind in ("min", "max"):
            best = there[0]
            for value in there[1:]:
                if _order(value, best) * (1 if term.kind == "max" else -1) > 0:
                    best = value
            return best
        if term.kind == "avg":
            return mean_of(there) if type(there[0]) is timedelta else sum(map(float, there)) / len(there)
        return _checked(sum(there[1:], there[0]))

    return total


def _call(name: str, arguments: list[Evaluated]) -> Evaluated:
    if name in _COMPARED:
        return _comparison(name, *arguments)
    if name in ("+", "-", "*", "/", "%"):
        left, right = arguments
        compute = _arithmetic(name)

        def computed(path: Path, row: int) -> Any:
            a = left(path, row)
            b = right(path, row) if a is not None else None
            return None if a is None or b is None else compute(a, b)

        return computed
    if name in ("and", "or"):
        left, right = arguments
        deciding = name == "or"

        def joined(path: Path, row: int) -> Any:
            a = left(path, row)
            if a is deciding:
                return deciding
            b = right(path, row)
            return deciding if b is deciding else None if a is None or b is None else not deciding

        return joined
    return _function(name, arguments)


def _function(name: str, arguments: list[Evaluated]) -> Evaluated:
    one = arguments[0]
    if name == "not":
        return lambda path, row: None if (v := one(path, row)) is None else not v
    if name == "is null":
        return lambda path, row: one(path, row) is None
    if name == "abs":
        return lambda path, row: None if (v := one(path, row)) is None else _checked(abs(v))
    if name == "case":
        when, then, otherwise = arguments
        return lambda path, row: then(path, row) if when(path, row) is True else otherwise(path, row)
    if name == "coalesce":
        return lambda path, row: next((v for f in arguments if (v := f(path, row)) is not None), None)
    if name == "<=>":
        other = arguments[1]

        def same(path: Path, row: int) -> bool:
            a, b = one(path, row), other(path, row)
            return a is b if a is None or b is None else _order(a, b) == 0

        return same
    sign = 1 if name == "greatest" else -1

    def extreme(path: Path, row: int) -> Any:
        result = None
        for f in arguments:
            value = f(path, row)
            if value is not None and (result is None or _order(value, result) * sign > 0):
                result = value
        return result

    return extreme


def _comparison(name: str, left: Evaluated, right: Evaluated) -> Evaluated:
    compare = _COMPARED[name]

    def compared(path: Path, row: int) -> Any:
        a = left(path, row)
        b = right(path, row) if a is not None else None
        if a is None or b is None:
            return None
        if type(a) is type(b) and type(a) is not float:
            return compare(a, b)
        return compare(_order(a, b), 0)

    return compared


def _order(a: Any, b: Any) -> int:
    """Compare two values: negative, 0 (equal) or positive. NaN is above all numbers."""
    if type(a) is Decimal and type(b) is float:
        a = float(a)
    elif type(b) is Decimal and type(a) is float:
        b = float(b)
    a_is_nan, b_is_nan = a != a, b != b  # noqa: PLR0124 - only NaN is not itself
    if a_is_nan or b_is_nan:
        return int(a_is_nan) - int(b_is_nan)
    try:
        return int(a > b) - int(a < b)
    except TypeError:
        raise _unfit(a, b) from None


def _arithmetic(name: str) -> Callable[[Any, Any], Any]:
    def compute(a: Any, b: Any) -> Any:
        if type(a) is not type(b):
            a, b = (float(v) if type(v) is Decimal and float in (type(a), type(b)) else v for v in (a, b))
        try:
            if name in ("/", "%"):
                return _divided(name, a, b)
            return _checked(_COMPUTED[name](a, b))
        except TypeError:
            raise _unfit(a, b) from None

    return compute


def _divided(name: str, a: Any, b: Any) -> Any:
    if not b:
        raise RunError("a condition of a pattern divides by zero", hint="guard it: x <> 0 AND ...")
    if name == "/":
        return a / b
    if type(a) is int and type(b) is int:
        return a - b * (abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1))
    return a % b if type(a) is Decimal or type(b) is Decimal else float(np.fmod(a, b))


def _checked(value: Any) -> Any:
    if type(value) is int and not -_MOST - 1 <= value <= _MOST:
        raise RunError("a number in a condition of a pattern does not fit into 64 bits", hint="CAST it to DOUBLE")
    return value


def _unfit(a: Any, b: Any) -> RunError:
    return RunError(
        f"a condition of a pattern joins {type(a).__name__} and {type(b).__name__}", hint="CAST one of them"
    )
