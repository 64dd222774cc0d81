"""Lowers the step of a pattern to the columns its operator reads and the terms its kernel evaluates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any

from sqlglot import exp

from millstream.errors import DefinitionError, Unsupported
from millstream.model.expression import Expr, col
from millstream.model.patterns.navigation import Navigation, Reading
from millstream.model.steps.pattern import Matched
from millstream.model.types.duration import Duration
from millstream.plan.operators.patterns.terms import (
    ConstantValue,
    MatchOutput,
    RowTotal,
    RowValue,
    Term,
    TermCall,
    VariableCondition,
)

Named = tuple[tuple[str, Expr], ...]

_OPERATORS: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
    exp.And: "and",
    exp.Or: "or",
}
_CALLS: dict[type[exp.Expr], str] = {
    exp.Abs: "abs",
    exp.Coalesce: "coalesce",
    exp.Least: "least",
    exp.Greatest: "greatest",
}


def lowered(root: Matched) -> tuple[Named, dict[str, Any]]:
    """The columns that the operator of a pattern reads, and its own fields."""
    return _Lowering(root).lower()


@dataclass
class _Lowering:
    root: Matched
    take: dict[str, Expr] = field(default_factory=dict)

    def lower(self) -> tuple[Named, dict[str, Any]]:
        root = self.root
        for name, e in (*root.keys, *((n, col(n)) for n in (root.time, *(o[0] for o in root.order), *root.rows))):
            self.take.setdefault(name, e)
        numbers = {name: i for i, name in enumerate(root.variables)}
        conditions = tuple(self._condition(n, numbers) for n in root.variables)
        outputs = tuple(self._output(name, navigation, numbers) for name, navigation in root.outputs)
        keys = {n for n, _ in root.keys}
        own = {
            "pattern": root.pattern,
            "variables": root.variables,
            "conditions": conditions,
            "time": root.time,
            "order": root.order,
            "within": None if root.within is None else root.within.micros,
            "skip": root.skip,
            "outputs": outputs,
            "all_rows": root.all_rows,
            "shown": tuple(n for n in root.rows if n not in keys),
            "timeouts": root.timeouts,
            "slack": root.slack,
        }
        return tuple(self.take.items()), own

    def _condition(self, variable: str, numbers: dict[str, int]) -> VariableCondition:
        native: list[str] = []
        near: list[Term] = []
        far: list[Term] = []
        for reading in self.root.conditions.get(variable, ()):
            only = next(iter(reading.navigations.values()), None)
            whole = isinstance(reading.tree.node, exp.Column)
            if whole and only is not None and _is_at_hand(only, variable) and not only.shift:
                native.append(self._column(only))
                continue
            term = _term(reading, lambda n: self._value(n, variable, numbers))
            (near if _is_near(term) else far).append(term)
        return VariableCondition(tuple(native), tuple(near), tuple(far))

    def _value(self, navigation: Navigation, variable: str, numbers: dict[str, int]) -> Term:
        of = tuple(numbers[v] for v in navigation.of)
        if navigation.kind != "at":
            return RowTotal(navigation.kind, self._column(navigation) if navigation.argument is not None else None, of)
        column = self._column(navigation)
        if _is_at_hand(navigation, variable):
            return RowValue(column, None, shift=navigation.shift)
        return RowValue(column, of, navigation.first, navigation.offset, navigation.shift)

    def _column(self, navigation: Navigation) -> str:
        """The column that holds what a navigation computes for a row."""
        argument = navigation.argument
        assert argument is not None
        names = argument.columns()
        if len(names) == 1 and navigation.said == f"`{names[0]}`" and names[0] not in dict(self.root.added):
            self.take.setdefault(names[0], argument)
            return names[0]
        existing = next((n for n, e in self.take.items() if n.startswith("$c") and e.spark() == navigation.said), None)
        name = existing or f"$c{sum(n.startswith('$c') for n in self.take)}"
        self.take.setdefault(name, argument)
        return name

    def _output(self, name: str, navigation: Navigation, numbers: dict[str, int]) -> MatchOutput:
        return MatchOutput(
            name,
            navigation.kind,
            self._column(navigation) if navigation.argument is not None else None,
            tuple(numbers[v] for v in navigation.of),
            navigation.first,
            navigation.offset,
            navigation.shift,
            self.root.all_rows and navigation.mode != "final",
        )


def _is_at_hand(navigation: Navigation, variable: str) -> bool:
    """Whether a navigation in a variable's condition begins at the current row."""
    same = not navigation.of or variable in navigation.of
    return navigation.kind == "at" and same and not navigation.first and not navigation.offset


