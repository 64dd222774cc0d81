"""Which operators of a plan run on the executors, at which level, and how changes get from one to the next.

Level 0 is the task that reads a scan; it also runs operators that only pass rows on. An operator with state runs one
level after the last operator that feeds it. A join whose condition only Spark can evaluate takes two levels: the first
finds the pairs of rows, the second gets those that satisfy the condition. The driver runs the others: operators
without a source upstream before the job, operators that need the driver (and everything downstream of them) after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from millstream.connect.port import PartsWriter
from millstream.plan.operators.inputs import Side, Take
from millstream.plan.operators.operator import Operator
from millstream.plan.parts import NativeProjection, Op
from millstream.plan.plan import PlannedView

FINISH = -1
"""The side of an edge that finishes the changes of a view."""
PAIRS = -3
"""The side of an edge on which Spark evaluates a condition over pairs of rows."""
PAIR = ("$0", "$1")
"""The columns of a pair: the places of its rows (see `kernels/relations/join.py`)."""


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
    pairs: Edge | None = None
    """How Spark evaluates its condition over pairs of rows, after the level before its own; None if it has none, or its
    kernel evaluates it.
    """

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
        edges = [e for n in self.at(level) for e in n.computed]
        return (*edges, *(n.pairs for n in self.pairing(level) if n.pairs is not None))

    @property
    def uses_spark(self) -> bool:
        """Whether Spark evaluates expressions between levels."""
        return any(n.computed or n.pairs is not None for n in self.nodes.values())

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

    def pairing(self, level: int) -> list[GraphNode]:
        """The operators of the next level whose pairs of rows are found in this one."""
        return [n for n in self.at(level + 1) if n.pairs is not None]

    def steps(self, level: int) -> list[str]:
        """The states that the operators of a level read."""
        nodes = [*self.at(level), *self.pairing(level)]
        return [n.operator.state_step(s) for n in nodes for s in n.operator.states]


def taken_columns(side: Side) -> list[str]:
    """The columns that a side reads of its input."""
    return list(dict.fromkeys((*side.columns, *side.names)))
