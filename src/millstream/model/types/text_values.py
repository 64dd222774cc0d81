"""Text conversion: how the values of a CSV file become values of a column.

Columns are converted as a whole if all their texts have the usual form; otherwise one value at a time, to find the row
that does not fit. Both paths produce the same values.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from millstream.model.types.assignment import Unfit, assigned, fit
from millstream.model.types.schema import TIMESTAMP

_ARROW = (pa.ArrowException, OverflowError, ValueError)
_WHOLE = re.compile(r"[+-]?[0-9]{1,1000}")
_NUMBER = re.compile(r"[+-]?([0-9]{1,400}(\.[0-9]{0,400})?|\.[0-9]{1,400})([eE][+-]?[0-9]{1,6})?")
_SPECIAL = {"nan": "nan", "infinity": "inf", "+infinity": "inf", "-infinity": "-inf", "inf": "inf", "-inf": "-inf"}
_INSTANT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?$"


def from_texts(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert a column of text to this type. Raises Unfit with the first row that does not fit."""
    if pa.types.is_string(kind):
        return texts
    trimmed = pc.utf8_trim_whitespace(texts)
    for matches, form, convert in _QUICK:
        if matches(kind) and _all_match(trimmed, form):
            try:
                return convert(trimmed, kind)
            except (*_ARROW, Unfit):
                break  # one value at a time, to find the row
    values = []
    for row, text in enumerate(trimmed.to_pylist()):
        try:
            values.append(None if text is None else fit(_read(text, kind), kind))
        except Unfit as unfit:
            raise Unfit(unfit.why, row, text) from None
    try:
        return pa.array(values, type=kind)
    except _ARROW as error:
        raise Unfit(str(error).splitlines()[0]) from None


def _all_match(texts: pa.Array, form: str) -> bool:
    return pc.all(pc.match_substring_regex(texts, form)).as_py() is not False


def _read(text: str, kind: pa.DataType) -> Any:
    """The value that a text represents, before it is fitted into a type."""
    if pa.types.is_integer(kind):
        if not _WHOLE.fullmatch(text):
            raise Unfit("it is not a whole number")
        return int(text)
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        if pa.types.is_floating(kind) and text.lower() in _SPECIAL:
            return float(_SPECIAL[text.lower()])
        if not _NUMBER.fullmatch(text):
            raise Unfit("it is not a number")
        return Decimal(text)
    if pa.types.is_boolean(kind):
        if text.lower() not in ("true", "false"):
            raise Unfit("it is not true or false")
        return text.lower() == "true"
    if pa.types.is_nested(kind):
        try:
            return orjson.loads(text)
        except ValueError:
            raise Unfit("it is not JSON") from None
    return text  # times and bytes are parsed from text anyway


def _cast(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    return texts.cast(kind)


def _whole(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    return assigned(texts.cast(pa.int64()), kind)


def _approximate(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    numbers = texts.cast(pa.float64())
    if pc.any(pc.is_inf(numbers)).as_py():
        raise Unfit("it is out of range")
    return numbers


def _truth(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    return pc.equal(pc.utf8_lower(texts), "true")


def _instant(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    return pc.assume_timezone(texts.cast(pa.timestamp("us")), "UTC")


_QUICK: tuple[
    tuple[Callable[[pa.DataType], bool], str, Callable[[pa.Array, pa.DataType], pa.Array]],
    ...,
] = (
    (pa.types.is_integer, r"^-?[0-9]{1,18}$", _whole),
    (pa.types.is_float64, r"^-?[0-9]{1,300}(\.[0-9]{1,300})?([eE][+-]?[0-9]{1,3})?$", _approximate),
    (pa.types.is_decimal, r"^-?[0-9]{1,38}(\.[0-9]{1,38})?$", _cast),
    (pa.types.is_boolean, r"^(?i:true|false)$", _truth),
    (pa.types.is_date32, r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$", _cast),
    (lambda kind: kind == TIMESTAMP, _INSTANT, _instant),
)
