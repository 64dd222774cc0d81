"""Applies the stateless steps after an operator (where, select, with_columns) to changes, in Spark SQL like all
expressions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from millstream.engine.driver.epoch_io import polars
from millstream.engine.input import prelude
from millstream.engine.spark.frames import collected, frame_of
from millstream.errors import Unsupported
from millstream.kernels.native_projection import projected
from millstream.model.reserved import OP
from millstream.plan.lowering.native_subset import native_projection
from millstream.plan.parts import Batches, Explode, Op, Project
from millstream.plan.rules.output_bounds import bounded


def computed(spark: Any, ops: Sequence[Op], changes: pa.Table) -> pa.Table:
    """The changes after ops. A Python function receives added and removed rows separately."""
    swift = _swift(ops, changes)
    if swift is not None:
        return swift
    if any(isinstance(op, Batches) for op in ops):
        signs = pc.is_in(changes[OP], pa.array(["+I", "+U"]))
        halves = [(changes.filter(pc.invert(signs)), "-D"), (changes.filter(signs), "+I")]
        there = [h for h in halves if h[0].num_rows] or halves[:1]
        return pa.concat_tables([collected(through(frame_of(spark, rows), ops, kind)) for rows, kind in there])
    return collected(through(frame_of(spark, changes), ops))


def _swift(ops: Sequence[Op], changes: pa.Table) -> pa.Table | None:
    """The result of projections over changes if they need no Spark: renamed columns, plain comparisons. For few rows, a
    Spark job takes longer than everything else.
    """
    if not changes.num_rows:
        return None
    native = [native_projection(op) for op in ops]
    if any(n is None for n in native):
        return None
    rows = projected(polars(changes), [n for n in native if n is not None], (OP,))
    return None if rows is None else rows.to_arrow()


def through(frame: DataFrame, ops: Sequence[Op], kind: str = "+I") -> DataFrame:
    """Changes after ops, with their kind. The rows that a Python function returns are changes of one `kind`."""
    for part in ops:
        if isinstance(part, Project):
            frame = frame if part.keep is None else frame.where(bounded(part.keep))
            frame = frame.selectExpr(f"`{OP}`", *(f"{bounded(c.sql)} AS `{c.name}`" for c in part.columns))
        elif isinstance(part, Explode):
            frame = prelude.exploded(frame, part)
        elif isinstance(part, Batches):
            frame = prelude.mapped(frame, part).selectExpr(f"'{kind}' AS `{OP}`", "*")
        else:
            raise Unsupported(f"a stored table cannot be joined behind a step that keeps state: `{part.table}`")
    return frame
