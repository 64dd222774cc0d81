"""Prepares what a definition needs in the home: topics, tables, columns inferred from the data, functions."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.connect.nexmark_source import nexmark
from millstream.connect.registry import columns_of
from millstream.errors import DefinitionError, SchemaError, UnknownName
from millstream.live.tables.constraints import check_keyable
from millstream.model.python.function import Function
from millstream.model.types.duration import Duration
from millstream.model.types.schema import Schema, ddl_type
from millstream.sql.catalog import Catalog, schema_of
from millstream.sql.connectors import connector_of, is_on_demand, table_of, topic_name, topic_of
from millstream.sql.parse.statement_values import Create, CreateFunction, CreateSink, CreateSource, CreateTable

if TYPE_CHECKING:
    from millstream.runtime.open_home import OpenHome

GENERATORS = {"nexmark": nexmark}
"""The names that GENERATOR('name', ...) accepts."""


def columns(home: OpenHome, entry: CreateSource, catalog: Catalog) -> Schema | None:
    """Infer the columns of a source that declares none from its topic or its files; None for all others."""
    declared = schema_of(catalog, entry)
    place = entry.place
    if place.kind == "LOG":
        return _topic_columns(home, entry, declared)
    if declared is not None or is_on_demand(place):
        return None
    return columns_of(connector_of(entry, {}), home.log)


def _topic_columns(home: OpenHome, entry: CreateSource, declared: Schema | None) -> Schema | None:
    name = topic_name(entry.place, entry.name)
    connector_of(entry, {})  # refuses unknown options
    if home.log.exists(name):
        return None if declared is not None else Schema.from_arrow(home.log.topic(name).schema, exact=True)
    if declared is None:
        raise UnknownName(
            f"there is no topic `{name}`, and no columns to create it with",
            hint=f"CREATE SOURCE {entry.name} (column TYPE, ...) FROM LOG('{name}')",
        )
    home.log.check(name, declared.to_arrow(), **_topic_options(entry))
    return None


def lacks_topic(home: OpenHome, entry: CreateSource) -> bool:
    """Whether a source reads a topic that does not exist yet."""
    return entry.place.kind == "LOG" and not home.log.exists(topic_name(entry.place, entry.name))


def make_topic(home: OpenHome, catalog: Catalog, entry: CreateSource) -> None:
    """Create the topic of a source, unless it exists."""
    schema, name = schema_of(catalog, entry), topic_name(entry.place, entry.name)
    if schema is not None and not home.log.exists(name):
        home.log.create(name, schema.to_arrow(), **_topic_options(entry))


def _topic_options(entry: CreateSource) -> dict[str, Any]:
    options, key = entry.place.options, entry.place.options.get("key")
    retain = options.get("retain")
    return {
        "partitions": int(options.get("partitions", 1)),
        "key": None if key is None else str(key),
        "retain_time": None if retain is None else Duration.positive(retain, what="retain").micros,
        "retain_bytes": options.get("retain_bytes"),
    }


def ddl(schema: Schema) -> str:
    """Format a schema as text."""
    return ", ".join(f"`{f.name}` {ddl_type(f.type)}" for f in schema)


def parsed(text: str) -> Schema | None:
    """Parse a schema; None where there is none."""
    return Schema.parse(text) if text else None


def check_table(catalog: Catalog, entry: CreateTable) -> None:
    """Refuse a table that cannot be created."""
    schema = schema_of(catalog, entry)
    assert schema is not None
    check_keyable(schema, entry.key)
    computed = next((c for c in entry.columns if c.computed is not None), None)
    if computed is not None:
        raise SchemaError(f"a table cannot have the computed column `{computed.name}`")


def make_table(home: OpenHome, catalog: Catalog, entry: CreateTable) -> None:
    """Create an empty stored table, unless it exists."""
    schema = schema_of(catalog, entry)
    assert schema is not None
    if entry.name.lower() not in {n.lower() for n in home.store.tables()}:
        home.store_table(entry.name, schema.to_arrow().empty_table())


def refuse_cycle(catalog: Catalog, entry: CreateSink) -> None:
    """Refuse a sink that writes to a topic or table from which its own records come, directly or through other flows:
    it would read its own output forever.
    """
    target = _place_of(entry)
    if target is None:
        return
    what = " ".join((target[0], f"`{topic_of(entry) or table_of(entry)}`"))
    ways = [(name, [name]) for name in _read_by(catalog, entry)]
    seen: set[str] = set()
    while ways:
        source, way = ways.pop(0)
        place = _place_of(catalog.entries[source])
        if place == target:
            route = " from ".join(f"`{n}`" for n in way)
            how = f"`{way[-1]}` reads that topic" if target[0] == "topic" else f"`{way[-1]}` is that table"
            raise DefinitionError(
                f"the sink `{entry.name}` would feed itself: it writes to the {what} and reads {route}",
                detail=f"{how}, so every record would return endlessly",
                hint=f"write to another {target[0]}",
            )
        for sink in catalog.of(CreateSink):
            if place is not None and _place_of(sink) == place and sink.name not in seen:
                seen.add(sink.name)
                ways += [(s, [*way, sink.name, s]) for s in _read_by(catalog, sink)]


def _read_by(catalog: Catalog, entry: Create) -> list[str]:
    """The sources and tables that a definition reads, directly or indirectly."""
    return sorted(catalog.sources_of(entry) | catalog.tables_of(entry))


def _place_of(entry: Create) -> tuple[str, str] | None:
    """The topic or table that a definition reads or writes."""
    topic = topic_of(entry)
    if topic is not None:
        return ("topic", topic)
    table = entry.name if isinstance(entry, CreateTable) else table_of(entry)
    return None if table is None else ("table", table.lower())


_ANNOTATED = {int: "BIGINT", float: "DOUBLE", str: "STRING", bool: "BOOLEAN", bytes: "BINARY"}
_ANNOTATED_NAMES = {python.__name__: sql for python, sql in _ANNOTATED.items()}


def function(entry: CreateFunction) -> Function:
    """Load the Python function that a definition names; refuses the name of an SQL function."""
    module, _, name = entry.target.partition(":")
    if not name:
        raise DefinitionError(f"`{entry.target}` does not name a function", hint="AS 'module:function'")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        loaded = getattr(importlib.import_module(module), name)
    except Exception as error:  # noqa: BLE001 - the module is the user's: whatever it raises is reported
        raise DefinitionError(
            f"`{entry.target}` cannot be loaded",
            detail=f"{type(error).__name__}: {error}",
            hint="a module is looked for in the folder that Millstream was started in, and on Python's path",
        ) from None
    if not callable(loaded):
        raise DefinitionError(f"`{entry.target}` is not a function")
    return Function(entry.name.lower(), loaded, _returns(entry, loaded))


def _returns(entry: CreateFunction, loaded: Callable[..., object]) -> str:
    """The SQL type of the result of a function: as declared, or from its annotation."""
    if entry.returns:
        Schema.parse(f"x {entry.returns}")
        return entry.returns
    annotation = getattr(loaded, "__annotations__", {}).get("return")
    kind = _ANNOTATED.get(annotation) if isinstance(annotation, type) else _ANNOTATED_NAMES.get(str(annotation))
    if kind is None:
        raise DefinitionError(
            f"what `{entry.target}` gives is not known", hint="CREATE FUNCTION ... RETURNS BIGINT, or annotate it"
        )
    return kind
