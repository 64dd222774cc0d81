"""Conditions guard the expressions of their view: a scan computes an expression only for rows that some view keeps.

One scan serves many views, so it cannot drop the rows that one condition rejects. It computes the condition as a
column, and the expressions of that view as ``CASE WHEN <condition> THEN <expression> END``. The engine applies this
rule when it binds a plan. Fingerprints are already known then, so no view changes its identity.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

import sqlglot
from sqlglot import exp

from millstream.plan.parts import Column
from millstream.plan.plan import Plan, Scan

SUFFIX = "$guarded"
"""The suffix of a Python function's guarded form. That form takes a condition first, and is not called where it fails.

Spark calls Python functions for all rows before it evaluates a CASE.
"""


def guarded(plan: Plan) -> Plan:
    """The plan with scans that compute nothing for rows that no view keeps."""
    return replace(plan, scans=tuple(_scan(plan, scan) for scan in plan.scans))


def _scan(plan: Plan, scan: Scan) -> Scan:
    conditions: dict[str, set[str | None]] = {}
    numbers = set()
    for feed in (f for v in plan.views for f in v.operator.feeds if f.scan == scan.id):
        for name in (*feed.columns, feed.hash, feed.gap):
            conditions.setdefault(name, set()).add(feed.keep)
        conditions.setdefault(feed.slice, set()).add(None)  # it uses only the event time
        conditions.setdefault(feed.keep or "", set()).add(None)
        numbers |= {feed.hash, feed.gap}
    sql = {c.name: c.sql for c in scan.columns}
    functions = [f.name for f in plan.functions]

    def column(original: Column) -> Column:
        by = conditions.get(original.name, {None})
        if None in by or original.only_names is not None:
            return original
        condition = " OR ".join(f"({sql[k]})" for k in sorted(k for k in by if k is not None))
        value = calls_guarded(original.sql, condition, functions)
        otherwise = " ELSE 0L" if original.name in numbers else ""
        return Column(original.name, f"CASE WHEN {condition} THEN {value}{otherwise} END")

    return replace(scan, columns=tuple(column(c) for c in scan.columns))


def calls_guarded(sql: str, condition: str, functions: Iterable[str]) -> str:
    """An expression that calls Python functions only where a condition is true."""
    called = {n.lower() for n in functions if re.search(rf"\b{re.escape(n)}\s*\(", sql, re.IGNORECASE)}
    if not called:
        return sql

    def call(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Anonymous) and str(node.this).lower() in called:
            first = sqlglot.parse_one(condition, read="spark")
            return exp.Anonymous(this=f"`{node.this}{SUFFIX}`", expressions=[first, *node.expressions])
        return node

    return sqlglot.parse_one(sql, read="spark").transform(call).sql(dialect="spark", identify=True)
