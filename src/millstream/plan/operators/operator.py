"""The protocol of operators: everything that keeps state or changes rows after the prelude.

An operator is a frozen value. It knows its inputs, its key, the columns of its result, what identifies a result row,
whether results are append-only, which states it keeps, and what EXPLAIN reports. It has exactly one kernel: the module
of the same name under `kernels/` (`plan/operators/relations/join.py` and `kernels/relations/join.py`). The function
that makes it from a step of the model is in the same file and marked with `lowers`.
`plan/operators/table.py` finds all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self

import pyarrow as pa

from millstream.model.types.duration import Duration
from millstream.plan.operators.inputs import Side
from millstream.plan.parts import Feed

if TYPE_CHECKING:
    from millstream.plan.lowering.stateful import StatefulLowering

ROW = ("$row", "$more")
"""The columns that identify rows which nothing else identifies: hashes of the row's content and of which copy it is."""

ROWS_UNIQUE = ("$h", "$a", "$b")
"""What makes a row unique in a state of rows (see `kernels/relations/changes.py`)."""

Facts = list[tuple[str, str]]
"""What EXPLAIN reports: labels and texts."""

Types = Mapping[str, pa.DataType]

ScanTypes = Mapping[int | str, Mapping[str, pa.DataType]]
"""By scan, the types of the columns that it gives."""


class Bound(NamedTuple):
    """An operator with its types, the columns of its results, and those of a history of panes."""

    operator: Operator
    schema: pa.Schema
    panes: pa.Schema | None = None


@dataclass(frozen=True)
class StateSpec:
    """One state of an operator: its name in the kernel, the suffix of its folder, and what makes a row unique."""

    name: str
    suffix: str = ""
    unique: tuple[str, ...] = ROWS_UNIQUE


class ExplainNames(Protocol):
    """What EXPLAIN knows of the plan around an operator."""

    def sql(self, column: str) -> str:
        """How a column is computed, or its name."""
        ...

    def lateness(self, sources: frozenset[str]) -> Duration:
        """The greatest lateness of some sources."""
        ...

    def arguments(self, operator: Operator) -> Sequence[str]:
        """The SQL of the columns that an operator takes from its first scan."""
        ...


class Fingerprints(Protocol):
    """What names the parts of a plan, for comparing an operator with kept state."""

    def feed(self, feed: Feed) -> object:
        """What a feed takes from its source."""
        ...

    def side(self, side: Side) -> object:
        """What a side takes from other operators."""
        ...

    def called(self, text: str) -> list[str]:
        """What names the Python functions that some SQL calls."""
        ...


