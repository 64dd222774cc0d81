"""A sink that maintains a stored table: its rows are appended, or upserted and deleted by the key of the table.

The table and the number of the last epoch that was applied to it change in one transaction of the store. So an epoch
that is delivered again after a crash is recognised, whatever else has changed the table since. The keys that the query
has rows for are kept in the same transaction: a second row for one of them is an error, in whichever epoch it arrives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import polars as pl
import pyarrow as pa

from millstream.connect.port import SinkBase
from millstream.errors import RecordRefused
from millstream.model.connectors import TableTarget
from millstream.model.guarantees import SinkGuarantee
from millstream.model.types.assignment import Unfit, assigned_table
from millstream.model.types.schema import ddl_type
from millstream.state.ipc import ipc_bytes
from millstream.store.port import WriterState

Change = Callable[[pa.Table, bytes | None], tuple[pa.Table, bytes | None]]
"""Computes the new rows of a table from its current rows, and the new keys of a sink from the previous ones."""


ChangesTable = Callable[[str, str, int, Change], None]
"""Applies a change to the rows of a table unless it already has that epoch. Arguments: table, writer, epoch."""


class KeepsTables(Protocol):
    """The part of the store that is needed here."""

    def writer_state(self, name: str, writer: str) -> WriterState:
        """What a stored table has of a sink."""
        ...

    def table_rows(self, name: str) -> pa.Table:
        """The rows of a stored table, as they were written."""
        ...


def changed(
    store: KeepsTables, name: str, writer: str, epoch: int, change: Change
) -> tuple[pa.Table, WriterState] | None:
    """Compute the new rows of a table for an epoch of a sink, and what to record with
    them; None if it has that epoch.
    """
    before = store.writer_state(name, writer)
    if before.epoch >= epoch:
        return None
    rows, keys = change(store.table_rows(name), before.keys)
    return rows, WriterState(writer, epoch, keys)


@dataclass(frozen=True)
class TableAccess:
    """How sinks change stored tables."""

    change: ChangesTable
    store: KeepsTables


class TableSink(SinkBase):
    """Writes the changes of epochs to a stored table."""

    guarantee = SinkGuarantee.TRANSACTIONAL

    def __init__(self, name: str, target: TableTarget, kind: str | None, tables: TableAccess, writer: str) -> None:
        self._name, self._target, self._kind, self._tables = name, target, kind, tables
        self.writer = writer

    def last_epoch(self, writer: str) -> int | None:
        """Return the epoch that was recorded with the rows."""
        return self._tables.store.writer_state(self._target.table, writer).epoch

    def write(self, epoch: int, changes: pa.Table, *, digest: str | None = None) -> None:
        """Apply an epoch's changes to the table."""
        del digest
        self._tables.change(
            self._target.table, self.writer, epoch, lambda there, keys: self._applied(there, changes, keys)
        )

    def confirm(self, epoch: int, changes: pa.Table, *, digest: str | None = None) -> None:
        """Do nothing: the store holds both the table and the epoch, so the table has what was written to it."""

    @property
    def _refusal(self) -> str:
        return f"the sink `{self._name}` cannot write to the table `{self._target.table}`"

    def _applied(self, there: pa.Table, rows: pa.Table, keys: bytes | None) -> tuple[pa.Table, bytes | None]:
        target = self._target
        missing = [n for n in target.schema.names if n not in there.column_names]
        if missing:
            raise RecordRefused(
                f"{self._refusal}: it has no column `{missing[0]}` any more",
                hint=f"DROP SINK {self._name}, and create it again for the current columns",
            )
        present = there.select(target.schema.names).cast(target.schema.to_arrow())
        comes = [True] * rows.num_rows
        if self._kind is not None:
            comes = [op in ("+I", "+U") for op in rows[self._kind].to_pylist()]
            rows = rows.drop_columns([self._kind])
        new_rows = self._fitted(rows)
        self._check(new_rows.filter(pa.array(comes, pa.bool_())))
        if not target.key:
            return pa.concat_tables([present, new_rows]), None
        if self._kind is None:
            return self._replaced(present, new_rows), None
        return self._upserted(present, new_rows, comes, keys)

    def _fitted(self, rows: pa.Table) -> pa.Table:
        """Convert rows to the columns of the table; missing columns are NULL."""
        target = self._target
        by_column = dict(zip(target.columns, rows.columns, strict=True))

        def refused(unfit: Unfit, field: pa.Field) -> RecordRefused:
            value = "" if unfit.row is None else f"{str(unfit.value)[:200]}: "
            return RecordRefused(
                f"{self._refusal}: a value of `{field.name}` cannot become {ddl_type(field.type)}",
                detail=f"{value}{unfit.why}",
                hint=f"DROP SINK {self._name}, and create it again with a CAST, or with a WHERE that excludes it",
            )

        return assigned_table(target.schema.to_arrow(), by_column, rows.num_rows, refused)

    def _check(self, rows: pa.Table) -> None:
        """Refuse NULL in NOT NULL columns."""
        for name in dict.fromkeys((*self._target.key, *self._target.required)):
            if rows[name].null_count:
                kind = "its key" if name in self._target.key else "NOT NULL"
                raise RecordRefused(
                    f"{self._refusal}: NULL in `{name}`, which is {kind}",
                    hint=f"DROP SINK {self._name}, and create it again with coalesce(...), or WHERE {name} IS NOT NULL",
                )

    def _replaced(self, present: pa.Table, new_rows: pa.Table) -> pa.Table:
        """Apply rows of an append-only query: each replaces the row with the same key."""
        keys = list(self._target.key)
        new = _frame(new_rows, keys).with_row_index("$at").unique(keys, keep="last", maintain_order=True)
        old = _frame(present, keys).with_row_index("$at").join(new, on=keys, how="anti", maintain_order="left")
        return pa.concat_tables([present.take(old["$at"].to_arrow()), new_rows.take(new["$at"].to_arrow())])

    def _upserted(
        self, present: pa.Table, new_rows: pa.Table, comes: list[bool], own_keys: bytes | None
    ) -> tuple[pa.Table, bytes]:
        """Upsert and delete rows by key; returns also the keys that the query has a row for now."""
        keys = list(self._target.key)
        known = _frame(_read(own_keys) if own_keys is not None else present.slice(0, 0), keys)
        changes = _frame(new_rows, keys).with_columns(pl.Series("$comes", comes, pl.Boolean)).with_row_index("$at")
        at, sign = pl.col("$at"), pl.when(pl.col("$comes")).then(1).otherwise(-1).sum()
        places = (
            changes.drop_nulls(keys)
            .group_by(keys, maintain_order=True)
            .agg(
                sign.alias("$net"),
                at.filter("$comes").last().alias("$last"),
                at.filter(~pl.col("$comes")).last().alias("$gone"),
            )
            .join(known.with_columns(pl.lit(True).alias("$known")), on=keys, how="left", maintain_order="left")
            .with_columns(pl.col("$known").fill_null(False))
        )
        # A retracted row existed, even where no keys were kept: by an earlier version, or before a restore.
        before = (pl.col("$known") | (pl.col("$net") <= 0)).cast(pl.Int64)
        places = places.with_columns((pl.col("$net") + before).alias("$rows"))
        self._refuse_two(places.filter(pl.col("$rows") > 1))
        lives = (pl.col("$rows") == 1) & pl.col("$last").is_not_null()
        old = _frame(present, keys).with_row_index("$at")
        there = old.join(places.with_columns(lives.alias("$lives")), on=keys, how="inner", maintain_order="left")
        sure = there.filter(pl.col("$lives") | pl.col("$known"))["$at"].to_list()
        doubtful = there.filter(~(pl.col("$lives") | pl.col("$known")))
        same = [
            i
            for i, gone in zip(doubtful["$at"], doubtful["$gone"], strict=True)
            if self._same(present, i, new_rows, gone)
        ]
        removed = pl.Series("$at", [*sure, *same], old["$at"].dtype)
        stay = old.filter(~pl.col("$at").is_in(removed.implode()))["$at"].to_arrow()
        new = places.filter(lives)
        rows = pa.concat_tables([present.take(stay), new_rows.take(new["$last"].sort().to_arrow())])
        now = pl.concat([known.join(places, on=keys, how="anti", maintain_order="left"), new.select(keys)])
        written = now.to_arrow().cast(present.select(keys).schema)
        return rows, ipc_bytes(written, pa.ipc.new_stream).to_pybytes()

    def _same(self, present: pa.Table, at: int, new_rows: pa.Table, gone: int) -> bool:
        """Whether a row of the table equals the retracted one in the columns that the sink writes."""
        names = list(self._target.columns)
        return bool(present.select(names).slice(at, 1).to_pylist() == new_rows.select(names).slice(gone, 1).to_pylist())

    def _refuse_two(self, twice: pl.DataFrame) -> None:
        if len(twice):
            values = ", ".join(f"{k} = {twice[k][0]}" for k in self._target.key)
            raise RecordRefused(
                f"the sink `{self._name}` has two rows for the key of `{self._target.table}`: {values}",
                hint=f"DROP SINK {self._name}, and create it again with one row per key, as with GROUP BY",
            )


def _frame(rows: pa.Table, keys: list[str]) -> pl.DataFrame:
    frame = pl.from_arrow(rows.select(keys))
    assert isinstance(frame, pl.DataFrame)
    return frame


def _read(keys: bytes) -> pa.Table:
    with pa.ipc.open_stream(pa.py_buffer(keys)) as reader:
        return reader.read_all()
