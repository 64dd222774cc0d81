"""The kernel of window functions: recomputes them over the ordered rows of each group that changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from millstream.errors import RunError
from millstream.kernels.aggregates.interval_sums import SPAN, is_span, mean, micros
from millstream.kernels.aggregates.partials import longer_than_decimal
from millstream.kernels.kernel import Inputs, Kernel, Services, States
from millstream.kernels.outcome import OperatorClock, Outcome
from millstream.kernels.relations.changes import CONTENT, GROUP, repeated
from millstream.kernels.relations.multiset import copies, identified, recompute
from millstream.model.aggregates.aggregate import Kind, settings_of
from millstream.plan.operators.inputs import Sort
from millstream.plan.operators.relations.window_function import WindowCall, WindowFunctions

Apart = Callable[[np.ndarray, np.ndarray], np.ndarray]

_FIT = 2**63 - 1


def advance(
    operator: WindowFunctions, inputs: Inputs, states: States, clock: OperatorClock, services: Services
) -> Outcome:
    """Run one epoch: recompute the functions of the groups that changed."""
    del services
    return recompute(operator, inputs["rows"], states["rows"], clock, _answers)


def _answers(operator: WindowFunctions, rows: pl.DataFrame, count: str) -> pl.DataFrame:
    there = rows.filter(pl.col(count) > 0)
    found = computed(operator, repeated(there, there[count].to_numpy()))
    return identified(operator, copies(found, operator.result))


def computed(operator: WindowFunctions, rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with the functions as further columns."""
    ties = [c for c in operator.shown if not rows.schema[c].is_nested()]
    order = [s.column for s in operator.order]
    by = [*GROUP, *order, *(c for c in ties if c not in order), *CONTENT]
    ways = {s.column: (s.descending, not s.nulls_first) for s in reversed(operator.order)}
    sorts = [ways.get(c, (False, False)) for c in by]
    ordered = rows.sort(by, descending=[d for d, _ in sorts], nulls_last=[n for _, n in sorts])
    changed = [pl.col(c).ne_missing(pl.col(c).shift(1)) for c in order]
    fresh = pl.any_horizontal(*changed) if changed else pl.lit(value=False)
    number = pl.int_range(pl.len(), dtype=pl.Int64).over(*GROUP)
    ordered = ordered.with_columns(number.alias("$no")).with_columns((fresh | (pl.col("$no") == 0)).alias("$fresh"))
    ordered = ordered.with_columns(
        pl.col("$fresh").cast(pl.Int64).cum_sum().over(*GROUP).alias("$peer"),
        pl.len().over(*GROUP).cast(pl.Int64).alias("$size"),
    )
    for call in operator.calls:
        ordered = ordered.with_columns(_value(call, operator.order, ordered).alias(call.name))
    return ordered


def _value(call: WindowCall, order: tuple[Sort, ...], rows: pl.DataFrame) -> pl.Expr:
    peers = [*GROUP, "$peer"]
    first = pl.col("$no").min().over(*peers) + 1
    if call.function == "row_number":
        return pl.col("$no") + 1
    if call.function == "rank":
        return first
    if call.function == "dense_rank":
        return pl.col("$peer")
    if call.function == "percent_rank":
        return pl.when(pl.col("$size") > 1).then((first - 1) / (pl.col("$size") - 1)).otherwise(0.0)
    if call.function == "cume_dist":
        return (pl.col("$no").max().over(*peers) + 1) / pl.col("$size")
    if call.function == "ntile":
        return _tile(call.offset)
    if call.function in ("lag", "lead"):
        return _beside(call, rows)
    return _framed(call, order, rows)


