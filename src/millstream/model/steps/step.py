"""Steps: the nodes of a flow. A step is a frozen value that knows its inputs and its output schema.

Users do not create steps themselves; the methods of `Stream` do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from millstream.errors import Origin
from millstream.model import describe
from millstream.model.connector import Connector, Sink
from millstream.model.error_policy import QUARANTINE
from millstream.model.expression import Expr
from millstream.model.source_options import SourceOptions
from millstream.model.steps.aggregation import Aggregated
from millstream.model.steps.columns import Named
from millstream.model.steps.lookup import Asked
from millstream.model.steps.pattern import Matched
from millstream.model.steps.process import Processed
from millstream.model.steps.relations.as_of_join import JoinedAsOf
from millstream.model.steps.relations.changelog import Changelog
from millstream.model.steps.relations.distinct import Distinct
from millstream.model.steps.relations.gather import Gathered
from millstream.model.steps.relations.hold_until import Settling
from millstream.model.steps.relations.join import Joined
from millstream.model.steps.relations.loop import Iterated, Round, outside
from millstream.model.steps.relations.set_operation import Compared
from millstream.model.steps.relations.stored_table import TableRows
from millstream.model.steps.relations.temporal_filter import Temporal
from millstream.model.steps.relations.top_n import Top
from millstream.model.steps.relations.window_function import Windowed
from millstream.model.steps.stateful import StatefulStep
from millstream.model.types.duration import Duration
from millstream.model.types.schema import Field, Schema


@dataclass(frozen=True, eq=False)
class Source:
    """The records of a source."""

    name: str
    connector: Connector
    schema: Schema
    options: SourceOptions
    origin: Origin | None = None

    @property
    def read(self) -> Schema:
        """The columns that are read: all except a computed event time and the processing time."""
        computed = self.options.event_time if self.options.computed_time is not None else None
        return Schema.of(f for f in self.schema if f.name not in (computed, self.options.processing_time))


@dataclass(frozen=True, eq=False)
class Where:
    """Keep the rows for which the condition is true."""

    input: Step
    condition: Expr

    @cached_property
    def schema(self) -> Schema:
        """The columns are unchanged."""
        return self.input.schema


@dataclass(frozen=True, eq=False)
class Select:
    """Compute new columns from the old ones; columns that are not named are dropped."""

    input: Step
    columns: Named
    schema: Schema
    after: tuple[tuple[str, str], ...] = ()
    """Columns that are ends of windows over a time: their names, each with the time that precedes it."""


@dataclass(frozen=True, eq=False)
class FlatMap:
    """One row per element of an array, in column `name`."""

    input: Step
    name: str
    array: Expr
    keep_empty: bool
    schema: Schema


@dataclass(frozen=True, eq=False)
class MapBatches:
    """A Python function over batches of rows."""

    input: Step
    function: Callable[[Any], Any]
    takes: str
    schema: Schema
    origin: Origin | None = None


@dataclass(frozen=True, eq=False)
class Enrich:
    """Join each row to a stored table by equal columns."""

    input: Step
    table: str
    on: tuple[tuple[str, str], ...]
    columns: tuple[Field, ...]
    required: bool
    schema: Schema
    origin: Origin | None = None


@dataclass(frozen=True, eq=False)
class Union:
    """The rows of several streams with the same columns; `ordered`: held until they can be emitted
    in event-time order.
    """

    inputs: tuple[Step, ...]
    ordered: bool = False

    @cached_property
    def schema(self) -> Schema:
        """The columns of the first input."""
        return self.inputs[0].schema


@dataclass(frozen=True, eq=False)
class View:
    """A named result: stored as a table that can be queried, written to a sink, or both."""

    name: str
    input: Step
    retention: Duration | None
    origin: Origin | None = None
    sink: Sink | None = None
    kept: bool = True
    state_ttl: Duration | None = None
    """How long downstream operators keep rows without updates."""
    on_error: str = QUARANTINE
    """What happens to a row on which one of its expressions fails."""

    @property
    def schema(self) -> Schema:
        """The columns of its rows."""
        return self.input.schema

    @property
    def _heading(self) -> str:
        return describe.title("View" if self.kept else "Sink", self.name, reads(self.input))

    def __repr__(self) -> str:
        return describe.line(self._heading, self.schema)

    def _repr_html_(self) -> str:
        return describe.html(self._heading, self.schema)


Two = Joined | JoinedAsOf | Compared
"""The steps with two inputs, `left` and `right`."""
Called = Processed | Asked | Matched
"""The steps that process the rows of a key one after another."""
Keeping = (
    Aggregated
    | Top
    | Distinct
    | Two
    | Windowed
    | Settling
    | Gathered
    | Changelog
    | Called
    | Iterated
    | TableRows
    | Temporal
    | StatefulStep
)
"""The stateful steps; rows after them may change."""
Step = Source | Where | Select | FlatMap | MapBatches | Enrich | Union | Keeping | Round


def inputs(step: Step) -> tuple[Step, ...]:
    """The inputs of this step."""
    if isinstance(step, Source | Round | TableRows):
        return ()
    if isinstance(step, Two):
        return (step.left, step.right)
    if isinstance(step, Iterated):
        return (step.input, *outside(step.body, step.round))
    return step.inputs if isinstance(step, Union) else (step.input,)


def upstream(step: Step) -> Iterator[Step]:
    """This step and all steps upstream of it, nearest first."""
    yield step
    for before in inputs(step):
        yield from upstream(before)


def reads(step: Step) -> tuple[str, ...]:
    """The names of the sources and stored tables upstream of a step."""
    return tuple(dict.fromkeys(s.name for s in upstream(step) if isinstance(s, Source | TableRows) and s.name))


def changes(step: Step) -> bool:
    """Whether rows at this step may change: it is stateful, or a step upstream is."""
    return any(isinstance(s, Keeping) for s in upstream(step))
