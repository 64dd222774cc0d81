"""Statements as values, with positions in the text. `statement_parser.py` parses them; a session executes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from millstream.model.steps.fill import Filling
from millstream.model.types.duration import Duration
from millstream.model.windows.accumulation import Accumulation
from millstream.model.windows.trigger import Trigger
from millstream.sql.parse.script import StatementText


@dataclass(frozen=True)
class ColumnDef:
    """A declared column; `computed` is the expression of a computed column."""

    name: str
    type: str
    computed: exp.Expr | None = None
    required: bool = False
    """Whether it is NOT NULL."""


@dataclass(frozen=True)
class Place:
    """FILES(...), LOG(...), GENERATOR(...) or CONSOLE: where records come from or go to."""

    kind: str
    arguments: tuple[Any, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Clauses:
    """The clauses after the query of a view."""

    trigger: Trigger | None = None
    accumulation: Accumulation | None = None
    lateness: Duration | None = None
    retain: Duration | None = None
    fill: Filling | None = None
    kept: bool = False
    """Whether they belong to a stored definition of the catalog, which an older version may have accepted."""


@dataclass(frozen=True)
class Statement:
    """A statement, and the text it was parsed from."""

    piece: StatementText


@dataclass(frozen=True)
class Create(Statement):
    """The common part of all definitions."""

    name: str
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True)
class CreateSource(Create):
    """A source: columns, event time, and connector."""

    columns: tuple[ColumnDef, ...] = ()
    watermark: tuple[str, Duration] | None = None
    key: tuple[str, ...] = ()
    place: Place = field(default_factory=lambda: Place(""))
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CreateTable(Create):
    """A stored table."""

    columns: tuple[ColumnDef, ...] = ()
    key: tuple[str, ...] = ()


@dataclass(frozen=True)
class CreateView(Create):
    """A live view."""

    query: exp.Query = field(default_factory=exp.Select)
    clauses: Clauses = field(default_factory=Clauses)
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CreateSink(Create):
    """A sink: the changes of a view, or the result of a query, written to a target."""

    view: str = ""
    query: exp.Query | None = None
    clauses: Clauses = field(default_factory=Clauses)
    place: Place = field(default_factory=lambda: Place(""))

    @property
    def is_fed(self) -> bool:
        """Whether the statement defines its input."""
        return bool(self.view) or self.query is not None


@dataclass(frozen=True)
class CreateFunction(Create):
    """A Python function for expressions: ``module:function``."""

    target: str = ""
    returns: str = ""


Assignments = tuple[tuple[str, exp.Expr], ...]
"""Columns and their new values."""


@dataclass(frozen=True)
class OnConflict:
    """What an INSERT does with a row whose key already exists."""

    action: str
    """`nothing`: skip it; `update`: apply `values`; `upsert`: set the inserted columns; `replace`: set all columns."""
    columns: tuple[str, ...] = ()
    """The key columns named in the statement."""
    values: Assignments = ()
    where: exp.Expr | None = None


@dataclass(frozen=True)
class Insert(Statement):
    """Rows for a table or a topic; for a sink, the continuous result of a query."""

    target: str
    columns: tuple[str, ...] = ()
    query: exp.Query | None = None
    rows: tuple[tuple[Any, ...], ...] = ()
    """The rows of VALUES, as Python values, or as expressions if one is more than a literal."""
    alias: str = ""
    conflict: OnConflict | None = None


@dataclass(frozen=True)
class When:
    """One clause of a MERGE: the rows it applies to, and its action."""

    kind: str
    """`matched`, `not matched` (the source row has no target row) or `not matched by source`."""
    action: str
    """`update`, `delete`, `insert` or `nothing`."""
    condition: exp.Expr | None = None
    values: Assignments = ()
    """For INSERT without a column list the names are empty."""
    every: bool = False
    """UPDATE SET * or INSERT *: all columns, from the source columns with the same names."""


@dataclass(frozen=True)
class Merge(Statement):
    """Changes rows of a table by those of a query: MERGE, UPDATE ... FROM and DELETE ... USING."""

    table: str
    alias: str
    source: exp.Query
    source_alias: str
    on: exp.Expr
    whens: tuple[When, ...]
    what: str = "MERGE"


@dataclass(frozen=True)
class Copy(Statement):
    """Loads the rows of files into a table."""

    table: str
    columns: tuple[str, ...]
    path: str
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Update(Statement):
    """Sets new values in rows of a table."""

    table: str
    tree: exp.Update


@dataclass(frozen=True)
class Delete(Statement):
    """Deletes rows of a table."""

    table: str
    tree: exp.Delete


@dataclass(frozen=True)
class Ask(Statement):
    """A SELECT that runs once, immediately."""

    query: exp.Query


@dataclass(frozen=True)
class Subscribe(Statement):
    """The changes of a view as they are committed, or the records of a topic as they arrive."""

    view: str
    snapshot: bool = False
    epoch: int | None = None
    offsets: tuple[int, ...] | None = None
    """For a topic: the first offset to return, by partition."""


@dataclass(frozen=True)
class Explain(Statement):
    """Explains how a view, or a query that could be one, is computed."""

    analyze: bool = False
    view: str = ""
    query: exp.Query | None = None
    clauses: Clauses = field(default_factory=Clauses)


@dataclass(frozen=True)
class Describe(Statement):
    """Describes the columns of an object."""

    name: str


@dataclass(frozen=True)
class Show(Statement):
    """Lists all objects of a kind."""

    kind: str


@dataclass(frozen=True)
class Drop(Statement):
    """Drops an object; with `cascade` also its dependents."""

    kind: str
    name: str
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True)
class Pause(Statement):
    """Pauses a flow, identified by its name or that of a view in it, or (`resume`) resumes it."""

    name: str
    resume: bool = False


@dataclass(frozen=True)
class SetOption(Statement):
    """Sets an option of the session; without a value it shows the option."""

    name: str = ""
    value: Any = None
