"""The manifest of an epoch whose rows tasks have written to a sink themselves: the names of its parts, in order.

The outbox stages it in place of the rows, as an Arrow file of the same form and name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from millstream.connect.port import SinkPart

_SCHEMA = pa.schema([("name", pa.string()), ("rows", pa.int64()), ("bytes", pa.int64()), ("crc", pa.int64())])
_GENERATION = b"parts of generation"


@dataclass(frozen=True)
class PartsManifest:
    """The parts of one sink and epoch, and the generation of the sink that wrote them."""

    generation: int
    parts: Sequence[SinkPart]

    def to_table(self) -> pa.Table:
        """The manifest as rows, one per part."""
        columns = [[getattr(p, f.name) for p in self.parts] for f in _SCHEMA]
        table = pa.table([pa.array(c, f.type) for c, f in zip(columns, _SCHEMA, strict=True)], schema=_SCHEMA)
        return table.replace_schema_metadata({_GENERATION: str(self.generation).encode()})

    @classmethod
    def of(cls, table: pa.Table) -> PartsManifest | None:
        """Read what `to_table` wrote; None for the changes themselves."""
        generation = (table.schema.metadata or {}).get(_GENERATION)
        return None if generation is None else cls(int(generation), tuple(SinkPart(**row) for row in table.to_pylist()))


def staged_table(path: Path) -> pa.Table:
    """The rows of a staged file: changes, or the parts of a manifest."""
    with pa.ipc.open_file(path.read_bytes()) as file:
        return file.read_all()
