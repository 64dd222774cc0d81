"""Sketches, percentiles and samples: the same from every cut of the rows, and as near to the truth as they say."""

from __future__ import annotations

import math
import random
import struct
from collections import Counter
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import millstream as ms
from millstream.kernels.aggregates import hyperloglog
from millstream.kernels.aggregates.combine import combine, fold, partial_columns, results
from millstream.kernels.aggregates.partials import is_exact
from millstream.kernels.aggregates.sketches import SKETCHES
from millstream.model.aggregates.aggregate import Aggregate
from millstream.model.windows.windowing import Windowing
from millstream.plan.operators.aggregates.aggregation import Aggregation
from millstream.plan.parts import Measure

BY = ["$h", "$s", "k"]
BIGINT = pa.int64()
PAIR = pa.struct([("by", pa.int64()), ("value", pa.string())])


def stage(aggregate: Aggregate, kind: pa.DataType = BIGINT) -> Aggregation:
    """A bound stage with one measure, x, of values of a type, by the key k."""
    return Aggregation("v", ("k",), Windowing(), (Measure("x", aggregate.kind, True, type=kind),))


def rows(values: list[Any], keys: list[int] | None = None, kind: pa.DataType = BIGINT) -> pl.DataFrame:
    """Rows as a scan gives them, in the order of their position."""
    keys = keys or [0] * len(values)
    argument = pl.from_arrow(pa.array(values, kind))
    assert isinstance(argument, pl.Series)
    return pl.DataFrame(
        {
            "$h": pl.Series(keys, dtype=pl.Int64),
            "$s": pl.Series([0] * len(keys), dtype=pl.Int64),
            "$ts": pl.Series([7] * len(keys), dtype=pl.Int64),
            "$part": pl.Series([0] * len(keys), dtype=pl.Int32),
            "$pos": pl.Series(range(len(keys)), dtype=pl.Int64),
            "k": pl.Series(keys, dtype=pl.Int64),
            "@x": argument,
        }
    )


def answers(spec: Aggregation, partials: pl.DataFrame) -> dict[int, Any]:
    """The answer of every key."""
    found = partials.select("k", *results(spec, partials))
    return dict(zip(found["k"].to_list(), found["x"].to_list(), strict=True))


def answer(aggregate: Aggregate, values: list[Any], kind: pa.DataType = BIGINT) -> Any:
    """The answer over some values."""
    spec = stage(aggregate, kind)
    return answers(spec, combine(spec, rows(values, kind=kind), BY))[0]


def cut(spec: Aggregation, given: pl.DataFrame, lots: random.Random) -> pl.DataFrame:
    """The partials of rows that came shuffled, in pieces, whose partials were folded in some order and depth."""
    shuffled = given[lots.sample(range(len(given)), len(given))]
    borders = sorted(lots.sample(range(1, len(given)), min(lots.randrange(1, 9), len(given) - 1)))
    pieces = [
        combine(spec, shuffled[a:b], BY) for a, b in zip([0, *borders], [*borders, len(given)], strict=True) if b > a
    ]
    while len(pieces) > 1:
        lots.shuffle(pieces)
        taken = lots.randrange(2, len(pieces) + 1)
        pieces = [fold(spec, pl.concat(pieces[:taken]), BY), *pieces[taken:]]
    return pieces[0].sort("k")


INTEGERS = [ms.approx_count_distinct("x", 5), ms.approx_count_distinct("x", 12), ms.approx_f2("x", 32)]
NUMBERS = [
    ms.percentile("x", [0.1, 0.5]),
    ms.median("x"),
    ms.percentile_disc("x", 0.3),
    ms.approx_percentile("x", [0.0, 0.25, 0.99, 1.0], 20),
    ms.approx_percentile("x", 0.5),
    ms.sample("x", 7),
    ms.mode("x"),
    ms.collect_set("x"),
]
TEXTS = [ms.sample("x", 3), ms.mode("x"), ms.collect_set("x")]
CASES = [
    *((a, pa.int64()) for a in INTEGERS + NUMBERS),
    *((a, pa.float64()) for a in NUMBERS),
    *((a, pa.decimal128(12, 2)) for a in NUMBERS[:5]),
    *((a, pa.string()) for a in TEXTS),
    *((a, PAIR) for a in (ms.min_by("x", "y"), ms.max_by("x", "y"))),
    *((a, pa.bool_()) for a in (ms.bool_and("x"), ms.bool_or("x"))),
]


