"""CAST with Spark's semantics, rendered for DuckDB.

DuckDB rounds where Spark truncates, parses `1.7`, `0x10` and `1_000` as whole numbers, and formats numbers and times as
text in its own way. A CAST must have the same meaning in a query and in a view. The type of a value is not known when a
query is rendered for DuckDB, so each form tests it with `typeof`, which DuckDB evaluates before it reads any row. The
branches use the text of the value: every type can be converted to text, so every branch can be bound.
"""

from __future__ import annotations

from sqlglot import exp

from millstream.sql.query.intervals import parsed_sql, text_sql

_KIND = exp.DataType.Type
_WHOLE = frozenset((_KIND.TINYINT, _KIND.SMALLINT, _KIND.INT, _KIND.BIGINT))
_APPROXIMATE = frozenset((_KIND.FLOAT, _KIND.DOUBLE))
_TEXT = frozenset((_KIND.TEXT, _KIND.VARCHAR, _KIND.CHAR))
_FLOATING = "typeof({x}) IN ('DOUBLE', 'FLOAT')"
_SPAN = "typeof({x}) = 'INTERVAL'"
_MICROS = "epoch_us(TRY_CAST({t} AS INTERVAL))"
_SECONDS = "CAST(epoch_us(TRY_CAST({t} AS TIMESTAMPTZ)) AS DECIMAL(20, 0)) * CAST(0.000001 AS DECIMAL(6, 6))"


def spark_cast(value: exp.Expr, sql: str, to: exp.DataType, kind: str, *, safe: bool) -> str | None:
    """``CAST(value AS kind)`` in DuckDB's SQL with Spark's semantics; None if DuckDB's own are the same.

    `sql` is the value and `kind` the type in DuckDB's SQL. A value that is more than a column is computed once and then
    named by a lambda, so that nested casts do not multiply the text.
    """
    bare = value.unnest()
    if isinstance(bare, exp.Literal) and (to.this in _TEXT if bare.is_string else bare.name.isdigit()):
        return None
    if isinstance(bare, exp.Cast) and bare.to.this in _TEXT and to.this in _TEXT:
        return None
    named = isinstance(bare, exp.Column | exp.Literal)
    form = _form(sql if named else "v", to, kind, safe=safe)
    return form if form is None or named else f"list_transform([{sql}], lambda v: {form})[1]"


def _form(x: str, to: exp.DataType, kind: str, *, safe: bool) -> str | None:
    t, cast = f"CAST({x} AS TEXT)", "TRY_CAST" if safe else "CAST"
    refused = "NULL" if safe else f"error('`' || {t} || '` cannot become {to.sql(dialect='spark')}')"
    if to.this in _TEXT:
        return _as_text(x, t)
    if isinstance(to.this, exp.Interval) or to.this is _KIND.INTERVAL:
        return f"CASE WHEN {_SPAN.format(x=x)} THEN TRY_CAST({t} AS INTERVAL) ELSE {parsed_sql(t, refused)} END"
    if to.this in _WHOLE:
        return f"{cast}({_whole(x, t, cast, refused)} AS {kind})"
    if to.this is _KIND.DECIMAL:
        kind = kind if to.expressions else "DECIMAL(10, 0)"
        text = _number(x, t, f"contains({t}, '_')", refused)
        return f"{cast}({text} AS {kind})"
    if to.this in _APPROXIMATE:
        checked = f"typeof({x}) = 'VARCHAR' AND contains({t}, '_')"
        seconds = f"starts_with(typeof({x}), 'TIMESTAMP') THEN {cast}({_SECONDS.format(t=t)} AS {kind})"
        return f"CASE WHEN {checked} THEN {refused} WHEN {seconds} ELSE {cast}({x} AS {kind}) END"
    return None


