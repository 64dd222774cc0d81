"""Statements as values: what was asked, and where. Parsed by `grammar.py`; carried out by a session."""

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
    """A declared column; `computed` is the expression of one that is not read but made."""

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
    """What may follow the query of a view."""

    trigger: Trigger | None = None
    accumulation: Accumulation | None = None
    lateness: Duration | None = None
    retain: Duration | None = None
    fill: Filling | None = None
    kept: bool = False
    """Whether they are those of a definition of the catalog, which an older version may have accepted."""


@dataclass(frozen=True)
class Statement:
    """A statement, and the piece of text it was read from."""

    piece: StatementText


@dataclass(frozen=True)
class Create(Statement):
    """What all definitions have."""

    name: str
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True)
class CreateSource(Create):
    """A source: columns, event time, and where from."""

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
    """The changes of a view, or what a query gives, written elsewhere."""

    view: str = ""
    query: exp.Query | None = None
    clauses: Clauses = field(default_factory=Clauses)
    place: Place = field(default_factory=lambda: Place(""))

    @property
    def is_fed(self) -> bool:
        """Whether it is said what is written to it."""
        return bool(self.view) or self.query is not None


@dataclass(frozen=True)
class CreateFunction(Create):
    """A Python function for expressions: ``module:function``."""

    target: str = ""
    returns: str = ""


Assignments = tuple[tuple[str, exp.Expr], ...]
"""Columns, and the values they get."""


@dataclass(frozen=True)
class OnConflict:
    """What an INSERT does about a row whose key is there already."""

    action: str
    """`nothing`: leave it out; `update`: carry out `values`; `upsert`: set the inserted columns; `replace`: set all."""
    columns: tuple[str, ...] = ()
    """The key, as the statement names it."""
    values: Assignments = ()
    where: exp.Expr | None = None


@dataclass(frozen=True)
class Insert(Statement):
    """Rows for a table or a topic; or, into a sink, all that a query gives from now on."""

    target: str
    columns: tuple[str, ...] = ()
    query: exp.Query | None = None
    rows: tuple[tuple[Any, ...], ...] = ()
    """Of VALUES: rows of Python values, or of expressions where one is more than a literal."""
    alias: str = ""
    conflict: OnConflict | None = None


@dataclass(frozen=True)
class When:
    """One clause of a MERGE: for which rows, and what becomes of them."""

    kind: str
    """`matched`, `not matched` (the source row has no target row) or `not matched by source`."""
    action: str
    """`update`, `delete`, `insert` or `nothing`."""
    condition: exp.Expr | None = None
    values: Assignments = ()
    """For INSERT without a list of columns the names are empty."""
    every: bool = False
    """UPDATE SET * or INSERT *: all columns, from those of the source with the same names."""


@dataclass(frozen=True)
class Merge(Statement):
    """Rows of a table that are changed by those of a query: MERGE, UPDATE ... FROM and DELETE ... USING."""

    table: str
    alias: str
    source: exp.Query
    source_alias: str
    on: exp.Expr
    whens: tuple[When, ...]
    what: str = "MERGE"


@dataclass(frozen=True)
class Copy(Statement):
    """The rows of files, for a table."""

    table: str
    columns: tuple[str, ...]
    path: str
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Update(Statement):
    """New values for rows of a table."""

    table: str
    tree: exp.Update


@dataclass(frozen=True)
class Delete(Statement):
    """Rows of a table that are to go."""

    table: str
    tree: exp.Delete


@dataclass(frozen=True)
class Ask(Statement):
    """A SELECT that is answered at once."""

    query: exp.Query


@dataclass(frozen=True)
class Subscribe(Statement):
    """The changes of a view as they are committed, or the records of a topic as they come."""

    view: str
    snapshot: bool = False
    epoch: int | None = None
    offsets: tuple[int, ...] | None = None
    """Of a topic: by partition, the first offset to give."""


@dataclass(frozen=True)
class Explain(Statement):
    """How a view, or a query that would be one, is computed."""

    analyze: bool = False
    view: str = ""
    query: exp.Query | None = None
    clauses: Clauses = field(default_factory=Clauses)


@dataclass(frozen=True)
class Describe(Statement):
    """The columns of something."""

    name: str


@dataclass(frozen=True)
class Show(Statement):
    """All things of a kind."""

    kind: str


@dataclass(frozen=True)
class Drop(Statement):
    """Something is to go; with `cascade` also what depends on it."""

    kind: str
    name: str
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True)
class Pause(Statement):
    """A flow, by its name or that of a view in it, is to rest, or (`resume`) to go on."""

    name: str
    resume: bool = False


@dataclass(frozen=True)
class SetOption(Statement):
    """An option of the session; without a value it is shown."""

    name: str = ""
    value: Any = None
