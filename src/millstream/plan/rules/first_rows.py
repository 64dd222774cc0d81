"""Tells a join whose only reader is a top-N which of its pairs that reader can use.

A pair outside the first N of its key in one epoch is outside the first N of all. The kernel of the join finds the
others from the columns of the key and the order alone, so only these are put together, sent and compared in full.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from millstream.plan.operators.inputs import FirstRows
from millstream.plan.operators.relations.join import Join
from millstream.plan.operators.relations.top_n import TopN
from millstream.plan.parts import Op, Project
from millstream.plan.plan import Plan


def first_rows(plan: Plan) -> Plan:
    """Set `first` on joins. Fingerprints do not change: the state of the join and of its reader stays the same."""
    readers = Counter(t.view for v in plan.views for s in v.operator.sides for t in s.takes)
    found: dict[str, FirstRows] = {}
    for view in plan.views:
        operator = view.operator
        if not isinstance(operator, TopN) or not operator.append_only_input:
            continue
        for take in operator.sides[0].takes:
            first = _before(FirstRows(operator.keys, operator.order, operator.count), take.ops)
            if first is not None and readers[take.view] == 1 and plan.view(take.view).inner:
                found[take.view] = first
    views = tuple(
        replace(v, operator=replace(v.operator, first=found[v.name]))
        if v.name in found and isinstance(v.operator, Join) and set(found[v.name].columns) <= set(v.operator.result)
        else v
        for v in plan.views
    )
    return replace(plan, views=views)


def _before(first: FirstRows, ops: Sequence[Op]) -> FirstRows | None:
    """The same choice in terms of the columns before some ops; None if they leave out rows or compute these columns."""
    for op in reversed(ops):
        if not isinstance(op, Project) or op.keep is not None:
            return None
        plain = {c.name: c.only_names for c in op.columns}
        old = {name: plain.get(name) for name in first.columns}
        names = {name: source for name, source in old.items() if source is not None}
        if len(names) < len(old):
            return None
        first = FirstRows(
            tuple(names[k] for k in first.keys),
            tuple(replace(s, column=names[s.column]) for s in first.order),
            first.count,
        )
    return first
