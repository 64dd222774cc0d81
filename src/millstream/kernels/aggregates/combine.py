"""Combining: rows of a slice become one partial row per key and slice; partial rows fold into one.

Runs in the driver for small epochs and on the executors for large ones, with the same result. The slice and pane
kernels fold the partials into state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import orjson
import polars as pl
import pyarrow as pa

from millstream.errors import RunError, UserCodeFailed
from millstream.kernels.aggregates import interval_sums
from millstream.kernels.aggregates.partials import (
    ORDER,
    PARTIALS,
    by_expressions,
    is_float,
    longer_than_decimal,
    of_spans,
    powers_of,
)
from millstream.kernels.aggregates.sketches import SKETCHES
from millstream.kernels.frames import polars_types
from millstream.kernels.windows.assign import by_slices, sessions
from millstream.model.windows.kinds import SessionWindow
from millstream.plan.operators.aggregates.aggregation import Aggregation
from millstream.plan.parts import Measure

GROUP = ("$h", "$s")
_SAFE = float(2**62)
_ORDER_TYPES = {"$ts": pl.Int64, "$part": pl.Int32, "$pos": pl.Int64}


def group_columns(spec: Aggregation) -> list[str]:
    """The columns that identify a partial row: hash, slice (or window), keys."""
    return [*GROUP, *spec.keys] if by_slices(spec) else [*GROUP, "$e", *spec.keys]


def partial_columns(spec: Aggregation, frame: pl.DataFrame) -> list[str]:
    """The columns of the partials, in the order that state uses."""
    return [c for m in spec.measures for c in frame.columns if c.startswith(f"{m.name}$")]


def combine(spec: Aggregation, rows: pl.DataFrame, by: Sequence[str] | None = None) -> pl.DataFrame:
    """One partial row per key and slice (or per group of the columns passed).

    `rows` has ``$h``, ``$s``, ``$ts`` (and ``$part``, ``$pos`` where order matters), the keys by name, and the argument
    of measure m as ``@m``. Measures that are not exact see the rows sorted by group and value, so that the order of
    arrival does not matter.
    """
    columns = group_columns(spec) if by is None else list(by)
    if isinstance(spec.window, SessionWindow):  # rows of one session need not be distinguished
        rows = sessions(rows, spec.keys)
    _refuse_wrapping(spec, rows, columns, "@{}")
    plain = [m for m in spec.measures if by_expressions(m)]
    exprs = [e for m in plain for e in PARTIALS[m.kind].combine(m, _argument(m))]
    counted = pl.len().cast(pl.Int64).alias("$n")
    if len(plain) == len(spec.measures):
        return in_order(spec, rows.group_by(columns).agg(counted, *exprs), columns)
    ordered = rows.sort(columns, nulls_last=False, maintain_order=True)
    partial = ordered.group_by(columns, maintain_order=True).agg(counted, *exprs)
    starts = _starts(partial["$n"])
    extra = [c for m in spec.measures if not by_expressions(m) for c in _combined(m, ordered, columns, starts)]
    return in_order(spec, partial.with_columns(extra), columns)


def over_nothing(spec: Aggregation, hashes: Sequence[int] = (0,)) -> pl.DataFrame:
    """The partial rows of an aggregate over no rows: for all rows, or for each grouping set without keys (`hashes` are
    those of their keys). Results are computed from them, but they are never folded with others.
    """
    with_argument = [m for m in spec.measures if m.has_argument]
    arguments = polars_types([f"@{m.name}" for m in with_argument], [m.type for m in with_argument])
    marks = [pl.lit(0, t).alias(n) for n, t in {"$s": pl.Int64, **_ORDER_TYPES}.items()]
    rows = pl.DataFrame({"$h": list(hashes)}, schema={"$h": pl.Int64})
    rows = rows.with_columns(*marks, *(pl.lit(None, t).alias(n) for n, t in arguments.items()))
    if spec.keys:
        rows = pl.concat(
            [rows, total_keys(spec.totals, dict(zip(spec.keys, spec.key_types, strict=True)))], how="horizontal"
        )
    partial = combine(spec, rows, group_columns(spec))  # NULLs, which aggregates ignore
    counts = [f"{m.name}$n" for m in spec.measures if m.kind == "count"]
    return partial.with_columns(pl.lit(0, pl.Int64).alias(c) for c in ("$n", *counts))


def total_keys(totals: Sequence[int], keys: Mapping[str, pa.DataType]) -> pl.DataFrame:
    """The keys of grouping sets without keys: the last key is the number of the set, the others are NULL."""
    *others, last = polars_types(list(keys), list(keys.values())).items()
    number = pl.Series(last[0], totals, dtype=pl.Int64).cast(last[1])
    return pl.DataFrame([*(pl.Series(n, [None] * len(totals), dtype=t) for n, t in others), number])


def fold(spec: Aggregation, partials: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """One partial row per group of partial rows. Earlier rows are older, and floating-point sums are added in that
    order.
    """
    _refuse_wrapping(spec, partials, by, "{}$s")
    plain = [m for m in spec.measures if by_expressions(m)]
    exprs = [e for m in plain for e in PARTIALS[m.kind].fold(m)]
    if len(plain) == len(spec.measures):
        return in_order(spec, partials.group_by(by).agg(pl.col("$n").sum(), *exprs), by)
    ordered = partials.sort(by, maintain_order=True)
    folded = ordered.group_by(by, maintain_order=True).agg(pl.col("$n").sum(), pl.len().alias("$rows"), *exprs)
    starts = _starts(folded["$rows"])
    extra = [c for m in spec.measures if not by_expressions(m) for c in _folded(m, ordered, starts)]
    return in_order(spec, folded.with_columns(extra), by)


def results(spec: Aggregation, partials: pl.DataFrame) -> list[pl.Expr | pl.Series]:
    """The results of all measures over partial rows, under the names of the measures."""
    answers: list[pl.Expr | pl.Series] = []
    for m in spec.measures:
        if m.user is not None:
            answers.append(_user_results(m, partials[f"{m.name}$acc"]))
        elif m.kind in SKETCHES:
            answers.append(SKETCHES[m.kind].result(m, partials))
        else:
            answers.append(PARTIALS[m.kind].result(m).alias(m.name))
    return answers


def in_order(spec: Aggregation, partials: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Partial rows with their columns in the order that state uses, independent of where they were combined."""
    return check_sums(spec, partials.select(*by, "$n", *partial_columns(spec, partials)))


