"""Renames functions of other SQL dialects (Postgres, Flink, DuckDB) that Spark has under another name.

All replacements happen before any other stage sees a query, so they mean the same in views and in queries. Functions
that Spark has under the same name are left unchanged: the text of an expression is part of the identity of a view.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable

from sqlglot import exp

from millstream.errors import Unsupported
from millstream.model.functions import AGGREGATE, SCALAR
from millstream.sql.dialects import function_forms, other_databases

Form = Callable[[list[exp.Expr]], exp.Expr]


def _call(name: str, *values: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this=name, expressions=list(values))


def _text(value: str) -> exp.Literal:
    return exp.Literal.string(value)


def _number(value: int) -> exp.Expr:
    return exp.Literal.number(value)


def _literally(separator: exp.Expr) -> exp.Expr:
    """A string as a pattern that matches only that string."""
    return exp.func("concat", _text("\\Q"), separator, _text("\\E"))


def _split_index(values: list[exp.Expr]) -> exp.Expr:
    """SPLIT_INDEX(text, separator, n): part n, from 0; NULL if there is none."""
    text, separator, number = values
    return _call("get", _parsed("split")([text, _literally(separator)]), number)


def _parsed(name: str) -> Form:
    """The same call under another name, as the parser would have parsed it."""
    return lambda values: exp.func(name, *values, dialect="spark")


FORMS: dict[str, tuple[tuple[int, ...], Form]] = {
    "split_index": ((3,), _split_index),
    "string_to_array": ((2,), lambda v: _parsed("split")([v[0], _literally(v[1])])),
    "string_split": ((2,), lambda v: _parsed("split")([v[0], _literally(v[1])])),
    "json_value": ((2,), _parsed("get_json_object")),
    "json_extract_string": ((2,), _parsed("get_json_object")),
    "sha224": ((1,), lambda v: _parsed("sha2")([v[0], _number(224)])),
    "sha256": ((1,), lambda v: _parsed("sha2")([v[0], _number(256)])),
    "sha384": ((1,), lambda v: _parsed("sha2")([v[0], _number(384)])),
    "sha512": ((1,), lambda v: _parsed("sha2")([v[0], _number(512)])),
    "regexp_matches": ((2,), lambda v: exp.RegexpLike(this=v[0], expression=v[1])),
    "epoch": ((1,), lambda v: _seconds(v[0])),
    "list_contains": ((2,), _parsed("array_contains")),
    "list_sort": ((1,), _parsed("sort_array")),
    "list_distinct": ((1,), _parsed("array_distinct")),
    "charindex": ((2,), _parsed("locate")),
}
"""From name to the allowed numbers of arguments, and the Spark equivalent."""

_FIELDS = {"ISODOW": "DAYOFWEEK_ISO", "ISOYEAR": "YEAROFWEEK"}
"""Fields of a time with other names in Spark."""
_NO_FIELDS = frozenset(
    "MILLISECOND MILLISECONDS MICROSECOND MICROSECONDS CENTURY DECADE MILLENNIUM TIMEZONE TIMEZONE_HOUR "
    "TIMEZONE_MINUTE JULIAN ERA".split()
)
"""Fields of a time that Spark lacks."""


def in_spark(tree: exp.Expr, *only: type[exp.Expr]) -> exp.Expr:
    """A tree with such functions (or those of some node types) replaced; each keeps its position."""
    for call in reversed(list(tree.find_all(*(only or (exp.Anonymous, *_NODES))))):  # from the inside out
        spark_call = _spark_call(call)
        if spark_call is None:
            continue
        if call is tree:
            return spark_call
        call.replace(spark_call)
    return tree


def _spark_call(call: exp.Expr) -> exp.Expr | None:
    """The Spark equivalent of a call; None means the call itself."""
    if not isinstance(call, exp.Anonymous):
        return _NODES[type(call)](call)
    name, values = str(call.this).lower(), [v.copy() for v in call.expressions]
    if name == "date_part" and len(values) == 2 and isinstance(values[0], exp.Literal):
        return _extracted(exp.Extract(this=exp.var(values[0].name.upper()), expression=values[1]))
    for known in (FORMS, function_forms.FORMS):
        numbers, form = known.get(name, ((), None))
        if form is not None and len(values) in numbers:
            return form(values)
    return None


def _seconds(time: exp.Expr) -> exp.Expr:
    """The seconds since 1970, including their fraction."""
    micros = exp.cast(_call("unix_micros", exp.cast(time.copy(), "TIMESTAMP")), "DOUBLE")
    return exp.paren(exp.Div(this=micros, expression=_number(1_000_000), typed=False, safe=False))


def _extracted(node: exp.Expr) -> exp.Expr | None:
    """EXTRACT of a field that Spark names differently, or lacks."""
    field = node.name.upper() if isinstance(node.this, exp.Expr) else str(node.this).upper()
    if field == "EPOCH":
        return _seconds(node.expression)
    if field in _FIELDS:
        return exp.Extract(this=exp.var(_FIELDS[field]), expression=node.expression.copy())
    if field in _NO_FIELDS:
        raise Unsupported(
            f"EXTRACT({field} FROM ...) is not supported",
            hint="EXTRACT(SECOND FROM ts) has the fraction; unix_millis(ts) and unix_micros(ts) count from 1970",
        )
    return None


def _rounded(node: exp.Expr) -> exp.Expr | None:
    """FLOOR(ts TO DAY) and CEIL(ts TO DAY)."""
    to = node.args.get("to")
    if to is None:
        return None
    unit, time = to.name.upper(), node.this
    start = exp.TimestampTrunc(this=time.copy(), unit=exp.var(unit))
    if isinstance(node, exp.Floor):
        return start
    following = exp.Add(this=start.copy(), expression=exp.Interval(this=_text("1"), unit=exp.var(unit)))
    even = exp.EQ(this=start.copy(), expression=time.copy())
    return exp.Case(ifs=[exp.If(this=even, true=start)], default=following)


def _cut(node: exp.Expr) -> exp.Expr:
    """TRUNC(number, digits): towards zero."""
    digits = node.args.get("decimals")
    places = 0 if digits is None else int(digits.name) if isinstance(digits, exp.Literal) and digits.is_int else None
    if places is None:
        raise Unsupported("trunc takes a whole number of digits", hint="trunc(price, 2)")
    value, scale = node.this, exp.Literal.number("1" + "0" * places)

    def cut(kind: type[exp.Func]) -> exp.Expr:
        if not places:
            return kind(this=value.copy())
        whole = kind(this=exp.Mul(this=exp.paren(value.copy()), expression=scale.copy()))
        return exp.Div(this=whole, expression=scale.copy(), typed=False, safe=False)

    below = exp.LT(this=exp.paren(value.copy()), expression=_number(0))
    return exp.Case(ifs=[exp.If(this=below, true=cut(exp.Ceil))], default=cut(exp.Floor))


def _replaced(node: exp.Expr) -> exp.Expr | None:
    """regexp_replace(text, pattern, other, 'gi'): Spark replaces all matches, and has flags in the pattern."""
    flags = node.args.get("position") or node.args.get("modifiers")
    if not isinstance(flags, exp.Literal) or not flags.is_string:
        return None
    letters = set(flags.name)
    if "g" not in letters or not letters <= {"g", "i"}:
        raise Unsupported(
            f"the flags '{flags.name}' of regexp_replace are not supported",
            hint="all matches are replaced: leave the flags out, or write 'g' or 'gi'",
        )
    pattern = node.expression.copy()
    if "i" in letters:
        pattern = exp.func("concat", _text("(?i)"), pattern)
    return exp.RegexpReplace(this=node.this.copy(), expression=pattern, replacement=node.args["replacement"].copy())


def _formatted(node: exp.Expr) -> exp.Expr:
    return _call("to_char", node.this.copy(), node.args["format"].copy())


def _bare_clock(node: exp.Expr) -> exp.Expr | None:
    """The bare word `localtimestamp`, which the parser reads as a column; such a column must be quoted."""
    word = node.this
    bare = isinstance(word, exp.Identifier) and not word.args.get("quoted") and not node.args.get("table")
    if not bare or word.name.lower() != "localtimestamp":
        return None
    clock = exp.Localtimestamp()
    clock.meta.update(word.meta)
    return clock


_NODES: dict[type[exp.Expr], Callable[[exp.Expr], exp.Expr | None]] = {
    exp.ToChar: _formatted,
    exp.Column: _bare_clock,
    exp.Extract: _extracted,
    exp.Floor: _rounded,
    exp.Ceil: _rounded,
    exp.Trunc: _cut,
    exp.RegexpReplace: _replaced,
    exp.ArrayReverse: lambda n: _call("reverse", n.this.copy()),
    **function_forms.NODES,
    exp.StringToArray: lambda n: _parsed("split")([n.this.copy(), _literally(n.expression.copy())]),
}
"""Calls that the parser knows, and their Spark equivalents; None means unchanged."""


_INSTEAD = {
    "age": "timestampdiff(DAY, a, b), or EXTRACT of a part of each",
    "regexp_match": "regexp_extract(text, pattern, group)",
    "json_query": "get_json_object(json, '$.path')",
    "json_extract_path": "get_json_object(json, '$.path')",
    "to_number": "CAST(text AS DECIMAL(10, 2))",
    "gen_random_uuid": "a key of the data: a result must be the same when it is recomputed",
    "generate_subscripts": "UNNEST(array) WITH ORDINALITY AS t(element, number)",
    "clock_timestamp": "now() in a comparison of WHERE, or the event time",
    "row_to_json": "to_json(struct(a, b))",
    "json_build_object": "to_json(named_struct('a', a))",
    "jsonb_build_object": "to_json(named_struct('a', a))",
    "strftime": "date_format(ts, 'yyyy-MM-dd')",
    "strptime": "to_timestamp(text, 'yyyy-MM-dd')",
    "quote_literal": "concat('\\'', text, '\\'')",
    "isfinite": "NOT isnan(x)",
    "group_concat": "string_agg(x, ', ')",
    "datetrunc": "date_trunc('day', ts)",
    "files": "COPY t FROM 'file', INSERT INTO t SELECT ... FROM FILES('file'), or CREATE SOURCE s FROM FILES('folder')",
    "getdate": "now() in a comparison of WHERE",
    "nearest": "a ASOF JOIN b MATCH_CONDITION (NEAREST(a.ts, b.ts)) ON a.id = b.id",
}
"""What to write instead of functions of other databases."""


def instead_of(name: str) -> str:
    """What to write instead of an unknown function."""
    if name == "typeof":
        return "DESCRIBE name shows the column types"
    hint = _INSTEAD.get(name) or other_databases.FUNCTIONS.get(name)
    if hint is not None:
        return f"write {hint}"
    close = difflib.get_close_matches(name, sorted(SCALAR | AGGREGATE), n=1, cutoff=0.75)
    return f"did you mean `{close[0]}`?" if close else "functions are those of Spark SQL; CREATE FUNCTION adds your own"
