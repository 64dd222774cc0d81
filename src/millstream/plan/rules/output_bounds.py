"""Bounds the size of what one function may produce from one record, in expressions that Spark evaluates.

`sequence(1, n)`, `repeat(text, n)` and similar functions can produce a value of any size from a small record. Spark's
Java process would run out of memory, and again at every restart. Spark therefore gets these functions with a size check
before them: a record whose value would be too large raises an error and is quarantined like every failed record. Small
literals need no check. Inside a lambda the bound is smaller, because the function is called for each element.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import sqlglot
from sqlglot import exp

from millstream.errors import Unsupported
from millstream.model.types.duration import UNITS

ELEMENTS = 1_000_000
"""Elements of an array that one call may produce."""
CHARACTERS = 10_000_000
"""Characters of a text that one call may produce."""
_INSIDE = 1_000
"""The factor by which the bounds shrink inside a lambda."""
_PLAIN = 1_000
"""The greatest literal number that needs no check."""

_NAMES = "sequence|generate_series|repeat|space|lpad|rpad|array_repeat|format_number"
_CALLS = re.compile(rf"\b({_NAMES})\s*\(", re.IGNORECASE)


def bounded(sql: str) -> str:
    """A Spark SQL expression with size checks on its growing functions. Most expressions have none and stay
    unchanged.
    """
    if not _CALLS.search(sql):
        return sql
    try:
        tree = exp.Paren(this=sqlglot.parse_one(sql, dialect="spark"))
        for node in reversed(list(tree.find_all(exp.GenerateSeries, exp.Repeat, exp.Space, exp.Pad, exp.Anonymous))):
            checked = _checked(node, _INSIDE if node.find_ancestor(exp.Lambda) else 1)
            if checked is not None:
                node.replace(checked)
        return str(tree.this.sql(dialect="spark", comments=False))
    except RecursionError:
        raise Unsupported(
            "too many nested functions that can produce large values",
            detail=", ".join(sorted({f.lower() for f in _CALLS.findall(sql)})),
            hint="split the expression: a view can read from another view",
        ) from None


def _checked(node: exp.Expr, smaller: int) -> exp.Expr | None:
    if isinstance(node, exp.GenerateSeries):
        return _sequence(node, ELEMENTS // smaller)
    if isinstance(node, exp.Repeat | exp.Space):
        number = node.args["times"] if isinstance(node, exp.Repeat) else node.this
        text = node.this if isinstance(node, exp.Repeat) else exp.Literal.string(" ")
        if _small(number) and smaller == 1:
            return None
        size = "CAST(octet_length({0}) AS DOUBLE) * {1}"
        return _call([text, number], size, "repeat({0}, {1})", "repeat", CHARACTERS // smaller)
    if isinstance(node, exp.Pad):
        fill = node.args.get("fill_pattern") or exp.Literal.string(" ")
        name = "lpad" if node.args.get("is_left") else "rpad"
        if _small(node.expression):
            return None
        return _call([node.this, node.expression, fill], "{1}", name + "({0}, {1}, {2})", name, CHARACTERS // smaller)
    name = node.name.lower()
    if name == "array_repeat" and len(node.expressions) == 2 and not _small(node.expressions[1]):
        return _call(node.expressions, "{1}", "array_repeat({0}, {1})", name, ELEMENTS // smaller, "elements")
    if name == "format_number" and len(node.expressions) == 2 and not _small(node.expressions[1]):
        digits = "try_cast(CAST({1} AS STRING) AS DOUBLE)"  # may also be a format, such as '#.00'
        return _call(node.expressions, digits, "format_number({0}, {1})", name, 1000, "digits")
    return None


def _sequence(node: exp.GenerateSeries, most: int) -> exp.Expr | None:
    start, end, step = node.args["start"], node.args["end"], node.args.get("step")
    if all(part is None or _small(part) for part in (start, end, step)) and most == ELEMENTS:
        return None
    number = "try_cast(CAST({%d} AS STRING) AS DOUBLE)"
    micros = "CAST(unix_micros(try_cast(CAST({%d} AS STRING) AS TIMESTAMP)) AS DOUBLE)"
    if step is None:
        size, form, arguments = f"abs({number % 1} - {number % 0})", "sequence({0}, {1})", [start, end]
    elif isinstance(step, exp.Interval):
        length = _micros(step)
        if length is None:
            return None
        size, form = f"abs({micros % 1} - {micros % 0}) / {length}", "sequence({0}, {1}, {2})"
        arguments = [start, end, step]
    else:
        size = f"abs({number % 1} - {number % 0}) / nullif(abs({number % 2}), 0)"
        form, arguments = "sequence({0}, {1}, {2})", [start, end, step]
    return _call(arguments, size, form, "sequence", most, "elements")


def _call(
    arguments: Sequence[exp.Expr], size: str, form: str, name: str, most: int, of: str = "characters"
) -> exp.Expr:
    """The call with a check before it. Arguments other than a column or a literal are computed once and named."""
    named = [i for i, g in enumerate(arguments) if not isinstance(g.unnest(), exp.Column | exp.Literal | exp.Interval)]
    names = [f"`$grown`.a{i}" if i in named else f"`$arg{i}`" for i in range(len(arguments))]
    refused = f"raise_error('{name} would make more than {most:,} {of}')"
    checked = [f"IF({size.format(*names)} > {most}D, {refused}, {s})" if i == 1 else s for i, s in enumerate(names)]
    call = form.format(*checked)
    if named:
        fields = ", ".join(f"`$arg{i}` AS a{i}" for i in named)
        call = f"get(transform(array(struct({fields})), `$grown` -> {call}), 0)"
    tree = sqlglot.parse_one(call, dialect="spark")
    places = {f"$arg{i}": g for i, g in enumerate(arguments)}
    for column in list(tree.find_all(exp.Column)):
        if column.name in places:
            column.replace(places[column.name].copy())
    return tree


def _small(node: exp.Expr) -> bool:
    while isinstance(node, exp.Neg | exp.Paren):
        node = node.this
    return isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit() and int(node.name) <= _PLAIN


def _micros(step: exp.Interval) -> int | None:
    """The length of an interval literal; None if it is a calendar interval or computed."""
    unit = step.unit.name.lower().removesuffix("s") if step.unit is not None else ""
    amount = step.this.name.lstrip("-") if isinstance(step.this, exp.Literal) else ""
    return int(amount) * UNITS[unit] if unit in UNITS and amount.isdigit() and int(amount) else None
