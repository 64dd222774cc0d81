"""Chained stages: work on the changes that other stages give. All that their kernels need to know, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millstream.model.types.schema import Schema
from millstream.plan.parts import Fed, Feed, Measure, Op

ROW = ("$row", "$more")
"""The columns that tell rows apart which nothing else does: hashes of what is in the row and which copy it is."""

UNTIL = "$until"
"""The column with the time after which a row of a join meets no other any more, in micros."""


@dataclass(frozen=True)
class Sort:
    """A column that rows are put in order by."""

    column: str
    descending: bool
    nulls_first: bool


@dataclass(frozen=True)
class First:
    """Keep the first rows of each key; `rank` names the column with their number, and `shown` the columns of a row."""

    count: int
    order: tuple[Sort, ...]
    rank: str | None
    shown: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Regroup:
    """Aggregate the rows that are there now, per key; those that go by the order of records go by `order`."""

    measures: tuple[Measure, ...]
    order: tuple[str, ...] = ()


@dataclass(frozen=True)
class Once:
    """Keep every row once."""


@dataclass(frozen=True)
class Every:
    """Hand every row on, as often as it is there."""


@dataclass(frozen=True)
class Stored:
    """The rows of a stored table: what came and went since the epoch before."""

    table: str
    schema: Schema


@dataclass(frozen=True)
class Constant(Stored):
    """One row, TRUE in every column, from the first epoch on."""


@dataclass(frozen=True)
class Sets:
    """The rows that are in both of two streams, or in the first and not in the second. The column ``$side`` says where
    a row is from; `copies`: as often as it is there, not once.
    """

    keep: str
    copies: bool


@dataclass(frozen=True)
class Call:
    """A window function over the rows of a key: its name, the column it is of, and its numbers.

    `frame` is how many rows, or how far in the order's value, before and behind the row it is over; None: no end.
    """

    name: str
    function: str
    argument: str | None = None
    offset: int = 1
    default: Any = None
    frame: tuple[str, float | None, float | None] | None = None


@dataclass(frozen=True)
class Over:
    """Window functions over the rows of each key in an order; `shown` are the columns of a row before them."""

    order: tuple[Sort, ...]
    calls: tuple[Call, ...]
    shown: tuple[str, ...]


@dataclass(frozen=True)
class Settled:
    """Hold rows until they change no more: the time in `column` and `slack` micros behind it are past."""

    column: str
    slack: int


@dataclass(frozen=True)
class Test:
    """A condition over pairs of rows: in Spark SQL, and as nested tuples where kernels can compute it themselves."""

    sql: str
    columns: tuple[str, ...]
    quick: tuple[Any, ...] | None = None


@dataclass(frozen=True)
class Join:
    """Pairs of rows of two sides with equal keys; `how` is inner, left, right, full, semi or anti.

    `certain`: rows without a partner come when it is certain that none will; else at once, and are taken back.
    """

    how: str
    left: tuple[str, ...]
    right: tuple[str, ...]
    test: Test | None = None
    certain: bool = False

    @property
    def pads(self) -> tuple[bool, bool]:
        """Whether rows of the left and of the right side without a partner are results, too."""
        return self.how in ("left", "full"), self.how in ("right", "full")

    @property
    def counts(self) -> tuple[bool, bool]:
        """Of which side it matters how many partners a row has."""
        return self.how in ("left", "full", "semi", "anti"), self.how in ("right", "full")


@dataclass(frozen=True)
class AsOf:
    """Each row of the left side with the row of the right side that was valid at its time."""

    left: tuple[str, ...]
    right: tuple[str, ...]
    times: tuple[str, str]
    slack: tuple[int, int]
    direction: str
    tolerance: int | None
    strict: bool
    required: bool


What = Any
"""What a chained stage does: one of the values above, or of `plan/operators/pattern.py` and
`plan/operators/process.py`.
"""


@dataclass(frozen=True)
class Take:
    """The changes of a view's stage, and what is done with them on the way."""

    view: str
    ops: tuple[Op, ...] = ()


