"""Evaluates conditions over rows without Spark.

Conditions are nested tuples, written by `plan/lowering/native_subset.py`. Where the result might differ from Spark's,
the functions return None and the caller evaluates the condition with Spark.
"""

from __future__ import annotations

from typing import Any

import polars as pl

_KINDS = {"int": "number", "text": "text"}
_MIRRORED = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
_CONDITIONS = frozenset({"and", "or", "not", "null", "is", "eq", "ne", "lt", "le", "gt", "ge"})


def holds(term: tuple[Any, ...], rows: pl.DataFrame) -> pl.Series | None:
    """A mask of the rows for which a condition is true. None if it compares values whose types may differ."""
    condition = _condition(term, rows.schema)
    if condition is None:
        return None
    # alongside the rows, so that even a constant has as many values as there are rows
    return rows.with_columns(condition.fill_null(value=False).alias("$holds"))["$holds"]


def value(term: tuple[Any, ...], rows: pl.DataFrame) -> pl.Expr | None:
    """A value over rows; None if it might differ from Spark's."""
    if term[0] == "col":
        return pl.col(term[1])
    if term[0] in _CONDITIONS:
        return _condition(term, rows.schema)
    expression, kind = _value(term, rows.schema)
    return None if kind is None or term[0] in ("int", "text") else expression


def _condition(term: tuple[Any, ...], schema: pl.Schema) -> pl.Expr | None:
    name, *parts = term
    if name in ("and", "or"):
        left, right = (_condition(p, schema) for p in parts)
        if left is None or right is None:
            return None
        return left & right if name == "and" else left | right
    if name == "not":
        inner = _condition(parts[0], schema)
        return None if inner is None else ~inner
    if name == "is":
        truth, kind = _value(parts[0], schema)
        return truth if kind == "truth" else None
    if name == "null":
        return _value(parts[0])[0].is_null()
    if parts[0][0] in _KINDS:  # Polars treats a constant before two NULLs as a single row
        name, parts = _MIRRORED[name], parts[::-1]
    (left, left_kind), (right, right_kind) = (_value(p, schema) for p in parts)
    if left_kind is None or left_kind != right_kind:
        return None
    compared: pl.Expr = getattr(left, name)(right)
    return compared


def _value(term: tuple[Any, ...], schema: pl.Schema | None = None) -> tuple[pl.Expr, str | None]:
    """An expression and the kind of its values."""
    name, *parts = term
    if name == "col":
        return pl.col(parts[0]), None if schema is None else _kind(schema[parts[0]])
    if name == "micros":
        moment, kind = _value(parts[0], schema)
        return moment.dt.epoch("us"), "number" if kind == "time" else None
    if name == "plus":
        number, kind = _value(parts[0], schema)
        return number + parts[1], kind
    if name == "mod":
        number, kind = _value(parts[0], schema)
        rest, zero = number % parts[1], pl.lit(0)  # Polars gives it the sign of the divisor, Spark of the dividend
        whole = kind == "number" and schema is not None and _is_whole(parts[0], schema)
        return pl.when((number < zero) & (rest != zero)).then(rest - parts[1]).otherwise(rest), kind if whole else None
    if name == "least":
        each = [_value(p, schema) for p in parts]
        return pl.min_horizontal(*(e for e, _ in each)), None if any(k is None for _, k in each) else "number"
    if name == "move":
        moved, kind = _value(parts[0], schema)
        return moved + pl.duration(microseconds=parts[1]), kind if kind == "time" else None
    return pl.lit(parts[0]), _KINDS[name]


def _is_whole(term: tuple[Any, ...], schema: pl.Schema) -> bool:
    """Whether a number is an INT or a BIGINT, so that its remainder has the same type."""
    return term[0] == "mod" or (term[0] == "col" and schema[term[1]] in (pl.Int32, pl.Int64))


def _kind(dtype: pl.DataType) -> str | None:
    if dtype.is_integer():
        return "number"
    if isinstance(dtype, pl.Datetime):
        return "time" if dtype.time_zone is not None else "local time"
    return {pl.String: "text", pl.Boolean: "truth", pl.Date: "day"}.get(type(dtype))
