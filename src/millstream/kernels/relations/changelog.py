"""The kernel of a changelog: turns a stream of changes into append-only rows. It keeps no state.

A change is ``+I`` for a new row, ``-U`` and ``+U`` for the old and the new version of an updated row, ``-D`` for a
deleted row. Upstream filters and projections may have removed some changes. An update that lost one half becomes an
insert or a delete, and an update that changed no column is dropped. The rows of an epoch are in a fixed order: by the
identity of the row (by all columns, if there is no identity), and for one row in the order of its changes.
"""

from __future__ import annotations

import polars as pl

from millstream.kernels.kernel import Inputs, Kernel, Services, States
from millstream.kernels.outcome import OperatorClock, Outcome
from millstream.kernels.relations.changes import CONTENT, GROUP, pair, types_of
from millstream.model.reserved import OP
from millstream.plan.operators.inputs import Side
from millstream.plan.operators.relations.changelog import ChangelogRows

_OLD, _NEW = "-U", "+U"
_COMES = ("+I", _NEW)


def advance(
    operator: ChangelogRows, inputs: Inputs, states: States, clock: OperatorClock, services: Services
) -> Outcome:
    """Emit each change of an epoch as a row."""
    del states, services
    changes, side = inputs["rows"], operator.sides[0]
    found = None if changes is None or not len(changes) else _ordered(side, changes)
    if found is None or not len(found):
        return Outcome()
    op, epoch, time = operator.names
    rows = found.select(
        pl.col(OP).alias(op),
        pl.lit(clock.epoch, pl.Int64).alias(epoch),
        pl.lit(clock.now, pl.Int64).cast(pl.Datetime("us", "UTC")).alias(time),
        *side.columns,
    )
    return Outcome(rows.select(pl.lit("+I").alias(OP), *operator.result))


def _ordered(side: Side, changes: pl.DataFrame) -> pl.DataFrame:
    """The effective changes, each with its kind, in a fixed order."""
    taken = dict.fromkeys((*side.columns, *side.names))
    rows = changes.select(OP, *taken).cast(types_of(side))  # type: ignore[arg-type]
    identified = side.single or bool(side.names)
    told_by = list(side.names if identified else side.columns)
    group = [pl.lit(0, pl.Int64).alias(n) for n in GROUP] if side.single else pair(GROUP, rows, told_by)
    rows = rows.with_columns(group).with_columns(pair(CONTENT, rows, list(side.columns)))
    by = [c for c in told_by if not rows.schema[c].is_nested()]
    if side.append_only:
        return rows.sort(*by, *GROUP, *CONTENT, maintain_order=True)
    if identified:
        rows = _without_equal(rows)
        before, after = (pl.col(OP).shift(n).over(*GROUP) for n in (1, -1))
    else:  # no identity links an old row to its new row
        rows = _net(rows)
        before = after = pl.lit(None, pl.String)
    op = (
        pl.when((pl.col(OP) == _OLD) & after.ne_missing(_NEW))
        .then(pl.lit("-D"))
        .when((pl.col(OP) == _NEW) & before.ne_missing(_OLD))
        .then(pl.lit("+I"))
        .otherwise(pl.col(OP))
    )
    last = () if identified else (*CONTENT, OP)
    return rows.with_columns(op.alias(OP)).sort(*by, *GROUP, *last, maintain_order=True)


def _without_equal(rows: pl.DataFrame) -> pl.DataFrame:
    """Drop updates that changed nothing: both halves are present and equal."""
    update = pl.col(OP).is_in([_OLD, _NEW])
    same = [*GROUP, *CONTENT]
    count = pl.min_horizontal(*((pl.col(OP) == op).sum().over(same) for op in (_OLD, _NEW)))
    number = pl.int_range(pl.len()).over(*same, OP)
    return rows.filter(~(update & (number < count)))


def _net(rows: pl.DataFrame) -> pl.DataFrame:
    """The net changes of rows that are identified only by their content."""
    comes = pl.col(OP).is_in(_COMES)
    count = pl.min_horizontal(comes.sum().over(CONTENT), (~comes).sum().over(CONTENT))
    return rows.filter(pl.int_range(pl.len()).over(*CONTENT, comes) >= count)


KERNEL = Kernel(advance)