@dataclass(frozen=True, eq=False)
class Side:
    """Rows that come to a chained stage: the changes of one stage, or of several together."""

    takes: tuple[Take, ...]
    columns: tuple[str, ...]
    names: tuple[str, ...] = ()
    """The columns by which its input tells its rows apart; none where they never go away."""
    grows: bool = False
    """Whether a row that came never goes away."""
    bounded: bool = False
    """Whether ``$until`` says how long a row is kept."""
    stored: bool = False
    """Whether its rows are those of a stored table, which are there as long as the table has them."""
    types: tuple[pa.DataType, ...] = ()
    """The types of its columns, once bound."""
    single: bool = False
    """Whether there is one row at most, as in a grand total: no column has to tell rows apart."""


@dataclass(frozen=True, eq=False)
class Chained(Fed):
    """A stage over the changes of other stages; all that its kernel needs to know."""

    step: str
    sides: tuple[Side, ...]
    keys: tuple[str, ...]
    what: What
    feeds: tuple[Feed, ...]
    """The feeds of the first stages of the chain."""
    ends: tuple[str, int] | None = None
    """The key that is a time, and for how long after it rows still change; None: groups may change for good."""
    ttl: int | None = None
    """For how long after it changed a row is kept at most, in micros; None: as long as it may be needed."""
    fingerprint: str = ""
    totals: tuple[int, ...] = ()
    """The numbers of the grouping sets without keys; the last key says which set a row is in."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the rows that it works on (of the first side)."""
        return self.sides[0].columns

    @property
    def names(self) -> tuple[str, ...]:
        """The columns by which its input tells its rows apart."""
        return self.sides[0].names

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        """The types of its columns, once bound."""
        return self.sides[0].types

    @property
    def grows(self) -> bool:
        """Whether its input only grows, so that a row never goes away."""
        return all(s.grows for s in self.sides) and not isinstance(self.what, Stored)

    @property
    def is_never_empty(self) -> bool:
        """Whether it has a result row from its first epoch on, also over no rows."""
        return isinstance(self.what, Regroup) and (not self.keys or bool(self.totals))

    @property
    def inputs(self) -> tuple[str, ...]:
        """The views whose stages give its changes."""
        return tuple(dict.fromkeys(t.view for s in self.sides for t in s.takes))

    @property
    def identity(self) -> tuple[str, ...] | None:
        """The columns that tell one result row from another; None where results are only ever added."""
        what = self.what
        if isinstance(what, Once):
            return self.columns
        if isinstance(what, Regroup) or (isinstance(what, First) and what.count == 1):
            return self.keys
        if isinstance(what, First) and what.rank is not None:
            return (*self.keys, what.rank)
        return None if self.only_inserts else ROW

    @property
    def result(self) -> tuple[str, ...]:
        """The columns of its results."""
        what = self.what
        if isinstance(what, Once | Settled):
            return self.columns
        if isinstance(what, Regroup):
            return (*self.keys, *(m.name for m in what.measures))
        more: tuple[str, ...] = ROW if self.identity == ROW else ()
        if isinstance(what, First):
            return (*what.shown, *(() if what.rank is None else (what.rank,)), *more)
        if isinstance(what, Over):
            return (*what.shown, *(c.name for c in what.calls), *more)
        if isinstance(what, Join | AsOf):
            right = () if isinstance(what, Join) and what.how in ("semi", "anti") else what.right
            return (*what.left, *right, *more)
        if isinstance(what, Every | Sets | Stored):
            return (*(c for c in self.columns if c != "$side"), *more)
        result: tuple[str, ...] = what.result(self)
        return result

    @property
    def only_inserts(self) -> bool:
        """Whether its own results only grow."""
        what = self.what
        if isinstance(what, Settled | AsOf):
            return True
        if isinstance(what, Once | Every):
            return self.grows
        if isinstance(what, Join):
            waits = what.how in ("inner", "semi") or what.certain
            return self.grows and waits
        if isinstance(what, First | Regroup | Over | Sets | Stored):
            return False
        return bool(what.only_inserts)
