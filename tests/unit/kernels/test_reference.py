"""The kernels against a reference that takes one record at a time and keeps every record for good.

The reference knows nothing of slices, partials, runs or epochs: a record counts for every window that covers its
time and is still open when the record comes in. After every epoch the kernel's changes, folded into a table, must be
the reference's table.
"""

from __future__ import annotations

import math
import random
import statistics
import tempfile
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import polars as pl
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.clock import BEGINNING, END_OF_TIME
from millstream.kernels.aggregates import slices
from millstream.kernels.aggregates.combine import group_columns
from millstream.kernels.aggregates.slices import advance
from millstream.kernels.intake import Intake, gather, take_in
from millstream.kernels.outcome import OperatorClock
from millstream.kernels.scan_input import Role
from millstream.model.types.duration import Duration
from millstream.model.windows.trigger import ON_CHANGE, ON_CLOSE
from millstream.model.windows.window import Window
from millstream.model.windows.windowing import Windowing
from millstream.plan.operators.aggregates.aggregation import Aggregation
from millstream.plan.parts import Feed, Measure
from millstream.runtime.epoch.compactor import Compactor
from millstream.state.shard import RunCache, StateReader
from millstream.state.version import Version

FUTURE = 100
HASHES = [-(2**63), -7, 0, 2**63 - 1]
"""Few hashes, so that different keys collide."""

SCHEMA = {
    "$part": pl.Int32,
    "$pos": pl.Int64,
    "$ts": pl.Int64,
    "$bad": pl.Int32,
    "keep": pl.Boolean,
    "k": pl.String,
    "g": pl.Int64,
    "i": pl.Int64,
    "f": pl.Float64,
    "d": pl.Decimal(10, 2),
    "s": pl.String,
    "hash": pl.Int64,
    "slice": pl.Int64,
}


class Words:
    """An aggregate that remembers the order in which it was fed."""

    def create(self) -> list[str]:
        return []

    def add(self, words: list[str], word: str) -> list[str]:
        return [*words, word]

    def merge(self, left: list[str], right: list[str]) -> list[str]:
        return left + right

    def result(self, words: list[str]) -> str:
        return "".join(words)


MEASURES = {
    m.name: (m, column)
    for m, column in [
        (Measure("n", "count", False), None),
        (Measure("ni", "count", True, type=pa.int64()), "i"),
        (Measure("si", "sum", True, type=pa.int64()), "i"),
        (Measure("sd", "sum", True, type=pa.decimal128(10, 2)), "d"),
        (Measure("sf", "sum", True, type=pa.float64()), "f"),
        (Measure("ai", "avg", True, type=pa.int64()), "i"),
        (Measure("ad", "avg", True, type=pa.decimal128(10, 2)), "d"),
        (Measure("af", "avg", True, type=pa.float64()), "f"),
        (Measure("lo", "min", True, type=pa.string()), "s"),
        (Measure("hi", "max", True, type=pa.decimal128(10, 2)), "d"),
        (Measure("first", "first", True, type=pa.int64()), "i"),
        (Measure("last", "last", True, type=pa.string()), "s"),
        (Measure("var", "variance", True, type=pa.float64()), "f"),
        (Measure("sdev", "stddev", True, type=pa.int64()), "i"),
        (Measure("all", "collect", True, type=pa.string()), "s"),
        (Measure("uniq", "count_distinct", True, type=pa.int64()), "i"),
        (Measure("words", "user", True, Words(), pa.string(), pa.string()), "s"),
    ]
}
EXACT = ["n", "ni", "si", "sd", "ai", "ad", "lo", "hi", "first", "last", "all", "uniq"]

ROWS = st.fixed_dictionaries(
    {
        "$ts": st.one_of(st.integers(-12, 30), st.just(5), st.just(FUTURE + 1)),
        "$part": st.integers(0, 1),
        "$bad": st.sampled_from([0, 0, 0, 0, 0, 0, 1]),
        "keep": st.sampled_from([True, True, True, True, False, None]),
        "k": st.sampled_from([None, "", "a", "b"]),
        "g": st.sampled_from([None, 0, 1]),
        "i": st.one_of(st.none(), st.integers(-5, 5), st.integers(-(2**53), 2**53)),
        "f": st.one_of(st.none(), st.sampled_from([0.1, -0.1, 1e15, -1e15, 1 / 3, 0.0, -0.0]), st.floats(-1e6, 1e6)),
        "d": st.one_of(st.none(), st.decimals(-99999, 99999, places=2)),
        "s": st.one_of(st.none(), st.sampled_from(["", "x", "y", "zz", "é"])),
    }
)


