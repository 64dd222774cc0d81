"""One stage of the product, epoch by epoch and without Spark, for a case of `tests/reference/strategies.py`.

Intake, kernels and state are the real ones: records are taken in by batches, kernels run once per shard, and what they
keep is written as runs, which are merged now and then. How all this is cut is thrown by dice.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from millstream.engine.driver.driver import states_of, write_outcome
from millstream.engine.input.rejects import apart
from millstream.kernels.intake import Intake, gather, take_in
from millstream.kernels.outcome import OperatorClock, Outcome, net
from millstream.kernels.scan_input import Role
from millstream.model.expression import expr
from millstream.model.types.duration import Duration
from millstream.model.windows import trigger as mt
from millstream.model.windows.accumulation import Accumulation
from millstream.model.windows.kinds import AnyWindow, Cumulating, calendar, count_window, cumulating, custom, session
from millstream.model.windows.window import Window, everything, hopping, tumbling
from millstream.model.windows.windowing import Windowing
from millstream.plan.operators.aggregates.aggregation import Aggregation
from millstream.plan.parts import Feed, Measure
from millstream.state.compaction import merge
from millstream.state.shard import RunCache, shard_of, shard_range
from millstream.state.version import Version
from tests.kernel_kit import advance, is_due, leaving
from tests.reference import triggers as tr
from tests.reference import windows as win
from tests.reference.model import RETRACTING, Row, identity
from tests.reference.strategies import Case, Epoch
from tests.reference.windows import BEGINNING, Span

STEP = "v"
KEY = "key"
FUTURE = 2**62
HASHES = [-(2**63), -7, 0, 2**61, 2**63 - 1]

SCHEMA = {
    "$part": pl.Int32,
    "$pos": pl.Int64,
    "$ts": pl.Int64,
    "$bad": pl.Int32,
    "hash": pl.Int64,
    "slice": pl.Int64,
    "gap": pl.Int64,
    "key": pl.String,
    "v": pl.Int64,
    "record": pl.String,
}

# ---------------------------------------------------------------- from the reference's values to the product's


def window_of(window: win.Window) -> AnyWindow:
    match window:
        case win.Tumbling():
            return tumbling(Duration(window.size), offset=Duration(window.offset))
        case win.Hopping():
            return hopping(Duration(window.size), Duration(window.slide), offset=Duration(window.offset))
        case win.Cumulating():
            return cumulating(Duration(window.step), Duration(window.size), offset=Duration(window.offset))
        case win.Session():
            return session(gap_by=expr("gap")) if window.gap is None else session(Duration(window.gap))
        case win.Calendar():
            return calendar(window.unit, zone=window.zone)
        case win.Count():
            return count_window(window.size, slide=window.slide)
        case win.Custom():
            return custom(_of_datetime(window.assign), merge=window.merge and _of_datetimes(window.merge))
        case win.Everything():
            return everything()
    raise TypeError(window)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICRO = timedelta(microseconds=1)


def _as_datetimes(spans: list[Span]) -> list[tuple[datetime, datetime]]:
    return [(_EPOCH + s * _MICRO, _EPOCH + e * _MICRO) for s, e in spans]


def _of_datetime(assign: Callable[[int], list[Span]]) -> Callable[[datetime], list[tuple[datetime, datetime]]]:
    return lambda time: _as_datetimes(assign((time - _EPOCH) // _MICRO))


def _of_datetimes(merged: Callable[[list[Span]], list[Span]]) -> Callable[[list[Any]], list[Any]]:
    return lambda spans: _as_datetimes(merged([((s - _EPOCH) // _MICRO, (e - _EPOCH) // _MICRO) for s, e in spans]))


def trigger_of(trigger: tr.Trigger) -> mt.Trigger:
    made: mt.Trigger
    match trigger:
        case tr.AfterCount(n):
            made = mt.after_count(n)
        case tr.AfterDelay(delay, aligned):
            made = mt.after_delay(Duration(delay), aligned=aligned)
        case tr.AfterFraction(fraction):
            made = mt.after_fraction(fraction)
        case tr.AfterWatermark(early, late):
            made = mt.after_watermark(early=early and trigger_of(early), late=late and trigger_of(late))
        case tr.AnyOf(parts):
            made = mt.any_of(*map(trigger_of, parts))
        case tr.AllOf(parts):
            made = mt.all_of(*map(trigger_of, parts))
        case tr.InOrder(parts):
            made = mt.in_order(*map(trigger_of, parts))
        case tr.Repeatedly(part):
            made = mt.repeatedly(trigger_of(part))
        case tr.Once(part):
            made = mt.once(trigger_of(part))
        case tr.Until(part, stop):
            made = mt.until(trigger_of(part), trigger_of(stop))
        case _:
            raise TypeError(trigger)
    return made


def windowing_of(case: Case, *, panes: bool) -> Windowing:
    return Windowing(
        window_of(case.window),
        trigger_of(case.trigger),
        Accumulation(case.accumulation),
        Duration(case.lateness),
        Duration(3600 * 1_000_000) if panes else None,
    ).check()


class Squares:
    """An aggregate as users write them."""

    def create(self) -> int:
        return 0

    def add(self, total: int, value: int) -> int:
        return total + value * value

    def merge(self, left: int, right: int) -> int:
        return left + right

    def result(self, total: int) -> int:
        return total


def stage_of(case: Case, *, panes: bool) -> Aggregation:
    """The stage of a case; with `panes` it keeps their history, and so needs the pane kernel."""
    measures = []
    for name, how in case.aggregates.items():
        kind, column = (how, None) if isinstance(how, str) else how
        if kind == "squares":
            measures.append(Measure(name, "user", True, Squares(), pa.int64(), pa.int64()))
        else:
            measures.append(Measure(name, kind, column is not None, type=None if column is None else pa.int64()))
    arguments = tuple(how[1] for how in case.aggregates.values() if not isinstance(how, str))
    by_record = isinstance(case.window, win.Session) and case.window.gap is None
    feed = Feed(0, "src", None, "record", (KEY, *arguments), "hash", "slice", "gap" if by_record else "")
    windowing = windowing_of(case, panes=panes)
    return Aggregation(
        STEP, (KEY,), windowing, tuple(measures), (pa.string(),), case.accumulation == RETRACTING, feeds=(feed,)
    )


def slice_of(window: AnyWindow, time: int) -> int:
    """What `slice_sql` computes."""
    if isinstance(window, Window):
        return 0 if window.is_global else time - (time - window.offset.micros) % window.slice.micros
    return time - (time - window.offset.micros) % window.step.micros if isinstance(window, Cumulating) else time


# ---------------------------------------------------------------- what it gives


@dataclass
class Given:
    """What the product gives in an epoch."""

    changes: list[tuple[str, Row]] = field(default_factory=list)
    net: list[tuple[str, Row]] = field(default_factory=list)
    """What the changes come to."""
    panes: list[Row] = field(default_factory=list)
    late: list[tuple[str, str]] = field(default_factory=list)
    """Records (see `name_of`) and why they were set apart."""
    set_apart: int = 0
    """How many records the product says it has set apart."""


def name_of(record: Row) -> str:
    return f"{record['part']}-{record['pos']}"


def rows_of(frame: pl.DataFrame) -> list[Row]:
    """Rows with times as whole microseconds."""
    return frame.with_columns(pl.selectors.datetime().to_physical()).to_dicts()


def changes_of(frame: pl.DataFrame) -> list[tuple[str, Row]]:
    return [(row.pop("$op"), row) for row in rows_of(frame)]


# ---------------------------------------------------------------- the stage


@contextmanager
def directory() -> Iterator[Path]:
    """A place for state, in memory where there is one: runs are synced to the disk."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as root:
        yield Path(root)


