"""A sink that keeps a stored table up to date: its rows are appended, or replaced and deleted by the key of the table.

The table and the number of the last epoch that was taken into it change in one transaction of the store. So an epoch
that is given again after a crash is known, whatever else has changed the table since.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import polars as pl
import pyarrow as pa

from millstream.errors import RecordRefused
from millstream.model.assignment import Unfit, assigned
from millstream.model.connector import TableTarget
from millstream.model.schema import ddl_type

Change = Callable[[pa.Table], pa.Table]


class ChangesTables(Protocol):
    """Changes a stored table once for each epoch of a writer."""

    def __call__(self, name: str, writer: str, epoch: int, change: Change) -> None:
        """Put what `change` makes of the rows of a table in their place, unless it has that epoch."""
        ...


class TableSink:
    """Writes the changes of epochs to a stored table."""

    def __init__(self, name: str, target: TableTarget, kind: str | None, change: ChangesTables) -> None:
        self._name, self._target, self._kind, self._change = name, target, kind, change

    def write(self, rows: pa.Table, epoch: int, *, writer: str, digest: str | None) -> None:
        """Take an epoch's changes into the table."""
        del digest
        self._change(self._target.table, writer, epoch, lambda there: self._applied(there, rows))

    @property
    def _said(self) -> str:
        return f"the sink `{self._name}` cannot write to the table `{self._target.table}`"

    def _applied(self, there: pa.Table, rows: pa.Table) -> pa.Table:
        target = self._target
        missing = [n for n in target.schema.names if n not in there.column_names]
        if missing:
            raise RecordRefused(
                f"{self._said}: it has no column `{missing[0]}` any more",
                hint=f"DROP SINK {self._name}, and make it again for the columns that are there",
            )
        present = there.select(target.schema.names).cast(target.schema.to_arrow())
        comes = [True] * rows.num_rows
        if self._kind is not None:
            comes = [op in ("+I", "+U") for op in rows[self._kind].to_pylist()]
            rows = rows.drop_columns([self._kind])
        given = self._fitted(rows)
        self._check(given.filter(pa.array(comes, pa.bool_())))
        if not target.key:
            return pa.concat_tables([present, given])
        return self._upserted(present, given, comes)

    def _fitted(self, rows: pa.Table) -> pa.Table:
        """Rows as the table has them; NULL where nothing is given."""
        target = self._target
        given = dict(zip(target.columns, rows.columns, strict=True))
        columns = []
        for field in target.schema.to_arrow():
            if field.name not in given:
                columns.append(pa.nulls(rows.num_rows, field.type))
                continue
            try:
                columns.append(assigned(given[field.name], field.type))
            except Unfit as unfit:
                value = "" if unfit.row is None else f"{str(unfit.value)[:200]}: "
                raise RecordRefused(
                    f"{self._said}: a value of `{field.name}` cannot become {ddl_type(field.type)}",
                    detail=f"{value}{unfit.why}",
                    hint=f"DROP SINK {self._name}, and make it again with a CAST, or with a WHERE that leaves it out",
                ) from None
        return pa.table(columns, schema=target.schema.to_arrow())

    def _check(self, rows: pa.Table) -> None:
        """Refuse NULL where the table has none."""
        for name in dict.fromkeys((*self._target.key, *self._target.required)):
            if rows[name].null_count:
                kind = "its key" if name in self._target.key else "NOT NULL"
                raise RecordRefused(
                    f"{self._said}: NULL in `{name}`, which is {kind}",
                    hint=f"DROP SINK {self._name}, and make it again with coalesce(...), or WHERE {name} IS NOT NULL",
                )

    def _upserted(self, present: pa.Table, given: pa.Table, comes: list[bool]) -> pa.Table:
        """Rows replaced and deleted by the key: what came last is there, and a key of which no row is left is gone."""
        keys = list(self._target.key)
        changes = _frame(given, keys).with_columns(pl.Series("$comes", comes, pl.Boolean)).with_row_index("$at")
        by_key = changes.drop_nulls(keys).group_by(keys, maintain_order=True)
        sign = pl.when(pl.col("$comes")).then(1).otherwise(-1).sum()
        found = by_key.agg(sign.alias("$net"), pl.col("$at").filter("$comes").last().alias("$last"))
        twice = found.filter(pl.col("$net") > 1) if self._kind is not None else found.clear()
        if len(twice):
            said = ", ".join(f"{k} = {twice[k][0]}" for k in keys)
            raise RecordRefused(
                f"the sink `{self._name}` has two rows for the key of `{self._target.table}`: {said}",
                hint="let its query have one row per key, as with GROUP BY",
            )
        old = _frame(present, keys).with_row_index("$at")
        stay = old.join(found, on=keys, how="anti", maintain_order="left")["$at"].to_arrow()
        chosen = found.filter((pl.col("$net") >= 0) & pl.col("$last").is_not_null())["$last"].sort().to_arrow()
        return pa.concat_tables([present.take(stay), given.take(chosen)])


def _frame(rows: pa.Table, keys: list[str]) -> pl.DataFrame:
    frame = pl.from_arrow(rows.select(keys))
    assert isinstance(frame, pl.DataFrame)
    return frame