@st.composite
def windows(draw: st.DrawFn) -> Window:
    kind = draw(st.sampled_from(["global", "tumbling", "hopping"]))
    if kind == "global":
        return Window()
    size = draw(st.integers(1, 12))
    slide = size if kind == "tumbling" else draw(st.integers(1, size))
    return Window(Duration(size), Duration(slide), Duration(draw(st.integers(-3, 3))))


@dataclass(frozen=True)
class Case:
    spec: Aggregation
    epochs: list[list[dict[str, Any]]]
    watermarks: list[int]
    seed: int


@st.composite
def cases(draw: st.DrawFn, names: list[str] | None = None) -> Case:
    window = draw(windows())
    chosen = draw(st.lists(st.sampled_from(names or list(MEASURES)), min_size=1, max_size=4, unique=True))
    keys = draw(st.sampled_from([("k",), ("k", "g"), ()]))
    spec = specification(
        window, keys, chosen, on_close=not window.is_global and draw(st.booleans()), retract=draw(st.booleans())
    )
    epochs = draw(st.lists(st.lists(ROWS, max_size=8), min_size=1, max_size=5))
    steps = draw(st.lists(st.integers(0, 8), min_size=len(epochs), max_size=len(epochs)))
    watermarks, at = [], draw(st.sampled_from([BEGINNING, -15, -2, 4]))
    for step in steps:
        at = max(at, -15) + step if step else at
        watermarks.append(at)
    return Case(spec, epochs, watermarks, draw(st.integers(0, 2**32)))


def specification(
    window: Window, keys: tuple[str, ...], chosen: list[str], *, on_close: bool = False, retract: bool = False
) -> Aggregation:
    arguments = tuple(c for c in (MEASURES[m][1] for m in chosen) if c is not None)
    feed = Feed(0, "src", "keep", "", keys + arguments, "hash", "slice")
    types = tuple({"k": pa.string(), "g": pa.int64()}[k] for k in keys)
    return Aggregation(
        "v",
        keys,
        Windowing(window, ON_CLOSE if on_close else ON_CHANGE),
        tuple(MEASURES[m][0] for m in chosen),
        types,
        retract,
        feeds=(feed,),
    )


def placed(spec: Aggregation, epochs: list[list[dict[str, Any]]]) -> list[list[dict[str, Any]]]:
    """Rows with what the prelude would add: position, hash and slice."""
    counters = [0, 0]
    done = []
    for rows in epochs:
        made = []
        for row in rows:
            key = tuple(row[k] for k in spec.keys)
            start = (
                0
                if spec.window.is_global
                else row["$ts"] - (row["$ts"] - spec.window.offset.micros) % spec.window.slice.micros
            )
            made.append(
                {**row, "$pos": counters[row["$part"]], "hash": HASHES[sum(map(ord, repr(key))) % 4], "slice": start}
            )
            counters[row["$part"]] += 1
        done.append(made)
    return done


def covering(window: Window, time: int) -> list[int]:
    if window.size is None or window.slide is None:
        return [END_OF_TIME]
    size, slide, offset = window.size.micros, window.slide.micros, window.offset.micros
    near = (time - offset) // slide
    starts = (offset + n * slide for n in range(near - size - 1, near + 2))
    return [s + size for s in starts if s <= time < s + size]


