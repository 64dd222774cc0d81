"""Intervals in queries: handles what DuckDB formats, parses or computes differently from Spark."""

from __future__ import annotations

from sqlglot import exp

from millstream.errors import QueryError
from millstream.model.types.interval import interval_micros_of

_TEXT = r"\s*(INTERVAL\s+'')?\s*([+-]?)(\d+) (\d{1,2}):(\d{1,2}):(\d{1,2})(\.\d{1,6})?('\s*DAY\s+TO\s+SECOND)?\s*"


def literal_sql(node: exp.Interval) -> str | None:
    """``INTERVAL '1 02:03:04' DAY TO SECOND`` and similar literals in DuckDB's SQL; None if DuckDB parses them too."""
    unit = node.unit
    if not isinstance(unit, exp.IntervalSpan):
        return None
    literal, units = str(node.this.name).strip(), (unit.this.name.upper(), unit.expression.name.upper())
    if units == ("YEAR", "MONTH"):
        sign, (years, _, months) = (-1 if literal.startswith("-") else 1), literal.lstrip("+-").partition("-")
        if years.isdigit() and months.isdigit():
            return f"to_months({sign * (int(years) * 12 + int(months))})"
    micros = _micros(literal, *units)
    if micros is None:
        raise QueryError(
            f"`{node.sql(dialect='spark')[:60]}` is not an interval",
            hint="e.g. INTERVAL '1 02:03:04' DAY TO SECOND, or INTERVAL '2' HOUR",
        )
    return f"to_microseconds({micros})"


def _micros(literal: str, first: str, last: str) -> int | None:
    """The length of an interval with units from the first to the last."""
    whole = "DAY", "HOUR", "MINUTE", "SECOND"
    if first not in whole or last not in whole:
        return None
    negative, literal = literal.startswith("-"), literal.lstrip("+-")
    low, high = whole.index(first), whole.index(last)
    day, rest = literal.split(" ", 1) if low == 0 and " " in literal else ("0", literal)
    parts = rest.split(":")
    if len(parts) != high - max(low, 1) + 1 or not all(p.replace(".", "", 1).isdigit() for p in parts):
        return None
    clock = ["0"] * (max(low, 1) - 1) + parts + ["0"] * (3 - high)
    micros = interval_micros_of(f"{day} {':'.join(clock)}")
    return -micros if micros is not None and negative else micros


def text_sql(x: str) -> str:
    """SQL for an interval in Spark's format; `x` is in microseconds."""
    part = f"abs({x})"
    clock = ":".join(f"lpad(CAST({part} // {per} % {most} AS TEXT), 2, '0')" for per, most in _CLOCK)
    clock = clock.replace("):lpad", ") || ':' || lpad")
    fraction = f"rtrim(rtrim('.' || lpad(CAST({part} % 1000000 AS TEXT), 6, '0'), '0'), '.')"
    sign = f"CASE WHEN {x} < 0 THEN '-' ELSE '' END"
    return (
        f"'INTERVAL ''' || {sign} || CAST({part} // 86400000000 AS TEXT) || ' ' || {clock} || {fraction} || "
        "''' DAY TO SECOND'"
    )


_CLOCK = ((3_600_000_000, 24), (60_000_000, 60), (1_000_000, 60))


def parsed_sql(t: str, refused: str) -> str:
    """SQL that parses an interval from text in Spark's format."""
    pattern = _TEXT.replace("''", "'").replace("'", "''")
    parts = f"regexp_extract({t}, '{pattern}', ['pre', 'sign', 'd', 'h', 'm', 's', 'f', 'post'], 'i')"
    good = (
        f"regexp_full_match({t}, '{pattern}', 'i') AND (({parts}).pre = '') = (({parts}).post = '') "
        f"AND CAST(({parts}).h AS INT) < 24 AND CAST(({parts}).m AS INT) < 60 AND CAST(({parts}).s AS INT) < 60"
    )
    whole = f"((CAST(({parts}).d AS HUGEINT) * 24 + CAST(({parts}).h AS INT)) * 60 + CAST(({parts}).m AS INT)) * 60"
    micros = f"({whole} + CAST(({parts}).s AS INT)) * 1000000"
    part = f"CAST(rpad(replace(({parts}).f, '.', ''), 6, '0') AS INT)"
    signed = f"({micros} + {part}) * CASE WHEN ({parts}).sign = '-' THEN -1 ELSE 1 END"
    return f"CASE WHEN {good} THEN to_microseconds(CAST({signed} AS BIGINT)) ELSE {refused} END"
