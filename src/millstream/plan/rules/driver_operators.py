"""Which operators run in the driver even in a large epoch, and why. EXPLAIN reports it; the engine follows it.

An operator runs on the executors unless it needs the driver, depends on an order that only the driver has, or takes its
input from an operator in the driver.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.plan.operators.operator import Operator
from millstream.plan.parts import Batches, Op
from millstream.plan.plan import Plan, PlannedView

NO_SOURCE = "no source feeds it"
ORDER = "it depends on the order of rows that another operator gives"


def driver_reasons(plan: Plan) -> dict[str, str]:
    """By view: why its operator runs in the driver. Operators that run on the executors are not listed."""
    reasons: dict[str, str] = {}
    for view in plan.views:
        why = _reason(plan, view, reasons)
        if why is not None:
            reasons[view.name] = why
    return reasons


def _reason(plan: Plan, view: PlannedView, reasons: dict[str, str]) -> str | None:
    operator = view.operator
    if not operator.feeds:
        return NO_SOURCE
    if operator.driver_only is not None:
        return operator.driver_only
    for take in (t for side in operator.sides for t in side.takes):
        producer = plan.view(take.view).operator
        if not producer.feeds:
            continue  # it runs before the others, and the driver computes what is taken of it
        if take.view in reasons:
            return f"its input comes from {_named(producer)}, which runs there"
        if operator.order_matters and not (producer.orders_rows and keeps_order(take.ops)):
            return ORDER
    return None


def keeps_order(ops: Sequence[Op]) -> bool:
    """Whether rows still have the order of the rows before them after some ops. Those of a Python function do not."""
    return not any(isinstance(op, Batches) for op in ops)


def _named(operator: Operator) -> str:
    """An operator, for users."""
    return f"the {operator.name()}" if operator.name() else "an operator"
