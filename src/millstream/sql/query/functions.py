"""Translates functions that the store lacks, or defines differently, so that they have the same meaning in queries and
in views.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp, parse_one

from millstream.errors import Unsupported
from millstream.sql.query import arrays, formats
from millstream.sql.query.divisions import divided, guard, positive
from millstream.sql.query.templates import written

_TIMES = frozenset("yMdHhmsSaE")
"""Letters of time formats; others belong to number formats."""
_UNITS = {"DAYOFWEEK": 1, "DOW": 1}
_PARTS = {"DAY": (86_400_000_000, 1 << 62), "HOUR": (3_600_000_000, 24)}
"""Units of an interval: their length in microseconds, and how many there are in the next larger unit."""
_KIND = exp.DataType.Type


def in_store(tree: exp.Expr) -> exp.Expr:
    """A tree whose functions the store computes as Spark does."""
    for kind in tree.find_all(exp.DataType):
        if kind.this is _KIND.TIMESTAMP:  # the parser's result for some functions; an instant, as all TIMESTAMPs are
            kind.set("this", _KIND.TIMESTAMPTZ)
    guard(tree)
    for call in reversed(list(tree.find_all(exp.Anonymous, *_NODES))):  # innermost first
        form = _NODES.get(type(call))
        call_sql = _named(call) if isinstance(call, exp.Anonymous) else form(call) if form is not None else None
        if call_sql is None:
            continue
        if call is tree:
            return call_sql
        call.replace(call_sql)
    return tree


def _call(name: str, *values: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this=name, expressions=[v.copy() for v in values])


def _plus_one(node: exp.Expr) -> exp.Expr:
    """Spark counts the days of the week from 1 (Sunday), the store from 0."""
    return exp.paren(exp.Add(this=node.copy(), expression=exp.Literal.number(1)))


def _extracted(node: exp.Expr) -> exp.Expr | None:
    field = node.name.upper()
    if field in _UNITS:
        return _plus_one(node)
    if field == "SECOND":  # including its fraction
        micros = exp.Extract(this=exp.var("MICROSECOND"), expression=node.expression.copy())
        parts = exp.Div(this=micros, expression=exp.Literal.number("1000000.0"), typed=False, safe=False)
        return exp.cast(parts, "DECIMAL(8, 6)")
    if field.rstrip("S") in _PARTS:
        return _part(node, field.rstrip("S"))
    if field == "DAYOFWEEK_ISO":
        return exp.Extract(this=exp.var("ISODOW"), expression=node.expression.copy())
    if field == "YEAROFWEEK":
        return exp.Extract(this=exp.var("ISOYEAR"), expression=node.expression.copy())
    return None


def _part(node: exp.Expr, field: str) -> exp.Expr:
    """The days or hours of an interval, which the store counts differently, or those of other types."""
    per, most = _PARTS[field]
    form = f"CASE WHEN typeof({{x}}) = 'INTERVAL' THEN {{u}} // {per} % {most} ELSE {{e}} END"
    micros = written("epoch_us(TRY_CAST(CAST({x} AS TEXT) AS INTERVAL))", x=node.expression)
    return exp.paren(written(form, x=node.expression, u=exp.paren(micros), e=node))


def _moment(node: exp.Expr) -> exp.Expr:
    """A function that returns a TIMESTAMP, where the store's function returns one without a zone."""
    formats.check(node)
    return exp.cast(node.copy(), _KIND.TIMESTAMPTZ)


def _full_units(node: exp.Expr) -> exp.Expr:
    """TIMESTAMPDIFF counts complete units; the store's DATE_DIFF counts boundaries."""
    unit = str(node.args["unit"].name if node.args.get("unit") else "DAY").upper()
    start, end = (e.this if isinstance(e, exp.TsOrDsToDate) else e for e in (node.expression, node.this))
    return _call("date_sub", exp.Literal.string(unit.lower()), start, end)


def _days(node: exp.Expr) -> exp.Expr | None:
    unit = node.args.get("unit")
    return None if unit is None or unit.name.upper() == "DAY" else _full_units(node)


def _overlaid(node: exp.Expr) -> exp.Expr:
    """OVERLAY(text PLACING other FROM 2 FOR 1)."""
    start, other = node.args["from_"], node.expression
    length = node.args.get("for_") or exp.Length(this=other.copy())
    before = exp.Left(this=node.this.copy(), expression=exp.Sub(this=start.copy(), expression=exp.Literal.number(1)))
    behind = exp.Substring(this=node.this.copy(), start=exp.Add(this=start.copy(), expression=exp.paren(length.copy())))
    return exp.paren(exp.DPipe(this=exp.DPipe(this=before, expression=other.copy()), expression=behind))


