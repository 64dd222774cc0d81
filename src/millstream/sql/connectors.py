"""FILES(...), LOG(...), GENERATOR(...) and the systems of others as connectors: `model/connector_declarations.py`
declares them, and `sql/parse/connector_call.py` parses them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from millstream.errors import DefinitionError, Unsupported
from millstream.model import connector_declarations
from millstream.model.connector import Connector, External, Sink
from millstream.model.connector_declarations import SPAN, Kinds, System, checked, find
from millstream.model.connectors import Files, TableTarget, console, files, log
from millstream.sql.catalog import KIND_OF, Catalog, Generators, schema_of
from millstream.sql.parse.statement_values import Create, CreateSink, CreateSource, CreateTable, Place

SOURCE_OPTIONS: Kinds = {
    "punctuation": str, "future_bound": SPAN, "idle_timeout": SPAN, "max_rows": int, "op": str, "version": str,
}  # fmt: skip
"""Options of a source in WITH (...): the same that `Flow.source` has."""
VIEW_OPTIONS: Kinds = {
    "panes": SPAN, "start": str, "flow": str, "retain": SPAN, "tables": str, "state_ttl": SPAN,
    "on_error": str,
}  # fmt: skip
_ELSEWHERE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
"""How paths begin that are not of this machine."""

EARLIEST, NOW = "earliest", "now"


def connector_of(entry: CreateSource, generators: Generators, *, start: str = "") -> Connector:
    """Where a source reads from; `start` is where a flow that reads it for the first time begins."""
    makes = _SOURCES.get(entry.place.kind, _external)
    return makes(entry, generators, start)


def _files(entry: CreateSource, generators: Generators, start: str) -> Connector:
    del generators
    if start not in ("", EARLIEST):
        raise Unsupported(
            f"start = '{start}' over files", hint="write them to a topic: LOG(...) can be read from any time"
        )
    return files_of(entry.place)


def _log(entry: CreateSource, generators: Generators, start: str) -> Connector:
    del generators
    options = _known(entry.place, connector_declarations.LOG)
    begin = start or str(options.get("start", ""))
    begin = {"": "beginning", EARLIEST: "beginning", "beginning": "beginning", NOW: "end", "end": "end"}.get(
        begin, begin
    )
    return log(topic_name(entry.place, entry.name), start=begin, bounded=bool(options.get("bounded", False)))


def _generator(entry: CreateSource, generators: Generators, start: str) -> Connector:
    place = entry.place
    name = str(_first(place, "its name")).lower()
    if name not in generators:
        raise DefinitionError(f"there is no generator `{name}`", hint="there are: " + ", ".join(sorted(generators)))
    if start not in ("", EARLIEST):
        raise Unsupported(f"start = '{start}' over a generator", hint="it always starts with its first record")
    try:
        connector = generators[name](*place.arguments[1:], **place.options)
    except (TypeError, ValueError) as error:
        raise DefinitionError(
            f"the generator `{name}` does not accept these arguments",
            detail=str(error).split(")")[-1].strip(),
            hint=f"e.g. {connector_declarations.GENERATOR.example}",
        ) from None
    assert isinstance(connector, Connector)
    return connector


def _external(entry: CreateSource, generators: Generators, start: str) -> Connector:
    """A system that was registered. One with an option `start` takes that of the view."""
    del generators
    system = connector_declarations.named(entry.place.kind, connector_declarations.SOURCE)
    options = _known(entry.place, system)
    if start not in ("", EARLIEST):
        if "start" not in system.kinds(connector_declarations.SOURCE):
            raise Unsupported(
                f"start = '{start}' over {system.spelling}", hint="it is read from its beginning, or through a topic"
            )
        options = {**options, "start": start}
    return External(system.name, options).as_source()


_SOURCES: Mapping[str, Callable[[CreateSource, Generators, str], Connector]] = {
    "FILES": _files,
    "LOG": _log,
    "GENERATOR": _generator,
}
"""Systems with a spelling of their own. All others have their declared options."""


def files_of(place: Place) -> Files:
    """The files that FILES(...) names."""
    options = _known(place, connector_declarations.FILES)
    path = local_path(options.pop("path", None) or _first(place, "a folder"))
    form = options.pop("format", None) or format_of(str(path))
    return files(str(path), format=str(form), **options)


def topic_name(place: Place, default: str) -> str:
    """The topic that LOG(...) names: its first argument, or the name of the source or sink."""
    return str(place.options.get("topic") or (place.arguments[0] if place.arguments else default))


def place_text(place: Place, default: str) -> str:
    """The place of a source or sink for users. `default` is the name of the source or sink."""
    system = find(place.kind)
    if system is None or not system.place:
        return place.kind.lower()
    value = place.options.get(system.unnamed) or (place.arguments[0] if place.arguments else default)
    return system.place.format(value)


def is_on_demand(place: Place) -> bool:
    """Whether a source makes its records when they are read."""
    system = find(place.kind)
    return system is not None and system.on_demand


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
    makes = _SINKS.get(place.kind)
    if makes is not None:
        return makes(entry, catalog)
    system = connector_declarations.named(place.kind, connector_declarations.SINK)
    return External(system.name, _known(place, system, connector_declarations.SINK)).as_sink()


def _log_sink(entry: CreateSink, catalog: Catalog) -> Sink:
    del catalog
    _known(entry.place, connector_declarations.LOG, connector_declarations.SINK)
    return log(topic_name(entry.place, entry.name))


def _files_sink(entry: CreateSink, catalog: Catalog) -> Sink:
    del catalog
    options = _known(entry.place, connector_declarations.FILES, connector_declarations.SINK)
    path = local_path(options.get("path") or _first(entry.place, "a folder"))
    return files(str(path), format=str(options.get("format") or format_of(str(path))))


def _table(entry: CreateSink, catalog: Catalog) -> TableTarget:
    name, *column_names = (str(a) for a in entry.place.arguments)
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
    for column in column_names:
        if column.lower() not in spelled:
            raise schema.unknown(column)
    columns = tuple(spelled[c.lower()] for c in column_names) or schema.names
    key = tuple(spelled[k.lower()] for k in table.key)
    required = tuple(spelled[c.name.lower()] for c in table.columns if c.required)
    lacking = next((n for n in (*key, *required) if n not in columns), None)
    if len(set(columns)) != len(columns) or lacking is not None:
        raise DefinitionError(
            f"the sink `{entry.name}` names a column twice"
            if lacking is None
            else f"the sink `{entry.name}` has no value for `{lacking}` of `{table.name}`, which cannot be NULL",
            hint="INTO TABLE t (a, b) names the columns that the values of a row go to",
        )
    return TableTarget(table.name, columns, key, required, schema)


_SINKS: Mapping[str, Callable[[CreateSink, Catalog], Sink]] = {
    "TABLE": _table,
    "LOG": _log_sink,
    "FILES": _files_sink,
    "CONSOLE": lambda entry, catalog: console(),
}


def _first(place: Place, what: str) -> Any:
    if not place.arguments:
        raise DefinitionError(f"{place.kind}(...) needs {what}", hint=_hint(place))
    return place.arguments[0]


def _hint(place: Place) -> str | None:
    system = connector_declarations.find(place.kind)
    return None if system is None or not system.example else f"e.g. {system.example}"


def _known(place: Place, system: System, role: str = connector_declarations.SOURCE) -> dict[str, Any]:
    """The options of a place, all of which are known, after at most one value without a name."""
    most = 1 if system.unnamed else 0
    if len(place.arguments) > most:
        raise DefinitionError(
            f"{place.kind}(...) takes {most or 'no'} value without a name, not {len(place.arguments)}",
            hint=_hint(place),
        )
    kinds = system.kinds(role)
    if place.arguments and kinds.get(system.unnamed) is str and not isinstance(place.arguments[0], str):
        raise DefinitionError(f"{place.kind}(...) begins with a string", hint=_hint(place))
    options = checked(place.options, kinds, place.kind)
    if not place.arguments or place.kind in _SOURCES:  # whose own spelling takes the value without a name
        return options
    if system.unnamed in options:
        raise DefinitionError(f"the option `{system.unnamed}` of {place.kind} is specified twice")
    return checked({system.unnamed: place.arguments[0], **options}, kinds, place.kind)


def check_start(start: str) -> None:
    """Refuse what is no place to begin to read."""
    try:
        if start not in ("", EARLIEST, NOW):
            datetime.fromisoformat(start)
    except ValueError:
        raise DefinitionError(
            f"start = '{start[:60]}' is not a start position",
            hint="'earliest', 'now', or a time: '2026-01-01T00:00:00Z'",
        ) from None


def local_path(path: str, spelling: str = "FILES({})") -> str:
    """A path of this machine; `spelling` is its form in messages."""
    if _ELSEWHERE.match(path) or not path.strip() or any(ord(c) < 32 for c in path):
        raise Unsupported(
            f"{spelling.format(repr(path[:60]))}: only files of this machine can be read",
            hint=f"e.g. {spelling.format(repr('data/bids'))}",
        )
    return path


def format_of(path: str, spelling: str = "FILES(...)", example: str = "FILES('data/bids', format = 'json')") -> str:
    """The format that the name of a file says."""
    for form in ("json", "csv", "parquet"):
        if path.lower().endswith((f".{form}", f".{form}l")):
            return form
    raise DefinitionError(f"{spelling} needs a format", hint=f"e.g. {example}")
