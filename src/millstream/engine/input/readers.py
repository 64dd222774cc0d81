"""Slices as DataFrames: every source gives its columns and the system columns ``$ts $part $bad`` (``$pos`` if asked).

``$ts`` is the event time in micros (the epoch's processing time for sources without one); with punctuation, ``$mark``
is the same for records that promise it, and NULL for others. Which rows are too far in
the future is decided behind this, where the epoch's clock is at hand as data: a number that changes with every epoch
inside the SQL would make Spark compile the query anew each time.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from millstream.clock import EARLIEST, LATEST
from millstream.connect.files import FileEntry, FileSource
from millstream.connect.generator import GeneratorSource
from millstream.connect.log import LogSource
from millstream.connect.memory import MemorySource
from millstream.connect.port import DAMAGED, MISTYPED, NO_TIME, OUT_OF_RANGE, UNPARSABLE, SourcePort, SourceSlice
from millstream.connect.text_lines import LINES, lines
from millstream.engine.spark.frames import frame_of
from millstream.model.connectors import Files, Generator
from millstream.model.reserved import folded
from millstream.model.types.schema import Schema, ddl_type
from millstream.model.types.values import readable
from millstream.plan.rules.output_bounds import bounded
from millstream.plan.stages import SourceStage

DELETES = "('D', 'DELETE', '-D', '-U')"
LOCAL_ROWS = 100_000
"""Generated slices up to this size are made in the driver; larger ones on the executors."""
LOCAL_BYTES = 32 * 2**20
"""Files that must be read line by line are read in the driver up to this size; larger ones on the executors."""
_CHUNK = 50_000
_GLOB = re.compile(r"[*?\[\]{}\\]")
_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": "$corrupt",
    "allowSingleQuotes": "false",  # of JSON
    "escape": '"',  # of CSV: RFC 4180 writes a quote inside quotes twice
}
_FILE_LINES = pa.schema([*LINES, ("$n", pa.int64()), ("$file", pa.string())])
_FILE_SHIFT = 36
_FILE = "_metadata"
"""What Spark knows of the file of a row, as a column that every reader of files has."""
_OWN_FILE = "$file"
"""The same where the source has a column of that name."""
_PATH = "regexp_replace(url_decode(replace({file}.file_path, '+', '%2B')), '^file:/+', '/')"
"""The plain path of a row's file; Spark gives it as a URI."""


@dataclass(frozen=True)
class SliceRead:
    """A slice as a DataFrame, and whether reading it twice would mean scanning and parsing it twice."""

    frame: DataFrame
    scanned: bool


def read(
    spark: SparkSession,
    stage: SourceStage,
    port: SourcePort,
    part: SourceSlice,
    now: int,
    *,
    strict: bool = True,
    details: bool = False,
) -> SliceRead:
    """The rows of a slice. With `details`, also ``$where`` and ``$pos`` of each row and its ``$raw`` text, for error
    tables.

    Having Spark's parsers keep the text of bad records slows them down by a third. Without `strict` they do not, and
    every row with a NULL counts as bad: a slice without one is proved good, any other must be read again, strictly.
    """
    if isinstance(port, FileSource):
        return SliceRead(_files(spark, stage, port, part, now, strict=strict, details=details), scanned=True)
    scanned = False
    if isinstance(port, GeneratorSource):
        frame = _generated(spark, stage, port, part)
    elif isinstance(port, LogSource):
        frame, scanned = _topic(spark, stage, port, part)
        frame = frame if details or stage.positions else frame.drop("$pos")
    else:
        assert isinstance(port, MemorySource)
        frame = _local(spark, port.table(part))
    kept = [c for c in ("$part", "$pos", "$raw") if c in frame.columns]
    others = {"$where": "CAST(`$part` AS STRING)"} if details else {}
    bad = "`$bad`" if "$bad" in frame.columns else "0"
    return SliceRead(_selected(frame, stage, now, bad, {**{c: f"`{c}`" for c in kept}, **others}), scanned)


def empty(spark: SparkSession, stage: SourceStage) -> DataFrame:
    """A DataFrame with the columns of a source and no rows, for binding types."""
    fields = [f"`{f.name}` {ddl_type(f.type)}" for f in stage.schema if f.type is not None]
    frame = spark.createDataFrame([], ", ".join([*fields, "`$part` INT", "`$pos` BIGINT", "`$bad` INT"]))
    return _selected(frame, stage, 0, "`$bad`", {"$part": "`$part`", "$pos": "`$pos`"})