def _short(node: exp.Expr) -> exp.Expr:
    return exp.Left(this=node.copy(), expression=exp.Literal.number(3))


def _seconds(node: exp.Expr) -> exp.Expr | None:
    """unix_timestamp(ts), also for text in the default format."""
    usual = node.args.get("format")
    if usual is not None and usual.name.replace("strict", "") != "%Y-%m-%d %H:%M:%S":
        return None
    return exp.cast(_call("epoch", exp.cast(node.this.copy(), "TIMESTAMP")), "BIGINT")


def _truncated(node: exp.Expr) -> exp.Expr | None:
    """trunc(day, 'MM'): the store supports only the full names of units."""
    unit = {"MM": "MONTH", "MON": "MONTH", "YY": "YEAR", "YYYY": "YEAR"}.get(str(node.args["unit"].name).upper())
    cut = node.copy()
    if unit is not None:
        cut.set("unit", exp.Literal.string(unit))
    return exp.cast(cut, "DATE")


def _date(node: exp.Expr) -> exp.Expr:
    """date_add(day, 3) is a date."""
    return exp.cast(node.copy(), "DATE")


def _up_to(node: exp.Expr) -> exp.Expr:
    """substring_index(text, ',', 2): the text before the second comma, or after it when counted from the end."""
    count = node.args["count"]
    sign = "[{n}:]" if isinstance(count, exp.Neg) else "[1:{n}]"
    cut = f"array_to_string(string_split({{s}}, {{d}}){sign}, {{d}})"
    return written(cut, s=node.this, d=node.args["delimiter"], n=count)


def _in_zone(node: exp.Expr) -> exp.Expr:
    """from_utc_timestamp(ts, zone), and ``ts AT TIME ZONE zone``: the local time in a zone."""
    time = node.this.this if isinstance(node.this, exp.Cast) and node.this.is_type("timestamp") else node.this
    return _moment(_call("timezone", node.args["zone"], exp.cast(time.copy(), "TIMESTAMPTZ")))


def _hashed(node: exp.Expr) -> exp.Expr | None:
    length = node.args.get("length")
    if length is None or length.name in ("0", "256"):
        return None
    return _refused(f"sha2 of {length.name} bits", "sha256(text), or compute it in a view and select its column")


def _refused(name: str, instead: str) -> exp.Expr:
    raise Unsupported(f"{name} is not supported in a query: the store would compute something else", hint=instead)


def _named(call: exp.Anonymous) -> exp.Expr | None:
    name, values = str(call.this).lower(), call.expressions
    form = _NAMES.get(name)
    if name == "regexp" and len(values) == 2:
        return _call("regexp_matches", *values)
    if name in ("pmod", "forall") and len(values) == 2:
        return positive(values[0], values[1]) if name == "pmod" else arrays.forall(values)
    if name == "btrim":
        return _call("trim", *values)
    if name == "bround":
        return _call("round_even", *values, *([] if len(values) > 1 else [exp.Literal.number(0)]))
    if name == "get" and len(values) == 2:
        inside = exp.GTE(this=values[1].copy(), expression=exp.Literal.number(0))
        place = exp.Add(this=exp.paren(values[1].copy()), expression=exp.Literal.number(1))
        return exp.Case(ifs=[exp.If(this=inside, true=_call("list_extract", values[0], place))])
    if name == "date_part" and len(values) == 2 and isinstance(values[0], exp.Literal):
        part = exp.Extract(this=exp.var(values[0].name.upper()), expression=values[1].copy())
        return _extracted(part) or part
    if name == "to_char" and len(values) == 2 and isinstance(values[1], exp.Literal):
        return _formatted(values[0], values[1].name)
    return form(*values) if form is not None and len(values) == 1 else _timed(name, values)


def _timed(name: str, values: list[exp.Expr]) -> exp.Expr | None:
    """Intervals, and times without a zone."""
    if name == "make_dt_interval" and len(values) <= 4:
        parts = [*values, *[exp.Literal.number(0)] * 4]
        return written(_LENGTH, d=parts[0], h=parts[1], m=parts[2], s=parts[3])
    return _call("make_timestamp", *values) if name == "make_timestamp_ntz" else None


def _formatted(time: exp.Expr, pattern: str) -> exp.Expr | None:
    """to_char(ts, 'yyyy-MM-dd') is date_format."""
    if not set(filter(str.isalpha, pattern)) <= _TIMES:
        return None
    formatted = parse_one(f"date_format(x, {exp.Literal.string(pattern).sql(dialect='spark')})", dialect="spark")
    formatted.set("this", time.copy())
    formats.check(formatted)
    return formatted


