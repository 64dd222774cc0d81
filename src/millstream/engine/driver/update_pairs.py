"""Repairs changes after a view's last projection, which may have filtered out one half of an update. Without Spark."""

from __future__ import annotations

import polars as pl
import pyarrow as pa

from millstream.model.reserved import OP
from millstream.plan.plan import PlannedView


def paired(view: PlannedView, changes: pa.Table) -> pa.Table:
    """The changes of a view after its last projection, which may have filtered out rows."""
    assert view.post is not None
    if view.post.renames is not None or view.identity is None:
        return changes
    return _paired(changes, view.identity, retract=view.retracts and view.operator.retracting)


def _paired(changes: pa.Table, identity: tuple[str, ...], *, retract: bool) -> pa.Table:
    """Turn an update whose other half was filtered out into an insert or a delete."""
    rows = pl.from_arrow(changes)
    assert isinstance(rows, pl.DataFrame)
    if not len(rows):
        return changes
    keys = list(identity)
    halves = pl.col(OP).is_in(["-U"]).any(), pl.col(OP).is_in(["+U"]).any()
    old, new = (h.over(keys) if keys else h for h in halves)
    op = (
        pl.when((pl.col(OP) == "-U") & ~new)
        .then(pl.lit("-D"))
        .when((pl.col(OP) == "+U") & ~old)
        .then(pl.lit("+I"))
        .otherwise(pl.col(OP))
    )
    paired = rows.with_columns(op.alias(OP))
    return (paired if retract else paired.filter(pl.col(OP) != "-U")).to_arrow()
