"""Rows sent by the program itself, for tests and small programs; partitions and offsets are exact."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson
import pyarrow as pa

from millstream.clock import Micros
from millstream.connect.forms import ArrowRows, Form
from millstream.connect.port import MISTYPED, Offsets, SourceBase, SourceFacts, SourceSlice
from millstream.connect.registry import Offline, SourceContext
from millstream.model.connectors import Memory
from millstream.model.types.assignment import Unfit, from_values
from millstream.model.types.schema import Schema
from millstream.model.types.values import in_json, readable


class MemorySource(SourceBase):
    """A memory connector as a source."""

    def __init__(self, memory: Memory, schema: Schema) -> None:
        self._memory = memory
        self._schema = schema

    def head(self, now: Micros) -> Offsets:
        """What was sent so far."""
        del now
        sent = self._memory.rows
        return {p: len(sent[p]) if p < len(sent) else 0 for p in range(self._memory.partitions)}

    def admit(self, start: Offsets, head: Offsets, limit: int | None) -> SourceSlice:
        """Everything that was sent, or `limit` rows of every partition."""
        ranges = {}
        for partition, end in head.items():
            first = start.get(partition, 0)
            ranges[partition] = (first, max(first, end if limit is None else min(end, first + limit)))
        return SourceSlice(ranges)

    def finished(self, start: Offsets) -> bool:
        """Whether `end` was called and everything was read."""
        return self._memory.ended.is_set() and all(start.get(p, 0) >= end for p, end in self.head(0).items())

    def end(self) -> Offsets | None:
        """What was sent in this process."""
        return self.head(0)

    def pending(self, at: Offsets, now: Micros) -> int | None:
        """What was sent and not read."""
        return sum(max(0, end - at.get(p, 0)) for p, end in self.head(now).items())

    def describe(self) -> SourceFacts:
        """An offset is a record."""
        return SourceFacts("memory", record_per_offset=True)

    def slice(self, part: SourceSlice) -> Sequence[Form]:
        """The rows themselves."""
        return [ArrowRows(self.table(part))]

    def table(self, part: SourceSlice) -> pa.Table:
        """The rows of a slice; those that do not match the schema are marked."""
        records, places = [], []
        for partition, (start, end) in sorted(part.ranges.items()):
            for offset in range(start, end):
                records.append(self._memory.rows[partition][offset])
                places.append((partition, offset))
        columns: dict[str, pa.Array] = {}
        bad = [0] * len(records)
        for field in self._schema:
            assert field.type is not None
            values = [r.get(field.name) for r in records]
            try:
                columns[field.name] = from_values(values, field.type, seconds=True)
            except Unfit:
                columns[field.name] = _one_by_one(values, field.type, bad)
        columns["$part"] = pa.array([p for p, _ in places], pa.int32())
        columns["$pos"] = pa.array([o for _, o in places], pa.int64())
        columns["$bad"] = pa.array(bad, pa.int32())
        columns["$raw"] = pa.array(
            [_raw(r) if b else None for r, b in zip(records, bad, strict=True)],
            pa.string(),
        )
        return pa.table(columns)


def _raw(record: dict[str, Any]) -> str:
    """A bad record as text, whatever it contains."""
    try:
        return orjson.dumps(record, default=in_json, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:
        return readable(repr(record).encode(errors="backslashreplace"))


def _one_by_one(values: list[Any], kind: pa.DataType, bad: list[int]) -> pa.Array:
    good = []
    for row, value in enumerate(values):
        try:
            good.append(from_values([value], kind, seconds=True))
        except Unfit:
            bad[row] = MISTYPED
            good.append(pa.nulls(1, kind))
    return pa.concat_arrays(good)


class MemoryOffline:
    """What a repair can determine about rows that a program sent: they are gone."""

    def problems(self, place: Offline, at: Mapping[str, int]) -> Iterator[str]:
        """None: the program may send them again."""
        del place, at
        return iter(())

    def cannot_begin(self, place: Offline) -> str | None:
        """They were lost with the process."""
        return f"the rows of `{place.source}` were in memory and are gone"


def open_memory(context: SourceContext) -> MemorySource:
    """Open rows of this process as a source."""
    assert isinstance(context.connector, Memory)
    return MemorySource(context.connector, context.schema)
