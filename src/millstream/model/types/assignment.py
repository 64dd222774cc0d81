"""Store assignment: the one rule for converting a value to the type of a column, whatever its source.

INSERT, UPDATE, `log append`, `Topic.append` and memory sources all use it. A value is accepted if its type fits and
the conversion loses nothing, and rejected otherwise, as in the store assignment of ANSI SQL:

| column | accepts |
|---|---|
| whole numbers | numbers without a fraction, in the range of the type |
| DECIMAL(p, s) | numbers with at most s digits after the point and p in total; a DOUBLE counts by its shortest digits |
| FLOAT, DOUBLE | numbers in the range of the type, rounded; whole numbers only if exact |
| BOOLEAN | truth values |
| STRING | text; numbers, truth values, times and intervals as text |
| BINARY | bytes; text as UTF-8 |
| TIMESTAMP | times and dates between the years 1 and 9999, and ISO 8601 text |
| TIMESTAMP_NTZ | the same without a zone: a datetime with one is converted to UTC, text with one is rejected |
| INTERVAL DAY TO SECOND | timedeltas, and text in Spark's syntax: ``1 02:03:04.5`` |
| DATE | dates, times at midnight (UTC), and ISO 8601 dates as text |

Values from JSON or Python may also be a TIMESTAMP in seconds since 1970.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millstream.clock import EARLIEST, LATEST
from millstream.model.types.interval import interval_micros_of, interval_text
from millstream.model.types.values import FarTime, python_values

_ARROW = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, ValueError, TypeError)
_EXACT = Context(prec=100, traps=[Inexact, InvalidOperation])
_LONG_FRACTION = re.compile(r"\.\d{6}\d*[1-9]")
_F32 = 3.4028235677973366e38
_NONE = type(None)
_NATURAL: tuple[tuple[Callable[[pa.DataType], bool], frozenset[type]], ...] = (
    (pa.types.is_integer, frozenset({int, _NONE})),
    (pa.types.is_float64, frozenset({float, _NONE})),
    (pa.types.is_string, frozenset({str, _NONE})),
    (pa.types.is_boolean, frozenset({bool, _NONE})),
    (pa.types.is_binary, frozenset({bytes, _NONE})),
    (pa.types.is_decimal, frozenset({Decimal, _NONE})),
    (pa.types.is_date32, frozenset({date, _NONE})),
)
_DIGITS, _FLOATS = frozenset({float, Decimal, _NONE}), frozenset({float, _NONE})
_MODEST, _LARGE = Decimal("1e-300"), Decimal("1e300")


class Unfit(ValueError):
    """A value that a column cannot store: which row, which value, and why."""

    def __init__(self, why: str, row: int | None = None, value: Any = None) -> None:
        super().__init__(why)
        self.why, self.row, self.value = why, row, value


def assigned_table(
    schema: pa.Schema,
    columns: Mapping[str, Any],
    rows: int,
    refused: Callable[[Unfit, pa.Field], Exception],
    convert: Callable[[Any, pa.DataType], pa.Array] | None = None,
) -> pa.Table:
    """Columns as a table with this schema; missing columns are NULL. `refused` creates the error for a value that does
    not fit.
    """
    arrays = []
    for field in schema:
        if field.name not in columns:
            arrays.append(pa.nulls(rows, field.type))
            continue
        try:
            arrays.append((convert or assigned)(columns[field.name], field.type))
        except Unfit as unfit:
            raise refused(unfit, field) from None
    return pa.table(arrays, schema=schema)


def assigned(column: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    """Convert a column to a type; raises Unfit with the first row that does not fit."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
        column = column if isinstance(column, pa.Array) else pa.concat_arrays(column.chunks)
    if column.type == kind:
        return column
    if column.null_count == len(column):
        return pa.nulls(len(column), kind)
    if pa.types.is_dictionary(column.type):
        return assigned(column.cast(column.type.value_type), kind)
    if _arrow_decides(column.type, kind):
        try:
            return _cast(column, kind)
        except _ARROW:
            pass  # one value at a time, to find the row
    return from_values(python_values(column), kind)


