"""Operators as nodes of an explanation: their input, what they do, and what they keep.

The texts of one operator are its own: `name`, `facts` and `state_text` in `plan/operators/`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from millstream.model.types.duration import Duration
from millstream.plan.explain.node import Node, named, plain, shown_name
from millstream.plan.operators.inputs import Take
from millstream.plan.operators.operator import KEPT_INDEFINITELY, Operator
from millstream.plan.parts import Explode, Project
from millstream.plan.plan import Plan
from millstream.plan.rules.driver_operators import driver_reasons


def take_nodes(take: Take) -> Iterator[Node]:
    """Nodes for the expressions applied to changes on their way to an operator."""
    for op in take.ops:
        if isinstance(op, Project) and op.renames is None:
            columns = [c for c in op.columns if not c.name.startswith("$id")]
            gives = ", ".join(named(shown_name(c.name), plain(c.sql)) for c in columns)
            kept = "" if op.keep is None else f" where {plain(op.keep)}"
            yield Node("select", "", (("runs", "Spark SQL, on changed rows only"), ("gives", gives + kept)))
        elif isinstance(op, Explode):
            facts = (("runs", "Spark SQL, on changed rows only"), ("of", plain(op.array)))
            yield Node("flat_map", op.name, facts)


@dataclass(frozen=True)
class PlanNames:
    """The facts about the surrounding plan that EXPLAIN uses for an operator."""

    plan: Plan
    operator: Operator

    def sql(self, column: str) -> str:
        """How a column is computed on its way to the operator, or its name."""
        projects = (op for s in self.operator.sides for t in s.takes for op in t.ops if isinstance(op, Project))
        computed = {c.name: plain(c.sql) for op in projects for c in op.columns}
        return computed.get(column, "*" if column.startswith("@") else shown_name(column))

    def lateness(self, sources: frozenset[str]) -> Duration:
        """The greatest lateness of some sources."""
        return max((self.plan.source(s).options.lateness for s in sources), default=Duration(0))

    def arguments(self, operator: Operator) -> Sequence[str]:
        """The SQL of the columns that an operator reads from its first scan."""
        feed = operator.feeds[0]
        sql = {c.name: plain(c.sql) for s in self.plan.scans if s.id == feed.scan for c in s.columns}
        return [sql[c] for c in feed.columns]


def operator_node(plan: Plan, operator: Operator) -> Node:
    """The node of an operator over the changes of others."""
    names = PlanNames(plan, operator)
    before = [plan.view(n).operator for n in operator.inputs]
    facts = [("takes", operator.takes(before))]
    if operator.shows_keys:
        facts.append(("keys", ", ".join(names.sql(k) for k in operator.keys) or "none"))
    facts += [*operator.facts(names), ("placed", placed(plan, operator)), ("state", state(plan, operator))]
    return Node("kernel", operator.name(), tuple(facts))


def placed(plan: Plan, operator: Operator) -> str:
    """Where an operator runs."""
    why = next((w for name, w in driver_reasons(plan).items() if plan.view(name).operator is operator), None)
    if why is not None:
        return f"in the driver: {why}"
    return "inline for small slices, on the executors for large ones" + _condition(plan, operator)


def _condition(plan: Plan, operator: Operator) -> str:
    """On what it depends whether an operator runs on the executors, if on anything."""
    if operator.sends_function:
        return ", if its function can be pickled"
    before = [plan.view(n).operator for n in operator.inputs]
    names = [b.name() if b.sends_function else "" for b in before]
    name = next((n for n in names if n), None)
    if name is not None:
        return f", if {name} can be pickled"
    return next((c for b in before if (c := _condition(plan, b))), "")


def growing_states(plan: Plan) -> list[tuple[Operator, str]]:
    """The operators whose state grows without a bound, and what EXPLAIN reports of their state."""
    return [(v.operator, state(plan, v.operator)) for v in plan.views if v.operator.state_grows]


def state(plan: Plan, operator: Operator) -> str:
    """What an operator keeps, and for how long."""
    text = operator.state_text(PlanNames(plan, operator))
    if operator.ttl is None or not operator.expires:
        return text
    return text.replace(KEPT_INDEFINITELY, f"until {Duration(operator.ttl)} after the last change")
