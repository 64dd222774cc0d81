"""Replay of late records: recomputes expired windows from all records of their time.

The state of these windows is gone, so the engine reads the records again; that is correct for every aggregate. The
windows are all those that a late record belonged to. The result is the difference from the rows of the view.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from millstream.clock import BEGINNING
from millstream.errors import Unsupported
from millstream.kernels.aggregates.combine import fold
from millstream.kernels.windows import assign
from millstream.kernels.windows.firing import answers, result_rows
from millstream.kernels.windows.panes import identity
from millstream.model.reserved import OP
from millstream.plan.operators.aggregates.aggregation import Aggregation
from millstream.plan.operators.operator import Operator


def check(operator: Operator, view: str) -> Aggregation:
    """Refuse operators whose late records cannot be replayed."""
    why = operator.replay_refusal
    if why is not None:
        raise Unsupported(
            f"the late records of `{view}` cannot be replayed",
            detail=why,
            hint=f"they can be read with SELECT * FROM `{view}$late`",
        )
    assert isinstance(operator, Aggregation)
    return operator


def windows_of(stage: Aggregation, times: Sequence[int]) -> pl.DataFrame:
    """The windows (``$s``, ``$e``) that records of these times belong to."""
    rows = pl.DataFrame({"$s": times}, schema={"$s": pl.Int64}).unique()
    if assign.by_slices(stage):
        rows = assign.slices(stage, assign.sliced(stage, rows), BEGINNING)
    else:
        rows = assign.rows(stage, rows)
    return rows.select("$s", "$e").unique().sort("$s", "$e")


def recomputed(stage: Aggregation, partials: pl.DataFrame | None, windows: pl.DataFrame) -> pl.DataFrame | None:
    """The results of these windows over partials of all records of their time; None if there are none."""
    if partials is None:
        return None
    if assign.by_slices(stage):
        partials = assign.slices(stage, partials, BEGINNING).drop("$slice")
    inside = partials.join(windows, on=["$s", "$e"], how="semi")
    whole = fold(stage, inside, identity(stage))
    return result_rows(stage, whole, answers(stage, whole), "+I")


def difference(old: pl.DataFrame, new: pl.DataFrame, identity: Sequence[str], *, retract: bool) -> pl.DataFrame:
    """The changes (with `OP`) from the rows of a view to other rows."""
    by = list(identity)
    rows = [c for c in new.columns if c != OP]
    old = old.select(rows)
    gone, added = old, new.select(rows)
    if not any(new.schema[c].is_nested() for c in rows):
        same = old.join(added, on=rows, how="semi", nulls_equal=True)
        gone = old.join(same, on=rows, how="anti", nulls_equal=True)
        added = added.join(same, on=rows, how="anti", nulls_equal=True)
    known = added.join(gone, on=by, how="semi", nulls_equal=True)
    fresh = added.join(gone, on=by, how="anti", nulls_equal=True)
    lost = gone.join(added, on=by, how="anti", nulls_equal=True)
    again = gone.join(added, on=by, how="semi", nulls_equal=True)
    parts = [(fresh, "+I"), (again if retract else again.clear(), "-U"), (known, "+U"), (lost, "-D")]
    return pl.concat([f.select(pl.lit(op).alias(OP), pl.all()) for f, op in parts])
