"""Reads files as the rows of a table, all at once, for COPY. An unreadable row is named by file and line."""

from __future__ import annotations

import csv
import glob
import json
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from millstream.connect.text_lines import lines_of
from millstream.errors import RecordRefused, SourceMissing, SourceUnreadable
from millstream.model.types.assignment import Unfit, assigned, assigned_table, from_values
from millstream.model.types.schema import ddl_type
from millstream.model.types.text_values import from_texts
from millstream.model.types.unknown_column import no_column
from millstream.model.types.values import readable

_LONGEST_FIELD = 1 << 27


@dataclass(frozen=True)
class Form:
    """The format of the files."""

    format: str
    header: bool = True
    delimiter: str = ","
    null: str = ""


@dataclass(frozen=True)
class Loaded:
    """The rows of some files, and the location of each."""

    rows: pa.Table
    files: tuple[tuple[str, int, Callable[[int], str]], ...]

    def named(self, number: int) -> str:
        """The location of a row, counted from 1 over all files."""
        left = number - 1
        for path, count, place in self.files:
            if left < count:
                return f"{path}, {place(left)}"
            left -= count
        return f"row {number}"


def found_files(path: str) -> list[str]:
    """The files that a path matches: one, those of a directory, or those of a pattern."""
    if os.path.isdir(path):
        files = [e.path for e in os.scandir(path) if e.is_file() and not e.name.startswith((".", "_"))]
    elif os.path.isfile(path):
        return [path]
    else:
        files = [p for p in glob.glob(path) if os.path.isfile(p)]
    if not files:
        raise SourceMissing(f"there is no file {path}", detail=f"looked from {os.getcwd()}")
    return sorted(files)


def load(path: str, form: Form, schema: pa.Schema) -> Loaded:
    """Read the rows of all files under a path, with these columns; NULL where a file lacks a column."""
    read = {"csv": _csv, "json": _json, "parquet": _parquet}[form.format]
    tables, files = [], []
    for each in found_files(path):
        try:
            table, place = read(each, form, schema)
        except PermissionError:
            raise SourceUnreadable(f"the file {each} may not be read", hint="check its permissions") from None
        except (OSError, EOFError, zlib.error) as error:
            raise SourceUnreadable(f"the file {each} cannot be read", detail=_first_line(error)) from None
        tables.append(table)
        files.append((each, table.num_rows, place))
    return Loaded(pa.concat_tables(tables), tuple(files))


_Read = tuple[pa.Table, Callable[[int], str]]


# ---------------------------------------------------------------- CSV


