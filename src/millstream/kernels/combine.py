"""Combining: rows of a slice become one partial row per key and slice; partial rows fold into one.

Used in the driver for small epochs and on the executors for large ones; the result is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
import polars as pl

from millstream.errors import RunError, UserCodeFailed
from millstream.kernels.aggregates import ORDER, PARTIALS, is_exact, is_float
from millstream.plan.stages import Aggregation, Measure

GROUP = ("$h", "$s")
_SAFE = float(2**62)


def group_columns(spec: Aggregation) -> list[str]:
    """The columns that tell one partial row from another."""
    return [*GROUP, *spec.keys]


def combine(spec: Aggregation, rows: pl.DataFrame) -> pl.DataFrame:
    """One partial row per key and slice.

    `rows` has ``$h``, ``$s``, ``$ts`` (and ``$part``, ``$pos`` where order matters), the keys by name, and the argument
    of measure m as ``@m``. Measures that are not exact see the rows sorted by group and value, so that the order of
    arrival does not matter.
    """
    columns = group_columns(spec)
    exact = [m for m in spec.measures if is_exact(m)]
    exprs = [e for m in exact for e in PARTIALS[m.kind].combine(m, _argument(m))]
    counted = pl.len().cast(pl.Int64).alias("$n")
    if len(exact) == len(spec.measures):
        return in_order(spec, rows.group_by(columns).agg(counted, *exprs), columns)
    ordered = rows.sort(columns, nulls_last=False, maintain_order=True)
    partial = ordered.group_by(columns, maintain_order=True).agg(counted, *exprs)
    starts = np.concatenate(([0], np.cumsum(partial["$n"].to_numpy())[:-1])).astype(np.int64)
    extra = [c for m in spec.measures if not is_exact(m) for c in _inexact(m, ordered, columns, starts)]
    return in_order(spec, partial.with_columns(extra), columns)


def fold(spec: Aggregation, partials: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """One partial row per group of partial rows; earlier rows are older."""
    exprs = [e for m in spec.measures for e in PARTIALS[m.kind].fold(m.name)]
    exprs.append(pl.col("$n").sum())
    users = [m for m in spec.measures if m.user is not None]
    exprs += [pl.col(f"{m.name}$acc") for m in users]
    if not any(not is_exact(m) for m in spec.measures):
        return in_order(spec, partials.group_by(by).agg(exprs), by)
    folded = partials.group_by(by, maintain_order=True).agg(exprs)
    if users:
        folded = folded.with_columns([_merge_accumulators(m, folded[f"{m.name}$acc"]) for m in users])
    return in_order(spec, folded, by)


def results(spec: Aggregation, partials: pl.DataFrame) -> list[pl.Expr | pl.Series]:
    """The answers of all measures over partial rows, under their own names."""
    answers: list[pl.Expr | pl.Series] = []
    for m in spec.measures:
        if m.user is not None:
            answers.append(_user_results(m, partials[f"{m.name}$acc"]))
        else:
            answers.append(PARTIALS[m.kind].result(m).alias(m.name))
    return answers


def in_order(spec: Aggregation, partials: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Partial rows with their columns in the one order that state is kept in, whoever combined them."""
    parts = [c for m in spec.measures for c in partials.columns if c.startswith(f"{m.name}$")]
    return check_sums(spec, partials.select(*by, "$n", *parts))


def check_sums(spec: Aggregation, partials: pl.DataFrame) -> pl.DataFrame:
    """Refuse sums of whole numbers that come near the end of BIGINT, before they could wrap around in silence."""
    for m in spec.measures:
        name = f"{m.name}$s"
        if m.kind in ("sum", "avg") and partials.schema.get(name) == pl.Int64 and len(partials):
            low, high = partials[name].min(), partials[name].max()
            if low is not None and (float(low) < -_SAFE or float(high) > _SAFE):  # type: ignore[arg-type]
                raise RunError(
                    f"the sum `{m.name}` of the view `{spec.step}` has left the range of BIGINT",
                    hint=f"sum a wider type, as in ms.sum('CAST({m.name} AS DECIMAL(38, 0))')",
                )
    return partials


def _argument(m: Measure) -> pl.Expr | None:
    return pl.col(f"@{m.name}") if m.has_argument else None


def _inexact(m: Measure, rows: pl.DataFrame, columns: list[str], starts: np.ndarray) -> list[pl.Series]:
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
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(count > 0, total / np.maximum(count, 1), 0.0)
    lengths = np.diff(np.append(starts, len(numbers)))
    away = np.where(valid, numbers - np.repeat(mean, lengths), 0.0)
    spread = _sums(away * away, starts)
    return [pl.Series(f"{m.name}${part}", v) for part, v in (("n", count), ("mean", mean), ("m2", spread))]


def _sums(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    return np.add.reduceat(values, starts) if len(starts) else values[:0]


def _accumulate(m: Measure, values: pl.Series, starts: np.ndarray) -> pl.Series:
    assert m.user is not None
    plain = values.to_list()
    ends = [*starts.tolist()[1:], len(plain)]
    packed = []
    for start, end in zip(starts.tolist(), ends, strict=True):
        try:
            accumulator = m.user.create()
            for value in plain[start:end]:
                if value is not None:
                    accumulator = m.user.add(accumulator, value)
        except Exception as error:
            raise _user_failed(m, "create or add", error) from error
        packed.append(_pack(m, accumulator))
    return pl.Series(f"{m.name}$acc", packed, dtype=pl.String)


def _merge_accumulators(m: Measure, lists: pl.Series) -> pl.Series:
    assert m.user is not None
    merged = []
    for packed in lists.to_list():
        accumulator = orjson.loads(packed[0])
        try:
            for other in packed[1:]:
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
            answers.append(m.user.result(orjson.loads(text)))
        except Exception as error:
            raise _user_failed(m, "result", error) from error
    dtype = pl.Schema(pl.from_arrow(_empty(m)).schema)[m.name]  # type: ignore[union-attr]
    try:
        return pl.Series(m.name, answers, dtype=dtype, strict=True)
    except (TypeError, pl.exceptions.PolarsError) as error:
        raise UserCodeFailed(
            f"the aggregate {type(m.user).__name__} gave a result that is not {m.returns}",
            detail=str(error).splitlines()[0],
            hint="declare the right type with returns=...",
        ) from error


def _empty(m: Measure) -> Any:
    import pyarrow as pa  # noqa: PLC0415 - only for user aggregates

    return pa.table({m.name: pa.array([], type=m.returns)})


def _pack(m: Measure, accumulator: Any) -> str:
    try:
        return orjson.dumps(accumulator, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS).decode()
    except TypeError as error:
        raise UserCodeFailed(
            f"the accumulator of {type(m.user).__name__} cannot be kept in state: {error}",
            hint="use numbers, text, lists and dicts",
        ) from error


def _user_failed(m: Measure, where: str, error: Exception) -> UserCodeFailed:
    return UserCodeFailed(
        f"the aggregate {type(m.user).__name__} of `{m.name}` failed in {where}: {type(error).__name__}: {error}",
        hint="fix the aggregate and start the flow again; it goes on where it was",
    )
