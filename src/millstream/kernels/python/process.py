"""The kernel of Python operators: loads the state of the touched keys as columns, passes rows to user code, and stores
the result.

A key's state is one row: ``$h`` and ``$a`` hashes of the key (``$b`` is 0), the key, ``@<field>`` for each field of its
state, ``$t`` when it was last touched, ``$we`` and ``$wn`` times and names of its timers (``$pe`` and ``$pn``: of
processing time), ``$wd`` and ``$pd`` when it is due next by the watermark and by the clock, ``$x`` when the watermark
expires it, and ``$gone``. Results are in the order of the rows they come from. A row that user code fails on may be
quarantined; its key then stays unchanged. `kernels/python/keys.py` makes the calls.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from millstream.clock import END_OF_TIME
from millstream.kernels.kernel import Inputs, Kernel, Services, States
from millstream.kernels.outcome import OperatorClock, Outcome, State, keeping
from millstream.kernels.python.by_key import KEY, by_key, hashes_of, keys_of
from millstream.kernels.python.failures import Mistyped, column, columns, written
from millstream.kernels.python.keys import BEFORE, BETWEEN, Groups, Held, ProcessKeys, ProcessRows
from millstream.model.python.process import EPOCH, Hooks, rows_of
from millstream.model.reserved import OP
from millstream.model.steps.process import TO, column_of
from millstream.model.types.values import plain_values, python_values
from millstream.plan.operators.python.process import ProcessOperator

_ZERO = np.datetime64(0, "us")
_TIMES, _NAMES = pa.list_(pa.int64()), pa.list_(pa.string())


def advance(
    operator: ProcessOperator, inputs: Inputs, states: States, clock: OperatorClock, services: Services
) -> Outcome:
    """Run one epoch. The input is rows with their kind of change, in order of arrival, or in time order if ordered."""
    del services
    collects = gc.isenabled()
    gc.disable()  # it would traverse all rows repeatedly, and they contain no cycles
    try:
        return _advanced(operator, inputs["rows"], states["rows"], clock)
    finally:
        if collects:
            gc.enable()


def _advanced(operator: ProcessOperator, changes: pl.DataFrame | None, state: State, clock: OperatorClock) -> Outcome:
    came = by_key(operator, changes)
    due = state.due(due_columns(clock), clock.before) if looks(operator) else np.empty(0, np.int64)
    hashes = due
    if came is not None:
        touched = hashes_of(came)
        hashes = np.union1d(touched, due) if len(due) else touched
    held = state.lookup(hashes, clock.before) if len(hashes) else None
    groups = _groups(operator, came, held, clock)
    if not len(groups):
        return Outcome()
    rows = _rows(operator, came)
    calls = _calls(operator, groups)
    for strict in (False, True):
        keys = ProcessKeys(operator, clock, rows, strict=strict)
        keys.run(calls)
        try:
            results = _results(operator, keys, came)
            kept = _state(operator, groups, keys)
        except Mistyped:  # check after each call to find the one that failed
            if strict:
                raise
            continue
        return replace(keeping(results, rows=kept), failures=tuple(keys.failures), skipped=keys.skipped)
    raise AssertionError


def due_columns(clock: OperatorClock) -> dict[str, tuple[int, int]]:
    """The columns that decide when a key is due, with the range for this epoch: above the first number, up to the
    second.
    """
    return {"$wd": (clock.before, clock.watermark), "$pd": (clock.since, clock.now)}


def looks(operator: ProcessOperator) -> bool:
    """Whether a key may have work to do by the clock alone."""
    hooks = Hooks.of(operator.function)
    return hooks.on_timer is not None or (
        operator.idle_ttl is not None and (operator.idle_by_clock or hooks.on_idle is not None)
    )


def is_due(operator: ProcessOperator, state: State, clock: OperatorClock) -> bool:
    """Whether some key has work to do by the clock alone."""
    if not looks(operator):
        return False
    hashes = state.due(due_columns(clock), clock.before)
    held = state.lookup(hashes, clock.before) if len(hashes) else None
    return held is not None and len(held.filter(_alive(clock) & _due(clock))) > 0


def _alive(clock: OperatorClock) -> pl.Expr:
    return ~pl.col("$gone") & (pl.col("$x") > clock.before)


def _due(clock: OperatorClock) -> pl.Expr:
    return (pl.col("$wd") <= clock.watermark) | (pl.col("$pd") <= clock.now)


def _groups(
    operator: ProcessOperator, came: pl.DataFrame | None, held: pl.DataFrame | None, clock: OperatorClock
) -> pl.DataFrame:
    """The keys that have rows or are due: the range of their rows, and their state (``$x`` is NULL: none)."""
    alive = None if held is None else held.filter(_alive(clock))
    due = None if alive is None else alive.filter(_due(clock)).with_columns(_none("$from"), _none("$upto")).sort(KEY)
    if came is None:
        return pl.DataFrame() if due is None else due
    groups = keys_of(operator, came)
    if alive is None or due is None or not len(alive):
        return groups.with_columns(pl.lit(None, pl.Int64).alias("$x"))
    joined = groups.join(alive.drop(operator.keys), on=KEY, how="left", maintain_order="left")
    others = due.join(groups, on=KEY, how="anti", maintain_order="left")
    return pl.concat([joined, others], how="diagonal").sort(KEY) if len(others) else joined


def _none(name: str) -> pl.Expr:
    return pl.lit(0, pl.Int64).alias(name)


def _rows(operator: ProcessOperator, came: pl.DataFrame | None) -> ProcessRows:
    """The rows as user code receives them."""
    time_at = None if operator.time is None else operator.columns.index(operator.time)
    if came is None:
        return ProcessRows(operator.columns, [], None, None, time_at)
    values = [listed(came[c]) for c in operator.columns]
    counts = operator.time is not None and (
        operator.ordered or (operator.idle_ttl is not None and not operator.idle_by_clock)
    )
    times = _micros(came[operator.time]).to_list() if counts and operator.time is not None else None
    undone = ~came[OP].is_in(["+I", "+U"])
    return ProcessRows(operator.columns, values, times, undone.to_list() if undone.any() else None, time_at)


def _calls(operator: ProcessOperator, groups: pl.DataFrame) -> Groups:
    """The keys to call, with the state of each."""
    several = [listed(groups[k]) for k in operator.keys]
    keys: Sequence[Any]
    if len(several) == 1:
        keys = several[0]
    else:
        keys = list(rows_of(operator.keys, several)) if several else [()] * len(groups)
    spans = groups["$from"].to_list(), groups["$upto"].to_list()
    if "$gone" not in groups.columns:
        return Groups(keys, *spans, [None] * len(groups))
    there = groups["$x"].is_not_null().to_list()
    values: list[tuple[Any, ...] | None]
    if operator.held is None:
        values = [() if t else None for t in there]
    else:
        columns = []
        for cell in operator.held.cells:
            found = listed(groups[f"@{cell.name}"])
            read = cell.read
            columns.append(found if read is None else [None if v is None else read(v) for v in found])
        values = [v if t else None for t, v in zip(there, zip(*columns, strict=True), strict=True)]
    events = _timers(groups, "$we", "$wn")
    touched = groups["$t"].fill_null(0).to_list()
    return Groups(keys, *spans, values, events, _timers(groups, "$pe", "$pn"), touched)


def _timers(groups: pl.DataFrame, times: str, names: str) -> list[Mapping[str, int]] | None:
    if times not in groups.columns:
        return None
    pairs = zip(groups[times].to_list(), groups[names].to_list(), strict=True)
    return [dict(zip(n, at, strict=True)) if at else {} for at, n in pairs]


def _results(operator: ProcessOperator, keys: ProcessKeys, came: pl.DataFrame | None) -> pl.DataFrame | None:
    """The emitted rows, in the order of what they came from."""
    frames, places = [], []
    for i, (output, rows) in enumerate(zip(operator.outputs, keys.ctx._rows, strict=True)):
        if rows:
            schema = output.schema
            found = columns(rows, [f.type for f in schema])
            frame = pl.DataFrame([c.alias(column_of(i, n)) for c, n in zip(found, schema.names, strict=True)])
            frames.append(frame if len(operator.outputs) == 1 else frame.with_columns(pl.lit(i, pl.Int32).alias(TO)))
            places += keys.ctx._places[i]
    if not frames:
        return None
    order = _order(np.array(places, np.int64), keys, came)
    whole = frames[0] if len(frames) == 1 else pl.concat(frames, how="diagonal")
    if len(operator.outputs) > 1:
        missing = [pl.lit(None, t).alias(n) for n, t in _result_types(operator).items() if n not in whole.columns]
        whole = whole.with_columns(missing).select(operator.result)
    return whole[pl.Series(order, dtype=pl.UInt32)].select(pl.lit("+I").alias(OP), *operator.result)


def _order(places: np.ndarray, keys: ProcessKeys, came: pl.DataFrame | None) -> np.ndarray:
    """The order of results: by the rows that they come from, and by time if they come from timers."""
    numbers = np.empty(0, np.int64) if came is None else came["$no"].to_numpy()
    main, time = np.zeros(len(places), np.int64), np.zeros(len(places), np.int64)
    row = places >= 0
    main[row] = 2 * numbers[places[row]] + 1
    if not row.all():
        moments = np.array(keys.moments, np.int64)[-places[~row] - 1]
        phase, at = moments[:, 0], moments[:, 1]
        among = np.zeros(len(at), np.int64)
        if came is not None and keys.rows.times is not None:
            times = np.empty(len(numbers), np.int64)
            times[numbers] = keys.rows.times
            among = 2 * np.searchsorted(times, at, side="left")
        main[~row] = np.where(phase == BEFORE, -1, np.where(phase == BETWEEN, among, 2 * len(numbers)))
        time[~row] = at
    ordered: np.ndarray = np.lexsort((time, main))
    return ordered


def _state(operator: ProcessOperator, groups: pl.DataFrame, keys: ProcessKeys) -> pl.DataFrame | None:
    """The rows of state to write: for keys that were called, and for those that were deleted."""
    kept, gone, held = keys.kept, keys.gone, keys.held
    if not kept and not gone:
        return None
    found = groups[pl.Series([*kept, *gone], dtype=pl.UInt32)].select(*KEY, *operator.keys)
    nothing = [None] * len(gone)
    typed: list[pl.Series] = []
    if operator.held is not None:
        cells = operator.held.cells
        values: Any = keys.values
        if any(c.write is not None for c in cells):
            values = _written(values, [c.write for c in cells])
        for cell, series in zip(cells, columns(values, [c.type for c in cells]), strict=True):
            whole = series.append(column(nothing, cell.type)) if gone else series
            typed.append(whole.alias(f"@{cell.name}"))
    if keys.hooks.on_timer is not None:
        for times, names, timers in (
            ("$we", "$wn", [sorted(k.events.items()) for k in held]),
            ("$pe", "$pn", [sorted(k.clocks.items()) for k in held]),
        ):
            typed.append(column([*([at for _, at in t] for t in timers), *nothing], _TIMES).alias(times))
            typed.append(column([*([n for n, _ in t] for t in timers), *nothing], _NAMES).alias(names))
    if not keys._moves:
        ends = dict.fromkeys(("$wd", "$pd", "$x"), pl.lit(END_OF_TIME, pl.Int64))
        touched: pl.Expr | pl.Series = pl.lit(0, pl.Int64)
        marks = [e.alias(n) for n, e in ends.items()]
    else:
        dues = [_due_times(operator, h, keys.hooks) for h in held]
        dues += [(END_OF_TIME, END_OF_TIME, END_OF_TIME)] * len(gone)
        marks = [pl.Series(n, [d[i] for d in dues], pl.Int64) for i, n in enumerate(("$wd", "$pd", "$x"))]  # type: ignore[misc]
        touched = pl.Series([*(k.touched for k in held), *(0 for _ in gone)], dtype=pl.Int64)
    left = pl.Series("$gone", [False] * len(kept) + [True] * len(gone), pl.Boolean)
    return found.with_columns(pl.lit(0, pl.Int64).alias("$b"), *typed, touched.alias("$t"), *marks, left)


def _written(values: list[tuple[Any, ...]], writes: Sequence[Any]) -> list[list[Any]]:
    try:
        return [written(v, writes) for v in values]
    except (TypeError, AttributeError, ValueError) as error:
        raise Mistyped from error


def _due_times(operator: ProcessOperator, held: Held, hooks: Hooks) -> tuple[int, int, int]:
    """When a key is due next by the watermark and by the clock, and when the watermark expires it.

    The expiry must never decrease, because an expired row does not hide earlier versions of itself. If timers may keep
    a key alive, the key is therefore processed at its deadline and deleted then.
    """
    by_mark = min(held.events.values(), default=END_OF_TIME)
    by_clock = min(held.clocks.values(), default=END_OF_TIME)
    if operator.idle_ttl is None or held.events or held.clocks:
        return by_mark, by_clock, END_OF_TIME
    deadline = held.touched + operator.idle_ttl
    if operator.idle_by_clock:
        return by_mark, deadline, END_OF_TIME
    if hooks.on_timer is not None:
        return deadline, by_clock, END_OF_TIME
    return (deadline if hooks.on_idle is not None else END_OF_TIME), by_clock, deadline


def listed(given: pl.Series) -> list[Any]:
    """The values of a column. Instants have a time zone; local times do not."""
    if isinstance(given.dtype, pl.Datetime) and given.dtype.time_zone is not None:
        past = (given.cast(pl.Datetime("us")).to_numpy() - _ZERO).tolist()
        try:
            if given.null_count():
                return [None if p is None else EPOCH + p for p in past]
            return list(map(EPOCH.__add__, past))
        except (OverflowError, TypeError):  # a time that Python cannot represent
            return python_values(given.to_arrow())
    return plain_values(given)


def _micros(column: pl.Series) -> pl.Series:
    return column.cast(pl.Datetime("us", "UTC")).cast(pl.Int64)


def _result_types(operator: ProcessOperator) -> dict[str, pl.DataType]:
    fields = [(column_of(i, f.name), f.type) for i, o in enumerate(operator.outputs) for f in o.schema]
    return dict(_polars(pa.schema(fields).empty_table()).schema)


def _polars(table: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame


KERNEL = Kernel(advance, is_due)