@dataclass
class Reference:
    """Every record of every window, and the answers worked out anew each time."""

    spec: Aggregation
    held: dict[tuple[Any, ...], list[dict[str, Any]]] = field(default_factory=dict)
    table: dict[tuple[Any, ...], dict[str, Any]] = field(default_factory=dict)
    late: int = 0
    applied: int = 0

    def epoch(self, number: int, rows: list[dict[str, Any]], watermark: int) -> None:
        if self.spec.windowing.trigger == ON_CLOSE:
            for window, records in self.held.items():
                if window[0] <= watermark and window not in self.table:
                    self.table[window] = self.answers(records)
        touched = set()
        for row in rows:
            if row["$bad"] or row["$ts"] > FUTURE or not row["keep"]:
                continue
            ends = covering(self.spec.window, row["$ts"])
            open_ends = [e for e in ends if e > watermark]
            if not open_ends:
                self.late += 1
                continue
            self.applied += 1
            for end in open_ends:
                window = (end, *(row[k] for k in self.spec.keys))
                self.held.setdefault(window, []).append({**row, "epoch": number})
                touched.add(window)
        if self.spec.windowing.trigger != ON_CLOSE:
            for window in touched:
                self.table[window] = self.answers(self.held[window])

    def answers(self, records: list[dict[str, Any]]) -> dict[str, Any]:
        return {m.name: answer(m, MEASURES[m.name][1], records) for m in self.spec.measures}


def answer(m: Measure, column: str | None, records: list[dict[str, Any]]) -> Any:
    ordered = sorted(records, key=lambda r: (r["$ts"], r["$part"], r["$pos"]))
    if column is None:
        return len(records)
    values = [r[column] for r in ordered if r[column] is not None]
    if m.kind in ("first", "last"):
        return ordered[0 if m.kind == "first" else -1][column]
    if m.kind == "user":
        fed = sorted(records, key=lambda r: (r["slice"], r["epoch"], r["$ts"], r["$part"], r["$pos"]))
        return "".join(r[column] for r in fed if r[column] is not None)
    if m.kind in ("count", "collect", "count_distinct"):
        return {"count": len(values), "collect": values, "count_distinct": len(set(values))}[m.kind]
    if m.kind in ("variance", "stddev"):
        exact = [Decimal(v) for v in values]
        spread = statistics.variance(exact) if len(values) > 1 else None
        return spread if spread is None else float(spread) if m.kind == "variance" else math.sqrt(spread)
    if not values:
        return None
    if m.kind in ("min", "max"):
        return min(values) if m.kind == "min" else max(values)
    total = math.fsum(values) if column == "f" else sum(values)
    return total if m.kind == "sum" else float(total) / len(values)


