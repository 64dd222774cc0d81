"""The kernel of user aggregates over changing rows that can retract a value: keeps one row of state per key.

A key keeps its accumulators (``@<measure>``: JSON, or a number of rows) and its number of rows (``$n``), not the rows
themselves. Aggregates that cannot retract a value are recomputed from all rows (`kernels/relations/multiset.py`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import polars as pl

from millstream.clock import END_OF_TIME
from millstream.kernels.aggregates.combine import _pack, _user_failed, _user_results, total_keys
from millstream.kernels.hashing import hashed
from millstream.kernels.kernel import Inputs, Kernel, Services, States
from millstream.kernels.outcome import OperatorClock, Outcome, keeping
from millstream.kernels.python.by_key import KEY, by_key, hashes_of, keys_of
from millstream.kernels.relations.changes import expiry
from millstream.model.reserved import OP
from millstream.plan.operators.aggregates.user_aggregate import UserAggregation
from millstream.plan.parts import Measure


def advance(
    operator: UserAggregation, inputs: Inputs, states: States, clock: OperatorClock, services: Services
) -> Outcome:
    """Run one epoch: add and retract values, key by key, and emit the difference of the results."""
    del services
    changes, state = inputs["rows"], states["rows"]
    came = by_key(operator, changes)
    if came is None:
        begins = operator.is_never_empty and changes is not None
        return _begun(operator) if begins else Outcome()
    groups = keys_of(operator, came)
    held = state.lookup(hashes_of(came), clock.before)
    if held is not None:
        held = held.filter(~pl.col("$gone") & (pl.col("$x") > clock.before)).drop(operator.keys)
        groups = groups.join(held, on=KEY, how="left", maintain_order="left")
    if "$n" not in groups.columns:
        kinds = {"$n": pl.Int64, **{f"@{m.name}": pl.Int64 if m.user is None else pl.String for m in operator.measures}}
        groups = groups.with_columns(pl.lit(None, t).alias(n) for n, t in kinds.items())
    signs = np.where(came[OP].is_in(["+I", "+U"]).to_numpy(), 1, -1)
    before = groups["$n"].fill_null(0)
    signs = _known(signs, groups, before.to_list())
    after = pl.Series("$n", before.to_numpy() + np.add.reduceat(signs, groups["$from"].to_numpy()), pl.Int64)
    stays = _stays(operator, groups)
    kept = groups.select(*KEY, *operator.keys).with_columns(
        pl.lit(0, pl.Int64).alias("$b"),
        *(_folded(m, came, groups, signs) for m in operator.measures),
        after,
        expiry(operator, clock).alias("$x"),
        ((after == 0) & ~stays).alias("$gone"),
    )
    old, new = _answers(operator, groups), _answers(operator, kept)
    was = (before > 0) | (stays & groups["$n"].is_not_null())
    return keeping(_difference(operator, old, new, was, ~kept["$gone"]), rows=kept)


def _stays(operator: UserAggregation, groups: pl.DataFrame) -> pl.Series:
    """Whether each group exists without rows too."""
    if not operator.keys:
        return pl.repeat(value=True, n=len(groups), eager=True)
    return groups[operator.keys[-1]].is_in(operator.totals) & operator.is_never_empty


def _begun(operator: UserAggregation) -> Outcome:
    """The results of groups that exist without rows, before their first row."""
    kinds = dict(zip(operator.columns, operator.types, strict=True))
    keys = (
        total_keys(operator.totals, {k: kinds[k] for k in operator.keys})
        if operator.keys
        else pl.DataFrame({"$one": [0]})
    )
    first, second = hashed(keys, operator.keys)
    zero = pl.lit(0, pl.Int64)
    kept = keys.select(
        pl.Series("$h", first),
        pl.Series("$a", second),
        *operator.keys,
        zero.alias("$b"),
        *(zero.alias(f"@{m.name}") if m.user is None else _created(m, len(keys)) for m in operator.measures),
        zero.alias("$n"),
        pl.lit(END_OF_TIME, pl.Int64).alias("$x"),
        pl.lit(value=False).alias("$gone"),
    )
    answer = _answers(operator, kept).select(pl.lit("+I").alias(OP), *operator.result)
    return keeping(answer, rows=kept)


def _created(m: Measure, groups: int) -> pl.Series:
    try:
        packed = [_pack(m, m.user.create()) for _ in range(groups)]  # type: ignore[union-attr]
    except Exception as error:
        raise _user_failed(m, "create", error) from error
    return pl.Series(f"@{m.name}", packed, pl.String)


def _known(signs: np.ndarray, groups: pl.DataFrame, before: list[int]) -> np.ndarray:
    """The effective weight of each change. A change that retracts a row of a key without rows (the row is older than
    the operator) has weight 0.
    """
    found = signs.tolist()
    for count, start, end in zip(before, groups["$from"].to_list(), groups["$upto"].to_list(), strict=True):
        for at in range(start, end):
            if found[at] < 0 and not count:
                found[at] = 0
            count += found[at]
    return np.array(found, np.int64)


def _folded(m: Measure, came: pl.DataFrame, groups: pl.DataFrame, signs: np.ndarray) -> pl.Series:
    """The accumulators of a measure by key, after this epoch's values were added and retracted."""
    there = groups[f"@{m.name}"]
    starts = groups["$from"].to_numpy()
    if m.user is None:  # a count
        counts = signs if not m.has_argument else signs * came[f"@{m.name}"].is_not_null().to_numpy()
        return pl.Series(f"@{m.name}", there.fill_null(0).to_numpy() + np.add.reduceat(counts, starts), pl.Int64)
    values, ways = came[f"@{m.name}"].to_list(), signs.tolist()
    user: Any = m.user
    packed = []
    for text, start, end in zip(there.to_list(), starts.tolist(), groups["$upto"].to_list(), strict=True):
        try:
            accumulator = user.create() if text is None else orjson.loads(text)
            for at in range(start, end):
                if values[at] is not None and ways[at]:
                    take = user.add if ways[at] > 0 else user.retract
                    accumulator = take(accumulator, values[at])
        except Exception as error:
            raise _user_failed(m, "create, add or retract", error) from error
        packed.append(_pack(m, accumulator))
    return pl.Series(f"@{m.name}", packed, pl.String)


def _answers(operator: UserAggregation, rows: pl.DataFrame) -> pl.DataFrame:
    found = [
        rows[f"@{m.name}"].fill_null(0).alias(m.name) if m.user is None else _user_results(m, rows[f"@{m.name}"])
        for m in operator.measures
    ]
    return pl.DataFrame([*(rows[k] for k in operator.keys), *found])


def _difference(
    operator: UserAggregation, old: pl.DataFrame, new: pl.DataFrame, was: pl.Series, there: pl.Series
) -> pl.DataFrame | None:
    """The changes from one result of each key to the next."""
    names = [c for c in operator.result if c not in operator.keys]
    same = pl.Series([a == b for a, b in zip(old.select(names).rows(), new.select(names).rows(), strict=True)])
    parts = [
        old.filter(was & ~there).select(pl.lit("-D").alias(OP), *operator.result),
        old.filter(was & there & ~same).select(pl.lit("-U").alias(OP), *operator.result),
        new.filter(there & ~was).select(pl.lit("+I").alias(OP), *operator.result),
        new.filter(there & was & ~same).select(pl.lit("+U").alias(OP), *operator.result),
    ]
    found = pl.concat(parts)
    return found if len(found) else None


KERNEL = Kernel(advance)
