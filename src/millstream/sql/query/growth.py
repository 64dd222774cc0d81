"""Growth analysis: finds queries that may need much more memory or time for a value than the rows they read.

DuckDB bounds the memory of joins, sorts, groups and collecting aggregates. It does not bound the results of functions:
`sequence(1, 3000000000)` is one value. Such a query runs in a separate process, whose memory the operating system
bounds (`store/subprocess_query.py`). This module decides which queries those are: all that call a function whose result
is not known to be about as large as its arguments, unless literals show that it cannot be large. In case of doubt, a
query is considered to grow.

DuckDB cannot be interrupted inside a function either, only between two vectors of 2,048 rows. A function whose time is
not roughly linear in the size of its arguments is also considered to grow; a process can be killed at any time.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from sqlglot import exp

from millstream.model.functions import AGGREGATE
from millstream.sql.parse.checks.allow_list import CLOCK, KEYWORDS, WINDOW, called

MOST = 1000
"""The largest growth factor of values that is allowed in the home's own process."""

_LONGEST_PATTERN, _MOST_CHOICES = 64, 4
"""A regular expression within these bounds is evaluated in the home's own process."""

TABLES = 30
"""The most tables that a query may join in the home's own process. With many tables DuckDB's search for the best join
order can take arbitrarily long, and it cannot be interrupted.
"""

_COLLECTING = (exp.ArrayAgg, exp.ArrayUniqueAgg, exp.GroupConcat, exp.ArrayConcatAgg)
_COLLECTING_NAMES = frozenset({"histogram_numeric", "collect_union", "approx_top_k", "map_agg"})

_STEADY = frozenset(
    """
    abs acos acosh add_months and array_compact array_contains array_distinct array_except array_intersect array_max
    array_min array_position array_remove array_size array_sort arrays_overlap ascii asin asinh atan atan2 atanh
    between bigint bit_count bit_get bit_length boolean bround btrim cardinality case cast cbrt ceil ceiling char
    char_length character_length chr coalesce contains cos cosh cot crc32 csc date date_add date_diff date_format
    date_from_unix_date date_part date_sub date_trunc dateadd datediff datepart day dayname dayofmonth dayofweek
    dayofyear decimal degrees div double e element_at endswith equal_null exists exp expm1 extract factorial filter
    find_in_set flatten float floor forall from_unixtime from_utc_timestamp get getbit greatest hash hour hypot if
    ifnull ilike in instr int isnan isnotnull isnull last_day lcase least left len length like ln locate
    log log10 log1p log2 lower ltrim make_date make_timestamp map_contains_key map_filter map_keys map_values md5
    minute mod month monthname months_between nanvl negative next_day not nullif nullifzero nvl nvl2 octet_length or
    pi pmod position positive pow power quarter radians regexp regexp_count regexp_extract regexp_instr regexp_like
    reverse right rint rlike round rtrim sec second sha sha1 sha2 shiftleft shiftright shiftrightunsigned sign signum
    sin sinh size slice smallint sort_array soundex split_part sqrt startswith string substr substring substring_index
    tan tanh timestamp timestamp_micros timestamp_millis timestamp_seconds tinyint to_date to_timestamp
    to_unix_timestamp to_utc_timestamp transform trim trunc try_add try_divide try_element_at try_multiply
    try_subtract ucase unix_date unix_micros unix_millis unix_seconds unix_timestamp upper weekday weekofyear when
    width_bucket xxhash64 year zeroifnull explode unnest
    """.split()
)
"""Functions whose result is about as large as their arguments, or of fixed size."""

_MEASURED = frozenset(
    """
    sequence generate_series repeat space lpad rpad array_repeat concat concat_ws array struct named_struct map replace
    regexp_replace translate split hex base64 initcap array_join format_string to_json array_append array_prepend
    """.split()
)
"""Functions whose growth `_factor` computes."""

_KNOWN = _STEADY | _MEASURED | AGGREGATE | WINDOW | CLOCK | KEYWORDS


def may_grow(tree: exp.Expr) -> bool:
    """Whether a query may create values that are much larger than those it reads, or is too hard to plan."""
    if any(name not in _KNOWN for name in called(tree, "spark")):
        return True
    if sum(1 for _ in tree.find_all(exp.Table, exp.Join)) > 2 * TABLES:
        return True
    factor = 1.0
    for node in tree.walk():
        factor *= _factor(node)
        if factor > MOST:
            return True
    collects = any(isinstance(n, _COLLECTING) or n.name.lower() in _COLLECTING_NAMES for n in tree.find_all(exp.Func))
    if collects and (factor > 1 or _has_several_parts(tree)):
        return True
    recursive = any(w.args.get("recursive") for w in tree.find_all(exp.With))
    return (recursive and factor > 1) or _multiplies(tree)