_LENGTH = (
    "to_microseconds(CAST(((CAST({d} AS BIGINT) * 24 + {h}) * 60 + {m}) * 60000000 "
    "+ CAST({s} AS DECIMAL(18, 6)) * 1000000 AS BIGINT))"
)
"""An interval from days, hours, minutes and seconds."""

_ENCODED = "replace(replace(replace(url_encode({x}), '%20', '+'), '~', '%7E'), '%2A', '*')"
_NODES: dict[type[exp.Expr], Callable[[exp.Expr], exp.Expr | None]] = {
    exp.Div: divided,
    exp.Mod: divided,
    exp.IntDiv: divided,
    exp.DayOfWeek: _plus_one,
    exp.Extract: _extracted,
    exp.TimestampDiff: _full_units,
    exp.DateDiff: _days,
    exp.Overlay: _overlaid,
    exp.Monthname: _short,
    exp.Dayname: _short,
    exp.StrToUnix: _seconds,
    exp.TsOrDsAdd: _date,
    exp.AddMonths: _date,
    exp.Quantile: lambda n: _call("quantile_cont", n.this, n.args["quantile"]),
    exp.SubstringIndex: _up_to,
    exp.ArrayDistinct: lambda n: written("list_filter({x}, LAMBDA e, i : list_position({x}, e) = i)", x=n.this),
    exp.MonthsBetween: lambda _: _refused("months_between", "timestampdiff(MONTH, a, b) counts whole months"),
    exp.Skewness: lambda _: _refused("skewness", "compute it in a view"),
    exp.WidthBucket: lambda _: _refused("width_bucket", "compute it in a view"),
    exp.DateTrunc: _truncated,
    exp.Format: lambda n: _call("printf", n.this, *n.expressions),
    exp.ArrayPosition: lambda n: exp.paren(
        exp.Case(
            ifs=[exp.If(this=exp.Is(this=n.this.copy(), expression=exp.null()), true=exp.null())],
            default=exp.Coalesce(this=n.copy(), expressions=[exp.Literal.number(0)]),
        )
    ),
    exp.RegexpSubstr: lambda n: exp.Nullif(
        this=_call("regexp_extract", n.this, n.expression), expression=exp.Literal.string("")
    ),
    exp.AtTimeZone: _in_zone,
    exp.EQ: arrays.among,
    exp.ArrayContains: arrays.contains,
    exp.Exists: arrays.exists,
    exp.SHA2: _hashed,
    exp.StrToTime: _moment,
    **dict.fromkeys((exp.TimeToStr, exp.UnixToStr, exp.TsOrDsToDate), formats.check),
    exp.TimestampFromParts: _moment,
    exp.TimestampTrunc: _moment,
    exp.FromTimeZone: lambda n: _call(
        "timezone", n.args["zone"], _call("timezone", exp.Literal.string("UTC"), exp.cast(n.this, _KIND.TIMESTAMPTZ))
    ),
    exp.Kurtosis: lambda n: _call("kurtosis_pop", n.this),
}
_NAMES: dict[str, Callable[[exp.Expr], exp.Expr]] = {
    "reverse": lambda x: _call("list_reverse", x),  # for arrays; the parser handles strings
    "cardinality": lambda x: _call("len", x),
    "octet_length": lambda x: _call("strlen", x),
    "isnull": lambda x: exp.paren(exp.Is(this=x.copy(), expression=exp.null())),
    "isnotnull": lambda x: exp.paren(exp.Not(this=exp.Is(this=x.copy(), expression=exp.null()))),
    "unix_micros": lambda x: _call("epoch_us", x),
    "unix_millis": lambda x: _call("epoch_ms", x),
    "unix_seconds": lambda x: exp.cast(_call("epoch", x), "BIGINT"),
    "to_timestamp_ntz": lambda x: exp.cast(x.copy(), _KIND.TIMESTAMPNTZ),
    "timestamp_seconds": lambda x: _call("to_timestamp", x),
    "every": lambda x: _call("bool_and", x),
    "some": lambda x: _call("bool_or", x),
    "any": lambda x: _call("bool_or", x),
    "std": lambda x: _call("stddev", x),
    "url_encode": lambda x: written(_ENCODED, x=x),  # form encoding, as in Java
    "url_decode": lambda x: written("url_decode(replace({x}, '+', ' '))", x=x),
    "hash": lambda _: _refused("hash", "compute it in a view and select its column"),
    "xxhash64": lambda _: _refused("xxhash64", "compute it in a view and select its column"),
    "timestamp_millis": lambda x: written("make_timestamptz(CAST({x} AS BIGINT) * 1000)", x=x),
    "timestamp_micros": lambda x: written("make_timestamptz(CAST({x} AS BIGINT))", x=x),
    "weekday": lambda x: exp.paren(exp.Sub(this=_call("isodow", x), expression=exp.Literal.number(1))),
}