def values(kind: pa.DataType, count: int, lots: random.Random) -> list[Any]:
    """Values of a type, some of them NULL, many of them there more than once."""
    found: list[Any] = []
    for _ in range(count):
        number = round(lots.lognormvariate(3, 2) * lots.choice((-1, 1)), 2)
        value: Any = number
        if pa.types.is_integer(kind):
            value = int(number * 10)
        elif pa.types.is_decimal(kind):
            value = pa.scalar(f"{number:.2f}").cast(kind).as_py()
        elif pa.types.is_boolean(kind):
            value = number > 0
        elif pa.types.is_string(kind):
            value = str(int(number))
        elif pa.types.is_struct(kind):
            value = {"by": lots.choice((None, int(number) % 7)), "value": lots.choice((None, str(int(number))))}
        elif lots.random() < 0.05:
            value = lots.choice((math.nan, math.inf, -math.inf, 0.0, -0.0))
        found.append(None if lots.random() < 0.1 else value)
    return found


@pytest.mark.sampled(10)
@pytest.mark.parametrize(("aggregate", "kind"), CASES, ids=lambda x: str(getattr(x, "kind", x)))
def test_every_cut_of_the_rows_gives_the_same_state(aggregate: Aggregate, kind: pa.DataType) -> None:
    lots = random.Random(11)
    spec = stage(aggregate, kind)
    assert is_exact(spec.measures[0])
    for count in (2, 9, 300, 3000):
        given = rows(values(kind, count, lots), [lots.randrange(3) for _ in range(count)], kind)
        whole = combine(spec, given, BY).sort("k")
        for _ in range(4):
            other = cut(spec, given, lots)
            assert other.select(whole.columns).equals(whole), (aggregate, count)
            assert repr(answers(spec, other)) == repr(answers(spec, whole))


@pytest.mark.parametrize("kind", sorted(SKETCHES))
def test_a_group_without_values_has_an_answer(kind: str) -> None:
    made: dict[str, tuple[Aggregate, Any]] = {
        "percentile": (ms.percentile("x", 0.5), None),
        "percentile_disc": (ms.percentile_disc("x", 0.5), None),
        "mode": (ms.mode("x"), None),
        "approx_count_distinct": (ms.approx_count_distinct("x"), 0),
        "approx_percentile": (ms.approx_percentile("x", [0.5]), None),
        "approx_top_k": (ms.approx_top_k("x"), []),
        "approx_f2": (ms.approx_f2("x"), 0.0),
        "sample": (ms.sample("x", 3), []),
    }
    aggregate, empty = made[kind]
    spec = stage(aggregate)
    partials = combine(spec, rows([None, None, 5], [1, 1, 2]), BY)
    assert answers(spec, partials)[1] == empty
    assert answers(spec, partials)[2] != empty
    together = fold(spec, pl.concat([partials, combine(spec, rows([None], [1]), BY)]), BY)
    assert answers(spec, together)[1] == empty


# ------------------------------------------------------------ percentiles

FINITE = st.floats(-1e12, 1e12, allow_subnormal=False)


