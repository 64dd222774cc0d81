"""The kernel of user aggregates over changing rows that can take a value back: one row of state per key.

A key keeps its accumulators (``@<measure>``: JSON, or a number of rows) and how many rows it has (``$n``), not the rows
themselves. Aggregates that cannot take a value back are computed anew of all rows (`kernels/relations/multiset.py`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import polars as pl

from millstream.clock import END_OF_TIME
from millstream.kernels.aggregates.combine import _pack, _user_failed, _user_results, total_keys
from millstream.kernels.hashing import hashed
from millstream.kernels.outcome import Outcome, StageClock, State
from millstream.kernels.python.by_key import KEY, by_key, hashes_of, keys_of
from millstream.kernels.relations.changes import expiry
from millstream.model.reserved import OP
from millstream.plan.operators.process import Folded
from millstream.plan.stages import Chained, Measure


def advance(spec: Chained, changes: pl.DataFrame | None, state: State, clock: StageClock) -> Outcome:
    """Run one epoch: take values in and back, key by key, and give the difference of the answers."""
    what: Any = spec.what
    assert isinstance(what, Folded)
    came = by_key(spec, changes)
    if came is None:
        begins = spec.is_never_empty and changes is not None
        return _begun(spec, what) if begins else Outcome(None, None, np.empty(0, np.int64))
    groups = keys_of(spec, came)
    held = state.lookup(hashes_of(came), clock.before)
    if held is not None:
        held = held.filter(~pl.col("$gone") & (pl.col("$x") > clock.before)).drop(spec.keys)
        groups = groups.join(held, on=KEY, how="left", maintain_order="left")
    if "$n" not in groups.columns:
        kinds = {"$n": pl.Int64, **{f"@{m.name}": pl.Int64 if m.user is None else pl.String for m in what.measures}}
        groups = groups.with_columns(pl.lit(None, t).alias(n) for n, t in kinds.items())
    signs = np.where(came[OP].is_in(["+I", "+U"]).to_numpy(), 1, -1)
    before = groups["$n"].fill_null(0)
    signs = _known(signs, groups, before.to_list())
    after = pl.Series("$n", before.to_numpy() + np.add.reduceat(signs, groups["$from"].to_numpy()), pl.Int64)
    stays = _stays(spec, groups)
    kept = groups.select(*KEY, *spec.keys).with_columns(
        pl.lit(0, pl.Int64).alias("$b"),
        *(_folded(m, came, groups, signs) for m in what.measures),
        after,
        expiry(spec, clock).alias("$x"),
        ((after == 0) & ~stays).alias("$gone"),
    )
    old, new = _answers(what, groups, spec), _answers(what, kept, spec)
    was = (before > 0) | (stays & groups["$n"].is_not_null())
    return Outcome(_difference(spec, old, new, was, ~kept["$gone"]), kept, kept["$x"].to_numpy())


def _stays(spec: Chained, groups: pl.DataFrame) -> pl.Series:
    """Whether each group is there without rows too."""
    if not spec.keys:
        return pl.repeat(value=True, n=len(groups), eager=True)
    return groups[spec.keys[-1]].is_in(spec.totals) & spec.is_never_empty


def _begun(spec: Chained, what: Folded) -> Outcome:
    """The answers of groups that are there without rows, before the first row."""
    kinds = dict(zip(spec.columns, spec.types, strict=True))
    keys = total_keys(spec.totals, {k: kinds[k] for k in spec.keys}) if spec.keys else pl.DataFrame({"$one": [0]})
    first, second = hashed(keys, spec.keys)
    zero = pl.lit(0, pl.Int64)
    kept = keys.select(
        pl.Series("$h", first),
        pl.Series("$a", second),
        *spec.keys,
        zero.alias("$b"),
        *(zero.alias(f"@{m.name}") if m.user is None else _created(m, len(keys)) for m in what.measures),
        zero.alias("$n"),
        pl.lit(END_OF_TIME, pl.Int64).alias("$x"),
        pl.lit(value=False).alias("$gone"),
    )
    answer = _answers(what, kept, spec).select(pl.lit("+I").alias(OP), *spec.result)
    return Outcome(answer, kept, kept["$x"].to_numpy())


def _created(m: Measure, groups: int) -> pl.Series:
    try:
        packed = [_pack(m, m.user.create()) for _ in range(groups)]  # type: ignore[union-attr]
    except Exception as error:
        raise _user_failed(m, "create", error) from error
    return pl.Series(f"@{m.name}", packed, pl.String)


def _known(signs: np.ndarray, groups: pl.DataFrame, before: list[int]) -> np.ndarray:
    """The changes as they count: what takes back a row of a key that has none (it is from before the stage was there)
    is passed over, 0.
    """
    found = signs.tolist()
    for count, start, end in zip(before, groups["$from"].to_list(), groups["$upto"].to_list(), strict=True):
        for at in range(start, end):
            if found[at] < 0 and not count:
                found[at] = 0
            count += found[at]
    return np.array(found, np.int64)


def _folded(m: Measure, came: pl.DataFrame, groups: pl.DataFrame, signs: np.ndarray) -> pl.Series:
    """What a measure keeps of each key, with this epoch's values taken in and back."""
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


def _answers(what: Folded, rows: pl.DataFrame, spec: Chained) -> pl.DataFrame:
    found = [
        rows[f"@{m.name}"].fill_null(0).alias(m.name) if m.user is None else _user_results(m, rows[f"@{m.name}"])
        for m in what.measures
    ]
    return pl.DataFrame([*(rows[k] for k in spec.keys), *found])


def _difference(
    spec: Chained, old: pl.DataFrame, new: pl.DataFrame, was: pl.Series, there: pl.Series
) -> pl.DataFrame | None:
    """The changes from one answer of each key to the next."""
    names = [c for c in spec.result if c not in spec.keys]
    same = pl.Series([a == b for a, b in zip(old.select(names).rows(), new.select(names).rows(), strict=True)])
    parts = [
        old.filter(was & ~there).select(pl.lit("-D").alias(OP), *spec.result),
        old.filter(was & there & ~same).select(pl.lit("-U").alias(OP), *spec.result),
        new.filter(there & ~was).select(pl.lit("+I").alias(OP), *spec.result),
        new.filter(there & was & ~same).select(pl.lit("+U").alias(OP), *spec.result),
    ]
    found = pl.concat(parts)
    return found if len(found) else None