def _files(
    spark: SparkSession,
    stage: SourceStage,
    port: FileSource,
    part: SourceSlice,
    now: int,
    *,
    strict: bool,
    details: bool,
) -> DataFrame:
    """The files of a slice. Spark reads those it reads without losses; others are read line by line, and those that
    cannot be read at all are one error each.
    """
    connector = stage.connector
    assert isinstance(connector, Files)
    numbered = list(enumerate(port.of(part), start=part.ranges.get(0, (0, 0))[0]))
    broken = [(n, e) for n, e in numbered if e.problem is not None]
    text = connector.format != "parquet"
    lined = [(n, e) for n, e in numbered if e.problem is None and text and not port.is_plain(e)]
    apart = {n for n, _ in (*broken, *lined)}
    plain = [(n, e) for n, e in numbered if n not in apart]
    wanted = _Wanted(stage, now, details, details or stage.positions)
    frames = []
    if plain:
        frames.append(_by_spark(spark, wanted, plain, strict=strict))
    if lined:
        frames.append(_by_lines(spark, wanted, lined))
    if broken:
        frames.append(_broken(spark, wanted, broken))
    if not frames:
        return empty(spark, stage)
    return reduce(DataFrame.unionByName, frames)


@dataclass(frozen=True)
class _Wanted:
    """What is asked of the files of a slice."""

    stage: SourceStage
    now: int
    details: bool
    positions: bool

    def selected(self, frame: DataFrame, bad: str, position: str, **details: str) -> DataFrame:
        """The columns that all files give, in one order."""
        others = {"$part": "0"}
        if self.positions:
            others["$pos"] = position
        if self.details:
            others |= {"$where": details["where"], "$block": details["block"], "$line": details["line"]}
            others["$raw"] = details["raw"]
        return _selected(frame, self.stage, self.now, bad, others)


def _by_spark(
    spark: SparkSession, wanted: _Wanted, entries: Sequence[tuple[int, FileEntry]], *, strict: bool
) -> DataFrame:
    stage = wanted.stage
    connector = stage.connector
    assert isinstance(connector, Files)
    paths = [_GLOB.sub(r"\\\g<0>", e.path) for _, e in entries]
    kept = strict and connector.format != "parquet"
    reader = spark.read.schema(_ddl(stage.schema, corrupt=kept))
    if connector.format == "parquet":
        frame, bad = reader.parquet(*paths), "0"
    else:
        for option, value in _OPTIONS.items():
            reader = reader.option(option, value)
        if connector.format == "json":
            frame = reader.json(paths)
        else:
            # the source has compared the headers (`connect/files.py`); Spark reads quotes in them in another way
            frame = reader.option("header", connector.header).option("enforceSchema", True).csv(paths)
        # naming every column here keeps the reader from skipping some: a record is bad or good whatever the views read
        nulls = [f"`{n}` IS NULL" for n in stage.schema.names]
        bad = _cause(stage) if kept else f"IF({' OR '.join(nulls)}, {UNPARSABLE}, 0)"
    file = _FILE
    if any(folded(n) == _FILE for n in stage.schema.names):
        frame, file = frame.withColumn(_OWN_FILE, frame.metadataColumn(_FILE)), f"`{_OWN_FILE}`"
    first = 1 if connector.format == "csv" and connector.header else 0
    return wanted.selected(
        frame,
        bad,
        _position([(n, _uri(spark, e.path)) for n, e in entries], file) if wanted.positions else "",
        where=_PATH.format(file=file),
        block=f"{file}.file_block_start",
        line=f"CAST(-1 - {first} AS BIGINT)",
        raw="`$corrupt`" if kept else "CAST(NULL AS STRING)",
    )


