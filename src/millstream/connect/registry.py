"""One entry per system: how its sources and sinks are opened, and what a repair can find out about it.

The declaration of a system (options, spelling in SQL, guarantee) is in `model/connector_declarations.py`. The entries
of the systems that come with Millstream are in `connect/built_in.py`; others are added by `register`, which is
`millstream.register_connector`.
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
from millstream.model import connector_declarations
from millstream.model.connector import Connector, External, Sink
from millstream.model.connector_declarations import Option, System
from millstream.model.guarantees import SinkGuarantee
from millstream.model.types.schema import Schema

Durably = Callable[[Path, bytes], None]
"""Writes a whole file, under another name first; durable when it returns."""


@dataclass(frozen=True)
class SourceContext:
    """What a source is opened with."""

    connector: Connector
    schema: Schema
    """The columns that are read."""
    flow: str
    name: str
    root: Path
    """The folder of the flow. A source that keeps files of its own keeps them in ``sources/`` there, under its name."""
    at: Offsets
    """How far the flow has read it, as far as it has."""
    log: Log
    """The home's own log."""
    holds: bool = True
    """Whether the source should keep its records until the flow has read them; not for a single look."""

    @property
    def options(self) -> Mapping[str, Any]:
        """The options of a registered system, with their defaults."""
        return self.connector.options if isinstance(self.connector, External) else {}


@dataclass(frozen=True)
class SinkContext:
    """What a sink is opened with."""

    sink: Sink
    flow: str
    name: str
    generation: int
    """Grows when the flow or the sink begins again; epochs of different generations have nothing in common."""
    kind_column: str | None
    """The column that holds the kind of each change; None where rows are only added."""
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
        """Under which name the sink writes."""
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
    """What a repair can find out about the sources of a system."""

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
    """Opens a source next to the process that owns it, without writing anything; for a standby. None: it cannot be."""
    offline: OfflineChecks | None = None
    columns: Callable[[Connector, Log | None], Schema | None] | None = None
    """Finds the columns of a source that declares none; None where they have to be declared."""
    generation: Callable[[Sink, str], int | None] | None = None
    """The newest generation that a sink of this name has written there, if anything is; so that a new sink does not
    write over what another has written.
    """


@dataclass
class _Entries:
    by_name: dict[str, ConnectorEntry] = field(default_factory=dict)


_entries = _Entries()


def add(entry: ConnectorEntry) -> None:
    """Add the entry of a system that is declared."""
    _entries.by_name[entry.system.name] = entry


def entry_of(system: System) -> ConnectorEntry:
    """The entry of a system."""
    import millstream.connect.built_in  # noqa: F401 - it adds its entries

    entry = _entries.by_name.get(system.name)
    if entry is None:
        raise DefinitionError(f"the connector `{system.name}` is declared, but nothing opens it")
    return entry


def open_source(context: SourceContext) -> SourcePort:
    """The source that a connector describes."""
    opens = entry_of(context.connector.system).source
    if opens is None:
        raise DefinitionError(f"{context.connector.system.name} cannot be read from")
    return opens(context)


def follow_source(context: SourceContext) -> SourcePort | None:
    """The source next to the process that owns it; None when it can only be read by that process."""
    opens = entry_of(context.connector.system).follow
    return None if opens is None else opens(context)


def open_sink(context: SinkContext) -> SinkPort:
    """The sink that a value describes."""
    opens = entry_of(context.sink.system).sink
    if opens is None:
        raise DefinitionError(f"{context.sink.system.name} cannot be written to")
    return opens(context)


def columns_of(connector: Connector, log: Log | None) -> Schema | None:
    """The columns of a source that declares none, as far as they can be found."""
    finds = entry_of(connector.system).columns
    return None if finds is None else finds(connector, log)


def offline_checks(kind: str) -> OfflineChecks | None:
    """What can be known of a source of this kind (`SourceFacts.kind`) without its flow."""
    system = connector_declarations.find(kind.partition(" ")[0])
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
    place: str = "",
    follow: Callable[[SourceContext], SourcePort | None] | None = None,
    offline: OfflineChecks | None = None,
    columns: Callable[[Connector, Log | None], Schema | None] | None = None,
) -> None:
    """Register a connector, so that `millstream.connector(name, ...)` and ``FROM name(...)`` in SQL know it.

    `source` and `sink` open one from its context, whose `options` are checked and complete; usually they are classes.
    `options` are those of both unless a sink has others; `unnamed` is the one that a value without a name is for. SHOW
    calls it `place`, with that value for ``{}`` (``the database {}``); by default its name. A sink declares its
    `guarantee` here, or as an attribute of its class if that is a `SinkBase`. A package calls this from a function that
    it names in the entry-point group ``millstream.connectors``.
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
        place=place,
    )
    connector_declarations.declare(system)
    add(ConnectorEntry(system, source, sink, follow, offline, columns))