@given(st.lists(FINITE, min_size=1, max_size=40), st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_a_percentile_is_that_of_numpy(given: list[float], p: float) -> None:
    found = answer(ms.percentile("x", p), given, pa.float64())
    assert found == pytest.approx(float(np.percentile(given, p * 100)), rel=1e-9, abs=1e-9)
    median = answer(ms.median("x"), given, pa.float64())
    assert median == pytest.approx(float(np.median(given)), rel=1e-12)


@given(st.lists(FINITE, min_size=1, max_size=40), st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0]))
@settings(max_examples=60, deadline=None)
def test_few_values_have_an_exact_approximate_percentile(given: list[float], p: float) -> None:
    wanted = sorted(given)[max(math.ceil(p * len(given) - 1e-9), 1) - 1]
    assert answer(ms.approx_percentile("x", p), given, pa.float64()) == wanted
    assert answer(ms.percentile_disc("x", p), given, pa.float64()) == wanted


def test_nan_is_the_greatest_number() -> None:
    given = [1.0, math.nan, math.inf, -math.inf, None, -0.0]
    assert answer(ms.percentile("x", [0.0, 0.25, 0.5, 0.75]), given, pa.float64()) == [-math.inf, 0.0, 1.0, math.inf]
    assert math.isnan(answer(ms.percentile("x", 1), given, pa.float64()))
    assert answer(ms.approx_percentile("x", [0.0, 0.5, 0.8]), given, pa.float64()) == [-math.inf, 1.0, math.inf]
    assert math.isnan(answer(ms.approx_percentile("x", 1), given, pa.float64()))


@pytest.mark.parametrize("accuracy", [50, 500, 5000])
@pytest.mark.parametrize("kind", [pa.float64(), pa.int64(), pa.decimal128(20, 4)])
def test_an_approximate_percentile_stays_in_its_bucket_and_its_state_bounded(accuracy: int, kind: pa.DataType) -> None:
    lots = np.random.default_rng(3)
    numbers = lots.lognormal(8, 2, 20_000) * np.where(lots.random(20_000) < 0.2, -1, 1)
    given = pa.array(np.round(numbers, 4)).cast(kind, safe=False).to_pylist()
    parts = [0.0, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0]
    spec = stage(ms.approx_percentile("x", parts, accuracy), kind)
    partials = combine(spec, rows(given, kind=kind), BY)
    assert len(partials["x$t"][0]) <= accuracy
    lost = partials["x$b"][0]
    assert lost > 0
    ordered = sorted(given)
    for p, found in zip(parts, answers(spec, partials)[0], strict=True):
        wanted = float(ordered[max(math.ceil(p * len(ordered)), 1) - 1])
        bucket = abs(wanted) * 2.0 ** (lost - 52)  # numbers that share all bits but the lost ones
        assert abs(float(found) - wanted) <= bucket + (1 if pa.types.is_integer(kind) else 1e-3)
    assert float(answers(spec, partials)[0][0]) == float(ordered[0])
    assert float(answers(spec, partials)[0][-1]) == float(ordered[-1])


def test_more_buckets_are_more_exact() -> None:
    given = np.random.default_rng(5).lognormal(10, 1, 50_000)
    wanted = float(np.sort(given)[math.ceil(0.5 * len(given)) - 1])
    errors = [
        abs(answer(ms.approx_percentile("x", 0.5, buckets), given.tolist(), pa.float64()) - wanted) / wanted
        for buckets in (20, 10_000)
    ]
    assert errors[1] < 0.001 < errors[0]


# ------------------------------------------------------------ distinct counts