class Stage:
    """A stage with its state in a directory. With `collide`, all keys have the same hash."""

    def __init__(self, spec: Aggregation, root: Path, dice: random.Random, *, collide: bool = False) -> None:
        self.spec, self.root, self.dice = spec, root, dice
        self.cache, self.version = RunCache(root), Version()
        self.before, self.number = BEGINNING, 0
        self.hashes: dict[str | None, int] = {}
        self.free = dice.choices(HASHES) * 3 if collide else dice.sample(HASHES, len(HASHES))

    def epoch(self, epoch: Epoch) -> Given:
        self.number += 1
        clock = OperatorClock(self.before, epoch.watermark, epoch.now, epoch.fractions)
        role = Role(0, self.spec, self.spec.feeds[0], epoch.watermark)
        frame = self.frame(epoch.records)
        intake = self.taken(frame, role)
        partials = gather(self.spec, intake.frames.get(0, []))
        outcomes = self.advance(partials, clock)
        self.maybe_merge(epoch.watermark)
        self.before = epoch.watermark

        given = Given()
        changes = [o.changes for o in outcomes if o.changes is not None]
        if changes:
            together = pl.concat(changes, how="vertical_relaxed")
            given.changes = changes_of(together)
            given.net = changes_of(net(together, self.spec.identity))
        given.panes = [row for o in outcomes if o.panes is not None for row in rows_of(o.panes)]
        dropped = [d for o in outcomes for d in o.dropped]
        given.set_apart = intake.late.get(0, 0) + sum(d.rows for d in dropped)
        if intake.late or dropped:
            found = apart(role, frame, dropped, self.number, epoch.now)
            given.late = list(zip(found["record"].to_pylist(), found["reason"].to_pylist(), strict=True))
        return given

    def hash_of(self, key: str | None) -> int:
        if key not in self.hashes:
            self.hashes[key] = self.free.pop() if self.free else self.dice.randrange(-(2**63), 2**63)
        return self.hashes[key]

    def frame(self, records: Sequence[Row]) -> pl.DataFrame:
        """Records as the prelude would give them."""
        rows = [
            {
                "$part": r["part"],
                "$pos": r["pos"],
                "$ts": r["t"],
                "$bad": 0,
                "hash": self.hash_of(r["key"]),
                "slice": slice_of(self.spec.window, r["t"]),
                "gap": r["gap"],
                "key": r["key"],
                "v": r["v"],
                "record": name_of(r),
            }
            for r in records
        ]
        return pl.DataFrame(rows, schema=SCHEMA, orient="row")

    def taken(self, frame: pl.DataFrame, role: Role) -> Intake:
        """The records through the intake, in any order and in batches of any size."""
        intake = Intake()
        places = self.dice.sample(range(len(frame)), len(frame))
        while places:
            size = self.dice.choice([len(places), self.dice.randint(1, len(places))])
            intake.add(take_in(frame[places[:size]], [role], FUTURE))
            places = places[size:]
        return intake

    def advance(self, partials: pl.DataFrame | None, clock: OperatorClock) -> list[Outcome]:
        """The kernels over every shard; what they keep is in state afterwards."""
        shards = self.dice.choice([1, 1, 1, 2, 3])
        outcomes, written = [], []
        for shard in range(shards):
            hashes = shard_range(shard, shards) if shards > 1 else None
            mine = partials
            if partials is not None and shards > 1:
                mine = partials.filter(pl.Series(shard_of(partials["$h"].to_numpy(), shards) == shard))
            states = states_of(self.cache, self.spec, self.version, hashes)
            outcome = advance(self.spec, mine, states, clock)
            if (mine is None or not len(mine)) and not is_due(self.spec, states["windows"], clock):
                assert outcome.changes is None and outcome.panes is None, "nothing was due"
            outcomes.append(outcome)
            written += write_outcome(self.cache, self.spec, outcome, f"{self.number:03d}-{shard}")
        for step in self.steps:
            self.version = self.version.advance(step, [r for r in written if r.step == step], clock.watermark)
        return outcomes

    @property
    def steps(self) -> dict[str, tuple[list[str], Any]]:
        """The steps of state, what makes their rows unique, and when these leave."""
        expiry = [lambda rows: leaving(self.spec, rows), lambda rows: rows["$x"].to_numpy()]
        return {self.spec.state_step(s): (list(s.unique), e) for s, e in zip(self.spec.states, expiry, strict=False)}

    def maybe_merge(self, watermark: int) -> None:
        """Now and then merge a stretch of runs, as compaction does."""
        for step, (columns, expiry) in self.steps.items():
            runs = self.version.of(step)
            if not runs or self.dice.random() < 0.7:
                continue
            first = self.dice.choice([0, self.dice.randrange(len(runs))])
            stretch = runs[first : self.dice.randint(first + 1, len(runs))]
            name = f"{step}/{self.number:03d}-c.arrow"
            merged = merge(self.cache, name, stretch, columns, expiry, watermark, oldest=first == 0)
            self.version = self.version.replaced(step, stretch, [] if merged is None else [merged])


def applied(view: dict[tuple[Any, ...], Row], changes: list[tuple[str, Row]], *, replaces: bool) -> None:
    """Apply changes to a view one by one; each must fit what is there. `replaces`: a +U comes without a -U."""
    for op, row in changes:
        where = identity(row)
        if op in ("-U", "-D"):
            assert view.pop(where, None) == row, f"{op} of {row}"
        else:
            assert (where in view) == (op == "+U" and replaces), f"{op} of {row}"
            view[where] = row


def net_applied(view: dict[tuple[Any, ...], Row], changes: list[tuple[str, Row]]) -> None:
    """Apply what changes come to: at most one of them to a row."""
    assert len({identity(row) for _, row in changes}) == len(changes)
    for op, row in changes:
        where = identity(row)
        assert op in ("+I", "+U", "-D")
        assert (where in view) == (op != "+I"), f"{op} of {row}"
        if op == "-D":
            del view[where]
        else:
            view[where] = row
