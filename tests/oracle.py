"""The oracle of a view: the same query as a batch over the same records, in DuckDB, compared as multisets."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from millstream.result import plain
from tests.duck import connected


def batch(sql: str, **tables: pa.Table) -> list[dict[str, Any]]:
    """Run a query over Arrow tables."""
    with connected() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        return [dict(r) for r in connection.sql(sql).to_arrow_table().to_pylist()]


def same(found: Iterable[Mapping[str, Any]], expected: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Both sides hold the same rows the same number of times; floats to twelve digits."""
    got, want = (Counter(_row(r, columns) for r in rows) for rows in (found, expected))
    assert got == want, f"missing {list((want - got).elements())[:5]}, unexpected {list((got - want).elements())[:5]}"


def _row(row: Mapping[str, Any], columns: Sequence[str]) -> tuple[Any, ...]:
    return tuple(_cell(row[c]) for c in columns)


def _cell(value: Any) -> Any:
    if isinstance(value, float) and math.isfinite(value):
        return float(f"{value:.12g}")
    if isinstance(value, Decimal) and value.as_tuple().exponent == 0:
        return int(value)  # DuckDB sums BIGINT into HUGEINT
    value = plain(value)
    return tuple(_cell(v) for v in value) if isinstance(value, list) else value
