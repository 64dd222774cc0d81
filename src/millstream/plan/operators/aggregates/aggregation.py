"""Aggregates of rows of scans, by key and window."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pyarrow as pa

from millstream.model.reserved import PANES
from millstream.model.steps.aggregation import INDEX, borders_of
from millstream.model.types.schema import TIMESTAMP
from millstream.model.windows.accumulation import Accumulation
from millstream.model.windows.kinds import AnyWindow, CountWindow, Custom, SessionWindow
from millstream.model.windows.trigger import ON_CHANGE, ON_CLOSE, Trigger
from millstream.model.windows.window import Window
from millstream.model.windows.windowing import Windowing
from millstream.plan.code_identity import code_identity
from millstream.plan.operators.measures import answer_type, bound_measures, check_keys, measures_content, same_type
from millstream.plan.operators.operator import (
    KEPT_INDEFINITELY,
    Bound,
    ExplainNames,
    Facts,
    Fingerprints,
    Operator,
    ScanTypes,
    StateSpec,
    view_of,
)
from millstream.plan.parts import Measure

ORDERED = frozenset({"first", "last", "first_of", "last_of", "collect", "user", "sample"})
"""Aggregates whose answer depends on the order of records with equal event time, or tells such records apart."""

_GROWING = {
    "collect": "collect keeps every value",
    **dict.fromkeys(("ordered_list", "ordered_text"), "an aggregate with an order keeps every value"),
    **{
        kind: f"{kind} keeps every different value"
        for kind in (
            *("count_distinct", "collect_set", "sum_distinct", "avg_distinct", "mode", "percentile"),
            "percentile_disc",
        )
    },
}

_ANSWERS: dict[Trigger, str] = {ON_CHANGE: "in every epoch that changes it", ON_CLOSE: "when the window closes"}


@dataclass(frozen=True, eq=False)
class Aggregation(Operator):
    """Keys, window and aggregates of one keyed operator over rows of scans."""

    keys: tuple[str, ...]
    windowing: Windowing
    measures: tuple[Measure, ...]
    key_types: tuple[pa.DataType, ...] = ()
    retract: bool = False
    """Whether changes carry the old row (-U), or only the new one."""
    corrected: bool = False
    """Whether records may revise earlier ones."""
    totals: tuple[int, ...] = ()
    """The numbers of the grouping sets without keys; the last key holds the set of a row."""

    reads_scans: ClassVar[bool] = True
    keyed_scan: ClassVar[bool] = True

    @property
    def by_slices(self) -> bool:
        """Whether slices shared by windows are enough."""
        return self.windowing.by_slices and not self.corrected

    @property
    def is_never_empty(self) -> bool:
        """It has no keys, or a grouping set without keys, and no window."""
        is_global = self.by_slices and self.grid.is_global and self.windowing.trigger == ON_CHANGE
        return is_global and (not self.keys or bool(self.totals))

    @property
    def keeps_records(self) -> bool:
        """Whether it keeps rows one by one."""
        return self.corrected or isinstance(self.window, CountWindow)

    @property
    def may_ignore_rows(self) -> bool:
        """A function may assign no window to a row."""
        window = self.window
        return isinstance(window, Custom) or (isinstance(window, SessionWindow) and window.gap_by is not None)

    @property
    def replay_refusal(self) -> str | None:
        """Its windows must be the same as before, and show all their rows."""
        if self.windowing.merges or isinstance(self.window, CountWindow):
            return f"a late record may change the borders of its windows ({self.window})"
        if self.windowing.accumulation is Accumulation.DISCARDING:
            return "a discarding view shows the records since its last pane only"
        return None

    @property
    def window(self) -> AnyWindow:
        """Its windows."""
        return self.windowing.window

    @property
    def grid(self) -> Window:
        """Its windows, where they lie on a grid that all keys share."""
        assert isinstance(self.window, Window)
        return self.window

    @property
    def borders(self) -> tuple[str, ...]:
        """The window columns of the result."""
        return borders_of(self.windowing)

    @property
    def needs_positions(self) -> bool:
        """Some aggregate goes by the order of rows, or rows are kept one by one."""
        return self.keeps_records or bool(self.ordered_columns)

    @property
    def ordered_columns(self) -> tuple[str, ...]:
        """The aggregates that depend on the order of rows."""
        return tuple(m.name for m in self.measures if m.kind in ORDERED)

    @property
    def fractions(self) -> tuple[float, ...]:
        """Those of its trigger."""
        return tuple(sorted(self.windowing.fractions))

    @property
    def has_windows(self) -> bool:
        """Unless it has one for all of time."""
        return not self.window.is_global

    @property
    def panes_kept(self) -> int | None:
        """As its windowing states."""
        return None if self.windowing.panes is None else self.windowing.panes.micros

    @property
    def filters_scan(self) -> bool:
        """A correction that its condition leaves out still revises the record before it."""
        return not self.corrected

    @property
    def driver_only(self) -> str | None:
        """A record and the one it revises may belong to different keys."""
        return "a record may revise one of another key" if self.corrected else None

    # ---- results

    @property
    def append_only(self) -> bool:
        """It answers once, when a window closes."""
        return self.by_slices and self.windowing.trigger == ON_CLOSE and self.windowing.answers_once

    @property
    def retracting(self) -> bool:
        """By its accumulation."""
        return self.windowing.accumulation is Accumulation.RETRACTING

    @property
    def one_change_per_row(self) -> bool:
        """Without panes and revisions."""
        return self.by_slices and self.windowing.answers_once

    @property
    def identity(self) -> tuple[str, ...]:
        """Window and keys."""
        return (self.borders[:1] if isinstance(self.window, CountWindow) else self.borders) + self.keys

    @property
    def result(self) -> tuple[str, ...]:
        """Window, keys, measures."""
        return (*self.borders, *self.keys, *(m.name for m in self.measures))

    # ---- state

    @property
    def states(self) -> tuple[StateSpec, ...]:
        """Slices or windows with their partials; and the rows kept one by one."""
        if self.by_slices:
            first = StateSpec("windows", unique=("$h", "$s", *self.keys))
        else:
            first = StateSpec("windows", unique=("$h", "$s", "$e", *self.keys))
        if not self.keeps_records:
            return (first,)
        unique = ("$h", "$key") if self.corrected else ("$h", "$part", "$pos", *self.keys)
        return (first, StateSpec("records", "$records", unique))

    # ---- types

    def bind_scans(self, types: ScanTypes, *, retract: bool) -> Bound:
        """Itself with the types of its keys and arguments, from those of the columns of its scans."""
        view = view_of(self.step)

        def kind(place: int, name: str) -> pa.DataType:
            return same_type(view, name, [types[f.scan][f.columns[place]] for f in self.feeds])

        keys = tuple(kind(i, n) for i, n in enumerate(self.keys))
        check_keys(view, dict(zip(self.keys, keys, strict=True)))
        place = {m.name: len(keys) + i for i, m in enumerate(m for m in self.measures if m.has_argument)}
        measures = bound_measures(view, self.measures, lambda m: kind(place[m.name], m.name))
        bound = replace(self, key_types=keys, measures=measures, retract=retract)
        panes = None if self.windowing.panes is None else bound.panes_schema()
        return Bound(bound, bound.result_schema(), panes)

    def result_schema(self) -> pa.Schema:
        """The columns of its answers, once bound."""
        borders = [pa.field(b, pa.int64() if b == INDEX else TIMESTAMP) for b in self.borders]
        keys = [pa.field(n, t) for n, t in zip(self.keys, self.key_types, strict=True)]
        return pa.schema([*borders, *keys, *(pa.field(m.name, answer_type(m)) for m in self.measures)])

    def panes_schema(self) -> pa.Schema:
        """The columns of a history of panes, once bound."""
        kinds = (pa.int64(), pa.string(), pa.bool_(), pa.bool_(), TIMESTAMP, pa.int64())
        return pa.schema([*self.result_schema(), *(pa.field(n, t) for n, t in zip(PANES, kinds, strict=True))])

    # ---- EXPLAIN

    def name(self) -> str:
        """By slices, or with panes."""
        return "aggregate" if self.by_slices else "aggregate with panes"

    def facts(self, names: ExplainNames) -> Facts:
        """Keys, window, trigger, measures."""
        how = self.windowing
        facts = [
            ("keys", ", ".join(self.keys) or "none"),
            ("window", str(self.window)),
            ("answers", _ANSWERS.get(how.trigger, str(how.trigger))),
            ("measures", ", ".join(self._shown_measures(names))),
        ]
        if how.accumulation is not Accumulation.RETRACTING:
            facts.insert(3, ("panes are", str(how.accumulation)))
        return facts

    def more_facts(self) -> Facts:
        """What EXPLAIN reports after the state."""
        facts: Facts = []
        if self.windowing.panes is not None:
            facts.append(("history", f"of panes, for {self.windowing.panes}"))
        if self.window.is_global and self.keys:
            facts.append(("hint", 'to bound the state, add .window(ms.tumbling("1 hour")) or another window'))
        return facts

    def _shown_measures(self, names: ExplainNames) -> Iterator[str]:
        arguments = iter(names.arguments(self)[len(self.keys) :])
        for measure in self.measures:
            argument = next(arguments) if measure.has_argument else "*"
            kind = f"Python {type(measure.user).__name__}" if measure.user is not None else measure.kind
            yield f"{measure.name} = {kind}({argument})"

    @property
    def state_grows(self) -> bool:
        """With the number of keys or of values, if no window bounds it."""
        if self.window.is_global:
            return bool(self.keys or self._growing_values)
        return isinstance(self.window, CountWindow)

    def state_text(self, names: ExplainNames) -> str:
        """What it keeps, by its window."""
        also = "".join(f"; {growth}" for growth in self._growing_values)
        if self.window.is_global:
            if not self.keys:
                return f"one row, {KEPT_INDEFINITELY}{also}"
            return f"{KEPT_INDEFINITELY}: grows with the number of keys{also}"
        lateness = names.lateness(self.sources)
        plus = f" + {lateness} lateness" if lateness.micros else ""
        if self.windowing.lateness.micros:
            plus += f" + {self.windowing.lateness} allowed"
        if isinstance(self.window, CountWindow):
            return f"records of incomplete windows{plus}; a number per key, {KEPT_INDEFINITELY}{also}"
        if not self.by_slices:
            return f"a row per key and window, until the window ends{plus}{also}"
        assert isinstance(self.window, Window)
        if self.window.is_tumbling:
            return f"until the window ends{plus}{also}"
        return f"slices of {self.window.slice}, each until the last window over it ends{plus}{also}"

    @property
    def _growing_values(self) -> Iterable[str]:
        """What EXPLAIN reports of measures whose state grows with the number of values."""
        return dict.fromkeys(_GROWING[m.kind] for m in self.measures if m.kind in _GROWING)

    # ---- identity of state

    def fingerprint_parts(self, parts: Fingerprints) -> list[object]:
        """Keys, windows, measures, and what its feeds take."""
        how = [self._windowing_content(), *(["corrected"] if self.corrected else [])]
        measures = measures_content(self.measures, code_identity)
        return ["aggregate", self.keys, how, measures, [parts.feed(f) for f in self.feeds]]

    def _windowing_content(self) -> object:
        how = self.windowing
        window: Any = repr(how.window)
        if isinstance(how.window, Custom):
            window = [code_identity(f) for f in (how.window.assign, how.window.merge) if f is not None]
        elif isinstance(how.window, SessionWindow):
            window = str(how.window)
        return (window, repr(how.trigger), str(how.accumulation), how.lateness.micros, how.panes)


def over_all(step: str, keys: tuple[str, ...], measures: tuple[Measure, ...]) -> Aggregation:
    """An aggregation without windows, for kernels that combine rows of other operators."""
    return Aggregation(view_of(step), keys, Windowing(), measures)