def _whole(x: str, t: str, cast: str, refused: str) -> str:
    """The text of a value converted to a whole number: digits after the point are truncated."""
    bad = f"NOT regexp_full_match({t}, '\\s*[+-]?[0-9]+\\s*')"
    return (
        f"CASE WHEN {_FLOATING.format(x=x)} THEN CAST({cast}(trunc(TRY_CAST({t} AS DOUBLE)) AS HUGEINT) AS TEXT) "
        f"WHEN starts_with(typeof({x}), 'DECIMAL') THEN split_part({t}, '.', 1) "
        f"WHEN starts_with(typeof({x}), 'TIMESTAMP') THEN CAST(floor({_SECONDS.format(t=t)}) AS TEXT) "
        f"WHEN {_SPAN.format(x=x)} THEN CAST({_MICROS.format(t=t)} // 1000000 AS TEXT) "
        f"ELSE {_number(x, t, bad, refused)} END"
    )


def _number(x: str, t: str, bad: str, refused: str) -> str:
    """A number, truth value or time as the text of a number; text that is `bad` is rejected."""
    return (
        f"CASE WHEN typeof({x}) = 'BOOLEAN' THEN CASE {t} WHEN 'true' THEN '1' WHEN 'false' THEN '0' END "
        f"WHEN typeof({x}) = 'VARCHAR' THEN CASE WHEN {bad} THEN {refused} ELSE {t} END "
        f"WHEN starts_with(typeof({x}), 'TIMESTAMP') THEN CAST({_SECONDS.format(t=t)} AS TEXT) "
        f"WHEN {_SPAN.format(x=x)} THEN CAST(CAST({_MICROS.format(t=t)} AS DECIMAL(20, 0)) "
        "* CAST(0.000001 AS DECIMAL(6, 6)) AS TEXT) "
        f"WHEN typeof({x}) = 'FLOAT' THEN CAST(CAST(TRY_CAST({t} AS FLOAT) AS DOUBLE) AS TEXT) "
        f"ELSE {t} END"
    )


def _as_text(x: str, t: str) -> str:
    """Text in Spark's format: ``1.0E10``, ``NaN``, times without their zone, intervals with their units."""
    span = f"list_transform([{_MICROS.format(t=t)}], lambda u: {text_sql('u')})[1]"
    size, head = f"abs(TRY_CAST({t} AS DOUBLE))", f"split_part({t}, 'e', 1)"
    whole = f"regexp_replace(replace({t}, '.', ''), '^(-?\\d)(\\d+?)0*$', '\\1.\\2')"
    part = f"regexp_replace({t}, '^(-?)0\\.0*([1-9])(\\d+)$', '\\1\\2.\\3')"
    part = f"regexp_replace({part}, '^(-?)0\\.0*([1-9])$', '\\1\\2.0')"
    return (
        f"CASE WHEN {_FLOATING.format(x=x)} THEN CASE "
        f"WHEN {t} LIKE '%nan' THEN 'NaN' WHEN {t} LIKE '%inf' THEN replace({t}, 'inf', 'Infinity') "
        f"WHEN contains({t}, 'e') THEN {head} || CASE WHEN contains({head}, '.') THEN '' ELSE '.0' END"
        f" || 'E' || CAST(TRY_CAST(split_part({t}, 'e', 2) AS INT) AS TEXT) "
        f"WHEN {size} >= 1e7 THEN {whole} || 'E' || CAST(length(split_part(ltrim({t}, '-'), '.', 1)) - 1 AS TEXT) "
        f"WHEN {size} > 0 AND {size} < 1e-3 "
        f"THEN {part} || 'E-' || CAST(length(regexp_extract({t}, '0\\.(0*)', 1)) + 1 AS TEXT) "
        f"ELSE {t} END "
        f"WHEN {_SPAN.format(x=x)} THEN {span} "
        f"WHEN typeof({x}) = 'TIMESTAMP WITH TIME ZONE' THEN regexp_replace({t}, '[+]00$', '') ELSE {t} END"
    )
