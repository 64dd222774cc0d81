"""The protocol of operators: everything that keeps state or changes rows after the prelude.

An operator is a frozen value. It knows its inputs, its key, the columns of its result, the identity of a result row,
whether results are append-only, which states it keeps, and what EXPLAIN reports. It has exactly one kernel: the module
of the same name under `kernels/` (`plan/operators/relations/join.py` and `kernels/relations/join.py`). The function
that builds it from a step of the model is in the same file and marked with `lowers`. `plan/operators/table.py` finds
all operators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self

import pyarrow as pa

from millstream.model.types.duration import Duration
from millstream.plan.operators.inputs import FirstRows, Side
from millstream.plan.parts import Feed

if TYPE_CHECKING:
    from millstream.plan.lowering.stateful import StatefulLowering
    from millstream.plan.operators.relations.join import PairCondition

ROW = ("$row", "$more")
"""The columns that identify rows without another identity: hashes of the row's content and of the number of the
copy.
"""

ROWS_UNIQUE = ("$h", "$a", "$b")
"""The columns that make a row unique in a state of rows (see `kernels/changes.py`)."""

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
    """One state of an operator: its name in the kernel, the suffix of its folder, and the columns that make a row
    unique.
    """

    name: str
    suffix: str = ""
    unique: tuple[str, ...] = ROWS_UNIQUE


class ExplainNames(Protocol):
    """The facts about the surrounding plan that EXPLAIN uses for an operator."""

    def sql(self, column: str) -> str:
        """How a column is computed, or its name."""
        ...

    def lateness(self, sources: frozenset[str]) -> Duration:
        """The greatest lateness of some sources."""
        ...

    def arguments(self, operator: Operator) -> Sequence[str]:
        """The SQL of the columns that an operator reads from its first scan."""
        ...


class Fingerprints(Protocol):
    """The contents of the parts of a plan, for comparing an operator with kept state."""

    def feed(self, feed: Feed) -> object:
        """The content of a feed."""
        ...

    def side(self, side: Side) -> object:
        """The content of a side."""
        ...

    def called(self, text: str) -> list[str]:
        """The identities of the Python functions that some SQL calls."""
        ...


@dataclass(frozen=True, eq=False)
class Operator:
    """Base of all operators. The defaults are those of an operator over the changes of others."""

    step: str
    """The name of its state: that of its view, or ``<view>~<number>`` inside a view."""
    keys: tuple[str, ...] = field(default_factory=tuple, kw_only=True)
    sides: tuple[Side, ...] = field(default_factory=tuple, kw_only=True)
    feeds: tuple[Feed, ...] = field(default_factory=tuple, kw_only=True)
    """The feeds through which it, or the operators upstream, read scans."""
    ends: tuple[str, int] | None = field(default=None, kw_only=True)
    """The key that is a time, and for how long after it rows still change; None: groups may change at any time."""
    ttl: int | None = field(default=None, kw_only=True)
    """How long after its last change a row is kept at most, in micros; None: as long as it may be needed."""
    fingerprint: str = field(default="", kw_only=True)

    title: ClassVar[str] = ""
    """Its name in EXPLAIN."""
    side_names: ClassVar[tuple[str, ...]] = ("rows",)
    """The names of its inputs in the kernel."""
    reads_scans: ClassVar[bool] = False
    """Whether its input is rows of scans, not changes of other operators."""
    keyed_scan: ClassVar[bool] = False
    """Whether rows of a scan are combined by key for it, and exchanged by key group."""
    stateful: ClassVar[bool] = True
    appends: ClassVar[bool] = False
    """Whether it passes rows of scans on unchanged: changes have no op yet."""
    shows_keys: ClassVar[bool] = True
    """Whether EXPLAIN lists its keys."""
    expires_by_ttl: ClassVar[bool] = False
    """Whether a time to live, if there is one, applies to its state."""
    constant: ClassVar[bool] = False
    """Whether it emits one row from the first epoch on."""
    by_clock: ClassVar[bool] = False
    """Whether rows appear and disappear by processing time alone."""
    sends_function: ClassVar[bool] = False
    """Whether it runs on the executors only if its function can be pickled."""
    kernel: ClassVar[str] = ""
    """The module of its kernel; by default the one of the same name under `millstream.kernels`."""

    # ---- inputs

    @property
    def sources(self) -> frozenset[str]:
        """The sources whose watermarks hold it back."""
        return frozenset(f.source for f in self.feeds)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The views whose operators provide its input changes."""
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
        """Whether the condition of its feed filters rows of a scan."""
        return True

    @property
    def late_allowance(self) -> int:
        """How far behind the watermark, in micros, rows of scans are still accepted as in time."""
        return 0

    @property
    def takes_late_rows(self) -> bool:
        """Whether rows of scans may be too late for it."""
        return False

    @property
    def may_ignore_rows(self) -> bool:
        """Whether a row of a scan may belong to none of its results, whatever its time."""
        return False

    @property
    def replay_refusal(self) -> str | None:
        """Why late rows cannot be replayed into its results; None if they can."""
        if self.reads_scans:
            return "its rows were emitted in order, and late rows cannot be inserted between them"
        return "it is computed from the changes of another operator, whose windows have expired"

    @property
    def follows(self) -> str | None:
        """The stored table whose rows it follows."""
        return None

    @property
    def needs_positions(self) -> bool:
        """Whether its result depends on the order of rows, so that they must carry their position."""
        return False

    @property
    def ordered_columns(self) -> tuple[str, ...]:
        """The columns of its results that depend on the order of rows, if it is known which."""
        return ()

    @property
    def fractions(self) -> tuple[float, ...]:
        """The fractions of the data that its triggers wait for."""
        return ()

    # ---- placement

    @property
    def driver_only(self) -> str | None:
        """Why it runs in the driver and never on the executors; None if it can run there."""
        return None

    @property
    def pair_condition(self) -> PairCondition | None:
        """The condition over pairs of rows that its kernel needs a service for, unless it can evaluate it itself."""
        return None

    @property
    def order_matters(self) -> bool:
        """Whether its results depend on the order in which the rows of a key arrive."""
        return False

    @property
    def carries_order(self) -> bool:
        """Whether its results keep the columns that carry the order of its input rows."""
        return False

    @property
    def keeps_place(self) -> bool:
        """Whether it passes rows on one by one, so that they can stay in the shard that they come from."""
        return False

    @property
    def shrinks_input(self) -> bool:
        """Whether its kernel can combine rows of a key before they are sent to it, without changing its results."""
        return False

    @property
    def reads_first(self) -> FirstRows | None:
        """The rows of its input that it can use, in each epoch; None: all."""
        return None

    def emitting(self, first: FirstRows) -> Operator:
        """Itself, or a copy that emits only the results that its one reader can use."""
        del first
        return self

    @property
    def may_split(self) -> tuple[bool, ...]:
        """For each side, whether the rows of one key may be spread over shards if those of the other side reach all of
        them.
        """
        return (False,) * len(self.sides)

    @property
    def orders_rows(self) -> tuple[str, ...]:
        """The columns of its rows that give their order, wherever they were computed."""
        return ()

    def placed_by(self, keys: tuple[str, ...]) -> Operator:
        """Itself, or a copy whose rows wait in the shard of these keys, where the operator downstream takes them."""
        del keys
        return self

    # ---- results

    @property
    def append_only(self) -> bool:
        """Whether no result is ever retracted."""
        return False

    @property
    def identity(self) -> tuple[str, ...] | None:
        """The columns that identify a result row; None if results are append-only."""
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
        """Whether it can emit the old row of an update."""
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
        """An operator over scans with its types, from those of the columns of the scans. `retract` requests changes
        that carry the old row.
        """
        raise NotImplementedError

    def bind(self, input_types: Types) -> tuple[Self, Types]:
        """A copy with the types it needs, and the types of the columns that it adds, from the types of its inputs."""
        del input_types
        return self, {}

    # ---- EXPLAIN

    def name(self) -> str:
        """Its name for users."""
        return self.title

    def facts(self, names: ExplainNames) -> Facts:
        """What it does, for users."""
        del names
        return []

    def shown_rows(self) -> str | None:
        """What EXPLAIN reports of the rows of its view, where their identity does not say it."""
        return "added and removed" if self.identity == ROW else None

    def state_text(self, names: ExplainNames) -> str:
        """What it keeps, and for how long, for users."""
        raise NotImplementedError

    @property
    def state_grows(self) -> bool:
        """Whether its state grows without a bound. By default it does, unless `ends` or a time to live bounds it."""
        return self.stateful and self.ends is None and not self.expires

    @property
    def expires(self) -> bool:
        """Whether a time to live bounds its state."""
        return self.expires_by_ttl and self.ttl is not None

    def more_facts(self) -> Facts:
        """What EXPLAIN reports after the state."""
        return []

    def takes(self, before: Sequence[Operator]) -> str:
        """Its input, for users."""
        if len(self.sides) > 1:
            return "rows and changes of both sides"
        if any(b.reads_scans and b.appends and b.stateful for b in before):
            return "rows in the order of event time, held until the watermark has passed them"
        return "rows as they arrive" if all(b.appends for b in before) else "changes of the operator before it"

    def kept_rows(self, rows: str) -> str:
        """State rows and how long they are kept, according to `ends`."""
        if self.ends is None:
            return f"{rows}, {KEPT_INDEFINITELY}"
        end, late = self.ends
        return f"{rows}, until {end}" + (f" + {Duration(late)} allowed" if late else "")

    def kept_input(self) -> str:
        """That it keeps the rows of its input, and how long."""
        return self.kept_rows("every different row of its input" if self.append_only_input else "all rows of its input")

    # ---- identity of state

    format_name: ClassVar[str] = ""
    """Its name in fingerprints. Homes on disk hold fingerprints, so it never changes."""

    def content(self) -> object:
        """The content that its state depends on. Homes on disk hold a digest of the `repr` of this value, so it never
        changes.
        """
        raise NotImplementedError

    def described(self) -> str:
        """Its own fields as a `repr` under the name that fingerprints use for it."""
        return _repr(self.format_name, self)

    def fingerprint_parts(self, parts: Fingerprints) -> list[object]:
        """Everything that its fingerprint covers."""
        content = self.content()
        ttl = [] if self.ttl is None else [("ttl", self.ttl)]
        sides = [parts.side(s) for s in self.sides]
        return ["chained", self.format_name, content, self.keys, sides, *parts.called(repr(content)), *ttl]


KEPT_INDEFINITELY = "kept indefinitely"
"""How EXPLAIN states that state has no bound in time."""

Lower = Callable[["StatefulLowering", str, Any], Operator]
"""Builds the operator of a step from the lowering, the name of its state, and the step."""

LOWERINGS: dict[type, Lower] = {}
"""By the type of a step: the function that builds its operator."""


def lowers(*steps: type) -> Callable[[Lower], Lower]:
    """Mark the function that builds the operator of these steps."""

    def mark(function: Lower) -> Lower:
        LOWERINGS.update(dict.fromkeys(steps, function))
        return function

    return mark


_COMMON = frozenset(f.name for f in fields(Operator))


def _repr(name: str, value: Any) -> str:
    """The `repr` that a dataclass of this name has; for an operator, without the fields that all operators have."""
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
