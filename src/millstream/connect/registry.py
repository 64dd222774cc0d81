"""The connector registry: one entry per system, with how its sources and sinks are opened, and what a repair can check.

The declaration of a system (options, SQL syntax, guarantee) is in `model/systems.py`. The entries of the built-in
systems are in `connect/built_in.py`; others are added by `register`, which is `millstream.register_connector`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

import pyarrow as pa

from millstream.connect.port import Offsets, SinkBase, SinkPort, SourcePort
from millstream.errors import DefinitionError
from millstream.log.log import Log
from millstream.model import systems
from millstream.model.connector import Connector, External, Sink
from millstream.model.guarantees import SinkGuarantee
from millstream.model.systems import Option, System
from millstream.model.types.schema import Schema

Durably = Callable[[Path, bytes], None]
"""Writes a whole file, first under another name; durable when it returns."""


@dataclass(frozen=True)
class SourceContext:
    """The arguments for opening a source."""

    connector: Connector
    schema: Schema
    """The columns that are read."""
    flow: str
    name: str
    root: Path
    """The directory of the flow. A source keeps its own files in ``sources/`` there, under its name."""
    at: Offsets
    """How far the flow has read it."""
    log: Log
    """The home's own log."""
    holds: bool = True
    """Whether the source must keep its records until the flow has read them; not for a single read."""

    @property
    def options(self) -> Mapping[str, Any]:
        """The options of a registered system, with their defaults."""
        return self.connector.options if isinstance(self.connector, External) else {}


@dataclass(frozen=True)
class SinkContext:
    """The arguments for opening a sink."""

    sink: Sink
    flow: str
    name: str
    generation: int
    """Increases when the flow or the sink is reset; epochs of different generations are unrelated."""
    kind_column: str | None
    """The column that holds the kind of each change; None for append-only output."""
    schema: pa.Schema
    log: Log
    durably: Durably
    tables: Any = None
    """How stored tables are changed (`runtime/epoch/table_sink.py`)."""
    read_topics: frozenset[str] = frozenset()
    """The topics that the flow itself reads."""

    @property
    def options(self) -> Mapping[str, Any]:
        """The options of a registered system, with their defaults."""
        return self.sink.options if isinstance(self.sink, External) else {}

    @property
    def writer(self) -> str:
        """The name under which the sink writes."""
        return f"{self.flow}/{self.name}/{self.generation}"


@dataclass(frozen=True)
class Offline:
    """A source that a repair examines without its flow."""

    home: Path
    root: Path
    source: str
    detail: str
    """What follows the name of the system in `SourceFacts.kind`."""


class OfflineChecks(Protocol):
    """What a repair can determine about the sources of a system."""

    def problems(self, place: Offline, at: Mapping[str, int]) -> Iterator[str]:
        """Why a flow cannot resume at these offsets (by partition), in sentences."""
        ...

    def cannot_begin(self, place: Offline) -> str | None:
        """Why a flow cannot read the source again from its beginning; None when it can."""
        ...


@dataclass(frozen=True)
class ConnectorEntry:
    """How the sources and sinks of a system are opened."""

    system: System
    source: Callable[[SourceContext], SourcePort] | None = None
    sink: Callable[[SinkContext], SinkPort] | None = None
    follow: Callable[[SourceContext], SourcePort | None] | None = None
    """Opens a source next to the process that owns it, without writing anything; for a standby. None: not possible."""
    offline: OfflineChecks | None = None
    columns: Callable[[Connector, Log | None], Schema | None] | None = None
    """Infers the columns of a source that declares none; None where they must be declared."""
    generation: Callable[[Sink, str], int | None] | None = None
    """The newest generation that a sink of this name has written there, if any, so that a new sink does not overwrite
    the output of another.
    """


@dataclass
class _Entries:
    by_name: dict[str, ConnectorEntry] = field(default_factory=dict)


_entries = _Entries()


def add(entry: ConnectorEntry) -> None:
    """Add the entry of a declared system."""
    _entries.by_name[entry.system.name] = entry


def entry_of(system: System) -> ConnectorEntry:
    """The entry of a system."""
    import millstream.connect.built_in  # noqa: F401 - it adds its entries

    found = _entries.by_name.get(system.name)
    if found is None:
        raise DefinitionError(f"the connector `{system.name}` is declared, but nothing opens it")
    return found


def open_source(context: SourceContext) -> SourcePort:
    """Open the source that a connector describes."""
    opens = entry_of(context.connector.system).source
    if opens is None:
        raise DefinitionError(f"{context.connector.system.name} cannot be read from")
    return opens(context)


def follow_source(context: SourceContext) -> SourcePort | None:
    """Open the source next to the process that owns it; None when only that process can read it."""
    opens = entry_of(context.connector.system).follow
    return None if opens is None else opens(context)


def open_sink(context: SinkContext) -> SinkPort:
    """Open the sink that a value describes."""
    opens = entry_of(context.sink.system).sink
    if opens is None:
        raise DefinitionError(f"{context.sink.system.name} cannot be written to")
    return opens(context)


def columns_of(connector: Connector, log: Log | None) -> Schema | None:
    """Infer the columns of a source that declares none, as far as possible."""
    finds = entry_of(connector.system).columns
    return None if finds is None else finds(connector, log)


def offline_checks(kind: str) -> OfflineChecks | None:
    """What can be determined about a source of this kind (`SourceFacts.kind`) without its flow."""
    system = systems.find(kind.partition(" ")[0])
    return None if system is None else entry_of(system).offline


def register(
    name: str,
    *,
    source: Callable[[SourceContext], SourcePort] | None = None,
    sink: Callable[[SinkContext], SinkPort] | None = None,
    options: Sequence[Option] = (),
    sink_options: Sequence[Option] | None = None,
    guarantee: SinkGuarantee | None = None,
    unnamed: str = "",
    doc: str = "",
    follow: Callable[[SourceContext], SourcePort | None] | None = None,
    offline: OfflineChecks | None = None,
    columns: Callable[[Connector, Log | None], Schema | None] | None = None,
) -> None:
    """Register a connector for `millstream.connector(name, ...)` and for ``FROM name(...)`` in SQL.

    `source` and `sink` open one from its context, whose `options` are validated and complete; usually they are classes.
    `options` apply to both unless a sink has others; `unnamed` is the option that a positional value sets. A sink
    declares its `guarantee` here, or as an attribute of its class if that is a `SinkBase`. A package calls this from a
    function that it names in the entry-point group ``millstream.connectors``.
    """
    if source is None and sink is None:
        raise DefinitionError(f"the connector `{name}` has neither a source nor a sink")
    if guarantee is None:
        declared = isinstance(sink, type) and issubclass(sink, SinkBase)
        guarantee = cast(SinkBase, sink).guarantee if declared else SinkGuarantee.AT_LEAST_ONCE
    system = System(
        name,
        None if source is None else tuple(options),
        None if sink is None else tuple(options if sink_options is None else sink_options),
        unnamed=unnamed,
        guarantee=None if sink is None else guarantee,
        doc=doc,
        example=f"{name.upper()}(" + ", ".join(f"{o.name} = ..." for o in options if o.required) + ")",
    )
    systems.declare(system)
    add(ConnectorEntry(system, source, sink, follow, offline, columns))