def frame(rows: list[dict[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame([{c: r[c] for c in SCHEMA} for r in rows], schema=SCHEMA, orient="row")


def taken(spec: Aggregation, rows: list[dict[str, Any]], watermark: int, dice: random.Random) -> Intake:
    """The rows through the intake, in chunks of any size."""
    intake = Intake()
    at = 0
    while at < len(rows):
        size = dice.randint(1, len(rows))
        intake.add(take_in(frame(rows[at : at + size]), [Role(0, spec, spec.feeds[0], watermark)], FUTURE))
        at += size
    return intake


def apply(table: dict[tuple[Any, ...], dict[str, Any]], spec: Aggregation, changes: pl.DataFrame | None) -> None:
    """Fold changes into a table; a change that does not fit what is there is a failure."""
    for row in [] if changes is None else changes.to_dicts():
        op = row.pop("$op")
        end = END_OF_TIME
        if not spec.window.is_global:
            start, closed = row.pop("window_start"), row.pop("window_end")
            end = round(closed.timestamp() * 1_000_000)
            assert spec.window.size is not None and (closed - start).microseconds == spec.window.size.micros
        window = (end, *(row.pop(k) for k in spec.keys))
        if op == "-U":
            assert spec.retract and table.pop(window) == row, f"{window} takes back a row that was not there"
        elif op == "+U":
            assert (window in table) != spec.retract, f"{window}: +U"
            table[window] = row
        else:
            assert op == "+I" and window not in table, f"{window}: {op}"
            table[window] = row


def same(found: Any, expected: Any) -> bool:
    if isinstance(expected, float) and isinstance(found, float):
        return math.isclose(found, expected, rel_tol=1e-6, abs_tol=1e-2 if abs(expected) < 1e14 else 1e9)
    return type(found) is type(expected) and bool(found == expected)


def compare(found: dict[tuple[Any, ...], dict[str, Any]], expected: dict[tuple[Any, ...], dict[str, Any]]) -> None:
    assert found.keys() == expected.keys()
    for window, row in expected.items():
        for name, value in row.items():
            assert same(found[window][name], value), f"{name} of {window}: {found[window][name]!r} is not {value!r}"


def run(case: Case, *, compact: bool) -> tuple[dict[tuple[Any, ...], dict[str, Any]], Reference]:
    spec, dice = case.spec, random.Random(case.seed)
    reference, table = Reference(spec), {}
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        cache, version, before = RunCache(root), Version(), BEGINNING
        compactor = Compactor(cache, [spec])
        late = applied = 0
        for number, (rows, watermark) in enumerate(zip(placed(spec, case.epochs), case.watermarks, strict=True)):
            intake = taken(spec, rows, watermark, dice)
            state = StateReader(cache, version.of("v"), group_columns(spec))
            outcome = advance(spec, gather(spec, intake.frames.get(0, [])), state, OperatorClock(before, watermark))
            added = [RunCache(root).write(f"v/{number}.arrow", *kept) for kept in outcome.state_rows.values()]
            version = version.advance("v", added, watermark)
            if compact:
                version = compactor.between(version, number, watermark)
            apply(table, spec, outcome.changes)
            reference.epoch(number, rows, watermark)
            late, applied, before = late + intake.late.get(0, 0), applied + intake.applied.get(0, 0), watermark
            compare(table, reference.table)
            assert (late, applied) == (reference.late, reference.applied)
        compactor.close()
    return table, reference


@settings(max_examples=60)
@given(cases())
def test_the_changes_of_every_epoch_give_the_table_of_the_reference(case: Case) -> None:
    run(case, compact=False)


@settings(max_examples=30)
@given(
    cases().map(
        lambda c: replace(
            c,
            spec=replace(
                c.spec, windowing=Windowing(c.spec.window, ON_CHANGE if c.spec.window.is_global else ON_CLOSE)
            ),
        )
    )
)
def test_windows_that_close_together_are_answered_the_same_in_short_stretches(case: Case) -> None:
    with patch.object(slices, "CLOSE_ROWS", 1):
        run(case, compact=False)


@settings(max_examples=20)
@given(
    cases(EXACT).map(lambda c: replace(c, epochs=c.epochs * 4, watermarks=[w for w in c.watermarks for _ in range(4)]))
)
def test_compaction_between_epochs_changes_no_answer(case: Case) -> None:
    run(case, compact=True)


@given(cases(), st.randoms(use_true_random=False))
def test_partials_do_not_depend_on_the_order_of_rows_or_on_how_they_are_cut(case: Case, shuffle: Any) -> None:
    """Also for sums of floating numbers, to the last bit: an epoch must be repeatable on any number of cores."""
    rows = [r for rs in placed(case.spec, case.epochs) for r in rs]
    columns = group_columns(case.spec)

    def partials(order: list[dict[str, Any]], seed: int) -> pl.DataFrame | None:
        made = gather(case.spec, taken(case.spec, order, BEGINNING, random.Random(seed)).frames.get(0, []))
        return None if made is None else made.select(sorted(made.columns)).sort(columns, nulls_last=False)

    once = partials(rows, case.seed)
    shuffled = list(rows)
    shuffle.shuffle(shuffled)
    again = partials(shuffled, case.seed + 1)
    assert (once is None) == (again is None)
    if once is not None and again is not None:
        assert once.equals(again, null_equal=True), f"{once}\n{again}"


@given(st.lists(ROWS, min_size=1, max_size=12), st.integers(0, 2**32))
def test_the_tally_counts_every_row_once_and_keeps_the_newest_time_of_each_partition(
    rows: list[dict[str, Any]], seed: int
) -> None:
    spec = specification(Window(), ("k",), ["n"])
    (made,) = placed(spec, [rows])
    tally = taken(spec, made, BEGINNING, random.Random(seed)).tally
    good = [r for r in made if not r["$bad"] and r["$ts"] <= FUTURE]
    assert tally.rows == len(rows)
    assert tally.bad == sum(1 for r in rows if r["$bad"])
    assert tally.future == sum(1 for r in rows if not r["$bad"] and r["$ts"] > FUTURE)
    assert tally.newest == {p: max(r["$ts"] for r in good if r["$part"] == p) for p in {r["$part"] for r in good}}
