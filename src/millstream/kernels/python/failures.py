"""Reports failures of user code so that its author can find them: the function, its line, the row, and the key.

Kernels that call user code raise these errors, or return them as failures for the error table of the view.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl
import pyarrow as pa

from millstream.errors import Origin, UserCodeFailed
from millstream.kernels.outcome import Failure
from millstream.model.python.process import user_line
from millstream.model.types.values import FarTime, in_json

WRONG_TYPE = (pa.ArrowException, OverflowError, TypeError, ValueError, AttributeError)
_PLAIN = {
    pa.int8(): pl.Int8,
    pa.int16(): pl.Int16,
    pa.int32(): pl.Int32,
    pa.int64(): pl.Int64,
    pa.float32(): pl.Float32,
    pa.float64(): pl.Float64,
    pa.string(): pl.String,
    pa.bool_(): pl.Boolean,
}


class Mistyped(Exception):
    """A value does not fit its column. The caller checks each call to find the one that returned it."""


def failure(where: str, error: Exception, record: Mapping[str, Any], *, redact: bool) -> Failure:
    """A failed call as a quarantined row."""
    return Failure(
        f"{where} failed: {_error_text(error, redact=redact)}{_at(error)}", record_text(record, redact=redact)
    )


def failed(where: str, error: Exception, record: Mapping[str, Any], *, redact: bool) -> UserCodeFailed:
    """A failed call as the error that stops the flow."""
    return UserCodeFailed(
        f"{where} failed: {_error_text(error, redact=redact)}",
        detail=f"the input was {record_text(record, redact=redact)}",
        hint="errors='skip' skips such rows, errors='quarantine' moves them to `<view>$errors`",
        origin=user_line(error.__traceback__),
    )


def record_text(record: Mapping[str, Any], *, redact: bool) -> str:
    """A row as JSON; if redacted, only the types of its values."""
    values = {n: type(v).__name__ for n, v in record.items()} if redact else dict(record)
    return json.dumps(values, default=in_json, ensure_ascii=False)


def checked(values: Sequence[Any], names: Sequence[str], types: Sequence[pa.DataType], what: str) -> None:
    """Refuse a value that does not fit its column, naming the column."""
    for value, name, kind in zip(values, names, types, strict=True):
        try:
            column([value], kind)
        except WRONG_TYPE:
            msg = f"{what} `{name}` is {kind}, but the value is a {type(value).__name__}"
            raise TypeError(msg) from None


def columns(rows: Sequence[Sequence[Any]], types: Sequence[pa.DataType]) -> list[pl.Series]:
    """Rows as columns of these types. Raises Mistyped if a value does not fit."""
    try:
        return [column([row[i] for row in rows], kind) for i, kind in enumerate(types)]
    except WRONG_TYPE as error:
        raise Mistyped from error


def column(values: Sequence[Any], kind: pa.DataType) -> pl.Series:
    """Values as a column, without truncating any value."""
    plain = _PLAIN.get(kind)
    if plain is not None:
        return pl.Series(values, dtype=plain, strict=True)
    try:
        return pl.Series(pa.array(list(values), kind))
    except WRONG_TYPE:
        if not any(isinstance(v, FarTime) for v in values):
            raise
    return pl.Series(pa.array([v.value if isinstance(v, FarTime) else v for v in values], kind))


def written(values: Sequence[Any], writes: Sequence[Callable[[Any], Any] | None]) -> list[Any]:
    """Values in the form that Arrow accepts."""
    return [v if w is None or v is None else w(v) for v, w in zip(values, writes, strict=True)]


def _error_text(error: Exception, *, redact: bool) -> str:
    name = type(error).__name__
    text = "" if redact else " ".join(str(error).split())
    return f"{name}: {text}" if text else name


def _at(error: Exception) -> str:
    origin: Origin | None = user_line(error.__traceback__)
    return "" if origin is None else f" ({origin})"