def _refuse_wrapping(spec: Aggregation, frame: pl.DataFrame, by: Sequence[str], name: str) -> None:
    """Refuse sums that would overflow their type, before they wrap around. `name` maps a measure to its column. Costs a
    minimum and a maximum.
    """
    for m in spec.measures:
        column = name.format(m.name)
        kind = frame.schema.get(column)
        if m.kind not in ("sum", "avg") or not len(frame) or kind is None:
            continue
        if isinstance(kind, pl.Decimal):
            _refuse_long_decimals(spec, m, frame, by, column)
        if not kind.is_integer() and not interval_sums.is_span(kind):
            continue
        numbers = interval_sums.micros(frame[column])
        if sums_fit(numbers):
            continue
        totals = (
            frame.with_columns(numbers.alias(column))
            .lazy()
            .group_by(by)
            .agg(pl.col(column).cast(pl.Int128).sum())
            .select(pl.col(column).abs().max())
            .collect()
        )
        if totals.item() > 2**62:
            raise _left_bigint(spec, m)


def sums_fit(numbers: pl.Series) -> bool:
    """Whether no sum of these integers can leave the range that is kept, however they are grouped."""
    low, high = numbers.min(), numbers.max()
    return low is None or bool(max(-low, high) * len(numbers) <= _SAFE)  # type: ignore[operator, type-var]


def _refuse_long_decimals(spec: Aggregation, m: Measure, frame: pl.DataFrame, by: Sequence[str], column: str) -> None:
    """Refuse sums of decimals that have more than 38 digits."""
    if longer_than_decimal(frame[column], len(frame), lambda: frame.group_by(by).agg(column)[column]):
        raise RunError(
            f"the sum `{m.name}` of the view `{spec.step}` has more than 38 digits",
            hint="sum a type with fewer decimal places, or a DOUBLE",
        )


