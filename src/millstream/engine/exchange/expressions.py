"""Expressions that only Spark can evaluate, between two levels: as columns of the job's own plan, so that no row leaves
the executors.

A record travels in a column of its own (`edge3`), next to the columns of parcels. A condition becomes a field of the
record, because a filter would drop parcels. Expressions are evaluated only for records that passed all conditions
before them.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from millstream.engine.exchange.graph import ORDER, Edge
from millstream.engine.exchange.parcels import PARCEL
from millstream.engine.exchange.route_task import KEEP
from millstream.model.reserved import OP
from millstream.model.types.schema import ddl_type
from millstream.plan.parts import Project
from millstream.plan.rules.output_bounds import bounded

_OTHERS = "$others"


def parcel_columns(edges: Sequence[Edge]) -> str:
    """The columns of parcels, and of the records of edges."""
    columns = [PARCEL]
    for edge in edges:
        assert edge.schema is not None
        fields = ", ".join(f"`{f.name}`: {ddl_type(f.type)}" for f in edge.schema)
        columns.append(f"{edge.column} STRUCT<{fields}>")
    return ", ".join(columns)


def evaluated(parcels: DataFrame, edges: Sequence[Edge]) -> DataFrame:
    """Parcels with the records of edges after their projections."""
    for edge in edges:
        others = ", ".join(f"`{c}`" for c in parcels.columns if c != edge.column)
        rows = parcels.selectExpr(f"struct({others}) AS `{_OTHERS}`", f"`{edge.column}`.*")
        assert edge.schema is not None
        carried = [f"`{c}`" for c in (OP, *(n for n in edge.schema.names if n.startswith(ORDER)))]
        fields = [n for n in edge.schema.names if f"`{n}`" not in carried]
        rows = rows.selectExpr(f"`{_OTHERS}`", f"`{OP}` IS NOT NULL AS `{KEEP}`", *carried, *(f"`{n}`" for n in fields))
        for op in edge.ops:
            rows, fields = _projected(rows, op, carried, fields)
        record = ", ".join([f"`{KEEP}`", *carried, *(f"`{n}`" for n in fields)])
        parcels = rows.selectExpr(f"`{_OTHERS}`.*", f"struct({record}) AS `{edge.column}`")
    return parcels


def _projected(
    rows: DataFrame, op: Project, carried: Sequence[str], fields: Sequence[str]
) -> tuple[DataFrame, list[str]]:
    """Records after one projection, and the names of their fields."""
    if op.keep is not None:
        keep = f"IF(`{KEEP}`, coalesce({bounded(op.keep)}, false), false) AS `{KEEP}`"
        rows = rows.selectExpr(f"`{_OTHERS}`", keep, *carried, *(f"`{n}`" for n in fields))
    computed = [
        f"`{c.only_names}` AS `{c.name}`"
        if c.only_names is not None
        else f"IF(`{KEEP}`, {bounded(c.sql)}, NULL) AS `{c.name}`"
        for c in op.columns
    ]
    again = [c for c in carried if c.strip("`") not in {column.name for column in op.columns}]
    return rows.selectExpr(f"`{_OTHERS}`", f"`{KEEP}`", *again, *computed), [c.name for c in op.columns]
