"""FILES(...), LOG(...) and GENERATOR(...) as connectors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from millstream.errors import DefinitionError, Unsupported
from millstream.model.connectors import Connector, Files, Generator, Sink, TableTarget, console, files, log
from millstream.model.types.duration import Duration
from millstream.sql.catalog import KIND_OF, Catalog, Generators, schema_of
from millstream.sql.parse.statements import Create, CreateSink, CreateSource, CreateTable, Place

_SPAN = (str, Duration)
Kinds = Mapping[str, type | tuple[type, ...]]
"""Options by name, and what their values are."""

OPTIONS: Kinds = {
    "punctuation": str, "future_bound": _SPAN, "idle_timeout": _SPAN, "max_rows": int, "op": str, "version": str,
}  # fmt: skip
"""Options of a source in WITH (...): the same that `Flow.source` has."""
VIEW_OPTIONS: Kinds = {
    "panes": _SPAN, "start": str, "flow": str, "retain": _SPAN, "tables": str, "state_ttl": _SPAN,
    "on_error": str,
}  # fmt: skip
_FILES: Kinds = {"path": str, "format": str, "header": bool, "bounded": bool}
_LOG: Kinds = {
    "topic": str, "bounded": bool, "partitions": int, "key": str, "retain": _SPAN, "retain_bytes": int, "start": str,
}  # fmt: skip
_SAID = {str: "a text in quotes", int: "a whole number", bool: "true or false", _SPAN: "a length of time"}
_ELSEWHERE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
"""How paths begin that are not of this machine."""

EARLIEST, NOW = "earliest", "now"


def connector_of(entry: CreateSource, generators: Generators, *, start: str = "") -> Connector:
    """Where a source reads from; `start` is where a flow that reads it for the first time begins."""
    place = entry.place
    if place.kind == "FILES":
        if start not in ("", EARLIEST):
            raise Unsupported(
                f"start = '{start}' over files", hint="land them in a topic: LOG(...) can be read from any time"
            )
        return files_of(place)
    if place.kind == "LOG":
        options = _known(place, _LOG)
        begin = start or str(options.get("start", ""))
        begin = {"": "beginning", EARLIEST: "beginning", "beginning": "beginning", NOW: "end", "end": "end"}.get(
            begin, begin
        )
        return log(topic_name(entry.place, entry.name), start=begin, bounded=bool(options.get("bounded", False)))
    name = str(_first(place, "its name")).lower()
    if name not in generators:
        raise DefinitionError(f"there is no generator `{name}`", hint="there are: " + ", ".join(sorted(generators)))
    if start not in ("", EARLIEST):
        raise Unsupported(f"start = '{start}' over a generator", hint="it makes its records from the first one on")
    try:
        made = generators[name](*place.arguments[1:], **place.options)
    except (TypeError, ValueError) as error:
        raise DefinitionError(
            f"the generator `{name}` cannot be called so",
            detail=str(error).split(")")[-1].strip(),
            hint=f"e.g. {_EXAMPLES[place.kind]}",
        ) from None
    assert isinstance(made, Generator)
    return made


def files_of(place: Place) -> Files:
    """The files that FILES(...) names."""
    options = _known(place, _FILES)
    path = local_path(options.pop("path", None) or _first(place, "a folder"))
    form = options.pop("format", None) or format_of(str(path))
    return files(str(path), format=str(form), **options)


def topic_name(place: Place, default: str) -> str:
    """The topic that LOG(...) names: its first argument, or the name of the source or sink."""
    return str(place.options.get("topic") or (place.arguments[0] if place.arguments else default))


def topic_of(entry: Create) -> str | None:
    """The topic that a source reads or a sink writes; None for all else."""
    if isinstance(entry, CreateSource | CreateSink) and entry.place.kind == "LOG":
        return topic_name(entry.place, entry.name)
    return None


def table_of(entry: Create) -> str | None:
    """The stored table that a sink writes to; None for all else."""
    return str(entry.place.arguments[0]) if isinstance(entry, CreateSink) and entry.place.kind == "TABLE" else None


def sink_of(entry: CreateSink, catalog: Catalog) -> Sink:
    """Where a sink writes to."""
    place = entry.place
    if place.kind == "TABLE":
        return _table(entry, catalog)
    if place.kind == "LOG":
        _known(place, {"topic": str})
        return log(topic_name(place, entry.name))
    if place.kind == "CONSOLE":
        return console()
    options = _known(place, {"path": str, "format": str})
    path = local_path(options.get("path") or _first(place, "a folder"))
    return files(str(path), format=str(options.get("format") or format_of(str(path))))


def _table(entry: CreateSink, catalog: Catalog) -> TableTarget:
    name, *given = (str(a) for a in entry.place.arguments)
    table = catalog.get(name)
    if table is None:
        raise catalog.missing(name, "table")
    if not isinstance(table, CreateTable):
        raise DefinitionError(
            f"`{table.name}` is a {KIND_OF[type(table)]}: a sink writes INTO TABLE a stored table",
            hint="CREATE TABLE makes one",
        )
    schema = schema_of(catalog, table)
    assert schema is not None
    spelled = {n.lower(): n for n in schema.names}
    for column in given:
        if column.lower() not in spelled:
            raise schema.unknown(column)
    columns = tuple(spelled[c.lower()] for c in given) or schema.names
    key = tuple(spelled[k.lower()] for k in table.key)
    required = tuple(spelled[c.name.lower()] for c in table.columns if c.required)
    lacking = next((n for n in (*key, *required) if n not in columns), None)
    if len(set(columns)) != len(columns) or lacking is not None:
        raise DefinitionError(
            f"the sink `{entry.name}` names a column twice"
            if lacking is None
            else f"the sink `{entry.name}` gives no value for `{lacking}` of `{table.name}`, which cannot be NULL",
            hint="INTO TABLE t (a, b) names the columns that the values of a row go to",
        )
    return TableTarget(table.name, columns, key, required, schema)


def _first(place: Place, what: str) -> Any:
    if not place.arguments:
        raise DefinitionError(f"{place.kind}(...) needs {what}", hint=f"e.g. {_EXAMPLES[place.kind]}")
    return place.arguments[0]


_EXAMPLES = {
    "FILES": "FILES('data/bids', format = 'json')",
    "LOG": "LOG('topic')",
    "GENERATOR": "GENERATOR('nexmark', 'bid', rate = 1000)",
}


def _known(place: Place, kinds: Kinds, most: int = 1) -> dict[str, Any]:
    """The options of a place, all of which are known, behind at most so many values without a name."""
    if len(place.arguments) > most:
        raise DefinitionError(
            f"{place.kind}(...) takes {most} value without a name, not {len(place.arguments)}",
            hint=f"e.g. {_EXAMPLES[place.kind]}",
        )
    if place.arguments and not isinstance(place.arguments[0], str):
        raise DefinitionError(f"{place.kind}(...) begins with a text in quotes", hint=f"e.g. {_EXAMPLES[place.kind]}")
    return checked(place.options, kinds, place.kind)


def checked(options: Mapping[str, Any], kinds: Kinds, what: str) -> dict[str, Any]:
    """Options, all of which are known and of the right kind."""
    for name, value in options.items():
        if name not in kinds:
            raise DefinitionError(f"{what} has no option `{name}`", hint="options are: " + ", ".join(kinds))
        kind = kinds[name]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise DefinitionError(f"the option `{name}` of {what} is {_SAID[kind]}")
    return dict(options)


def check_start(start: str) -> None:
    """Refuse what is no place to begin to read."""
    try:
        if start not in ("", EARLIEST, NOW):
            datetime.fromisoformat(start)
    except ValueError:
        raise DefinitionError(
            f"start = '{start[:60]}' is not a place to begin",
            hint="'earliest', 'now', or a time: '2026-01-01T00:00:00Z'",
        ) from None


def local_path(path: str, said: str = "FILES({})") -> str:
    """A path of this machine; `said` is how a message tells it."""
    if _ELSEWHERE.match(path) or not path.strip() or any(ord(c) < 32 for c in path):
        raise Unsupported(
            f"{said.format(repr(path[:60]))}: only files of this machine can be read",
            hint=f"e.g. {said.format(repr('data/bids'))}",
        )
    return path


def format_of(path: str, said: str = "FILES(...)", example: str = "FILES('data/bids', format = 'json')") -> str:
    """The format that the name of a file says."""
    for form in ("json", "csv", "parquet"):
        if path.lower().endswith((f".{form}", f".{form}l")):
            return form
    raise DefinitionError(f"{said} needs a format", hint=f"e.g. {example}")
