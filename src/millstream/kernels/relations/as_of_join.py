"""The kernel of as-of joins: matches each left row with the right row that was valid at its time.

A left row waits until the watermark proves that all right rows it might match have arrived. A result is therefore
final, and the output is append-only. Right rows that no future left row can match are dropped from state.
"""

from __future__ import annotations

import polars as pl

from millstream.clock import END_OF_TIME
from millstream.kernels.kernel import Inputs, Kernel, Services, States
from millstream.kernels.outcome import OperatorClock, Outcome, keeping
from millstream.kernels.relations.changes import (
    CONTENT,
    GROUP,
    arrived,
    hashes_of,
    held,
    repeated,
    types_of,
    whole,
    written,
)
from millstream.kernels.relations.hold_until import is_due, waiting
from millstream.model.reserved import OP
from millstream.plan.operators.relations.as_of_join import AsOfJoin


def advance(operator: AsOfJoin, inputs: Inputs, states: States, clock: OperatorClock, services: Services) -> Outcome:
    """Run one epoch of an as-of join."""
    del services
    came, held_rows = (inputs["left"], inputs["right"]), (states["left"], states["right"])
    left, right = operator.sides
    slack = max(operator.slack)
    ahead = 0 if operator.direction == "backward" else operator.tolerance or 0
    until = (_time(operator.times[0]) + (slack + ahead)).fill_null(0)
    rows, due = waiting(left, operator.keys, came[0], held_rows[0], clock, until)
    new = None
    if came[1] is not None and len(came[1]):
        new = arrived(right, operator.keys, came[1], clock, () if right.append_only else None)
    before = held(held_rows[1], hashes_of(new, due), clock)
    none = pl.DataFrame(schema={**dict.fromkeys((*GROUP, *CONTENT, "$d"), pl.Int64), **types_of(right)})
    there = whole(right, before, none if new is None else new)
    given = _matched(operator, due, there) if len(due) else None
    past = clock.watermark - slack - (operator.tolerance or 0 if operator.direction != "backward" else 0)
    kept = _pruned(operator, there, past)
    written_left = None
    if rows is not None:
        changed = rows.filter((pl.col("$x") > clock.watermark) & (pl.col("$n") != pl.col("$was")))
        written_left = written(changed, pl.col("$x"), left.columns) if len(changed) else None
    never = pl.lit(END_OF_TIME, pl.Int64)
    written_right = written(kept, never, right.columns) if len(kept) else None
    return keeping(given, left=written_left, right=written_right)


def _time(column: str) -> pl.Expr:
    return pl.col(column).cast(pl.Datetime("us", "UTC")).cast(pl.Int64)


def _matched(operator: AsOfJoin, due: pl.DataFrame, there: pl.DataFrame) -> pl.DataFrame | None:
    """Left rows with their right row, or with NULLs if there is none."""
    mine, theirs = operator.times
    known = pl.all_horizontal(pl.lit(value=True), *(pl.col(k).is_not_null() for k in operator.keys))
    rows = repeated(due, due["$n"].to_numpy()).with_columns(_time(mine).alias("$t"))
    rows = rows.sort("$t", *CONTENT).with_row_index("$at")
    versions = there.filter((pl.col("$n") > 0) & known).with_columns(_time(theirs).alias("$t"))
    versions = versions.sort("$t", *CONTENT).select(*GROUP, "$t", *operator.right)
    met = rows.filter(known & pl.col("$t").is_not_null()).select("$at", "$t", *GROUP)
    found = met.join_asof(
        versions.filter(pl.col("$t").is_not_null()).with_columns(pl.lit(value=True).alias("$met")),
        on="$t",
        by=list(GROUP),
        strategy=operator.direction,  # type: ignore[arg-type]
        tolerance=operator.tolerance,
        allow_exact_matches=not operator.strict,
        check_sortedness=False,
    )
    joined = rows.join(found.drop("$t", *GROUP), on="$at", how="left", maintain_order="left")
    if operator.required:
        joined = joined.filter(pl.col("$met"))
    return joined.select(pl.lit("+I").alias(OP), *operator.result) if len(joined) else None


def _pruned(operator: AsOfJoin, rows: pl.DataFrame, past: int) -> pl.DataFrame:
    """The changes to the kept right rows: rows that arrived or were deleted, and rows that nothing can match
    any more.
    """
    time = _time(operator.times[1])
    if operator.direction == "backward":
        following = time.shift(-1).over(*GROUP, order_by=time)
        over = (following <= past).fill_null(value=False)
    elif operator.direction == "forward":
        over = time < past
    else:
        over = time < past - (operator.tolerance or 0)
    there = rows.filter(pl.col("$n") > 0).with_columns(over.alias("$over"))
    gone = there.filter("$over").with_columns(pl.lit(0, pl.Int64).alias("$n"))
    stay = pl.concat([there.filter(~pl.col("$over")), gone]).drop("$over")
    changed = pl.concat([stay, rows.filter(pl.col("$n") == 0)])
    return changed.filter(pl.col("$n") != pl.col("$was"))


KERNEL = Kernel(advance, is_due)
