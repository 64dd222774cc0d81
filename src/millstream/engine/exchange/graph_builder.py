"""Builds the graph of a plan: which operators run on the executors, at which level, and what lies between them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import polars as pl
import pyarrow as pa

from millstream.engine.exchange.graph import FINISH, PAIR, PAIRS, Edge, Graph, GraphNode
from millstream.engine.spark.sent_function import SentFunction
from millstream.errors import Unsupported
from millstream.kernels.native_expressions import holds
from millstream.kernels.native_projection import projected
from millstream.model.reserved import OP, PLACE
from millstream.plan.lowering.native_subset import native_projection
from millstream.plan.operators.inputs import Take
from millstream.plan.operators.operator import Operator
from millstream.plan.operators.python.lookup import AsyncLookup
from millstream.plan.operators.relations.join import PairCondition
from millstream.plan.parts import Column, NativeProjection, Op, Project
from millstream.plan.plan import Plan, PlannedView
from millstream.plan.rules.driver_operators import driver_reasons


def graph_of(plan: Plan) -> Graph:
    """The graph of a bound plan."""
    numbers = {v.name: i for i, v in enumerate(plan.views)}
    first = tuple(i for i, v in enumerate(plan.views) if not v.operator.feeds)
    known = driver_reasons(plan)
    levels: dict[int, int] = {}
    reasons: dict[int, str] = {}
    sent: dict[int, PlannedView] = {}
    for i, view in enumerate(plan.views):
        if i in first:
            continue
        why = known.get(view.name) or _upstream(plan, view, levels, numbers)
        if why is None:
            try:
                sent[i] = _sent(view)
            except Unsupported as error:
                why = f"{error.message} ({error.detail})"
        if why is not None:
            reasons[i] = why
            continue
        before = [levels[numbers[n]] for n in view.operator.inputs if numbers[n] in levels]
        levels[i] = 1 + max(before, default=0) if view.operator.stateful or view.operator.sides else 0
        if _asks_spark(view.operator):
            levels[i] += 1  # the level before finds the pairs
    edges: dict[int, list[Edge]] = {}
    sends: list[tuple[Edge, Take]] = []
    to_driver: set[int] = set()
    numbers_of_edges = itertools.count()
    for i, view in enumerate(plan.views):
        for s, side in enumerate(view.operator.sides):
            for take in side.takes:
                producer = numbers[take.view]
                if i in levels and producer in first:
                    sends.append((Edge(i, s), take))
                elif i in levels:
                    edge = _edge(plan, i, s, take.ops, plan.views[producer], numbers_of_edges)
                    edges.setdefault(producer, []).append(edge)
                else:
                    to_driver.add(producer)
    nodes = {}
    for i, level in levels.items():
        view = plan.views[i]
        ops = () if view.post is None or view.operator.appends else (view.post,)
        finish = None if view.inner else _edge(plan, i, FINISH, ops, view, numbers_of_edges)
        pairs = _pairs(plan, i, view.operator, numbers_of_edges) if _asks_spark(view.operator) else None
        nodes[i] = GraphNode(i, sent[i], level, tuple(edges.get(i, ())), i in to_driver, finish, pairs)
    return Graph(nodes, first, tuple(sends), reasons)


def _sent(view: PlannedView) -> PlannedView:
    """A view as tasks get it. Raises Unsupported if the function of a lookup cannot be pickled."""
    operator = view.operator
    if not isinstance(operator, AsyncLookup):
        return view
    return replace(view, operator=replace(operator, function=SentFunction.of(operator.function)))


def _edge(plan: Plan, view: int, side: int, ops: Sequence[Op], producer: PlannedView, numbers: Iterator[int]) -> Edge:
    """An edge over the results of an operator."""
    if _is_native(ops, producer):
        return Edge(view, side, _native(ops))
    assert producer.results is not None, "the plan is bound"
    order = [pa.field(f"{PLACE}{i}", pa.int64()) for i in range(len(producer.operator.orders_rows))]
    schema = pa.schema([pa.field(OP, pa.string()), *order, *producer.results])
    return Edge(view, side, (), tuple(ops), schema, next(numbers), tuple(f.name for f in plan.functions))


def _upstream(plan: Plan, view: PlannedView, levels: Mapping[int, int], numbers: Mapping[str, int]) -> str | None:
    """Which operator upstream keeps an operator in the driver; None if none does."""
    for take in (t for side in view.operator.sides for t in side.takes):
        producer = plan.view(take.view)
        if producer.operator.feeds and numbers[take.view] not in levels:
            return f"its input comes from `{producer.operator.step}`, which runs there"
    return None


def _pairs(plan: Plan, view: int, operator: Operator, numbers: Iterator[int]) -> Edge:
    """The edge on which Spark evaluates a condition over pairs of rows."""
    condition = operator.pair_condition
    assert condition is not None
    places = [pa.field(n, pa.int64()) for n in PAIR]
    schema = pa.schema([pa.field(OP, pa.string()), *places, *_types(operator, condition)])
    only = Project(condition.sql, tuple(Column(n, f"`{n}`") for n in PAIR))
    return Edge(view, PAIRS, (), (only,), schema, next(numbers), tuple(f.name for f in plan.functions))


def _native(ops: Sequence[Op]) -> tuple[NativeProjection, ...]:
    found = [native_projection(op) for op in ops]
    return tuple(p for p in found if p is not None)


def _is_native(ops: Sequence[Op], producer: PlannedView) -> bool:
    """Whether kernels can evaluate the ops over the results of an operator."""
    compiled = [native_projection(op) for op in ops]
    if any(c is None for c in compiled):
        return False
    if all(c is None or c.renames for c in compiled):
        return True
    assert producer.results is not None, "the plan is bound"
    return projected(_empty(producer.results), _native(ops)) is not None


def _asks_spark(operator: Operator) -> bool:
    """Whether an operator has a condition over pairs of rows that its kernel cannot evaluate."""
    condition = operator.pair_condition
    if condition is None:
        return False
    return condition.quick is None or holds(condition.quick, _empty(_types(operator, condition))) is None


def _types(operator: Operator, condition: PairCondition) -> pa.Schema:
    kinds = {c: t for side in operator.sides for c, t in zip(side.columns, side.types, strict=True)}
    return pa.schema([(c, kinds[c]) for c in condition.columns])


def _empty(schema: pa.Schema) -> pl.DataFrame:
    frame = pl.from_arrow(schema.empty_table())
    assert isinstance(frame, pl.DataFrame)
    return frame