def from_values(values: Sequence[Any], kind: pa.DataType, *, seconds: bool = False) -> pa.Array:
    """Values as a column of this type; with `seconds`, numbers may be times. Raises Unfit with the first bad row."""
    for matches, natural in _NATURAL:
        if matches(kind) and natural.issuperset(map(type, values)):
            try:
                return pa.array(values, type=kind)
            except _ARROW:
                break
    if pa.types.is_float64(kind) and _DIGITS.issuperset(map(type, values)):
        values = [float(v) if type(v) is Decimal and _MODEST < abs(v) < _LARGE else v for v in values]
        if _FLOATS.issuperset(map(type, values)):
            return pa.array(values, type=kind)
    fitted = []
    for row, value in enumerate(values):
        try:
            fitted.append(fit(value, kind, seconds=seconds))
        except Unfit as unfit:
            raise Unfit(unfit.why, row, value) from None
    try:
        return pa.array(fitted, type=kind)
    except _ARROW as error:
        raise Unfit(str(error).splitlines()[0]) from None


def fit(value: Any, kind: pa.DataType, *, seconds: bool = False) -> Any:
    """Convert a value losslessly to what Arrow accepts for this type; raises Unfit."""
    if value is None:
        return None
    if hasattr(value, "item") and type(value).__module__ == "numpy":
        value = value.item()
    for matches, take in _TAKES:
        if matches(kind):
            return take(value, kind)
    if pa.types.is_timestamp(kind):
        return _instant(value, seconds=seconds) if kind.tz else _wall_time(value)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        if not isinstance(value, list | tuple):
            raise Unfit("it is not a list")
        return [fit(v, kind.value_type, seconds=seconds) for v in value]
    if pa.types.is_struct(kind):
        return _struct(value, kind, seconds=seconds)
    if pa.types.is_map(kind):
        pairs = list(value.items()) if isinstance(value, Mapping) else value
        if not isinstance(pairs, list) or not all(isinstance(p, tuple | list) and len(p) == 2 for p in pairs):
            raise Unfit("it is not a map")
        return [(fit(k, kind.key_type, seconds=seconds), fit(v, kind.item_type, seconds=seconds)) for k, v in pairs]
    return value


def _arrow_decides(from_type: pa.DataType, kind: pa.DataType) -> bool:
    """Whether Arrow's safe cast between two types rejects exactly what the rule rejects."""
    number = (pa.types.is_integer, pa.types.is_decimal)
    if any(t(from_type) for t in number) and any(t(kind) for t in number):
        return True
    if pa.types.is_floating(from_type):
        return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))
    if pa.types.is_floating(kind):
        return bool(pa.types.is_integer(from_type))
    if pa.types.is_timestamp(from_type) and pa.types.is_timestamp(kind):
        return True
    if pa.types.is_duration(from_type) and pa.types.is_duration(kind):
        return True
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    if any(t(kind) for t in texts):
        return any(t(from_type) for t in texts) or bool(pa.types.is_integer(from_type))
    return bool(pa.types.is_binary(kind) and pa.types.is_large_binary(from_type))


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_float32(kind):
        finite = column.filter(pc.is_finite(column)) if pa.types.is_floating(column.type) else column
        if len(finite) and pc.max(pc.abs(finite.cast(pa.float64()))).as_py() > _F32:
            raise pa.ArrowInvalid("a number is out of the range of FLOAT")
    return column.cast(kind, safe=True)


def _truth(value: Any, kind: pa.DataType) -> bool:
    if isinstance(value, bool):
        return value
    raise Unfit("it is not true or false")


def _whole(value: Any, kind: pa.DataType) -> int:
    number = _number(value)
    if isinstance(number, float | Decimal) and not _is_finite(number):
        raise Unfit("it is not a finite number")
    if number != int(number):
        raise Unfit("it would lose its fraction")
    most = 1 << (kind.bit_width - 1)
    if not -most <= number < most:
        raise Unfit("it is out of range")
    return int(number)


def _approximate(value: Any, kind: pa.DataType) -> float:
    number = _number(value)
    try:
        approximate = float(number)
    except OverflowError:
        raise Unfit("it is out of range") from None
    if math.isinf(approximate) and _is_finite(number):
        raise Unfit("it is out of range")
    if pa.types.is_float32(kind):
        try:
            approximate = struct.unpack("<f", struct.pack("<f", approximate))[0]
        except OverflowError:
            raise Unfit("it is out of range") from None
    if isinstance(number, int) and int(approximate) != number:
        raise Unfit("it would lose digits")
    return approximate