def _left_bigint(spec: Aggregation, m: Measure) -> RunError:
    if of_spans(m):
        return RunError(
            f"the sum `{m.name}` of the view `{spec.step}` is too long for an interval",
            detail="sums of intervals are kept up to 2^62 microseconds, some 146,000 years",
            hint=f"sum the seconds instead, as in ms.sum('CAST({m.name} AS DECIMAL(38, 6))')",
        )
    return RunError(
        f"the sum `{m.name}` of the view `{spec.step}` has left the range of BIGINT",
        detail="sums of whole numbers are kept up to 2^62, half of that range, so that they never wrap around",
        hint=f"sum a wider type, as in ms.sum('CAST({m.name} AS DECIMAL(38, 0))')",
    )


def check_sums(spec: Aggregation, partials: pl.DataFrame) -> pl.DataFrame:
    """Refuse sums of integers that approach the limits of BIGINT, before they could wrap around silently."""
    for m in spec.measures:
        name = f"{m.name}$s"
        if m.kind in ("sum", "avg") and partials.schema.get(name) == pl.Int64 and len(partials):
            low, high = partials[name].min(), partials[name].max()
            if low is not None and (float(low) < -_SAFE or float(high) > _SAFE):  # type: ignore[arg-type]
                raise _left_bigint(spec, m)
    return partials


def _argument(m: Measure) -> pl.Expr | None:
    return pl.col(f"@{m.name}") if m.has_argument else None


@np.errstate(all="ignore")  # floating-point sums may become infinite, as usual
def _combined(m: Measure, rows: pl.DataFrame, columns: list[str], starts: np.ndarray) -> list[pl.Series]:
    if m.kind in SKETCHES:
        return SKETCHES[m.kind].combine(m, rows, _numbers(starts, len(rows)), len(starts))
    if m.kind == "user":
        ordered = rows.sort([*columns, *(c for c in ORDER if c in rows.columns)], maintain_order=True)
        return [_accumulate(m, ordered[f"@{m.name}"], starts)]
    value = f"@{m.name}"
    ordered = rows.select(*columns, value).sort([*columns, value], maintain_order=True)
    raw = ordered[value].cast(pl.Float64)
    valid = raw.is_not_null().to_numpy()
    numbers = raw.fill_null(0.0).to_numpy()
    count = _sums(valid.astype(np.int64), starts)
    total = _sums(numbers, starts)
    if m.kind in ("sum", "avg"):
        assert is_float(m)
        return [pl.Series(f"{m.name}$s", total), pl.Series(f"{m.name}$n", count)]
    mean = np.where(count > 0, total / np.maximum(count, 1), 0.0)
    lengths = np.diff(np.append(starts, len(numbers)))
    away = np.where(valid, numbers - np.repeat(mean, lengths), 0.0)
    powers = [_sums(away**power, starts) for power in powers_of(m)]
    return _moments(m, count, mean, powers)


@np.errstate(all="ignore")
def _folded(m: Measure, rows: pl.DataFrame, starts: np.ndarray) -> list[pl.Series]:
    if m.kind in SKETCHES:
        return SKETCHES[m.kind].fold(m, rows, _numbers(starts, len(rows)), len(starts))
    if m.kind == "user":
        return [_merge_accumulators(m, rows[f"{m.name}$acc"].to_list(), starts)]
    counts = rows[f"{m.name}$n"].to_numpy()
    n = _sums(counts, starts)
    if m.kind in ("sum", "avg"):
        return [
            pl.Series(f"{m.name}$s", _sums(rows[f"{m.name}$s"].to_numpy(), starts)),
            pl.Series(f"{m.name}$n", n),
        ]
    means = rows[f"{m.name}$mean"].to_numpy()
    centre = _sums(counts * means, starts) / np.maximum(n, 1)
    away = means - np.repeat(centre, np.diff(np.append(starts, len(means))))
    power_sums = {p: rows[f"{m.name}$m{p}"].to_numpy() for p in powers_of(m)}
    moved = [power_sums[2] + counts * away * away]  # the powers of the distances from another center
    if len(power_sums) > 1:
        moved.append(power_sums[3] + 3 * away * power_sums[2] + counts * away**3)
        moved.append(power_sums[4] + 4 * away * power_sums[3] + 6 * away**2 * power_sums[2] + counts * away**4)
    return _moments(m, n, centre, [_sums(values, starts) for values in moved])