def _by_lines(spark: SparkSession, wanted: _Wanted, entries: Sequence[tuple[int, FileEntry]]) -> DataFrame:
    """Text files of which every line is looked at (see `connect/text_lines.py`); large ones by the executors."""
    stage = wanted.stage
    connector = stage.connector
    assert isinstance(connector, Files)
    form, header = connector.format, connector.header
    ddl = ", ".join(f"`{f.name}` {ddl_type(f.type)}" for f in _FILE_LINES)
    if sum(e.size for _, e in entries) <= LOCAL_BYTES:
        batches = [_named(b, n, e.path) for n, e in entries for b in lines(e.path, form, header=header)]
        frame = _local(spark, pa.Table.from_batches(batches, schema=_FILE_LINES))
    else:
        listed = [(n, os.fsencode(e.path)) for n, e in entries]

        def read_files(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number, name in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
                    path = os.fsdecode(name)
                    for some in lines(path, form, header=header):
                        yield _named(some, number, path)

        names = spark.createDataFrame(listed, "n BIGINT, name BINARY").repartition(len(listed))
        frame = names.mapInArrow(read_files, ddl)
    kept = _ddl(stage.schema, corrupt=True)
    options = ", ".join(f"'{k}', '{v}'" for k, v in _OPTIONS.items())
    parsed = f"from_{form}(`$text`, {_text(kept)}, map({options})) AS `$record`"
    columns = [f"`$record`.`{n}` AS `{n}`" for n in (*stage.schema.names, "$corrupt")]
    system = ("$line", "$wrong", "$raw", "$file", "$n")
    frame = frame.selectExpr(*(f"`{c}`" for c in system), parsed)
    frame = frame.selectExpr(*(f"`{c}`" for c in system), *columns)
    return wanted.selected(
        frame,
        f"IF(`$wrong` <> 0, `$wrong`, {_cause(stage)})",
        f"shiftleft(`$n`, {_FILE_SHIFT}) + `$line`",
        where="`$file`",
        block="0L",
        line="`$line`",
        raw="coalesce(`$raw`, `$corrupt`)",
    )


def _broken(spark: SparkSession, wanted: _Wanted, entries: Sequence[tuple[int, FileEntry]]) -> DataFrame:
    """Files that cannot be read: one error each."""
    rows = {
        "$n": pa.array([n for n, _ in entries], pa.int64()),
        "$file": pa.array([_shown(e.path) for _, e in entries], pa.string()),
        "$raw": pa.array([e.problem for _, e in entries], pa.string()),
    }
    nulls = [f"CAST(NULL AS {ddl_type(f.type)}) AS `{f.name}`" for f in wanted.stage.schema if f.type is not None]
    frame = _local(spark, pa.table(rows)).selectExpr("*", *nulls)
    position = f"shiftleft(`$n`, {_FILE_SHIFT})"
    return wanted.selected(frame, str(DAMAGED), position, where="`$file`", block="0L", line="0L", raw="`$raw`")


def _named(batch: pa.RecordBatch, number: int, path: str) -> pa.RecordBatch:
    """Lines with the number and the name of their file."""
    rows = batch.num_rows
    more = [pa.array([number] * rows, pa.int64()), pa.array([_shown(path)] * rows, pa.string())]
    return pa.record_batch([*batch.columns, *more], schema=_FILE_LINES)


def _shown(path: str) -> str:
    return readable(os.fsencode(path))


def _cause(stage: SourceStage) -> str:
    """SQL for what is wrong with a record that Spark has parsed."""
    nulls = " AND ".join(f"`{n}` IS NULL" for n in stage.schema.names)
    return f"IF(`$corrupt` IS NULL, 0, IF({nulls}, {UNPARSABLE}, {MISTYPED}))"


def _position(uris: Sequence[tuple[int, str]], file: str) -> str:
    """SQL for the place of a row: the number of its file, then its place in it."""
    numbers = ", ".join(f"{_text(uri)}, {n}L" for n, uri in uris)
    row = f"(monotonically_increasing_id() & {(1 << 33) - 1}L)"
    return f"shiftleft(map({numbers})[{file}.file_path], {_FILE_SHIFT}) + {file}.file_block_start + {row}"


def _topic(spark: SparkSession, stage: SourceStage, port: LogSource, part: SourceSlice) -> tuple[DataFrame, bool]:
    """A slice of a topic: segments are read by Spark itself, what is still in the tail comes from the driver."""
    parts = port.parts(part)
    tail = [p for p in parts if p.path is None]
    sealed = [p for p in parts if p.path is not None]
    if not sealed:
        return _local(spark, port.rows_of(tail)), False
    for piece in sealed:
        assert piece.path is not None
        port.topic.verify_segment(piece.path)
    ddl = _ddl(stage.schema, corrupt=False) + ", `$part` INT, `$offset` BIGINT"
    frame = spark.read.schema(ddl).parquet(*(str(p.path) for p in sealed))
    cut = [p for p in sealed if not p.whole]
    if cut:
        whole = {p.partition for p in sealed} - {p.partition for p in cut}
        ranges = [
            f"(`$part` = {p} AND `$offset` >= {start}L AND `$offset` < {end}L)"
            for p, (start, end) in part.ranges.items()
            if p not in whole
        ]
        frame = frame.where(" OR ".join([*ranges, *(f"`$part` = {p}" for p in sorted(whole))]))
    frame = frame.withColumnRenamed("$offset", "$pos")
    if tail:
        frame = frame.unionByName(_local(spark, port.rows_of(tail)).drop("$bad"))
    return frame, True


def _generated(spark: SparkSession, stage: SourceStage, port: GeneratorSource, part: SourceSlice) -> DataFrame:
    connector = stage.connector
    assert isinstance(connector, Generator)
    start, end = part.ranges.get(0, (0, 0))
    schema = pa.schema([*stage.schema.to_arrow(), pa.field("$part", pa.int32()), pa.field("$pos", pa.int64())])
    make = connector.make
    if end - start <= LOCAL_ROWS:
        return _local(spark, _numbered(make(start, end), start, schema))

    def chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                table = make(number, min(number + _CHUNK, end))
                yield from _numbered(table, number, schema).to_batches()

    tasks = spark.sparkContext.defaultParallelism * 2
    ddl = ", ".join(f"`{f.name}` {ddl_type(f.type)}" for f in schema)
    return spark.range(start, end, _CHUNK, min(tasks, -(-(end - start) // _CHUNK))).mapInArrow(chunks, ddl)


def _numbered(table: pa.Table, start: int, schema: pa.Schema) -> pa.Table:
    rows = table.num_rows
    numbers = pa.array(range(start, start + rows), pa.int64())
    columns = [table[n].cast(schema.field(n).type) for n in schema.names if not n.startswith("$")]
    return pa.table([*columns, pa.array([0] * rows, pa.int32()), numbers], schema=schema)


def _local(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Rows of the driver as a DataFrame. Spark makes a task of every chunk, so small chunks are put together."""
    if table.num_columns and table.column(0).num_chunks > 1 + table.num_rows // LOCAL_ROWS:
        table = table.combine_chunks()
    return frame_of(spark, table)


def _selected(frame: DataFrame, stage: SourceStage, now: int, bad: str, others: Mapping[str, str]) -> DataFrame:
    """The columns of a source and the system columns, in one projection: each further one costs small epochs dearly."""
    name, said = stage.options.event_time, stage.options.time_sql
    columns = {n: f"`{n}`" for n in stage.schema.names}
    time = f"{now}L"
    if name is not None and said is not None:
        said = said if stage.options.computed_time is None else bounded(said)
        # what is computed from a time is computed for bad rows, too: it must not overflow
        known = f"unix_micros({said}) BETWEEN {EARLIEST}L AND {LATEST}L"
        time = f"IF({known}, unix_micros({said}), NULL)"
        lost = f"WHEN {said} IS NULL THEN {NO_TIME} WHEN NOT {known} THEN {OUT_OF_RANGE}"
        bad = f"CASE WHEN {bad} <> 0 THEN {bad} {lost} ELSE 0 END"
        if "$where" not in others:
            columns[name] = f"IF({known}, {said}, NULL)"
    if stage.options.processing_time is not None:
        columns[stage.options.processing_time] = f"timestamp_micros({now}L)"
    mark = stage.options.punctuation
    marks = {} if mark is None else {"$mark": f"IF({mark}, {time}, NULL)"}
    system = {"$ts": time, "$bad": bad, **marks, **_revisions(stage), **others}
    return frame.selectExpr(*(f"{sql} AS `{column}`" for column, sql in {**columns, **system}.items()))


def _revisions(stage: SourceStage) -> dict[str, str]:
    """The columns that say which record a record revises, and how."""
    how = stage.options.corrections
    if how is None:
        return {}
    names = ", ".join(f"`{n}`" for n in how.key)
    deletes = "false" if how.op is None else f"coalesce(upper(`{how.op}`) IN {DELETES}, false)"
    version = "CAST(NULL AS BIGINT)" if how.version is None else f"CAST(`{how.version}` AS BIGINT)"
    text = f"to_json(struct({names}))"
    return {"$kh": f"xxhash64({names})", "$key": text, "$del": deletes, "$ver": version}


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _uri(spark: SparkSession, path: str) -> str:
    """A path as Spark's ``_metadata.file_path`` has it: comparing is cheaper than decoding one for every row."""
    return str(spark.sparkContext._jvm.org.apache.hadoop.fs.Path(f"file:{path}").toUri().toString())  # type: ignore[union-attr]


def _ddl(schema: Schema, *, corrupt: bool) -> str:
    fields = [f"`{f.name}` {ddl_type(f.type)}" for f in schema if f.type is not None]
    return ", ".join([*fields, "`$corrupt` STRING"] if corrupt else fields)