def _decimal(value: Any, kind: pa.DataType) -> Decimal:
    number = _number(value)
    exact = Decimal(repr(number)) if isinstance(number, float) else Decimal(number)
    if not exact.is_finite():
        raise Unfit("it is not a finite number")
    if exact.adjusted() > 60:
        raise Unfit("it has too many digits")
    try:
        rounded = exact.quantize(Decimal(1).scaleb(-kind.scale), context=_EXACT)
    except (Inexact, InvalidOperation):
        raise Unfit(f"it would lose digits: the column keeps {kind.scale} after the decimal point") from None
    if len(rounded.as_tuple().digits) > kind.precision and rounded:
        raise Unfit(f"it has more than {kind.precision - kind.scale} digits before the decimal point")
    return rounded


def _text(value: Any, kind: pa.DataType) -> str:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Unfit("it holds half of a surrogate pair, which is not valid text") from None
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Decimal) and value.is_finite():
        return format(value, "f")
    if isinstance(value, int | float | Decimal):
        return str(value)
    if isinstance(value, datetime):
        utc = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        return utc.isoformat(sep=" ")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return interval_text(value)
    raise Unfit("it is not text")


def _bytes(value: Any, kind: pa.DataType) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str) and not isinstance(value, FarTime):
        return _text(value, kind).encode()
    raise Unfit("it is neither bytes nor text")


def _date(value: Any, kind: pa.DataType) -> date:
    if isinstance(value, datetime):
        utc = value.astimezone(UTC) if value.tzinfo else value
        if utc.hour or utc.minute or utc.second or utc.microsecond:
            raise Unfit("it would lose the time of its day")
        return utc.date()
    if isinstance(value, date):
        return value
    if isinstance(value, str):
        try:
            return date.fromisoformat(value.strip())
        except ValueError:
            raise Unfit("it is not a date like 2026-01-31, between the years 1 and 9999") from None
    raise Unfit("it is not a date")


def _interval(value: Any, kind: pa.DataType) -> timedelta:
    if isinstance(value, timedelta):
        if getattr(value, "nanoseconds", 0):  # a pandas value
            raise Unfit("it is finer than a microsecond")
        return value
    micros = interval_micros_of(value) if isinstance(value, str) else None
    if micros is None:
        raise Unfit("it is not an interval like 1 02:03:04.5, which is a day, 2 hours, 3 minutes and 4.5 seconds")
    return timedelta(microseconds=micros)


def _wall_time(value: Any) -> datetime:
    """A time without a zone."""
    instant = _instant(value, seconds=False)
    assert isinstance(instant, datetime)
    if isinstance(value, str) and datetime.fromisoformat(value.strip()).tzinfo is not None:
        raise Unfit("it has a time zone, and the column has none")
    return instant.replace(tzinfo=None)


def _instant(value: Any, *, seconds: bool) -> datetime | int:
    if isinstance(value, str):
        text = value.strip()
        try:
            value = datetime.fromisoformat(text)
        except ValueError:
            raise Unfit("it is not a time like 2026-01-31T12:00:00Z, between the years 1 and 9999") from None
        if _LONG_FRACTION.search(text):
            raise Unfit("it is finer than a microsecond")
    if isinstance(value, datetime):
        try:
            return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
        except OverflowError:
            raise Unfit("it is outside of the years 1 to 9999") from None
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    if seconds and isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        if not _is_finite(value):
            raise Unfit("it is not a finite number")
        micros = value * 1_000_000 if isinstance(value, int) else round(value * 1_000_000)
        if not EARLIEST <= micros <= LATEST:
            raise Unfit("it is outside of the years 1 to 9999")
        return micros
    raise Unfit("it is not a time")


def _struct(value: Any, kind: pa.DataType, *, seconds: bool) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise Unfit("it is not a record")
    known = {f.name: f.type for f in kind}
    strange = next((n for n in value if n not in known), None)
    if strange is not None:
        raise Unfit(f"it has a field `{strange}` that the column does not have")
    return {n: fit(value.get(n), t, seconds=seconds) for n, t in known.items()}


def _number(value: Any) -> int | float | Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise Unfit("it is not a number")
    return value


def _is_finite(number: float | Decimal) -> bool:
    return number.is_finite() if isinstance(number, Decimal) else isinstance(number, int) or math.isfinite(number)


_TAKES: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any, pa.DataType], Any]], ...] = (
    (pa.types.is_boolean, _truth),
    (pa.types.is_integer, _whole),
    (pa.types.is_floating, _approximate),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_string, _text),
    (pa.types.is_binary, _bytes),
    (pa.types.is_date, _date),
    (pa.types.is_duration, _interval),
)
