"""PIVOT with an explicit list of values, rewritten to one aggregate with a FILTER per value.

FROM sales PIVOT (sum(price) AS total FOR quarter IN (1 AS q1, 2 AS q2))

FROM (SELECT * EXCEPT (quarter, price), sum(price) FILTER (WHERE quarter = 1) AS q1, ... FROM sales GROUP BY ALL)
"""

from __future__ import annotations

import re

from sqlglot import exp

from millstream.errors import DefinitionError, Unsupported
from millstream.sql.bind.grouping.aggregates import is_aggregate

_NAME = re.compile(r"[A-Za-z_]\w*")


def spelled_out(tree: exp.Expr) -> exp.Expr:
    """A tree without PIVOT and UNPIVOT. Rejects a PIVOT without an explicit list of values."""
    for pivot in list(tree.find_all(exp.Pivot)):
        of = pivot.parent
        if of is None or len(of.args.get("pivots") or ()) != 1:
            raise Unsupported("several PIVOTs of one table", hint="put each of them in a query of its own")
        of.replace(_rows(of, pivot) if pivot.args.get("unpivot") else _grouped(of, pivot))
    return tree


def _rows(of: exp.Expr, pivot: exp.Pivot) -> exp.Expr:
    """``t UNPIVOT (value FOR name IN (a, b))``: a row for each of the columns that is not NULL."""
    fields = pivot.args.get("fields") or []
    listed = fields[0] if len(fields) == 1 and isinstance(fields[0], exp.In) else None
    values = pivot.expressions
    if listed is None or not listed.expressions or len(values) != 1 or isinstance(values[0], exp.Tuple):
        raise Unsupported("UNPIVOT needs one value, one FOR and a list of columns", hint=_UNPIVOT)
    value, name = (exp.to_identifier(n.name, quoted=True) for n in (values[0], listed.this))
    columns = [
        (c.this if isinstance(c, exp.PivotAlias | exp.Alias) else c, c.alias or c.name) for c in listed.expressions
    ]
    if not all(isinstance(c, exp.Column) for c, _ in columns):
        raise Unsupported("UNPIVOT takes single columns", hint=_UNPIVOT)
    inner = of.copy()
    inner.set("pivots", None)
    parts: list[exp.Select] = []
    for column, label in columns:
        star = exp.Star(except_=[exp.to_identifier(c.name) for c, _ in columns])
        select = exp.select(
            star, exp.alias_(exp.Literal.string(label), name.copy()), exp.alias_(column.copy(), value.copy())
        )
        select = select.from_(inner.copy())
        parts.append(select if pivot.args.get("include_nulls") else select.where(column.copy().is_(exp.null()).not_()))
    rows: exp.Query = parts[0]
    for part in parts[1:]:
        rows = exp.union(rows, part, distinct=False)
    return rows.subquery(pivot.alias or None)


_UNPIVOT = "FROM t UNPIVOT (value FOR name IN (a, b AS 'second'))"


def _grouped(of: exp.Expr, pivot: exp.Pivot) -> exp.Expr:
    inner = of.copy()
    inner.set("pivots", None)
    fields = pivot.args.get("fields") or []
    listed = fields[0] if len(fields) == 1 and isinstance(fields[0], exp.In) else None
    if (
        listed is None
        or not listed.expressions
        or not pivot.expressions
        or listed.find(exp.Query, exp.PivotAny) is not None
    ):
        raise Unsupported(
            "PIVOT needs aggregates, one FOR, and a stated list of values",
            hint="PIVOT (sum(price) FOR quarter IN (1 AS q1, 2 AS q2))",
        )
    by = list(listed.this.expressions) if isinstance(listed.this, exp.Tuple) else [listed.this]
    calls = [(c.alias if isinstance(c, exp.Alias) else "", c.unalias()) for c in pivot.expressions]
    for _, call in calls:
        if not is_aggregate(call):
            raise DefinitionError(f"`{call.sql(dialect='spark')[:60]}` in PIVOT is not an aggregate")
    used = dict.fromkeys(c.name for part in (*by, *(c for _, c in calls)) for c in part.find_all(exp.Column))
    star = exp.Star(except_=[exp.to_identifier(n) for n in used])
    columns: list[exp.Expr] = []
    for value in listed.expressions:
        name = value.alias if isinstance(value, exp.PivotAlias | exp.Alias) else ""
        parts = _parts(value.unalias() if isinstance(value, exp.Alias) else value, len(by))
        equal = exp.and_(*(_is(c.copy(), v.copy()) for c, v in zip(by, parts, strict=True)))
        value_name = name or "_".join(v.name or v.sql(dialect="spark") for v in parts)
        if not _NAME.fullmatch(value_name):
            raise DefinitionError(
                f"the column of `{value.sql(dialect='spark')[:60]}` in PIVOT needs a name",
                hint="IN (1 AS first, 2 AS second)",
            )
        for alias, call in calls:
            if len(calls) > 1 and not alias:
                raise DefinitionError(
                    "several aggregates in PIVOT need names", hint="PIVOT (sum(x) AS total, count(*) AS n FOR ...)"
                )
            alias_name = f"{value_name}_{alias}" if len(calls) > 1 else value_name
            columns.append(exp.alias_(_filtered(call, equal), exp.to_identifier(alias_name, quoted=True)))
    select = exp.select(star, *columns).from_(inner)
    select.set("group", exp.Group(all=True))
    return select.subquery(pivot.alias or None)


def _parts(value: exp.Expr, wide: int) -> list[exp.Expr]:
    inner = value.this if isinstance(value, exp.PivotAlias) else value
    parts = list(inner.expressions) if isinstance(inner, exp.Tuple) else [inner]
    if len(parts) != wide:
        raise DefinitionError(f"PIVOT FOR {wide} columns needs {wide} values, not {len(parts)}")
    return parts


def _is(column: exp.Expr, value: exp.Expr) -> exp.Expr:
    if isinstance(value, exp.Null):
        return column.is_(exp.null())
    return exp.EQ(this=column, expression=value)


def _filtered(call: exp.Expr, equal: exp.Expr) -> exp.Expr:
    """An aggregate over the rows with one value."""
    if isinstance(call, exp.Filter):
        both = exp.and_(call.expression.this.copy(), equal.copy())
        return exp.Filter(this=call.this.copy(), expression=exp.Where(this=both))
    return exp.Filter(this=call.copy(), expression=exp.Where(this=equal.copy()))