def _is_near(term: Term) -> bool:
    if isinstance(term, TermCall):
        return all(map(_is_near, term.arguments))
    return isinstance(term, ConstantValue) or (isinstance(term, RowValue) and term.of is None)


def _term(reading: Reading, value: Callable[[Navigation], Term]) -> Term:
    """A syntax tree as a term that the kernel evaluates."""

    def term_of(node: exp.Expr) -> Term:
        if isinstance(node, exp.Column):
            return value(reading.navigations[node.name])
        for kinds in (_OPERATORS, _CALLS):
            if type(node) in kinds:
                return TermCall(kinds[type(node)], tuple(term_of(c) for c in _given(node)))
        constant = _constant(node)
        return constant if constant is not None else _other(node, term_of, reading)

    return term_of(reading.tree.node)


def _given(node: exp.Expr) -> list[exp.Expr]:
    if isinstance(node, exp.Binary):
        return [node.this, node.expression]
    return [node.this, *node.expressions]


def _other(node: exp.Expr, term: Callable[[exp.Expr], Term], reading: Reading) -> Term:
    if isinstance(node, exp.Paren | exp.Neg | exp.Not):
        inner = term(node.this)
        if isinstance(node, exp.Paren):
            return inner
        return TermCall("not", (inner,)) if isinstance(node, exp.Not) else TermCall("-", (ConstantValue(0), inner))
    if isinstance(node, exp.Between):
        this = term(node.this)
        return TermCall(
            "and", (TermCall(">=", (this, term(node.args["low"]))), TermCall("<=", (this, term(node.args["high"]))))
        )
    if isinstance(node, exp.In) and node.expressions:
        this, values = term(node.this), [term(v) for v in node.expressions]
        result: Term = TermCall("=", (this, values[0]))
        for value in values[1:]:
            result = TermCall("or", (result, TermCall("=", (this, value))))
        return result
    if isinstance(node, exp.Is):
        if isinstance(node.expression, exp.Null):
            return TermCall("is null", (term(node.this),))
        return TermCall("<=>", (term(node.this), term(node.expression)))
    if isinstance(node, exp.Case):
        return _case(node, term)
    if isinstance(node, exp.If):
        return TermCall("case", (term(node.this), term(node.args["true"]), _default(node.args.get("false"), term)))
    raise Unsupported(
        f"`{_sql_text(node, reading)}` over rows of several variables is not supported",
        hint="compute it for each row; comparisons, arithmetic, AND, OR, NOT, IN, BETWEEN, CASE, abs, coalesce, least "
        "and greatest can combine values of several rows",
        origin=reading.tree.origin,
    )


def _case(node: exp.Case, term: Callable[[exp.Expr], Term]) -> Term:
    result = _default(node.args.get("default"), term)
    for branch in reversed(node.args["ifs"]):
        when = term(branch.this) if node.this is None else TermCall("=", (term(node.this), term(branch.this)))
        result = TermCall("case", (when, term(branch.args["true"]), result))
    return result


def _default(node: exp.Expr | None, term: Callable[[exp.Expr], Term]) -> Term:
    return ConstantValue(None) if node is None else term(node)


def _constant(node: exp.Expr) -> ConstantValue | None:
    if isinstance(node, exp.Null):
        return ConstantValue(None)
    if isinstance(node, exp.Boolean):
        return ConstantValue(bool(node.this))
    if isinstance(node, exp.Literal):
        if node.is_string:
            return ConstantValue(str(node.this))
        text = str(node.this)
        return ConstantValue(int(text) if text.isdigit() else float(text) if "e" in text.lower() else Decimal(text))
    if isinstance(node, exp.Interval) and isinstance(node.this, exp.Literal):
        unit = "" if node.unit is None else f" {node.unit.name.lower()}"
        try:
            return ConstantValue(timedelta(microseconds=Duration.of(f"{node.this.this}{unit}").micros))
        except DefinitionError:
            return None
    return None


def _sql_text(node: exp.Expr, reading: Reading) -> str:
    text = node.sql(dialect="spark")
    for name, navigation in reading.navigations.items():
        text = text.replace(f"`{name}`", f"{'/'.join(navigation.of) or 'row'}.{navigation.said.strip('`')}")
    return text[:80]
