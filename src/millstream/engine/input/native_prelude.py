"""The prelude without Spark: the columns of a scan over rows that a task or the driver has read itself.

It serves scans whose expressions all belong to the native subset (`plan/lowering/native_subset.py`). `prelude.py`
serves the others, and the rows that only Spark can read. Both give the same columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from millstream.clock import EARLIEST, LATEST, Micros
from millstream.connect.port import NO_TIME, OUT_OF_RANGE
from millstream.engine.driver.epoch_io import polars
from millstream.kernels import native_expressions
from millstream.kernels.native_projection import projected
from millstream.kernels.spark_hash import hashed_rows, is_hashable
from millstream.model.types.schema import TIMESTAMP
from millstream.plan.lowering.native_subset import native_projection, scan_value
from millstream.plan.parts import NativeProjection
from millstream.plan.plan import PlannedSource, Scan

SYSTEM = ("$ts", "$part", "$pos", "$bad")
_INSTANT = pl.Datetime("us", "UTC")
_BIGINT_DIGITS = 19
_INT = 1 << 31

Term = tuple[Any, ...]
"""A value, as nested tuples (see `plan/lowering/native_subset.py`)."""


@dataclass(frozen=True)
class NativeScan:
    """A scan and the times of its source."""

    projections: tuple[NativeProjection, ...]
    columns: tuple[tuple[str, Term], ...]
    event_time: str | None
    processing_time: str | None = None
    positions: bool = False
    """Whether rows carry their position."""

    now: Micros = 0
    """The epoch's processing time."""

    def rows(self, source_rows: pl.DataFrame) -> pl.DataFrame | None:
        """The columns of the scan, and the system columns, over rows with the columns of the source, ``$part``,
        ``$pos``, and ``$bad`` if some are errors. None if only Spark can compute them.
        """
        rows = self._timed(source_rows)
        system = [c for c in SYSTEM if c in rows.columns]
        if self.projections:
            found = projected(rows.filter(pl.col("$bad") == 0), self.projections, system)
            if found is None:
                return None
            rows = found
        plain: list[pl.Expr] = []
        for name, term in self.columns:
            expression = _expression(term, rows)
            if expression is not None:
                plain.append(expression.alias(name))
            elif term[0] not in _WHOLE:
                return None
        result = rows.select(*system, *plain)
        for name, term in self.columns:
            if term[0] in _WHOLE:
                column = _WHOLE[term[0]](term, rows)
                if column is None:
                    return None
                result = result.with_columns(column.alias(name))
        return result.select(*system, *(name for name, _ in self.columns))

    def _timed(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows with their event time and whether they are errors."""
        added: list[pl.Expr | pl.Series] = []
        if self.processing_time is not None:
            added.append(pl.lit(self.now, pl.Int64).cast(_INSTANT).alias(self.processing_time))
        bad = rows["$bad"] if "$bad" in rows.columns else None
        if self.event_time is None:
            added.append(pl.lit(self.now, pl.Int64).alias("$ts"))
        else:
            times = rows[self.event_time].to_physical().alias("$ts")
            low, high = times.min(), times.max()
            if times.null_count() or (low is not None and (low < EARLIEST or high > LATEST)):  # type: ignore[operator]
                known = ((times >= EARLIEST) & (times <= LATEST)).fill_null(value=False)
                lost = pl.when(times.is_null()).then(NO_TIME).otherwise(OUT_OF_RANGE)
                before = pl.lit(0) if bad is None else pl.col("$bad")
                why = pl.when(before != 0).then(before).when(known).then(0).otherwise(lost)
                bad = rows.select(why.cast(pl.Int32).alias("$bad"))["$bad"]
                times = rows.select(pl.when(known).then(times).alias("$ts"))["$ts"]
                added.append(pl.when(known).then(pl.col(self.event_time)).alias(self.event_time))
            added.append(times)
        added.append(pl.lit(0, pl.Int32).alias("$bad") if bad is None else bad.cast(pl.Int32))
        timed = rows.with_columns(added)
        return timed if self.positions else timed.drop("$pos", strict=False)


def _expression(term: Term, rows: pl.DataFrame) -> pl.Expr | None:
    if term[0] == "long":
        return pl.lit(term[1], pl.Int64)
    if term[0] == "int":
        return pl.lit(term[1], pl.Int32 if term[1] < _INT else pl.Int64)
    if term[0] == "text":
        return pl.lit(term[1], pl.String)
    if term[0] == "slice":
        _, origin, size = term
        time = pl.col("$ts")
        return time - (time - origin) % size
    return None if term[0] in _WHOLE else native_expressions.value(term, rows)


def _hash(term: Term, rows: pl.DataFrame) -> pl.Series | None:
    """The hash of a key."""
    expressions = [_expression(part, rows) for part in term[1:]]
    known = [e.alias(f"${i}") for i, e in enumerate(expressions) if e is not None]
    if len(known) < len(expressions):
        return None
    columns = rows.with_columns(known).select(f"${i}" for i in range(len(known))).get_columns()
    if not all(is_hashable(c.dtype) for c in columns):
        return None
    return pl.Series(hashed_rows(columns, len(rows)))


def _multiple(term: Term, rows: pl.DataFrame) -> pl.Series | None:
    """A whole number times a decimal constant."""
    _, (_, name), factor, precision, scale = term
    numbers = rows[name]
    if numbers.dtype not in (pl.Int32, pl.Int64):
        return None
    constant = pa.scalar(factor).cast(pa.decimal128(max(scale, len(factor.replace(".", "").lstrip("0"))), scale))
    whole = numbers.cast(pl.Int64).to_arrow().cast(pa.decimal128(_BIGINT_DIGITS, 0))
    product = pc.multiply(whole, constant).cast(pa.decimal128(precision, scale))
    found = pl.from_arrow(product)
    assert isinstance(found, pl.Series)
    return found


def native_scan(source: PlannedSource, scan: Scan) -> NativeScan | None:
    """A scan without Spark; None if only Spark computes all of its columns, or gives one of them another type."""
    options = source.options
    if options.punctuation or options.corrections or options.computed_time is not None or scan.types is None:
        return None
    steps = [native_projection(op) for op in scan.ops]
    terms = [(c.name, scan_value(c.sql)) for c in scan.columns]
    if any(s is None for s in steps) or any(t is None for _, t in terms):
        return None
    time = options.event_time
    found = NativeScan(
        tuple(s for s in steps if s is not None),
        tuple((n, t) for n, t in terms if t is not None),
        time,
        options.processing_time,
        source.positions,
    )
    schema = source.schema.to_arrow()
    if time is not None and (time not in schema.names or schema.field(time).type != TIMESTAMP):
        return None
    nothing = pa.schema([*schema, ("$part", pa.int32()), ("$pos", pa.int64())]).empty_table()
    rows = found.rows(polars(nothing))
    wanted = polars(scan.types.empty_table()).schema
    return found if rows is not None and all(rows.schema[n] == t for n, t in wanted.items()) else None


_WHOLE = {"hash": _hash, "multiple": _multiple}
"""Values that are computed over whole columns, not as expressions of Polars."""
