"""Tells an inner join whose only reader is a top-N which of its pairs that reader can use.

A pair outside the first N of its key in one epoch is outside the first N of all. The kernel of the join finds the
others from the columns of the key and the order alone, so only these are put together, sent and compared in full.

Between the two, columns may be renamed and left out, but not computed: a row that an expression fails on is
quarantined, and the next row takes its place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from millstream.plan.operators.inputs import FirstRows
from millstream.plan.parts import Op, Project
from millstream.plan.plan import Plan


def first_rows(plan: Plan) -> Plan:
    """Tell operators what their only reader can use. The rule comes after `identify` and is no part of fingerprints,
    because the state of the join and of its reader stays the same.
    """
    readers = Counter(t.view for v in plan.views for s in v.operator.sides for t in s.takes)
    found: dict[str, FirstRows] = {}
    for view in plan.views:
        wanted = view.operator.reads_first
        if wanted is None:
            continue
        for take in view.operator.sides[0].takes:
            first = _before(wanted, take.ops)
            if first is not None and readers[take.view] == 1 and plan.view(take.view).inner:
                found[take.view] = first
    views = tuple(replace(v, operator=v.operator.emitting(found[v.name])) if v.name in found else v for v in plan.views)
    return replace(plan, views=views)


def _before(first: FirstRows, ops: Sequence[Op]) -> FirstRows | None:
    """The same choice in terms of the columns before some ops; None if they do more than rename columns."""
    for op in reversed(ops):
        names = op.renames if isinstance(op, Project) else None
        if names is None:
            return None
        first = FirstRows(
            tuple(names[k] for k in first.keys),
            tuple(replace(s, column=names[s.column]) for s in first.order),
            first.count,
        )
    return first