def _tile(tiles: int) -> pl.Expr:
    size, extra = pl.col("$size") // tiles, pl.col("$size") % tiles
    wide = extra * (size + 1)
    small = extra + (pl.col("$no") - wide) // pl.max_horizontal(size, pl.lit(1, pl.Int64))
    return pl.when(pl.col("$no") < wide).then(pl.col("$no") // (size + 1)).otherwise(small) + 1


def _beside(call: WindowCall, rows: pl.DataFrame) -> pl.Expr:
    if "ignore nulls" in settings_of(call.function):
        return _beside_known(call, rows)
    steps = call.offset if call.function == "lag" else -call.offset
    moved = pl.col(call.argument or "").shift(steps).over(*GROUP)
    if call.default is None:
        return moved
    at = pl.col("$no") - steps
    return pl.when((at < 0) | (at >= pl.col("$size"))).then(pl.lit(call.default)).otherwise(moved)


def _beside_known(call: WindowCall, rows: pl.DataFrame) -> pl.Expr:
    """The value a number of rows before or after, counting only rows whose value is not NULL."""
    values = rows[call.argument or ""]
    there = values.is_not_null().to_numpy()
    places = np.flatnonzero(there)
    counts = np.concatenate(([0], np.cumsum(there)))  # how many values precede each row
    at = np.arange(len(rows))
    start = at - rows["$no"].to_numpy()
    end = start + rows["$size"].to_numpy()
    wanted = counts[:-1] - call.offset if call.function == "lag" else counts[1:] + call.offset - 1
    inside = (wanted >= counts[start]) & (wanted < counts[end])
    if call.offset == 0:
        wanted, inside = at, np.ones(len(rows), dtype=bool)
        places = at
    taken = places[np.where(inside, wanted, 0)] if len(places) else np.zeros(len(rows), dtype=np.int64)
    found = values[pl.Series(taken, dtype=pl.UInt32)]
    other = pl.lit(call.default) if call.default is not None else pl.lit(None)
    return pl.when(pl.Series(inside)).then(found).otherwise(other)


def _framed(call: WindowCall, order: tuple[Sort, ...], rows: pl.DataFrame) -> pl.Expr:
    """An aggregate over a frame of rows around each row."""
    low, high = _frame(call, order, rows)
    starts, ends = (rows.select(e).to_series().to_numpy() for e in (low, high))
    base = rows.select(pl.int_range(pl.len(), dtype=pl.Int64) - pl.col("$no")).to_series().to_numpy()
    values = rows[call.argument] if call.argument is not None else pl.Series([1]).new_from_index(0, len(rows))
    apart = _apart(call, rows)

    def over_frames(call: WindowCall, values: pl.Series) -> pl.Series:
        return _aggregated(call, values, base + starts, base + ends, apart)

    if call.function in ("sum", "avg") and is_span(values.dtype):
        total, count = (over_frames(_instead(call, f), micros(values)) for f in ("sum", "count"))
        both = pl.DataFrame({"s": total, "n": count})
        shown = pl.col("s").cast(SPAN) if call.function == "sum" else mean(pl.col("s"), pl.col("n"))
        return pl.lit(both.select(shown).to_series())
    return pl.lit(over_frames(call, values))


def _instead(call: WindowCall, function: str) -> WindowCall:
    """Another function over the same frames."""
    return replace(call, function=Kind(function, *settings_of(call.function)))


def _frame(call: WindowCall, order: tuple[Sort, ...], rows: pl.DataFrame) -> tuple[pl.Expr, pl.Expr]:
    """The first row of each frame and the row after its last, numbered within the group."""
    size, number = pl.col("$size"), pl.col("$no")
    peers = [*GROUP, "$peer"]
    if call.frame is None:
        last = number.max().over(*peers) + 1 if order else size
        return pl.lit(0, pl.Int64) + 0 * number, last
    unit, before, behind = call.frame
    if unit == "groups":
        order = (Sort("$peer", descending=False, nulls_first=True),)
    if unit == "rows":
        low = 0 * number if before is None else pl.min_horizontal((number - int(before)).clip(0), size)
        high = size if behind is None else pl.min_horizontal(number + int(behind) + 1, size)
        return low, pl.max_horizontal(high, low)
    low = 0 * number if before is None else _reach(rows, order[0], -before)
    high = size if behind is None else _reach(rows, order[0], behind, after=True)
    return low, pl.max_horizontal(high, low)


def _reach(rows: pl.DataFrame, sort: Sort, by: float, *, after: bool = False) -> pl.Expr:
    """The first row of the group whose value is not below the current row's value plus an offset. With `after`: the
    first row above it.
    """
    column = rows[sort.column]
    numbers = column.cast(pl.Int64) if isinstance(column.dtype, pl.Datetime | pl.Duration) else column
    values = numbers.cast(pl.Float64 if numbers.dtype.is_float() else pl.Int64)
    signed = -(values if values.dtype.is_float() else values.clip(-_FIT)) if sort.descending else values
    null = signed.is_null().to_numpy()
    plain = signed.fill_null(0).to_numpy()
    starts = np.flatnonzero(rows["$no"].to_numpy() == 0)
    bounds = np.append(starts, len(rows))
    found = np.zeros(len(rows), dtype=np.int64)
    for start, end in pairwise(bounds):
        known = np.flatnonzero(~null[start:end])
        there = plain[start:end][known]
        at = np.searchsorted(there, _moved(there, by), side="right" if after else "left")
        found[start:end][known] = at + (known[0] if len(known) else 0)
        lost = np.flatnonzero(null[start:end])  # NULLs are peers of each other and of no other row
        if len(lost):
            found[start:end][lost] = lost[-1] + 1 if after else lost[0]
    return pl.lit(pl.Series(found, dtype=pl.Int64))


def _moved(numbers: np.ndarray, by: float) -> np.ndarray:
    """Add an offset to numbers. Integers stay integers and saturate at the limits of 64 bits."""
    if numbers.dtype != np.int64 or not float(by).is_integer():
        return numbers + by
    step = max(-_FIT, min(_FIT, int(by)))
    if step >= 0:
        return np.where(numbers > _FIT - step, _FIT, np.minimum(numbers, _FIT - step) + step)
    return np.where(numbers < -_FIT - step, -_FIT, np.maximum(numbers, -_FIT - step) + step)


def _apart(call: WindowCall, rows: pl.DataFrame) -> Apart | None:
    """The rows of a frame that are excluded for a row, from the numbers of both rows and of their peers."""
    said = next((s for s in settings_of(call.function) if str(s).startswith("exclude")), None)
    if said is None:
        return None
    peers = rows["$fresh"].cast(pl.Int64).cum_sum().to_numpy()

    def out(own: np.ndarray, other: np.ndarray) -> np.ndarray:
        same, peer = own == other, peers[own] == peers[other]
        found: np.ndarray = same if said == "exclude current row" else peer if said == "exclude group" else peer & ~same
        return found

    return out


def _aggregated(
    call: WindowCall, values: pl.Series, first: np.ndarray, last: np.ndarray, apart: Apart | None
) -> pl.Series:
    """An aggregate over ranges of a column."""
    function = call.function
    if settings_of(function) or function == "nth_value":
        return _one_by_one(call, values, first, last, apart)
    there = values.is_not_null().to_numpy()
    counts = np.concatenate(([0], np.cumsum(there)))
    n = counts[last] - counts[first]
    if function == "count":
        return pl.Series(n, dtype=pl.Int64)
    if function in ("sum", "avg") and values.dtype.is_integer():
        total = _totals(values.fill_null(0).cast(pl.Int64).to_numpy(), first, last, sums=function == "sum")
        made = pl.Series(total / np.maximum(n, 1)) if function == "avg" else pl.Series(total, dtype=pl.Int64)
        return pl.select(pl.when(pl.Series(n) > 0).then(made)).to_series()
    return _one_by_one(call, values, first, last, None)


def _totals(numbers: np.ndarray, first: np.ndarray, last: np.ndarray, *, sums: bool) -> np.ndarray:
    """The sums of ranges of integers, in arbitrary precision where 64 bits might overflow."""
    rough = len(numbers) and max(-int(numbers.min()), int(numbers.max())) * len(numbers) > _FIT
    running = np.concatenate(([0], np.cumsum(numbers.astype(object) if rough else numbers)))
    total: np.ndarray = running[last] - running[first]
    if not rough:
        return total
    if sums and len(total) and not -_FIT - 1 <= min(total) <= max(total) <= _FIT:
        raise RunError("a sum over rows does not fit into 64 bits", hint="sum CAST(... AS DECIMAL(38, 0))")
    return np.asarray(total, np.int64 if sums else np.float64)


def _one_by_one(
    call: WindowCall, values: pl.Series, starts: np.ndarray, ends: np.ndarray, apart: Apart | None
) -> pl.Series:
    function, settings = str(call.function), settings_of(call.function)
    lengths = ends - starts
    at = np.repeat(starts - np.concatenate(([0], np.cumsum(lengths)[:-1])), lengths) + np.arange(lengths.sum())
    of = np.repeat(np.arange(len(starts)), lengths)
    if apart is not None:
        counts = ~apart(of, at)
        of, at = of[counts], at[counts]
    frame = pl.DataFrame({"$w": of, "v": values[pl.Series(at, dtype=pl.UInt32)]})
    if "distinct" in settings:
        frame = frame.unique(maintain_order=True)
    if function == "sum" and isinstance(values.dtype, pl.Decimal) and len(frame):
        if longer_than_decimal(values, int(lengths.max()), lambda: frame.group_by("$w").agg("v")["v"]):
            raise RunError("a sum over rows has more than 38 digits", hint="sum CAST(... AS DOUBLE)")
    if function == "sum" and values.dtype.is_integer():
        frame = frame.with_columns(pl.col("v").cast(pl.Int128))
    v = pl.col("v")
    known = v.drop_nulls()
    v = known if "ignore nulls" in settings else v
    pick = {
        "count": v.count().cast(pl.Int64),
        "nth_value": v.get(call.offset - 1, null_on_oob=True),
        "sum": pl.when(v.count() > 0).then(v.sum()),
        "avg": v.mean(),
        "min": v.min(),
        "max": v.nan_max() if values.dtype.is_float() else v.max(),
        "first_value": v.first(),
        "last_value": v.last(),
        "any_value": known.first(),
    }[function]
    grouped = frame.group_by("$w", maintain_order=True).agg(pick.alias("v"))
    places = pl.DataFrame({"$w": np.arange(len(starts))})
    found = places.join(grouped, on="$w", how="left", maintain_order="left")["v"]
    if found.dtype == pl.Int128:
        most: Any = found.abs().max()
        if most is not None and most > _FIT:
            raise RunError("a sum over rows does not fit into 64 bits", hint="sum CAST(... AS DECIMAL(38, 0))")
        return found.cast(pl.Int64)
    return found.fill_null(0) if function == "count" else found


KERNEL = Kernel(advance)
