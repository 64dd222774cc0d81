"""The base classes of connectors and sinks in a plan, and the connector for third-party systems."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa

from millstream.errors import DefinitionError, Origin
from millstream.model import systems
from millstream.model.guarantees import SinkGuarantee
from millstream.model.origin import here
from millstream.model.systems import System
from millstream.model.types.schema import Schema


class Connector:
    """A source's input system. `connect/registry.py` opens it by its system."""

    _system: ClassVar[System]

    @property
    def system(self) -> System:
        """The declaration of the system that is read."""
        return self._system

    @property
    def identity(self) -> object:
        """What identifies the records in the id of a plan: a flow whose source has another identity reads another
        source. Ids are stored with results, so the identity of an equal value must never change.
        """
        raise NotImplementedError

    @property
    def described(self) -> str:
        """A description of what is read, for EXPLAIN and listings."""
        raise NotImplementedError

    @property
    def known_schema(self) -> pa.Schema | None:
        """The columns, if the connector itself knows them."""
        return None

    def as_source(self) -> Connector:
        """The connector with its options checked and defaults filled in."""
        return self

    @property
    def topic_of_its_own(self) -> str | None:
        """The topic of the log that is read, if it is one."""
        return None


class Sink:
    """A destination for changes. `connect/registry.py` opens it by its system."""

    _system: ClassVar[System]
    _how: ClassVar[str] = ""

    @property
    def system(self) -> System:
        """The declaration of the system that is written to."""
        return self._system

    @property
    def target(self) -> str:
        """A description of what is written to, for EXPLAIN and listings."""
        raise NotImplementedError

    @property
    def guarantee(self) -> SinkGuarantee:
        """What happens to an epoch that is delivered again."""
        declared = self.system.guarantee
        assert declared is not None, f"{self.system.name} is no sink"
        return declared

    def promise(self, flow: str) -> str:
        """What readers of the target may rely on under a guarantee of the flow."""
        return self.guarantee.promise(flow, self._how)

    def as_sink(self) -> Sink:
        """The sink with its options checked and defaults filled in."""
        return self

    def check_columns(self, name: str, columns: Schema) -> None:
        """Reject columns of a query that the target cannot store; `name` is the sink's."""

    def check_changes(self, name: str, *, append_only: bool, origin: Origin | None) -> None:
        """Reject changes of a query that the target cannot store; `name` is the sink's."""


@dataclass(frozen=True)
class External(Connector, Sink):
    """A registered system (`millstream.register_connector`) with its options."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)  # may contain secrets

    @property
    def system(self) -> System:
        """Its declaration."""
        system = systems.find(self.name)
        if system is None:
            raise DefinitionError(f"there is no connector `{self.name}`", hint="register it before the flow is used")
        return system

    def as_source(self) -> External:
        """Rejects options that no source of this system has."""
        return self._filled(systems.SOURCE)

    def as_sink(self) -> External:
        """Rejects options that no sink of this system has."""
        return self._filled(systems.SINK)

    def _filled(self, role: str) -> External:
        return External(self.name, systems.named(self.name, role, here()).filled(self.options, role))

    @property
    def identity(self) -> object:
        """Its name, and the identifying options that differ from their defaults."""
        known = {o.name: o for o in self.system.source or ()}
        told = [(n, v) for n, v in sorted(self.options.items()) if n in known and known[n].identifies]
        return (self.name, tuple((n, str(v)) for n, v in told if v != known[n].default))

    @property
    def described(self) -> str:
        """Its name and the options that were set, without secrets."""
        return self._shown(systems.SOURCE)

    @property
    def target(self) -> str:
        """The same for a sink."""
        return self._shown(systems.SINK)

    def _shown(self, role: str) -> str:
        known = {o.name: o for o in self.system.options(role) or ()}
        given = [
            f"{n} = {'...' if known[n].secret else v}"
            for n, v in self.options.items()
            if n in known and v != known[n].default
        ]
        return f"{self.name}({', '.join(given)})"


def connector(name: str, /, **options: object) -> External:
    """A system that was registered with `register_connector`, or that an installed package provides. Read from it
    (`Flow.source`) or write to it (`Stream.sink`).
    """
    system = systems.find(name)
    if system is None:
        systems.named(name, systems.SOURCE, here())
    return External(name.lower(), dict(options))