def _factor(node: exp.Expr) -> float:
    """The maximum size of a node's value relative to its arguments."""
    measure = _FACTORS.get(type(node))
    return 1.0 if measure is None else max(1.0, measure(node))


def _several(node: exp.Expr) -> float:
    return len(node.expressions)


def _piped(node: exp.Expr) -> float:
    """The number of operands of ``a || b || c``."""
    return 1 if isinstance(node.parent, exp.DPipe) else len(list(node.flatten()))


def _named(node: exp.Expr) -> float:
    name = node.name.lower()
    if name.startswith("regexp"):
        return _pattern(node)
    if name != "array_repeat":
        return 1
    return _number(node.expressions[-1]) if node.expressions else math.inf


def _length(node: exp.Expr) -> float:
    start, end, step = (_literal(node.args.get(a)) for a in ("start", "end", "step"))
    if start is None or end is None or (node.args.get("step") is not None and not step):
        return math.inf
    return max(1.0, abs(end - start) / abs(step or 1.0) + 1)


def _number(node: object) -> float:
    literal = _literal(node)
    return math.inf if literal is None else max(1.0, literal)


def _text(node: object) -> float:
    if node is None:
        return 1
    literal = isinstance(node, exp.Literal) and node.is_string
    return max(1.0, len(str(node.this))) if literal and isinstance(node, exp.Literal) else math.inf


def _lambda(node: exp.Expr) -> float:
    """A lambda runs for every element. One that reads a column, or calls another lambda, multiplies the two."""
    inner = node.this
    return math.inf if inner.find(exp.Column, exp.Lambda) is not None else 1


def _pattern(node: exp.Expr) -> float:
    """A regular expression: counted repetitions or many alternatives are slow for every character."""
    pattern = node.args.get("expression")
    if isinstance(node, exp.Anonymous):
        pattern = node.expressions[1] if len(node.expressions) > 1 else None
    if not isinstance(pattern, exp.Literal) or not pattern.is_string:
        return math.inf
    text = str(pattern.this)
    simple = len(text) <= _LONGEST_PATTERN and "{" not in text and sum(map(text.count, "*+?|")) <= _MOST_CHOICES
    return 1 if simple else math.inf


def _literal(node: object) -> float | None:
    sign = 1.0
    while isinstance(node, exp.Neg | exp.Paren):
        sign, node = -sign if isinstance(node, exp.Neg) else sign, node.this
    if not isinstance(node, exp.Literal) or node.is_string:
        return None
    try:
        return sign * float(str(node.this))
    except ValueError:
        return None


def _has_several_parts(tree: exp.Expr) -> bool:
    """Whether one part may repeat a value that another part collects: joins, subqueries, set operations, windows."""
    parts = sum(1 for n in tree.walk() if isinstance(n, exp.Select | exp.SetOperation | exp.Join | exp.Lateral))
    return parts > 1 or tree.find(exp.Window) is not None


def _multiplies(tree: exp.Expr) -> bool:
    """Whether there are nested queries that each read the previous one several times: columns double each time."""
    names = [t.name.lower() for t in tree.find_all(exp.Table)]
    ctes = {c.alias.lower() for c in tree.find_all(exp.CTE)}
    twice = sum(1 for c in ctes if names.count(c) > 1)
    return twice > 4


_FACTORS: dict[type[exp.Expr], Callable[[exp.Expr], float]] = {
    exp.GenerateSeries: _length,
    exp.Repeat: lambda node: _number(node.args.get("times")),
    exp.Space: lambda node: _number(node.this) / 16,
    exp.Pad: lambda node: _number(node.expression) / 16,
    exp.DPipe: _piped,
    exp.Concat: _several,
    exp.ConcatWs: _several,
    exp.Array: _several,
    exp.Struct: _several,
    exp.Format: _several,
    exp.VarMap: lambda _: 2,
    exp.Map: lambda _: 2,
    exp.Replace: lambda node: _text(node.args.get("replacement")),
    exp.RegexpReplace: lambda node: _text(node.args.get("replacement")) * _pattern(node),
    exp.RegexpSplit: lambda node: 16 * _pattern(node),
    **dict.fromkeys((exp.RegexpLike, exp.RegexpILike, exp.RegexpExtract, exp.RegexpCount, exp.RegexpInstr), _pattern),
    exp.Lambda: _lambda,
    exp.Translate: lambda _: 4,
    exp.ArrayToString: lambda node: _text(node.expression),
    exp.ArrayAppend: lambda _: 2,
    exp.ArrayPrepend: lambda _: 2,
    exp.Reduce: lambda _: math.inf,
    exp.Anonymous: _named,
    **dict.fromkeys((exp.Split, exp.Initcap, exp.JSONFormat, exp.ToBase64, exp.Hex), lambda _: 16),
}
