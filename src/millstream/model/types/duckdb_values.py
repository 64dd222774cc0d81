"""Converts DuckDB results to Arrow, with intervals as durations.

DuckDB exports an INTERVAL in nanoseconds, which overflow after 292 years, and does not indicate whether it has months.
So intervals leave DuckDB as whole microseconds and become durations here. `store/subprocess_child.py` loads this file
by its path, so it imports nothing of Millstream.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

MONTHS = "an interval with months or years has no fixed length, and cannot be a value of a result"
_INTERVAL = "INTERVAL"


class DuckBatches:
    """The result of a relation, batch by batch."""

    def __init__(self, relation: Any, rows: int) -> None:
        kinds = list(relation.types)
        self._held = any(_INTERVAL in str(k) for k in kinds)
        if self._held:
            names = relation.columns
            columns = (
                f"{_whole(f'#{i}', k)} AS {_quoted(n)}" for i, (n, k) in enumerate(zip(names, kinds, strict=True), 1)
            )
            relation = relation.project(", ".join(columns))
        self._reader = relation.to_arrow_reader(rows)
        reader_schema: pa.Schema = self._reader.schema
        fields = (
            [f.with_type(_spans(f.type, k)) for f, k in zip(reader_schema, kinds, strict=True)]
            if self._held
            else reader_schema
        )
        self.schema = pa.schema(fields)
        """The columns, with durations for intervals."""

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._reader:
            if self._held:
                columns = [c.cast(f.type) for c, f in zip(batch.columns, self.schema, strict=True)]
                yield pa.record_batch(columns, schema=self.schema)
            else:
                yield batch

    def close(self) -> None:
        """Release the relation."""
        self._reader.close()


def arrow_table(relation: Any) -> pa.Table:
    """The whole result of a relation."""
    if not any(_INTERVAL in str(k) for k in relation.types):
        return relation.to_arrow_table()
    batches = DuckBatches(relation, 100_000)
    try:
        return pa.Table.from_batches(list(batches), batches.schema)
    finally:
        batches.close()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _whole(x: str, kind: Any, depth: int = 0) -> str:
    """SQL for a value in which intervals are microseconds."""
    if _INTERVAL not in str(kind):
        return x
    if kind.id == "interval":
        months = f"(datepart('year', {x}) <> 0 OR datepart('month', {x}) <> 0)"
        return f"CASE WHEN {months} THEN error('{MONTHS}') ELSE epoch_us({x}) END"
    inner = f"e{depth}"
    if kind.id in ("list", "array"):
        return f"list_transform({x}, lambda {inner}: {_whole(inner, dict(kind.children)['child'], depth + 1)})"
    if kind.id == "map":
        parts = dict(kind.children)
        key, value = (_whole(f"{inner}.{n}", parts[n], depth + 1) for n in ("key", "value"))
        pair = f"{{'key': {key}, 'value': {value}}}"
        return f"map_from_entries(list_transform(map_entries({x}), lambda {inner}: {pair}))"
    fields = (f"{_quoted(n)} := {_whole(f'struct_extract({x}, {_text(n)})', k, depth + 1)}" for n, k in kind.children)
    return f"CASE WHEN {x} IS NULL THEN NULL ELSE struct_pack({', '.join(fields)}) END"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _spans(from_type: pa.DataType, kind: Any) -> pa.DataType:
    """The Arrow type with durations where the store has intervals."""
    if _INTERVAL not in str(kind):
        return from_type
    if kind.id == "interval":
        return pa.duration("us")
    parts = dict(kind.children)
    if kind.id in ("list", "array"):
        field: pa.Field = from_type.value_field
        return pa.list_(field.with_type(_spans(field.type, parts["child"])))
    if kind.id == "map":
        return pa.map_(_spans(from_type.key_type, parts["key"]), _spans(from_type.item_type, parts["value"]))
    return pa.struct([f.with_type(_spans(f.type, parts[f.name])) for f in from_type])
