"""What only Spark can do between two levels (expressions, expanded arrays, Python functions over batches): in the
job's own plan, so that no row leaves the executors.

A record travels in a column of its own (`edge3`), next to the columns of parcels. No step may drop parcels: a condition
becomes a field of the record, and an array is expanded with `explode_outer`. Expressions are evaluated only for records
that passed all conditions before them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from millstream.engine.exchange.graph import Edge
from millstream.engine.exchange.parcels import PARCEL
from millstream.engine.tasks.batches_task import OTHERS, BatchesTask
from millstream.engine.tasks.route_task import KEEP
from millstream.model.reserved import OP, PLACE
from millstream.model.types.schema import ddl_type
from millstream.plan.parts import Batches, Explode, Op, Project
from millstream.plan.rules.guards import calls_guarded
from millstream.plan.rules.output_bounds import bounded

_ARRAY = "$array"


def parcel_columns(edges: Sequence[Edge]) -> str:
    """The columns of parcels, and of the records of edges."""
    columns = [PARCEL]
    for edge in edges:
        assert edge.schema is not None
        fields = ", ".join(f"`{f.name}`: {ddl_type(f.type)}" for f in edge.schema)
        columns.append(f"{edge.column} STRUCT<{fields}>")
    return ", ".join(columns)


def evaluated(parcels: DataFrame, edges: Sequence[Edge]) -> DataFrame:
    """Parcels with the records of edges after their ops."""
    for edge in edges:
        assert edge.schema is not None
        others = ", ".join(f"`{c}`" for c in parcels.columns if c != edge.column)
        spread = parcels.selectExpr(f"struct({others}) AS `{OTHERS}`", f"`{edge.column}`.*")
        carried = tuple(n for n in edge.schema.names if n == OP or n.startswith(PLACE))
        fields = tuple(n for n in edge.schema.names if n not in carried)
        is_record = f"`{OP}` IS NOT NULL AS `{KEEP}`"
        rows = spread.selectExpr(*_quoted(OTHERS), is_record, *_quoted(*carried, *fields))
        records = _Records(rows, carried, fields, edge.functions)
        for op in edge.ops:
            records = records.after(op)
        record = ", ".join(_quoted(KEEP, *records.carried, *records.fields))
        parcels = records.rows.selectExpr(f"`{OTHERS}`.*", f"struct({record}) AS `{edge.column}`")
    return parcels


@dataclass(frozen=True)
class _Records:
    """Parcels and records: `OTHERS`, `KEEP`, and a column for each part of a record."""

    rows: DataFrame
    carried: tuple[str, ...]
    """The kind of change, and the columns of the order."""
    fields: tuple[str, ...]
    functions: tuple[str, ...]
    """The Python functions that expressions may call."""

    def after(self, op: Op) -> _Records:
        """What an op makes of the records."""
        if isinstance(op, Project):
            return self._projected(op)
        if isinstance(op, Explode):
            return self._expanded(op)
        assert isinstance(op, Batches), "a stored table is refused when the plan is bound"
        return self._called(op)

    def _projected(self, op: Project) -> _Records:
        rows = self.rows
        if op.keep is not None:
            keep = f"IF(`{KEEP}`, coalesce({self._sql(op.keep)}, false), false) AS `{KEEP}`"
            rows = rows.selectExpr(*_quoted(OTHERS), keep, *_quoted(*self.carried, *self.fields))
        computed = [
            f"`{c.only_names}` AS `{c.name}`"
            if c.only_names is not None
            else f"IF(`{KEEP}`, {self._sql(c.sql)}, NULL) AS `{c.name}`"
            for c in op.columns
        ]
        rows = rows.selectExpr(*_quoted(OTHERS, KEEP, *self.carried), *computed)
        return replace(self, rows=rows, fields=tuple(c.name for c in op.columns))

    def _expanded(self, op: Explode) -> _Records:
        """One record per element. A parcel, and a record without elements, stay one row."""
        others = tuple(n for n in self.fields if n != op.name)
        array = f"IF(`{KEEP}`, {self._sql(op.array)}, NULL) AS `{_ARRAY}`"
        rows = self.rows.selectExpr(*_quoted(OTHERS, KEEP, *self.carried, *others), array)
        keep = f"`{KEEP}`" if op.keep_empty else f"`{KEEP}` AND coalesce(size(`{_ARRAY}`) > 0, false) AS `{KEEP}`"
        each = f"explode_outer(`{_ARRAY}`) AS `{op.name}`"
        rows = rows.selectExpr(*_quoted(OTHERS), keep, *_quoted(*self.carried, *others), each)
        return replace(self, rows=rows, fields=(*others, op.name))

    def _called(self, op: Batches) -> _Records:
        """What a Python function returns. Its rows have no order."""
        known = {f.name: f.dataType for f in self.rows.schema.fields}
        fields = ", ".join(f"`{f.name}` {ddl_type(f.type)}" for f in op.schema if f.type is not None)
        after = StructType.fromDDL(f"`{OP}` STRING, {fields}")
        assert isinstance(after, StructType)
        head = [StructField(n, known[n]) for n in (OTHERS, KEEP)]
        rows = self.rows.mapInArrow(BatchesTask(op, self.fields).run, StructType([*head, *after.fields]))
        return replace(self, rows=rows, carried=(OP,), fields=op.schema.names)

    def _sql(self, sql: str) -> str:
        """An expression that is evaluated only for records, the calls of Python functions in it too."""
        return calls_guarded(bounded(sql), f"`{KEEP}`", self.functions)


def _quoted(*names: str) -> list[str]:
    return [f"`{n}`" for n in names]
