"""The columns that every reader provides: those of the source, the system columns ``$ts $part $bad``, and ``$pos``
where it is needed.

``$ts`` is the event time in micros (the epoch's processing time for sources without one). With punctuation, ``$mark``
is the same for records that promise it, and NULL for others. Rows too far in the future are detected downstream, where
the epoch's clock is available as data: a number in the SQL that changes with every epoch would make Spark compile the
query again each time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame

from millstream.clock import EARLIEST, LATEST
from millstream.connect.port import MISTYPED, NO_TIME, OUT_OF_RANGE, UNPARSABLE
from millstream.model.types.schema import Schema, ddl_type
from millstream.plan.plan import PlannedSource
from millstream.plan.rules.output_bounds import bounded

DELETES = "('D', 'DELETE', '-D', '-U')"
TEXT_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": "$corrupt",
    "allowSingleQuotes": "false",  # for JSON
    "escape": '"',  # for CSV: RFC 4180 doubles a quote inside quotes
}
"""Options of Spark's parsers of JSON and CSV."""
CORRUPT = "`$corrupt` STRING"


@dataclass(frozen=True)
class Wanted:
    """What a reader must provide of a slice."""

    stage: PlannedSource
    now: int
    strict: bool = True
    """Whether parsers must determine for every record whether it is good; see `slices.read`."""
    details: bool = False
    """Whether each row carries its place and raw text, for error tables."""
    only: frozenset[str] | None = None
    """The columns that are read; None: all of them."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the source that a reader returns. Whether a record is an error depends on all columns."""
        return tuple(n for n in self.schema.names if self.only is None or n in self.only)

    @property
    def positions(self) -> bool:
        """Whether rows carry their position."""
        return self.details or self.stage.positions

    @property
    def schema(self) -> Schema:
        """The columns of the source."""
        return self.stage.schema


@dataclass(frozen=True)
class FormRead:
    """The rows of one form, and Spark SQL for the properties of each row."""

    frame: DataFrame
    bad: str = "0"
    part: str = "`$part`"
    position: str = "`$pos`"
    where: str = "CAST(`$part` AS STRING)"
    """The name of the partition in error tables."""
    raw: str | None = None
    """The text of a bad record; None if the form has no text."""
    block: str | None = None
    """If Spark splits files: the position where the block of the row begins. None if positions are known."""
    line: str | None = None
    """The line of the row, or a negative number if only the order in its block is known (`rejects.py`)."""
    scanned: bool = False
    """Whether reading it twice means scanning and parsing it twice."""
    lenient: bool = False
    """Whether good rows may count as bad. If there are any bad rows, the slice has to be read again, strictly."""
    plain: bool = field(default=True)
    """Whether the frame has exactly the columns of the source and ``$part``, ``$pos`` under their names, so that it can
    be merged with others before any column is computed.
    """
    doubtful: Callable[[], FormRead | None] | None = None
    """After the rows were read: those among which all errors of the form are, with details, or None if they are not
    known. A form without this has to be read again to find its errors.
    """

    def selected(self, wanted: Wanted, *, by_line: bool) -> DataFrame:
        """The columns that all forms provide, in one order; `by_line` if one of the forms of the slice has lines."""
        others = {"$part": self.part}
        if wanted.positions:
            others["$pos"] = self.position
        if wanted.details:
            others["$where"] = self.where
            if by_line:
                others |= {"$block": self.block or "0L", "$line": self.line or self.position}
            others["$raw"] = self.raw or "CAST(NULL AS STRING)"
        return selected(self.frame, wanted.stage, wanted.now, self.bad, others, wanted.columns)


def lines_read(
    frame: DataFrame,
    nothing: str,
    *,
    part: str = "`$part`",
    position: str = "`$pos`",
    doubtful: Callable[[], FormRead | None] | None = None,
) -> FormRead:
    """Lines of files after Spark's parser. ``$wrong`` is the cause of an error that the reader has found, and ``$raw``
    its text; `nothing` is Spark SQL for whether the parser has read no column of a line.
    """
    return FormRead(
        frame,
        f"IF(`$wrong` <> 0, `$wrong`, {parser_error(nothing)})",
        part=part,
        position=position,
        where="`$file`",
        block="0L",
        line="`$line`",
        raw="coalesce(`$raw`, `$corrupt`)",
        scanned=True,
        plain=False,
        doubtful=doubtful,
    )


def parser_error(nothing: str) -> str:
    """Spark SQL for the error that Spark's parser has found in a record; 0 if there is none."""
    return f"IF(`$corrupt` IS NULL, 0, IF({nothing}, {UNPARSABLE}, {MISTYPED}))"


def selected(
    frame: DataFrame, stage: PlannedSource, now: int, bad: str, others: Mapping[str, str], names: Sequence[str]
) -> DataFrame:
    """The columns of a source and the system columns, in one projection: each further projection slows small epochs
    down considerably.
    """
    name, time_sql = stage.options.event_time, stage.options.time_sql
    columns = {n: f"`{n}`" for n in names}
    time = f"{now}L"
    if name is not None and time_sql is not None:
        time_sql = time_sql if stage.options.computed_time is None else bounded(time_sql)
        # values derived from a time are computed for bad rows too, so they must not overflow
        known = f"unix_micros({time_sql}) BETWEEN {EARLIEST}L AND {LATEST}L"
        time = f"IF({known}, unix_micros({time_sql}), NULL)"
        lost = f"WHEN {time_sql} IS NULL THEN {NO_TIME} WHEN NOT {known} THEN {OUT_OF_RANGE}"
        bad = f"CASE WHEN {bad} <> 0 THEN {bad} {lost} ELSE 0 END"
        if "$where" not in others:
            columns[name] = f"IF({known}, {time_sql}, NULL)"
    if stage.options.processing_time is not None:
        columns[stage.options.processing_time] = f"timestamp_micros({now}L)"
    mark = stage.options.punctuation
    marks = {} if mark is None else {"$mark": f"IF({mark}, {time}, NULL)"}
    system = {"$ts": time, "$bad": bad, **marks, **_revisions(stage), **others}
    return frame.selectExpr(*(f"{sql} AS `{column}`" for column, sql in {**columns, **system}.items()))


def _revisions(stage: PlannedSource) -> dict[str, str]:
    """The columns that define which record a record revises, and how."""
    how = stage.options.corrections
    if how is None:
        return {}
    names = ", ".join(f"`{n}`" for n in how.key)
    deletes = "false" if how.op is None else f"coalesce(upper(`{how.op}`) IN {DELETES}, false)"
    version = "CAST(NULL AS BIGINT)" if how.version is None else f"CAST(`{how.version}` AS BIGINT)"
    return {"$kh": f"xxhash64({names})", "$key": f"to_json(struct({names}))", "$del": deletes, "$ver": version}


def ddl(schema: Schema, *more: str) -> str:
    """A schema in the form that Spark's readers accept, with further columns."""
    return ", ".join([*(f"`{f.name}` {ddl_type(f.type)}" for f in schema if f.type is not None), *more])


def literal(value: str) -> str:
    """A text as a literal of Spark SQL."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def from_text(format: str, schema: Schema) -> str:
    """SQL for the record in a line ``$text``, as ``$record``."""
    options = ", ".join(f"'{k}', '{v}'" for k, v in TEXT_OPTIONS.items())
    return f"from_{format}(`$text`, {literal(ddl(schema, CORRUPT))}, map({options})) AS `$record`"