@dataclass(frozen=True, eq=False)
class Operator:
    """Base of all operators; the defaults are those of an operator over the changes of others."""

    step: str
    """The name of its state: that of its view, or ``<view>~<number>`` inside a view."""
    keys: tuple[str, ...] = field(default_factory=tuple, kw_only=True)
    sides: tuple[Side, ...] = field(default_factory=tuple, kw_only=True)
    feeds: tuple[Feed, ...] = field(default_factory=tuple, kw_only=True)
    """What it, or the operators before it, take from scans."""
    ends: tuple[str, int] | None = field(default=None, kw_only=True)
    """The key that is a time, and for how long after it rows still change; None: groups may change at any time."""
    ttl: int | None = field(default=None, kw_only=True)
    """For how long after its last change a row is kept at most, in micros; None: as long as it may be needed."""
    fingerprint: str = field(default="", kw_only=True)

    title: ClassVar[str] = ""
    """Its name in EXPLAIN."""
    side_names: ClassVar[tuple[str, ...]] = ("rows",)
    """How the kernel calls its inputs."""
    reads_scans: ClassVar[bool] = False
    """Whether its input is rows of scans, not changes of other operators."""
    keyed_scan: ClassVar[bool] = False
    """Whether rows of a scan are combined by key for it, and exchanged by key group."""
    stateful: ClassVar[bool] = True
    appends: ClassVar[bool] = False
    """Whether it hands rows of scans on as they are: changes have no op yet."""
    shows_keys: ClassVar[bool] = True
    """Whether EXPLAIN lists its keys."""
    expires_by_ttl: ClassVar[bool] = False
    """Whether a time to live bounds its state."""
    constant: ClassVar[bool] = False
    """Whether it gives one row from the first epoch on."""
    by_clock: ClassVar[bool] = False
    """Whether rows come and go by processing time alone."""
    kernel: ClassVar[str] = ""
    """The module of its kernel; by default the one of the same name under `millstream.kernels`."""

    # ---- inputs

    @property
    def sources(self) -> frozenset[str]:
        """The sources whose watermarks hold it."""
        return frozenset(f.source for f in self.feeds)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The views whose operators it takes changes from."""
        return tuple(dict.fromkeys(t.view for s in self.sides for t in s.takes))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of its (first) input."""
        return self.sides[0].columns

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        """The types of these columns, once bound."""
        return self.sides[0].types

    @property
    def append_only_input(self) -> bool:
        """Whether no row of its inputs is ever retracted."""
        return all(s.append_only for s in self.sides)

    @property
    def filters_scan(self) -> bool:
        """Whether the condition of its feed leaves rows of a scan out."""
        return True

    @property
    def late_allowance(self) -> int:
        """How far behind the watermark, in micros, rows of scans are still taken as they are."""
        return 0

    @property
    def takes_late_rows(self) -> bool:
        """Whether rows of scans may be too late for it."""
        return False

    @property
    def follows(self) -> str | None:
        """The stored table whose rows it follows."""
        return None

    @property
    def needs_positions(self) -> bool:
        """Whether its result depends on the order of rows, so that they must carry their position."""
        return False

    @property
    def fractions(self) -> tuple[float, ...]:
        """The fractions of the data that its triggers wait for."""
        return ()

    # ---- results

    @property
    def append_only(self) -> bool:
        """Whether no result is ever retracted."""
        return False

    @property
    def identity(self) -> tuple[str, ...] | None:
        """The columns that identify a result row; None where results are append-only."""
        return None if self.append_only else ROW

    @property
    def result(self) -> tuple[str, ...]:
        """The columns of its results."""
        raise NotImplementedError

    @property
    def marks(self) -> tuple[str, ...]:
        """The columns that it adds to identify its rows."""
        return ROW if self.identity == ROW else ()

    @property
    def has_windows(self) -> bool:
        """Whether its results are answers of windows."""
        return False

    @property
    def panes_kept(self) -> int | None:
        """How long a history of its panes is kept, in micros; None: there is none."""
        return None

    @property
    def retracting(self) -> bool:
        """Whether it can give the old row of an update."""
        return True

    @property
    def one_change_per_row(self) -> bool:
        """Whether an epoch changes each result row at most once."""
        return True

    @property
    def is_never_empty(self) -> bool:
        """Whether it has a result row from its first epoch on, even over no rows."""
        return False

    # ---- state

    @property
    def states(self) -> tuple[StateSpec, ...]:
        """The states that it keeps."""
        return (StateSpec("rows"),) if self.stateful else ()

    def state_step(self, spec: StateSpec) -> str:
        """The folder of a state."""
        return f"{self.step}{spec.suffix}"

    # ---- types

    def bind_scans(self, types: ScanTypes, *, retract: bool) -> Bound:
        """An operator over scans with its types, from those of the columns of the scans. `retract` asks for changes
        that carry the old row.
        """
        raise NotImplementedError

    def bind(self, known: Types) -> tuple[Self, Types]:
        """Itself with the types it needs, and the types of the columns that it adds, from those of its inputs."""
        del known
        return self, {}

    # ---- EXPLAIN

    def name(self) -> str:
        """Its name for a person."""
        return self.title

    def facts(self, names: ExplainNames) -> Facts:
        """What it does, for a person."""
        del names
        return []

    def shown_rows(self) -> str | None:
        """What EXPLAIN reports of the rows of its view, where their identity does not say it."""
        return "they come and go" if self.identity == ROW else None

    def state_text(self, names: ExplainNames) -> str:
        """What it keeps, and for how long, for a person."""
        raise NotImplementedError

    def more_facts(self) -> Facts:
        """What EXPLAIN reports after the state."""
        return []

    def takes(self, before: Sequence[Operator]) -> str:
        """What it takes, for a person."""
        if len(self.sides) > 1:
            return "rows and changes of both sides"
        if any(b.reads_scans and b.appends and b.stateful for b in before):
            return "rows in the order of event time, held until the watermark has passed them"
        return "rows as they come" if all(b.appends for b in before) else "changes of the stage before"

    def kept_rows(self, rows: str) -> str:
        """Rows of state and how long they are kept, by `ends`."""
        if self.ends is None:
            return f"{rows}, {PERMANENT}"
        end, late = self.ends
        return f"{rows}, until {end}" + (f" + {Duration(late)} allowed" if late else "")

    # ---- identity of state

    format_name: ClassVar[str] = ""
    """Its name in fingerprints. Homes on disk hold fingerprints, so it never changes."""

    def content(self) -> object:
        """What its state fits. Homes on disk hold a digest of the `repr` of this value, so it never changes."""
        raise NotImplementedError

    def described(self) -> str:
        """Its own fields as a `repr` under the name that fingerprints have for it."""
        return _repr(self.format_name, self)

    def fingerprint_parts(self, parts: Fingerprints) -> list[object]:
        """Everything that its fingerprint covers."""
        content = self.content()
        ttl = [] if self.ttl is None else [("ttl", self.ttl)]
        sides = [parts.side(s) for s in self.sides]
        return ["chained", self.format_name, content, self.keys, sides, *parts.called(repr(content)), *ttl]


PERMANENT = "for good"
"""How EXPLAIN says that state is kept without a bound in time."""

Lower = Callable[["StatefulLowering", str, Any], Operator]
"""Makes the operator of a step: the lowering, the name of its state, and the step."""

LOWERINGS: dict[type, Lower] = {}
"""By the type of a step, what makes its operator."""


def lowers(*steps: type) -> Callable[[Lower], Lower]:
    """Mark the function that makes the operator of these steps."""

    def mark(function: Lower) -> Lower:
        LOWERINGS.update(dict.fromkeys(steps, function))
        return function

    return mark


_COMMON = frozenset(f.name for f in fields(Operator))


def _repr(name: str, value: Any) -> str:
    """The `repr` that a dataclass of this name has; of an operator, without the fields that all have."""
    own = [f.name for f in fields(value) if f.repr and not (isinstance(value, Operator) and f.name in _COMMON)]
    return f"{name}({', '.join(f'{n}={getattr(value, n)!r}' for n in own)})"


def as_before(name: str) -> Callable[[Any], str]:
    """A `__repr__` under an earlier name of a class, for values whose `repr` is part of fingerprints."""
    return lambda value: _repr(name, value)


class Verbatim:
    """A text whose `repr` is itself."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def view_of(step: str) -> str:
    """The view that a state belongs to: ``v``, ``v~2`` and ``v$records`` belong to ``v``."""
    return step.partition("$")[0].partition("~")[0]