@pytest.mark.parametrize("precision", [4, 7, 8, 12, 16])
@pytest.mark.parametrize("count", [1, 7, 8, 23, 400, 3_000, 150_000])
def test_a_distinct_count_is_as_near_as_it_says(precision: int, count: int) -> None:
    lots = np.random.default_rng(count + precision)
    hashes = lots.integers(-(2**63), 2**63 - 1, count)
    given = pl.Series(np.concatenate([hashes, hashes[: count // 2]])).to_list()
    found = answer(ms.approx_count_distinct("x", precision), given)
    assert abs(found - count) <= max(3, 4 * 1.04 / math.sqrt(2**precision) * count)
    if count <= 3 * 2 ** (precision - 3) // 4 and precision >= 8:
        assert found == count


def test_the_bytes_of_a_sketch_are_those_of_datasketches() -> None:
    # what the Apache library writes for 0, 1, 2 with 2 ** 12 registers, but for the order of the coupons
    spec = stage(ms.approx_count_distinct("x", 12))
    sketch = combine(spec, rows([2, 0, 1, 0]), BY)["x$h"][0]
    assert sketch[:8].hex() == "0201070c03080308"
    found = sorted(struct.unpack("<3I", sketch[8:]))
    assert found == sorted(struct.unpack("<3I", bytes.fromhex("cbd7c2042bf2fb06862ff90d")))
    # and the registers of 0..9 with 2 ** 4
    registers = combine(stage(ms.approx_count_distinct("x", 4)), rows(list(range(10))), BY)["x$h"][0]
    assert registers[40:].hex() == "00010100030103000000000202000000"
    assert struct.unpack("<2d", registers[16:32]) == struct.unpack("<2d", bytes.fromhex("0000000000802640") + bytes(8))


def test_a_sketch_that_spark_wrote_is_joined_to_ours() -> None:
    # a table that is not compact: empty places are zeros
    spec = stage(ms.approx_count_distinct("x", 12))
    ours = combine(spec, rows([1, 2, 3]), BY)
    places = b"".join(c + bytes(4) for c in struct.iter_unpack("4s", ours["x$h"][0][8:]) for c in c)
    theirs = ours.with_columns(pl.Series("x$h", [bytes([2, 1, 7, 12, 3, 0, 3, 8]) + places], dtype=pl.Binary))
    assert fold(spec, theirs, BY)["x$h"].to_list() == ours["x$h"].to_list()
    assert fold(spec, pl.concat([theirs, ours]), BY)["x$h"].to_list() == ours["x$h"].to_list()
    assert hyperloglog.estimate(ours["x$h"][0]) == 3


# ------------------------------------------------------------ heavy hitters, frequency moments, samples


def test_few_values_have_exact_counts() -> None:
    given = ["b", "a", "c", "b", None, "a", "b"]
    top = answer(ms.approx_top_k("x", 2), given, pa.string())
    assert top == [{"item": "b", "count": 3}, {"item": "a", "count": 2}]


@pytest.mark.parametrize("tracked", [10, 100])
def test_heavy_hitters_keep_their_bounds_over_many_epochs(tracked: int) -> None:
    lots = np.random.default_rng(9)
    given = np.minimum(lots.zipf(1.3, 30_000), 10**9)
    spec = stage(ms.approx_top_k("x", 10, tracked))
    assert not is_exact(spec.measures[0])  # rows are never combined piece by piece
    state = None
    for piece in np.array_split(given, 12):
        new = combine(spec, rows(piece.tolist()), BY)
        state = new if state is None else fold(spec, pl.concat([state, new]), BY)
        assert len(state["x$t"][0]) <= tracked
    assert state is not None
    truth, most = Counter(given.tolist()), len(given) / (tracked + 1)
    held = {i["v"]: i["n"] + state["x$e"][0] for i in state["x$t"][0]}
    assert state["x$e"][0] <= most
    assert all(truth[v] <= n <= truth[v] + most for v, n in held.items())
    assert all(v in held for v, n in truth.items() if n > most)
    top = answers(spec, state)[0]
    assert [t["item"] for t in top[:3]] == [v for v, _ in truth.most_common(3)]
    assert [t["count"] for t in top] == sorted((t["count"] for t in top), reverse=True)


def test_heavy_hitters_do_not_depend_on_the_order_of_rows() -> None:
    lots = random.Random(2)
    given = [lots.choice((1, 2, lots.randrange(500))) for _ in range(2000)]
    spec = stage(ms.approx_top_k("x", 5, 20))
    whole = combine(spec, rows(given), BY)
    shuffled = combine(spec, rows(lots.sample(given, len(given))), BY)
    assert shuffled.equals(whole)


@pytest.mark.parametrize("skew", [1.2, 2.0])
def test_the_second_moment_is_as_near_as_it_says(skew: float) -> None:
    drawn = np.minimum(np.random.default_rng(4).zipf(skew, 20_000), 10**6)
    hashes = (drawn.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).view(np.int64)
    wanted = sum(n * n for n in Counter(drawn.tolist()).values())
    found = answer(ms.approx_f2("x", 1024), hashes.tolist())
    assert abs(found - wanted) <= 4 * math.sqrt(2 / 1024) * wanted
    assert answer(ms.approx_f2("x"), [5, 5, 5, 6, None]) == 10


def test_every_record_is_as_likely_to_be_in_a_sample() -> None:
    spec = stage(ms.sample("x", 5))
    keys = [k for k in range(400) for _ in range(50)]
    given = rows([i % 50 for i in range(len(keys))], keys)
    found = answers(spec, combine(spec, given, BY))
    assert all(len(v) == 5 == len(set(v)) for v in found.values())
    drawn = Counter(v for vs in found.values() for v in vs)
    away = sum((drawn[i] - 40) ** 2 / 40 for i in range(50))  # 2000 draws, 40 expected of each
    assert away < 90  # chi squared with 49 degrees of freedom: one in 3000 is greater


def test_a_sample_of_few_records_has_all_of_them() -> None:
    assert sorted(answer(ms.sample("x", 5), ["a", None, "b", "a"], pa.string())) == ["a", "a", "b"]


def test_columns_of_partials_keep_their_names() -> None:
    """Partials are state: an older home holds columns of these names."""
    names = {}
    for aggregate in (ms.median("x"), ms.approx_count_distinct("x"), ms.approx_percentile("x", 0.5)):
        spec = stage(aggregate)
        names[str(aggregate.kind)] = partial_columns(spec, combine(spec, rows([1]), BY))
    assert names == {
        "percentile": ["x$t"],
        "approx_count_distinct": ["x$h"],
        "approx_percentile": ["x$t", "x$b", "x$lo", "x$hi"],
    }


# ------------------------------------------------------------ the shape around the mean


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30), st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_moments_are_those_of_all_values_also_when_epochs_are_joined(given: list[float], seed: int) -> None:
    values = np.array(given)
    away = values - values.mean()
    spread = float((away**2).mean())
    wanted: dict[str, tuple[Aggregate, float | None]] = {
        "var_pop": (ms.var_pop("x"), spread),
        "stddev_pop": (ms.stddev_pop("x"), math.sqrt(spread)),
    }
    if spread > 1e-3 * max(1.0, float(np.abs(values).max())) ** 2:  # else it is all rounding
        wanted["skewness"] = (ms.skewness("x"), float((away**3).mean()) / spread**1.5)
        wanted["kurtosis"] = (ms.kurtosis("x"), float((away**4).mean()) / spread**2 - 3)
    for aggregate, expected in wanted.values():
        spec = stage(aggregate, pa.float64())
        whole = answers(spec, combine(spec, rows(given, kind=pa.float64()), BY))[0]
        pieces = answers(spec, cut(spec, rows([*given, None], kind=pa.float64()), random.Random(seed)))[0]
        scale = float(np.abs(values).max()) ** (2 if aggregate.kind == "var_pop" else 1)
        assert whole == pytest.approx(expected, rel=1e-6, abs=1e-9 * (1 + scale))
        assert pieces == pytest.approx(whole, rel=1e-6, abs=1e-6 * (1 + scale))


def test_values_that_are_all_equal_have_no_shape() -> None:
    assert answer(ms.skewness("x"), [5, 5]) is None
    assert answer(ms.kurtosis("x"), [5]) is None
    assert answer(ms.var_pop("x"), [5]) == 0
    assert answer(ms.var_pop("x"), [None]) is None
