"""Recomputes the results of changed groups and emits the difference.

Shared by the operators whose result follows from the current rows of a group (top-N, distinct, set operations, window
functions, aggregates of changing rows). The current rows of a group are its state (see `kernels/relations/changes.py`).
An epoch looks up the groups that changes touch, applies the changes, and emits the difference between the old and the
new results. That is correct for every kind of change. A change that retracts a row which state does not hold (the row
is older than the operator) has no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import polars as pl

from millstream.kernels.outcome import OperatorClock, Outcome, State, keeping
from millstream.kernels.relations.changes import CONTENT, GROUP, arrived, expiry, hashes_of, held, pair, whole, written
from millstream.model.reserved import OP
from millstream.plan.operators.operator import ROW, Operator

PLACE = ("$i", "$j")
"""The hashes of a result's identity."""

Answers = Callable[[Any, pl.DataFrame, str], pl.DataFrame]
"""Computes the results of all groups over rows with a column of copy counts; results have ``$i $j`` and ``$a $b``."""


def recompute(
    operator: Operator,
    changes: pl.DataFrame | None,
    state: State,
    clock: OperatorClock,
    answers: Answers,
    *,
    content: Sequence[str] | None = None,
    narrow: Callable[[pl.DataFrame], pl.DataFrame] | None = None,
) -> Outcome:
    """Run one epoch. `content` are the columns that identify rows (default: all; none: each row is unique). `narrow`
    removes from the rows what need not be kept.
    """
    if changes is None or not len(changes):
        return Outcome()
    side = operator.sides[0]
    came = arrived(side, operator.keys, changes, clock, content)
    if not len(came):
        return Outcome()
    rows = whole(side, held(state, hashes_of(came), clock), came)
    before = answers(operator, rows, "$was")
    rows = rows if narrow is None else narrow(rows)
    after = answers(operator, rows, "$n")
    kept = written(rows.filter(pl.col("$n") != pl.col("$was")), expiry(operator, clock), side.columns)
    return keeping(difference(operator, before, after), rows=kept)


def identified(operator: Operator, results: pl.DataFrame) -> pl.DataFrame:
    """Add the hashes of their identity to results."""
    by_key = operator.identity == operator.keys and "$h" in results.columns
    results = results.select(*operator.result, *CONTENT, *(GROUP if by_key else ()))
    if by_key:
        return results.rename(dict(zip(GROUP, PLACE, strict=True)))
    return results.with_columns(pair(PLACE, results, ROW if operator.identity is None else operator.identity))


def copies(rows: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """Add hashes of their content and of the number of the copy to rows."""
    known = [c for c in columns if c not in ROW]
    rows = rows.with_columns(pair(CONTENT, rows, known))
    rows = rows.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).over(*CONTENT).alias("$copy"))
    return rows.with_columns(pair(ROW, rows, (*CONTENT, "$copy")))


def difference(operator: Operator, before: pl.DataFrame, after: pl.DataFrame) -> pl.DataFrame:
    """The changes from one set of results to another."""
    name, whole_row = list(PLACE), [*PLACE, *CONTENT]
    old, new = before, after
    if len(before) and len(after):
        old = before.join(after, on=whole_row, how="anti", maintain_order="left")
        new = after.join(before, on=whole_row, how="anti", maintain_order="left")
    if not len(old) or not len(new):
        rows, op = (new, "+I") if len(new) else (old, "-D")
        return rows.select(pl.lit(op).alias(OP), *operator.result)
    parts = [
        (old.join(new, on=name, how="anti", maintain_order="left"), "-D"),
        (old.join(new, on=name, how="semi", maintain_order="left"), "-U"),
        (new.join(old, on=name, how="anti", maintain_order="left"), "+I"),
        (new.join(old, on=name, how="semi", maintain_order="left"), "+U"),
    ]
    return pl.concat([rows.select(pl.lit(op).alias(OP), *operator.result) for rows, op in parts])
