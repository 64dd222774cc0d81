"""The table of operators: finds every module under `plan/operators/` that has an operator.

A third-party operator joins the table when its module is imported: `lowers` registers the function that builds it. The
lowering queries this table for the operator of a step.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil

from millstream.errors import Unsupported
from millstream.plan import operators
from millstream.plan.operators.operator import LOWERINGS, Lower, Operator


@functools.cache
def load() -> None:
    """Import all built-in operators."""
    for group in pkgutil.iter_modules(operators.__path__, f"{operators.__name__}."):
        module = importlib.import_module(group.name)
        for entry in pkgutil.iter_modules(getattr(module, "__path__", ()), f"{group.name}."):
            importlib.import_module(entry.name)


def all_operators() -> tuple[type[Operator], ...]:
    """Every operator, sorted by name."""
    load()
    operators: list[type[Operator]] = []
    todo: list[type[Operator]] = [Operator]
    while todo:
        for kind in todo.pop().__subclasses__():
            operators.append(kind)
            todo.append(kind)
    return tuple(sorted(operators, key=lambda kind: kind.__name__))


def lowering_of(step: object) -> Lower:
    """The function that builds the operator of a step."""
    load()
    for kind in type(step).__mro__:
        if kind in LOWERINGS:
            return LOWERINGS[kind]
    raise Unsupported(f"no operator for the step {type(step).__name__}")
