"""The kernel of lookups in external systems: it performs each distinct lookup once, and caches the result while it is
valid.

The kernel only determines which lookups are needed. `engine/driver/lookup_calls.py` performs them, and
`engine/driver/lookup_records.py` records the results before they are used, so that a rerun of the epoch gets the same
ones. Columns of state: ``$h`` and ``$a``
hashes of the lookup key (``$b`` is 0), ``@<column>`` for each column of its result, ``$hit`` whether there is one,
``$till`` the processing time until which it is valid, ``$x`` and ``$gone``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from millstream.clock import END_OF_TIME
from millstream.errors import UserCodeFailed
from millstream.kernels.hashing import hashed
from millstream.kernels.kernel import Inputs, Kernel, Services, States
from millstream.kernels.outcome import Failure, OperatorClock, Outcome, State, keeping
from millstream.kernels.python.by_key import KEY, types
from millstream.kernels.python.failures import checked, column, failure, record_text
from millstream.kernels.python.process import listed
from millstream.model.python.process import FAIL, QUARANTINE, SKIP, Output, rows_of
from millstream.model.reserved import OP, PLACE
from millstream.plan.operators.python.lookup import AsyncLookup


def advance(operator: AsyncLookup, inputs: Inputs, states: States, clock: OperatorClock, services: Services) -> Outcome:
    """Run one epoch: look up every row, from the cache where possible."""
    changes, state = inputs["rows"], states["rows"]
    old = _outdated(operator, state, clock)
    if changes is None or not len(changes):
        return keeping(None, rows=old)
    order = [c for c in changes.columns if c.startswith(PLACE)]
    rows = changes.select(*operator.columns, *order).cast(types(operator))  # type: ignore[arg-type]
    first, second = hashed(rows, operator.keys)
    rows = rows.with_columns(pl.Series("$h", first), pl.Series("$a", second))
    requests = rows.select(*KEY, *operator.keys).unique(KEY, keep="first", maintain_order=True)
    known = _known(operator, state.lookup(requests["$h"].unique().sort().to_numpy(), clock.before), clock)
    new = requests if known is None else requests.join(known, on=KEY, how="anti", maintain_order="left")
    parts = [] if known is None else [known]
    new_states: list[pl.DataFrame] = []
    if len(new):
        responses = services.look_up(operator, new)
        parts.append(responses)
        good = responses.filter(pl.col("$failed").is_null())
        new_states.append(_new_state(operator, new.join(good, on=KEY, how="inner", maintain_order="left"), clock))
    if old is not None:
        fresh = old if not new_states else old.join(new_states[0], on=KEY, how="anti", maintain_order="left")
        new_states.append(fresh.select(new_states[0].columns) if new_states else fresh)
    answered = rows.join(pl.concat(parts, how="vertical_relaxed"), on=KEY, how="left", maintain_order="left")
    state_rows = pl.concat(new_states, how="vertical_relaxed") if new_states else None
    state_rows = None if state_rows is None or not len(state_rows) else state_rows
    return _outcome(operator, answered, state_rows, order)


def answers(operator: AsyncLookup, requests: pl.DataFrame, results: Sequence[Any]) -> pl.DataFrame:
    """Convert what the function returned for each lookup: a row, None, or the error that it raised."""
    names, types = operator.schema.names, [f.type for f in operator.schema]
    pick = Output("", operator.schema).picker()
    rows: list[tuple[Any, ...]] = []
    hits: list[bool] = []
    failed: list[str | None] = []
    for result in results:
        values, hit, why = (None,) * len(names), False, None
        try:
            if isinstance(result, Exception):
                raise result
            if result is not None:
                picked = pick(result)
                checked(picked, names, types, "the column")
                values, hit = picked, True
        except Exception as error:
            why = failure(operator.function_name, error, {}, redact=operator.redact).reason
            if operator.errors == FAIL:
                raise _stopped(operator, requests, len(hits), error, why) from error
        rows.append(values)
        hits.append(hit)
        failed.append(why)
    columns = [
        column([r[i] for r in rows], t).alias(f"@{n}") for i, (n, t) in enumerate(zip(names, types, strict=True))
    ]
    marks = pl.Series("$hit", hits, pl.Boolean), pl.Series("$failed", failed, pl.String)
    return requests.select(KEY).with_columns(*columns, *marks)


def lookup_keys(operator: AsyncLookup, requests: pl.DataFrame) -> list[Any]:
    """Lookup keys as the function receives them: values of one column, or rows of several."""
    several = [listed(requests[k]) for k in operator.keys]
    return several[0] if len(several) == 1 else list(rows_of(operator.keys, several))


def _stopped(operator: AsyncLookup, requests: pl.DataFrame, at: int, error: Exception, why: str) -> UserCodeFailed:
    keys = record_text(_key_at(requests, at), redact=operator.redact)
    hint = "errors='skip' skips such rows, errors='quarantine' moves them to `<view>$errors`"
    return UserCodeFailed(why, detail=f"the keys were {keys}", hint=hint)


def _key_at(requests: pl.DataFrame, at: int) -> Mapping[str, Any]:
    return {n: listed(requests[n][at : at + 1])[0] for n in requests.columns if n not in KEY}


def _known(operator: AsyncLookup, state_rows: pl.DataFrame | None, clock: OperatorClock) -> pl.DataFrame | None:
    """The cached results that are still valid."""
    if state_rows is None:
        return None
    good = state_rows.filter(~pl.col("$gone") & (pl.col("$till") > clock.now))
    none = pl.lit(None, pl.String).alias("$failed")
    return good.select(*KEY, *(f"@{n}" for n in operator.schema.names), "$hit", none) if len(good) else None


def _new_state(operator: AsyncLookup, responses: pl.DataFrame, clock: OperatorClock) -> pl.DataFrame:
    until = END_OF_TIME if operator.cache is None else clock.now + operator.cache
    return responses.drop("$failed").with_columns(
        pl.lit(0, pl.Int64).alias("$b"),
        pl.lit(until, pl.Int64).alias("$till"),
        pl.lit(END_OF_TIME, pl.Int64).alias("$x"),
        pl.lit(False).alias("$gone"),
    )


def _outdated(operator: AsyncLookup, state: State, clock: OperatorClock) -> pl.DataFrame | None:
    """The cached results that have expired since the previous epoch, as deleted rows."""
    if operator.cache is None:
        return None
    hashes = state.due({"$till": (clock.since, clock.now)}, clock.before)
    state_rows = state.lookup(hashes, clock.before) if len(hashes) else None
    if state_rows is None:
        return None
    old = state_rows.filter(~pl.col("$gone") & (pl.col("$till") <= clock.now))
    return old.with_columns(pl.lit(True).alias("$gone")) if len(old) else None


def _outcome(
    operator: AsyncLookup, rows: pl.DataFrame, new_state: pl.DataFrame | None, order: Sequence[str]
) -> Outcome:
    failures: list[Failure] = []
    skipped = 0
    failed = rows["$failed"].is_not_null()
    if failed.any():
        bad, rows = rows.filter(failed), rows.filter(~failed)
        if operator.errors == QUARANTINE:
            values = zip(*(listed(bad[c]) for c in operator.columns), strict=True)
            records = [dict(zip(operator.columns, v, strict=True)) for v in values]
            reasons = bad["$failed"].to_list()
            failures = [
                Failure(w, record_text(r, redact=operator.redact)) for w, r in zip(reasons, records, strict=True)
            ]
        else:
            assert operator.errors == SKIP
            skipped = len(bad)
    if operator.required:
        rows = rows.filter("$hit")
    result_rows = rows.select(
        pl.lit("+I").alias(OP), *order, *operator.columns, *(pl.col(f"@{n}").alias(n) for n in operator.schema.names)
    )
    return replace(keeping(result_rows, rows=new_state), failures=tuple(failures), skipped=skipped)


KERNEL = Kernel(advance)
