"""Sources whose files are in a home that executors cannot read: the driver reads them, and sends the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.connect.forms import ArrowRows, Form, SparkFormat
from millstream.connect.port import SourcePort, SourceSlice
from millstream.engine.input.readers.parquet_groups import within
from millstream.model.types.schema import Schema
from millstream.plan.plan import Plan


def read_by_driver(plan: Plan, ports: Mapping[str, SourcePort], home: Path) -> dict[str, SourcePort]:
    """The sources of a plan, for executors that cannot read the home."""
    return {name: _ReadByDriver(port, plan.source(name).schema, home) for name, port in ports.items()}  # type: ignore[misc]


class _ReadByDriver:
    """A source; of its slices, files in the home become rows. All else is that of the source itself."""

    def __init__(self, port: SourcePort, schema: Schema, home: Path) -> None:
        self._port, self._schema, self._home = port, schema, home

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)

    def slice(self, part: SourceSlice) -> Sequence[Form]:
        """The forms of a slice."""
        return [self._sent(f) if self._is_inside(f) else f for f in self._port.slice(part)]

    def _is_inside(self, form: Form) -> bool:
        return (
            isinstance(form, SparkFormat)
            and form.format == "parquet"
            and any(Path(p).is_relative_to(self._home) for p in form.paths)
        )

    def _sent(self, form: Form) -> ArrowRows:
        assert isinstance(form, SparkFormat)
        target = pa.schema([*self._schema.to_arrow(), pa.field("$part", pa.int32()), pa.field("$pos", pa.int64())])
        names = [*self._schema.names, form.partition, form.position]
        tables = [target.empty_table()]
        for path in form.paths:
            table = pq.ParquetFile(path).read(columns=names).select(names).rename_columns(target.names)
            tables.append((table if form.ranges is None else table.filter(within(form.ranges))).cast(target))
        return ArrowRows(pa.concat_tables(tables))