def _moments(m: Measure, count: np.ndarray, mean: np.ndarray, powers: list[np.ndarray]) -> list[pl.Series]:
    parts = [("n", count), ("mean", mean), *((f"m{p}", v) for p, v in zip(powers_of(m), powers, strict=True))]
    return [pl.Series(f"{m.name}${part}", values) for part, values in parts]


def _starts(lengths: pl.Series) -> np.ndarray:
    """Where each group begins, from the lengths of consecutive groups."""
    return (
        np.concatenate(([0], np.cumsum(lengths.to_numpy())[:-1])).astype(np.int64)
        if len(lengths)
        else np.empty(0, np.int64)
    )


def _numbers(starts: np.ndarray, rows: int) -> np.ndarray:
    """The number of each row's group."""
    return np.repeat(np.arange(len(starts)), np.diff(np.append(starts, rows)))


def _sums(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    return np.add.reduceat(values, starts) if len(starts) else values[:0]


def _accumulate(m: Measure, values: pl.Series, starts: np.ndarray) -> pl.Series:
    assert m.user is not None
    plain = values.to_list()
    packed = []
    for start, end in pairwise([*starts.tolist(), len(plain)]):
        try:
            accumulator = m.user.create()
            for value in plain[start:end]:
                if value is not None:
                    accumulator = m.user.add(accumulator, value)
        except Exception as error:
            raise _user_failed(m, "create or add", error) from error
        packed.append(_pack(m, accumulator))
    return pl.Series(f"{m.name}$acc", packed, dtype=pl.String)


def _merge_accumulators(m: Measure, packed: list[str], starts: np.ndarray) -> pl.Series:
    assert m.user is not None
    merged = []
    for start, end in pairwise([*starts.tolist(), len(packed)]):
        accumulator = orjson.loads(packed[start])
        try:
            for other in packed[start + 1 : end]:
                accumulator = m.user.merge(accumulator, orjson.loads(other))
        except Exception as error:
            raise _user_failed(m, "merge", error) from error
        merged.append(_pack(m, accumulator))
    return pl.Series(f"{m.name}$acc", merged, dtype=pl.String)


def _user_results(m: Measure, packed: pl.Series) -> pl.Series:
    assert m.user is not None
    answers = []
    for text in packed.to_list():
        try:
            accumulator = m.user.create() if text is None else orjson.loads(text)
            answers.append(m.user.result(accumulator))
        except Exception as error:
            raise _user_failed(m, "result", error) from error
    dtype = pl.Schema(pl.from_arrow(_empty(m)).schema)[m.name]  # type: ignore[union-attr]
    try:
        return pl.Series(m.name, answers, dtype=dtype, strict=True)
    except (TypeError, pl.exceptions.PolarsError) as error:
        raise UserCodeFailed(
            f"the aggregate {type(m.user).__name__} returned a result that is not {m.returns}",
            detail=str(error).splitlines()[0],
            hint="declare the right type with returns=...",
        ) from error


def _empty(m: Measure) -> Any:
    return pa.table({m.name: pa.array([], type=m.returns)})


def _pack(m: Measure, accumulator: Any) -> str:
    try:
        packed = orjson.dumps(accumulator, option=orjson.OPT_SERIALIZE_NUMPY)
        if orjson.loads(packed) != accumulator:
            msg = "JSON would change its value"
            raise TypeError(msg)
        return packed.decode()
    except TypeError as error:
        raise UserCodeFailed(
            f"the accumulator of {type(m.user).__name__} cannot be kept in state: {error}",
            hint="use numbers, text, lists and dicts",
        ) from error


def _user_failed(m: Measure, where: str, error: Exception) -> UserCodeFailed:
    return UserCodeFailed(
        f"the aggregate {type(m.user).__name__} of `{m.name}` failed in {where}: {type(error).__name__}: {error}",
        hint="fix the aggregate and start the flow again; it resumes where it stopped",
    )
