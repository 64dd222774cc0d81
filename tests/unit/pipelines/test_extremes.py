"""Extreme times and values through every operator: they are answered, or set apart, or refused when the flow is made.

Records come from a topic, which keeps any time that 64 bits can hold. Without Spark.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millstream as ms
from millstream.cli.output import csv_text, json_text
from millstream.clock import EARLIEST, LATEST
from millstream.errors import DefinitionError, RunError
from millstream.model.types.values import python_values
from millstream.result import Result
from tests.accounting import assert_balanced
from tests.sql.engine import QueryScript

SCHEMA = "k BIGINT, v BIGINT, x DOUBLE, d DECIMAL(38, 6), t TIMESTAMP, ts TIMESTAMP"
STAMP = pa.timestamp("us", tz="UTC")
ARROW = pa.schema(
    [
        ("k", pa.int64()),
        ("v", pa.int64()),
        ("x", pa.float64()),
        ("d", pa.decimal128(38, 6)),
        ("t", STAMP),
        ("ts", STAMP),
    ]
)
NOW = 1_767_225_600_000_000
LOW, HIGH = -(2**63), 2**63 - 1

TIMES = [EARLIEST, EARLIEST + 1, -1, 0, 1, NOW, NOW + 1, LATEST - 1, LATEST]
OUTSIDE = [LOW, EARLIEST - 1, LATEST + 1, HIGH - 1]  # HIGH itself is "infinity" for the DuckDB of the local engine
WHOLE = [0, 1, -1, 2**40, -(2**40)]
FLOATS = [0.0, -0.0, 1.5, float("inf"), float("-inf"), float("nan"), 1.7976931348623157e308, 5e-324]
LONG = "3652500 days"


class Timed(ms.Process):
    """Emits each row, and once more by a timer."""

    def on_row(self, row: Any, state: Any, ctx: ms.Context) -> Any:
        ctx.set_timer(timedelta(days=3))
        yield {"k": row.k, "v": row.v}

    def on_timer(self, timer: ms.Timer, state: Any, ctx: ms.Context) -> Any:
        yield {"k": ctx.key, "v": None}


def windowed(window: Any, **options: Any) -> Callable[[ms.Stream], ms.Stream]:
    def made(rows: ms.Stream) -> ms.Stream:
        measures = {"n": ms.count(), "total": ms.sum("v"), "least": ms.min("x"), "greatest": ms.max("x")}
        return rows.key_by("k").window(window, **options).aggregate(**measures, last=ms.last("d"), mean=ms.avg("x"))

    return made


def spans(time: datetime) -> list[tuple[datetime, datetime]]:
    day = time.replace(hour=0, minute=0, second=0, microsecond=0)
    last = datetime.max.replace(tzinfo=UTC)
    return [(day, min(last, day + timedelta(days=1)) if day.year < 9999 else last)]


OPERATORS: dict[str, Callable[[ms.Stream], ms.Stream]] = {
    "filter": lambda s: s.where("v >= 0 AND ts >= TIMESTAMP '1970-01-01 00:00:00'"),
    "global": windowed(ms.everything()),
    "tumbling": windowed(ms.tumbling("1 hour")),
    "tumbling of 10,000 years": windowed(ms.tumbling(LONG)),
    "tumbling of a microsecond": windowed(ms.tumbling("1 us")),
    "tumbling with an offset": windowed(ms.tumbling("7 days", offset="-3652000 days")),
    "hopping": windowed(ms.hopping("1 day", "8 hours")),
    "hopping 1,000 times": windowed(ms.hopping("1 ms", "1 us")),
    "cumulating": windowed(ms.cumulating("6 hours", "1 day")),
    "session": windowed(ms.session("30 minutes")),
    "session of 10,000 years": windowed(ms.session(LONG)),
    "calendar year": windowed(ms.calendar("year", zone="Europe/Berlin")),
    "calendar day": windowed(ms.calendar("day")),
    "count window": windowed(ms.count_window(3, slide=1)),
    "custom": windowed(ms.custom(spans)),
    "lateness": windowed(ms.tumbling("1 hour"), lateness=LONG),
    "on close": windowed(ms.tumbling("1 day"), trigger=ms.on_close()),
    "every, by the clock": windowed(ms.hopping("1 day", "12 hours"), trigger=ms.every(LONG)),
    "early and late": windowed(
        ms.session("1 day"), trigger=ms.after_watermark(early=ms.after_count(10**15)), accumulation=ms.discarding()
    ),
    "top": lambda s: s.key_by("k").top(2, "x DESC", "ts", rank="place"),
    "over": lambda s: s.key_by("k").over("ts", before=ms.lag("v", 10**15), total=ms.sum("v"), spread=(LONG, 0)),
    "distinct": lambda s: s.select("k", "x", "t").distinct(),
    "dedup": lambda s: s.deduplicate("k"),
    "dedup within": lambda s: s.deduplicate("k", within=LONG),
    "join": lambda s: s.select("k", "v", "ts").join(s.select("k", "x", t2="ts"), "k", within=LONG, time=("ts", "t2")),
    "as of": lambda s: s.select("k", "v", "ts").join_as_of(s.select("k", "x", t2="ts"), "k", time=("ts", "t2")),
    "pattern": lambda s: s.key_by("k").match(
        ms.pattern().then("a", "v >= 0").then("b", "v < a.v").within(LONG), first="first(a.v)", last="last(b.ts)"
    ),
    "process": lambda s: s.key_by("k").process(Timed(), schema="k BIGINT, v BIGINT"),
    "process with a ttl": lambda s: s.key_by("k").process(Timed(), schema="k BIGINT, v BIGINT", ttl=LONG),
}  # fmt: skip


def records(rng: random.Random, times: list[int], rows: int) -> list[dict[str, Any]]:
    return [
        {
            "k": rng.choice([LOW, HIGH, 0, None]),
            "v": rng.choice(WHOLE),
            "x": rng.choice(FLOATS),
            "d": None,
            "t": rng.choice([*times, *OUTSIDE]),
            "ts": rng.choice(times),
        }
        for _ in range(rows)
    ]


def table(rows: list[dict[str, Any]]) -> pa.Table:
    columns = []
    for field in ARROW:
        values = [r[field.name] for r in rows]
        stamp = pa.types.is_timestamp(field.type)
        columns.append(pa.array(values, pa.int64()).cast(STAMP) if stamp else pa.array(values, field.type))
    return pa.table(columns, schema=ARROW)


def readable(result: Result) -> int:
    """Read an answer in every form that the product has."""
    rows = result.to_dicts()
    str(result)
    values = [list(r) for r in zip(*(python_values(c) for c in result.to_arrow().columns), strict=True)]
    json_text(result.columns, values)
    csv_text(result.columns, values)
    result.to_pandas()
    result.to_polars()
    return len(rows)


def run(path: Path, make: Callable[[ms.Stream], ms.Stream], epochs: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """Run a view over epochs of records; its rows, errors and late rows."""
    flow = ms.Flow("extremes")
    rows = flow.source(
        "rows", ms.log("rows"), schema=SCHEMA, event_time="ts", lateness="1 hour", future_bound=LONG, idle_timeout=LONG
    )
    make(rows).view("found")
    with ms.open(path) as home:
        home.topic("rows", schema=SCHEMA)
    with QueryScript(flow, path) as script:
        topic = script.home.topic("rows")
        for some in epochs:
            topic.append(table(some))
            script.tick()
        script.advance("10 days")
        script.tick()
        tables = [t for t in ("found", "found$late", "found$panes") if t in script.home.store.tables()]
        found: dict[str, Any] = {name: script.home.query(f"SELECT * FROM {name}") for name in tables}
        script.home.watermarks()
        (view,) = script.home.views()
        assert_balanced(script.home)
    for result in found.values():
        readable(result)
    return {**found, "errors": view["errors"]}


@pytest.mark.sampled(10)
@pytest.mark.parametrize("name", OPERATORS)
def test_extreme_times_and_values_go_through_every_operator(tmp_path: Path, name: str) -> None:
    rng = random.Random(name)
    epochs = [records(rng, [*TIMES, *OUTSIDE], 12) for _ in range(2)]
    found = run(tmp_path / "home", OPERATORS[name], epochs)
    outside = [r for e in epochs for r in e if not EARLIEST <= r["ts"] <= LATEST]
    assert found["errors"] == len(outside)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("name", OPERATORS)
def test_extreme_times_and_values_at_full_size(tmp_path: Path, name: str, seed: int) -> None:
    rng = random.Random(f"{name}-{seed}")
    run(tmp_path / "home", OPERATORS[name], [records(rng, [*TIMES, *OUTSIDE], 40) for _ in range(8)])


def test_counts_of_extreme_windows_are_those_of_plain_arithmetic(tmp_path: Path) -> None:
    rows = records(random.Random(3), TIMES, 200)
    found = run(tmp_path / "home", windowed(ms.hopping("30 days", "10 days"), lateness=LONG), [rows])
    day = 86_400_000_000
    expected: Counter[tuple[int | None, int]] = Counter()
    for r in rows:
        first = (r["ts"] - 20 * day) // (10 * day) * 10 * day
        for start in range(first - 10 * day, first + 40 * day, 10 * day):
            if start <= r["ts"] < start + 30 * day:
                expected[r["k"], start] += 1
    arrow = found["found"].to_arrow()
    starts = arrow["window_start"].cast(pa.int64()).to_pylist()
    got = Counter(dict(zip(zip(arrow["k"].to_pylist(), starts, strict=True), arrow["n"].to_pylist(), strict=True)))
    assert got == expected


SUMMED: dict[str, Callable[[ms.Stream, str], ms.Stream]] = {
    "aggregate": lambda s, c: s.key_by("k").aggregate(total=ms.sum(c)),
    "window": lambda s, c: s.key_by("k").window(ms.tumbling("1 hour")).aggregate(total=ms.sum(c)),
    "session": lambda s, c: s.key_by("k").window(ms.session("1 hour")).aggregate(total=ms.sum(c)),
    "over": lambda s, c: s.key_by("k").over("ts", total=ms.sum(c), rows=(None, 0)),
    "rows that change": lambda s, c: s.distinct().key_by("k").aggregate(total=ms.sum(c)),
    "pattern": lambda s, c: s.key_by("k").match(ms.pattern().then("a", times=(1, None)), total=f"sum(a.{c})"),
}
NINES, BELOW = Decimal("9" * 32 + ".999999"), Decimal("-" + "9" * 32 + ".999999")


@pytest.mark.parametrize("name", SUMMED)
@pytest.mark.parametrize(
    ("column", "values", "fits"),
    [
        ("v", [2**61, 2**61], True),
        ("v", [HIGH, HIGH], False),
        ("d", [NINES, NINES], False),
        pytest.param("v", [LOW, LOW], False, marks=pytest.mark.slow),
        pytest.param("v", [HIGH, LOW, 1], None, marks=pytest.mark.slow),
        pytest.param("d", [NINES], True, marks=pytest.mark.slow),
        pytest.param("d", [BELOW, BELOW], False, marks=pytest.mark.slow),
        pytest.param("d", [NINES, BELOW], None, marks=pytest.mark.slow),
    ],
)
def test_a_sum_is_exact_or_an_error_and_never_wraps_around(
    tmp_path: Path, name: str, column: str, values: list[Any], fits: bool | None
) -> None:
    row = {"k": 1, "v": 0, "x": 0.0, "d": None, "t": NOW}
    rows = [{**row, "ts": NOW + i, column: v} for i, v in enumerate(values)]
    try:
        found = run(tmp_path / "home", lambda s: SUMMED[name](s, column), [rows])
    except RunError as error:
        assert fits is not True, error
        assert "sum" in error.message
        return
    totals = [r["total"] for r in found["found"].to_dicts()]
    with localcontext(prec=100):
        if name == "over":
            assert totals == list(itertools.accumulate(values))
        elif totals:
            assert totals[-1] == sum(values)
    assert fits is not False or not totals


@pytest.mark.parametrize(
    "make",
    [
        lambda: ms.hopping("10 days", "1 us"), lambda: ms.cumulating("1 us", "1 day"),
        lambda: ms.count_window(10**6, slide=1), lambda: ms.count_window(10**30), lambda: ms.after_count(10**30),
        lambda: ms.tumbling("99999999999999999999 seconds"), lambda: ms.tumbling("9" * 5000 + " s"),
        lambda: ms.session(timedelta.max), lambda: ms.every("1e9 days"), lambda: ms.tumbling("-1 s"),
        lambda: ms.tumbling("0 s"), lambda: ms.lag("v", 10**30), lambda: ms.ntile(10**30),
        lambda: ms.expr("ts + INTERVAL '99999999999999999999' SECOND"), lambda: ms.expr("ts - INTERVAL 200000 MONTH"),
        lambda: ms.expr("ts + INTERVAL '-99999999999' YEAR"),
    ],
)  # fmt: skip
def test_what_no_arithmetic_can_hold_is_refused_when_it_is_made(make: Callable[[], Any]) -> None:
    with pytest.raises(DefinitionError):
        make()


def drawn(rng: random.Random) -> str:
    """A length of time: usual, tiny, huge, negative or out of every range."""
    amount = rng.choice([0, 1, 7, -1, 10**3, 10**6, 10**9, 10**12, 10**18, 10**25]) * rng.choice([1, 1, 3])
    return f"{amount} {rng.choice(['us', 'ms', 's', 'min', 'h', 'days', 'weeks'])}"


def check_parameters(path: Path, seed: int) -> bool:
    """Whether a window with random parameters was made; then it works for extreme events."""
    rng = random.Random(seed)
    try:
        kind = rng.randrange(4)
        if kind == 0:
            window: Any = ms.tumbling(drawn(rng), offset=drawn(rng))
        elif kind == 1:
            window = ms.hopping(drawn(rng), drawn(rng), offset=drawn(rng))
        elif kind == 2:
            window = ms.cumulating(drawn(rng), drawn(rng))
        else:
            window = ms.session(drawn(rng))
        options: dict[str, Any] = {"lateness": drawn(rng)} if rng.random() < 0.5 else {}
        if rng.random() < 0.5:
            options["trigger"] = rng.choice([ms.on_close, lambda: ms.every(drawn(rng))])()
        make = windowed(window, **options)
        make(ms.Flow("probe").source("rows", ms.memory(), schema=SCHEMA, event_time="ts"))
    except DefinitionError:
        return False
    run(path, make, [records(rng, TIMES, 8) for _ in range(2)])
    return True


def test_windows_of_random_parameters_are_refused_or_work(tmp_path: Path) -> None:
    made = [check_parameters(tmp_path / str(seed), seed) for seed in range(16)]
    assert 1 < sum(made) < 15


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_windows_of_random_parameters_at_full_size(tmp_path: Path, part: int) -> None:
    for seed in range(1000 + part * 200, 1200 + part * 200):
        check_parameters(tmp_path / str(seed), seed)
