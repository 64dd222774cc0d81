"""Which operators of a plan run on the executors, at which level, and how changes get from one to the next.

Level 0 is the task that reads a scan; it also runs operators that only pass rows on. An operator with state runs one
level after the last operator that feeds it. The driver runs the others: operators without a source upstream before the
job, operators that need the driver (and everything downstream of them) after it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import polars as pl
import pyarrow as pa

from millstream.connect.port import PartsWriter
from millstream.engine.spark.sent_function import SentFunction
from millstream.errors import Unsupported
from millstream.kernels.native_expressions import holds
from millstream.kernels.native_projection import projected
from millstream.model.reserved import OP, PLACE
from millstream.plan.lowering.native_subset import native_projection
from millstream.plan.operators.inputs import Side, Take
from millstream.plan.operators.operator import Operator
from millstream.plan.operators.python.lookup import AsyncLookup
from millstream.plan.operators.relations.join import CONDITION, PairCondition
from millstream.plan.parts import NativeProjection, Op
from millstream.plan.plan import Plan, PlannedView
from millstream.plan.rules.driver_operators import driver_reasons

FINISH = -1
"""The side of an edge that finishes the changes of a view."""


@dataclass(frozen=True)
class Edge:
    """How the changes of an operator reach one side of another, or their view: the number of the receiving view, the
    side, and the ops on the way.
    """

    view: int
    side: int
    projections: tuple[NativeProjection, ...] = ()
    """Projections that kernels evaluate."""
    ops: tuple[Op, ...] = ()
    """Ops that only Spark can perform, between two tasks."""
    schema: pa.Schema | None = None
    """With `ops`: the columns before them."""
    number: int = 0
    """With `ops`: the number of the edge among those that Spark evaluates."""
    functions: tuple[str, ...] = ()
    """With `ops`: the Python functions that expressions may call."""

    @property
    def column(self) -> str:
        """The column in which rows travel to Spark."""
        return f"edge{self.number}"


@dataclass(frozen=True)
class GraphNode:
    """An operator on the executors."""

    number: int
    view: PlannedView
    level: int
    edges: tuple[Edge, ...] = ()
    to_driver: bool = False
    """Whether an operator in the driver takes its changes."""
    finish: Edge | None = None
    """How the changes of its view are finished; None if only other operators take them."""

    @property
    def operator(self) -> Operator:
        """Its operator."""
        return self.view.operator

    @property
    def computed(self) -> tuple[Edge, ...]:
        """The edges on which Spark evaluates expressions."""
        return tuple(e for e in (*self.edges, self.finish) if e is not None and e.ops)


@dataclass(frozen=True)
class Graph:
    """The operators of a plan by the number of their view."""

    nodes: dict[int, GraphNode] = field(default_factory=dict)
    first: tuple[int, ...] = ()
    """The operators without a source upstream, which the driver runs before the job."""
    sends: tuple[tuple[Edge, Take], ...] = ()
    """Where the changes of operators go that the driver runs before the job. The driver evaluates the ops of the
    take.
    """
    reasons: dict[int, str] = field(default_factory=dict)
    """By operator that the driver runs after the job: why."""

    @property
    def levels(self) -> int:
        """The last level."""
        return max((n.level for n in self.nodes.values()), default=0)

    @property
    def pays(self) -> bool:
        """Whether the executors have more to do than to read."""
        return any(n.level or not n.view.inner for n in self.nodes.values())

    def computed(self, level: int) -> tuple[Edge, ...]:
        """The edges after a level on which Spark evaluates expressions."""
        return tuple(e for n in self.at(level) for e in n.computed)

    @property
    def uses_spark(self) -> bool:
        """Whether Spark evaluates expressions between levels."""
        return any(n.computed for n in self.nodes.values())

    def writing(self, writers: Mapping[str, PartsWriter]) -> dict[int, PartsWriter]:
        """By number of a view: the writer for its sink, if tasks finish its changes and the store does not keep it."""
        return {
            i: writers[n.view.name]
            for i, n in self.nodes.items()
            if n.finish is not None and not n.view.kept and n.view.name in writers
        }

    def at(self, level: int) -> list[GraphNode]:
        """The operators of a level, in plan order."""
        return [n for _, n in sorted(self.nodes.items()) if n.level == level]

    def steps(self, level: int) -> list[str]:
        """The states of the operators of a level."""
        return [n.operator.state_step(s) for n in self.at(level) for s in n.operator.states]


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
        why = known.get(view.name) or _needs_spark(plan, view, levels, numbers)
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
        nodes[i] = GraphNode(i, sent[i], level, tuple(edges.get(i, ())), i in to_driver, finish)
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


def _needs_spark(plan: Plan, view: PlannedView, levels: Mapping[int, int], numbers: Mapping[str, int]) -> str | None:
    """Why types keep an operator in the driver, or an operator upstream of it; None if they do not."""
    operator = view.operator
    for take in (t for side in operator.sides for t in side.takes):
        producer = plan.view(take.view)
        if producer.operator.feeds and numbers[take.view] not in levels:
            return f"its input comes from `{producer.operator.step}`, which runs there"
    condition = operator.pair_condition
    return None if condition is None or _is_native_condition(operator, condition) else CONDITION


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


def _is_native_condition(operator: Operator, condition: PairCondition) -> bool:
    """Whether the kernel can evaluate a condition over pairs of rows."""
    if condition.quick is None:
        return False
    kinds = {c: t for side in operator.sides for c, t in zip(side.columns, side.types, strict=True)}
    pairs = _empty(pa.schema([(c, kinds[c]) for c in condition.columns]))
    return holds(condition.quick, pairs) is not None


def _empty(schema: pa.Schema) -> pl.DataFrame:
    frame = pl.from_arrow(schema.empty_table())
    assert isinstance(frame, pl.DataFrame)
    return frame


def taken_columns(side: Side) -> list[str]:
    """The columns that a side reads of its input."""
    return list(dict.fromkeys((*side.columns, *side.names)))
