"""Reads a slice as one DataFrame, whatever forms its source provides. The prelude runs over the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from millstream.connect.forms import ArrowRows, ByteRanges, FileSet, Form, PythonRanges, SparkFormat
from millstream.connect.port import SourcePort, SourceSlice
from millstream.engine.input.readers import arrow_rows, byte_ranges, files, python_ranges, spark_batch
from millstream.engine.input.readers.columns import FormRead, Wanted, ddl, selected
from millstream.plan.plan import PlannedSource

READERS: dict[type, Callable[[SparkSession, Wanted, Any], FormRead | list[FormRead]]] = {
    FileSet: files.read,
    ByteRanges: byte_ranges.read,
    ArrowRows: arrow_rows.read,
    SparkFormat: spark_batch.read,
    PythonRanges: python_ranges.read,
}
"""The reader of each form."""


@dataclass(frozen=True)
class SliceRead:
    """A slice as a DataFrame."""

    frame: DataFrame
    scanned: bool
    """Whether reading it twice would mean scanning and parsing it twice."""
    lenient: bool = False
    """Whether good rows may count as bad (see `read`)."""
    doubtful: Callable[[], DataFrame | None] = lambda: None
    """After the rows were read: some of them, with details, which contain the errors; None if these are not known."""


def read(
    spark: SparkSession,
    stage: PlannedSource,
    port: SourcePort,
    part: SourceSlice,
    now: int,
    *,
    strict: bool = True,
    details: bool = False,
    only: frozenset[str] | None = None,
    forms: Sequence[Form] | None = None,
) -> SliceRead:
    """The rows of a slice, with all columns of the source or `only` some. With `details`, also ``$where`` and ``$pos``
    of each row and its ``$raw`` text, for error tables. Pass the `forms` of the slice if they are known.

    Spark's parsers are a third slower if they keep the text of bad records. Without `strict` they do not keep it, and
    every row with a NULL counts as bad: a slice without such rows is proved good; any other must be read again,
    strictly.
    """
    wanted = Wanted(stage, now, strict, details, only)
    reads: list[FormRead] = []
    for form in port.slice(part) if forms is None else forms:
        found = READERS[type(form)](spark, wanted, form)
        reads += found if isinstance(found, list) else [found]
    if not reads:
        return SliceRead(empty(spark, stage), scanned=False)
    frame = _together(reads, wanted)
    return SliceRead(frame, any(r.scanned for r in reads), any(r.lenient for r in reads), _doubtful(reads, wanted))


def _doubtful(reads: Sequence[FormRead], wanted: Wanted) -> Callable[[], DataFrame | None]:
    """The doubtful rows of a slice of one form."""
    known = reads[0].doubtful if len(reads) == 1 else None

    def found() -> DataFrame | None:
        rows = None if known is None else known()
        return None if rows is None else rows.selected(replace(wanted, details=True, only=None), by_line=True)

    return found


def _together(reads: Sequence[FormRead], wanted: Wanted) -> DataFrame:
    """The rows of all forms. Plain forms are merged before columns are computed."""
    if len(reads) > 1 and all(r.plain for r in reads):
        reads = [FormRead(reduce(DataFrame.unionByName, (r.frame for r in reads)))]
    by_line = any(r.block is not None for r in reads)
    return reduce(DataFrame.unionByName, (r.selected(wanted, by_line=by_line) for r in reads))


def empty(spark: SparkSession, stage: PlannedSource) -> DataFrame:
    """A DataFrame with the columns of a source and no rows, for binding types."""
    frame = spark.createDataFrame([], ddl(stage.schema, "`$part` INT", "`$pos` BIGINT", "`$bad` INT"))
    return selected(frame, stage, 0, "`$bad`", {"$part": "`$part`", "$pos": "`$pos`"}, stage.schema.names)
