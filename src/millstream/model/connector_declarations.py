"""Declarations of external systems: options, SQL syntax, and the guarantee of a sink.

This is the half of the registry that SQL and plans read. The other half, which opens sources and sinks, is
`connect/registry.py`. Third-party packages declare a function in the entry-point group ``millstream.connectors``. It
runs when a system is named that is not known yet, and calls `millstream.register_connector`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

from millstream.errors import DefinitionError, Origin
from millstream.model.guarantees import SinkGuarantee
from millstream.model.types.duration import Duration

ENTRY_POINTS = "millstream.connectors"
SOURCE, SINK = "source", "sink"
"""The roles of a system."""

SPAN = (str, Duration)
Kinds = Mapping[str, type | tuple[type, ...]]
"""From option name to the type of its value."""

_MEANT: dict[Any, str] = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    SPAN: "a duration",
}


class _Required:
    def __repr__(self) -> str:
        return "required"


REQUIRED = _Required()
"""The default of a required option."""


@dataclass(frozen=True)
class Option:
    """One option of a system."""

    name: str
    type: type | tuple[type, ...] = str
    """str, int, float, bool, or SPAN for a length of time."""
    default: Any = None
    doc: str = ""
    secret: bool = False
    """Whether its value is never shown."""
    identifies: bool = True
    """Whether a different value means a different source: a flow that is changed this way reads it from its start. This
    does not apply to a password or a batch size.
    """

    @property
    def required(self) -> bool:
        """Whether it is required."""
        return self.default is REQUIRED


@dataclass(frozen=True)
class System:
    """The declaration of a system."""

    name: str
    """In lower case; the SQL syntax is ``NAME(option = value, ...)``."""
    source: tuple[Option, ...] | None = None
    """The options of a source; None if it cannot be read from."""
    sink: tuple[Option, ...] | None = None
    """The options of a sink; None if it cannot be written to."""
    unnamed: str = ""
    """The option that an unnamed value sets."""
    guarantee: SinkGuarantee | None = None
    doc: str = ""
    example: str = ""
    """An example call in SQL, for error messages."""
    in_sql: bool = True
    """Whether it is available in SQL."""
    place: str = ""
    """What SHOW calls a place in it, with ``{}`` for the unnamed value: ``files in {}``; by default its name."""
    on_demand: bool = False
    """Whether a source makes its records when they are read: it has no history, and its columns need no look at it."""

    @property
    def spelling(self) -> str:
        """Its name in SQL."""
        return self.name.upper()

    def options(self, role: str) -> tuple[Option, ...] | None:
        """The options of a source or of a sink."""
        return self.source if role == SOURCE else self.sink

    def kinds(self, role: str) -> Kinds:
        """The same as names and types."""
        return {o.name: o.type for o in self.options(role) or ()}

    def filled(self, values: Mapping[str, Any], role: str) -> dict[str, Any]:
        """Checked options, with defaults for the missing ones."""
        options = self.options(role)
        if options is None:
            raise DefinitionError(f"{self.spelling} cannot be used as a {role}", hint=self.example or None)
        filled_options = checked(values, self.kinds(role), self.spelling)
        missing = next((o for o in options if o.required and o.name not in filled_options), None)
        if missing is not None:
            meaning = f": {missing.doc}" if missing.doc else ""
            raise DefinitionError(
                f"{self.spelling} needs the option `{missing.name}`{meaning}",
                hint="options are: " + ", ".join(_shown(o) for o in options),
            )
        return {**{o.name: o.default for o in options}, **filled_options}


def _shown(option: Option) -> str:
    return f"{option.name} ({'required' if option.required else _MEANT[option.type]})"


def checked(options: Mapping[str, Any], kinds: Kinds, what: str) -> dict[str, Any]:
    """Options, checked to be known and of the right type."""
    for name, value in options.items():
        if name not in kinds:
            raise DefinitionError(f"{what} has no option `{name}`", hint="options are: " + ", ".join(kinds))
        kind = kinds[name]
        fits = isinstance(value, int | float) if kind is float else isinstance(value, kind)
        if not fits or (isinstance(value, bool) and kind is not bool):
            raise DefinitionError(f"the option `{name}` of {what} is {_MEANT[kind]}")
    return dict(options)


@dataclass
class _Table:
    systems: dict[str, System] = field(default_factory=dict)
    discovered: bool = False
    failures: dict[str, str] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)


_table = _Table()


def declare(system: System) -> None:
    """Add a system. A repeated declaration must be identical."""
    if not system.name.isidentifier() or system.name != system.name.lower():
        raise DefinitionError(
            f"{system.name!r} is not a valid name for a connector", hint="use lower case letters, digits and _"
        )
    for option in (*(system.source or ()), *(system.sink or ())):
        if option.type not in _MEANT:
            raise DefinitionError(
                f"the option `{option.name}` of the connector `{system.name}` has the type {option.type!r}",
                hint="str, int, float, bool or SPAN",
            )
    with _table.lock:
        known = _table.systems.get(system.name)
        if known is not None and known != system:
            raise DefinitionError(f"a connector `{system.name}` exists already")
        _table.systems[system.name] = system


def forget(name: str) -> None:
    """Remove a system that a test has declared."""
    with _table.lock:
        _table.systems.pop(name, None)


def find(name: str) -> System | None:
    """The system of a name (case-insensitive); searches installed packages if it is unknown."""
    key = name.lower()
    if key not in _table.systems:
        _discover()
    return _table.systems.get(key)


def named(name: str, role: str, origin: Origin | None = None) -> System:
    """The same; raises an error if there is no system of that name and role."""
    system = find(name)
    if system is None or system.options(role) is None:
        failed = "; ".join(
            f"the package that offers `{n}` cannot be loaded: {why}" for n, why in _table.failures.items()
        )
        raise DefinitionError(
            f"there is no connector `{name}` to use as a {role}",
            detail=failed or None,
            hint="there are: " + ", ".join(s.name for s in _of(role)),
            origin=origin,
        )
    return system


def spellings(role: str) -> tuple[str, ...]:
    """The SQL names of the known systems with a role, without searching installed packages."""
    return tuple(s.spelling for s in _of(role) if s.in_sql)


def _of(role: str) -> Sequence[System]:
    return [s for s in _table.systems.values() if s.options(role) is not None]


def _discover() -> None:
    """Let installed packages register their systems, once."""
    with _table.lock:
        if _table.discovered:
            return
        _table.discovered = True
        for point in metadata.entry_points(group=ENTRY_POINTS):
            try:
                point.load()()
            except Exception as error:  # noqa: BLE001 - it is the code of another package: the rest works without it
                _table.failures[point.name] = f"{type(error).__name__}: {error}"


# ---------------------------------------------------------------- built-in systems

_START = Option("start", str, "", "'earliest', 'now' or a time: where a flow that reads it for the first time begins")

FILES = System(
    "files",
    (
        Option("path", str, None, "a folder, a file or a pattern"),
        Option("format", str, None, "json, csv or parquet; by default, as the name of the file ends"),
        Option("header", bool, True, "whether CSV files begin with the names of the columns"),
        Option("bounded", bool, False, "read what exists at the start, then end"),
    ),
    (Option("path", str, None, "a folder"), Option("format", str, None, "json, csv or parquet")),
    unnamed="path",
    guarantee=SinkGuarantee.IDEMPOTENT,
    doc="Folders of JSON lines, CSV or Parquet.",
    example="FILES('data/bids', format = 'json')",
    place="files in {}",
)
LOG = System(
    "log",
    (
        Option("topic", str, None, "the topic; by default it has the name of the source"),
        Option("bounded", bool, False, "read what exists at the start, then end"),
        Option("partitions", int, 1, "the number of partitions of a new topic"),
        Option("key", str, None, "the column that assigns the records of a new topic to partitions"),
        Option("retain", SPAN, None, "how long a new topic keeps records that every reader has read"),
        Option("retain_bytes", int, None, "how many bytes of them it keeps"),
        _START,
    ),
    (Option("topic", str, None, "the topic; by default it has the name of the sink"),),
    unnamed="topic",
    guarantee=SinkGuarantee.TRANSACTIONAL,
    doc="Topics of the home's own log.",
    example="LOG('topic')",
    place="the topic {}",
)
GENERATOR = System(
    "generator",
    (),
    doc="Generated records: GENERATOR('name', ...) with the arguments of that generator.",
    example="GENERATOR('nexmark', 'bid', rate = 1000)",
    place="the generator {}",
    on_demand=True,
)
CONSOLE = System(
    "console",
    sink=(),
    guarantee=SinkGuarantee.AT_LEAST_ONCE,
    doc="The standard output of the process that runs the flow.",
    example="CONSOLE",
)
TABLE = System(
    "table",
    sink=(),
    guarantee=SinkGuarantee.TRANSACTIONAL,
    doc="A stored table of the home.",
    example="TABLE totals (item, n)",
    place="the table {}",
)
MEMORY = System("memory", (), doc="Rows that a program sends.", in_sql=False)
SPARK = System("spark", (), doc="Any source of Spark Structured Streaming, landed in a topic.", in_sql=False)

for _system in (FILES, LOG, GENERATOR, CONSOLE, TABLE, MEMORY, SPARK):
    declare(_system)