def _csv(path: str, form: Form, schema: pa.Schema) -> _Read:
    names, blank = _header(path, form, schema) if form.header else (list(schema.names), 0)
    if names is None:
        return schema.empty_table(), lambda row: f"row {row + 1}"
    alone = len(names) == 1  # then an empty line is a row
    data = path if not path.endswith((".gz", ".bz2")) else pa.input_stream(path, compression="detect")
    try:
        table = pa.csv.read_csv(
            data,
            read_options=pa.csv.ReadOptions(
                column_names=names, skip_rows=blank, skip_rows_after_names=1 if form.header else 0
            ),
            parse_options=pa.csv.ParseOptions(
                delimiter=form.delimiter, newlines_in_values=True, ignore_empty_lines=not alone
            ),
            convert_options=pa.csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                null_values=[form.null],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid as error:
        if "empty csv" in str(error).lower():
            return schema.empty_table(), lambda row: f"row {row + 1}"
        raise _unreadable(path, form, len(names), error) from None
    except pa.ArrowException as error:
        raise _unreadable(path, form, len(names), error) from None
    place = lambda row: f"line {_line_of(path, form, row, alone=alone)}"  # noqa: E731
    columns = {n: c.combine_chunks() for n, c in zip(names, table.columns, strict=True)}
    return _columns(path, schema, columns, table.num_rows, from_texts, place), place


def _header(path: str, form: Form, schema: pa.Schema) -> tuple[list[str] | None, int]:
    """The columns in a header, as the table spells them (None for a file without a line), and the number of blank lines
    before it.
    """
    blank, line = next(((i, b) for i, b in enumerate(lines_of(path)) if b.strip()), (0, None))
    if line is None:
        return None, 0
    names = next(csv.reader([readable(line)], delimiter=form.delimiter), [])
    return _spelled(f"the header of {path}", names, schema, hint="HEADER false, if the first line is a row"), blank


def _records(path: str, form: Form, *, alone: bool) -> Any:
    """The records of a file, each with the line that it begins on. With a single column (`alone`), an empty line is a
    record.
    """
    csv.field_size_limit(_LONGEST_FIELD)
    lines = ((line.decode("utf-8", "surrogateescape") + "\n") for line in lines_of(path))
    reader = csv.reader(lines, delimiter=form.delimiter)
    before, skip = 0, form.header
    for record in reader:
        if skip:
            skip = not any(v.strip() for v in record)
        elif record or alone:
            yield before + 1, record or [""]
        before = reader.line_num


def _line_of(path: str, form: Form, row: int, *, alone: bool) -> int:
    for i, (line, _) in enumerate(_records(path, form, alone=alone)):
        if i == row:
            return int(line)
    return row + 1 + form.header


def _unreadable(path: str, form: Form, columns: int, error: Exception) -> RecordRefused:
    """Return the error for a file that is not CSV with this many columns, naming its first bad line."""
    line = 0
    try:
        for line, record in _records(path, form, alone=columns == 1):
            if len(record) != columns:
                return RecordRefused(
                    f"{path}, line {line}: {len(record)} values for {columns} columns",
                    detail=_excerpt(form.delimiter.join(record)),
                )
            if any("\udc80" <= c <= "\udcff" for v in record for c in v):
                return RecordRefused(
                    f"{path}, line {line}: it is not text in UTF-8",
                    detail=_excerpt(form.delimiter.join(record).encode("utf-8", "surrogateescape")),
                )
    except csv.Error as wrong:
        return RecordRefused(f"{path}, line {line + 1}: it cannot be read as CSV", detail=str(wrong))
    return RecordRefused(f"{path} cannot be read as CSV", detail=_first_line(error))


# ---------------------------------------------------------------- JSON


def _json(path: str, form: Form, schema: pa.Schema) -> _Read:
    exact = any(pa.types.is_decimal(f.type) or pa.types.is_nested(f.type) for f in schema)
    texts = {f.name.lower() for f in schema if pa.types.is_string(f.type)}
    known = {n.lower(): n for n in schema.names}
    values: dict[str, list[Any]] = {n: [] for n in schema.names}
    numbers: list[int] = []
    place = lambda row: f"line {numbers[row]}"  # noqa: E731
    for number, line in enumerate(lines_of(path), 1):
        if not line.strip():
            continue
        try:
            record = orjson.loads(line)
            if exact:
                record = json.loads(line, parse_float=Decimal)
            if isinstance(record, dict) and any(_is_number(v) and n.lower() in texts for n, v in record.items()):
                written = json.loads(line, parse_float=str, parse_int=str)
                record = {n: written[n] if n.lower() in texts and _is_number(v) else v for n, v in record.items()}
        except ValueError as error:
            raise RecordRefused(f"{path}, line {number}: it is not JSON", detail=f"{_excerpt(line)}: {error}") from None
        if not isinstance(record, dict):
            raise RecordRefused(
                f"{path}, line {number}: it is not an object", detail=_excerpt(line), hint="one object on each line"
            )
        numbers.append(number)
        for name, column in values.items():
            column.append(record.pop(name, None))
        for name, value in record.items():  # unknown columns, or in another case
            spelled = known.get(name.lower())
            if spelled is None or values[spelled][-1] is not None:
                raise RecordRefused(
                    f"{path}, line {number}: {no_column(name)}",
                    detail="there are: " + ", ".join(schema.names),
                )
            values[spelled][-1] = value
    convert = lambda json_value, kind: from_values(json_value, kind, seconds=True)  # noqa: E731
    return _columns(path, schema, values, len(numbers), convert, place), place


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


# ---------------------------------------------------------------- Parquet


def _parquet(path: str, form: Form, schema: pa.Schema) -> _Read:
    try:
        with pq.ParquetFile(path) as file:
            table = file.read()
    except (pa.ArrowException, ValueError) as error:
        raise SourceUnreadable(f"{path} cannot be read as Parquet", detail=_first_line(error)) from None
    names = _spelled(path, table.column_names, schema)
    place = lambda row: f"row {row + 1}"  # noqa: E731
    return _columns(path, schema, dict(zip(names, table.columns, strict=True)), table.num_rows, assigned, place), place


# ---------------------------------------------------------------- parts


def _columns(
    path: str,
    schema: pa.Schema,
    values: Mapping[str, Any],
    rows: int,
    convert: Callable[[Any, pa.DataType], pa.Array],
    place: Callable[[int], str],
) -> pa.Table:
    def refused(unfit: Unfit, field: pa.Field) -> RecordRefused:
        where = path if unfit.row is None else f"{path}, {place(unfit.row)}"
        return RecordRefused(
            f"{where}: the value of `{field.name}` cannot become {ddl_type(field.type)}",
            detail=unfit.why if unfit.row is None else f"{_excerpt(unfit.value)}: {unfit.why}",
        )

    return assigned_table(schema, values, rows, refused, convert)


def _spelled(what: str, header: Sequence[str], schema: pa.Schema, hint: str | None = None) -> list[str]:
    """Column names as the table spells them."""
    known = {n.lower(): n for n in schema.names}
    names = []
    for name in header:
        spelled = known.get(name.strip().lower())
        if spelled is None:
            raise RecordRefused(
                f"{what} names a column `{name[:60]}` that is not in the table",
                detail="there are: " + ", ".join(schema.names),
                hint=hint,
            )
        if spelled in names:
            raise RecordRefused(f"{what} names the column `{spelled}` twice")
        names.append(spelled)
    return names


def _excerpt(value: Any) -> str:
    text = readable(value) if isinstance(value, bytes) else value if isinstance(value, str) else repr(value)
    return text[:200]


def _first_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return (str(error).splitlines() or [type(error).__name__])[0][:300]
