"""What every connector is to a plan, and the one for systems that were registered by others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa

from millstream.errors import DefinitionError, Origin
from millstream.model import connector_declarations
from millstream.model.connector_declarations import System
from millstream.model.guarantees import SinkGuarantee
from millstream.model.origin import here
from millstream.model.types.schema import Schema


class Connector:
    """Where a source reads from. `connect/registry.py` opens it by its system."""

    _system: ClassVar[System]

    @property
    def system(self) -> System:
        """What is declared of the system that is read."""
        return self._system

    @property
    def identity(self) -> object:
        """What names the records in the id of a plan: a flow whose source has another identity reads another source.
        Ids are kept with results, so this never changes for a value that is the same.
        """
        raise NotImplementedError

    @property
    def described(self) -> str:
        """What is read, for EXPLAIN and lists."""
        raise NotImplementedError

    @property
    def known_schema(self) -> pa.Schema | None:
        """The columns, where the connector itself knows them."""
        return None

    def as_source(self) -> Connector:
        """The value with its options checked, and the defaults of those that were not given."""
        return self

    @property
    def topic_of_its_own(self) -> str | None:
        """The topic of the log that is read, if it is one."""
        return None


class Sink:
    """Where changes may be written to. `connect/registry.py` opens it by its system."""

    _system: ClassVar[System]
    _how: ClassVar[str] = ""

    @property
    def system(self) -> System:
        """What is declared of the system that is written to."""
        return self._system

    @property
    def target(self) -> str:
        """What is written to, for EXPLAIN and lists."""
        raise NotImplementedError

    @property
    def guarantee(self) -> SinkGuarantee:
        """What happens to an epoch that is given again."""
        declared = self.system.guarantee
        assert declared is not None, f"{self.system.name} is not a sink"
        return declared

    def promise(self, flow: str) -> str:
        """What readers of the target may rely on under a guarantee of the flow."""
        return self.guarantee.promise(flow, self._how)

    def as_sink(self) -> Sink:
        """The value with its options checked, and the defaults of those that were not given."""
        return self

    def check_columns(self, name: str, columns: Schema) -> None:
        """Refuse columns of a query that the target cannot take; `name` is the sink's."""

    def check_changes(self, name: str, *, append_only: bool, origin: Origin | None) -> None:
        """Refuse the rows of a query that the target cannot take; `name` is the sink's."""


@dataclass(frozen=True)
class External(Connector, Sink):
    """A system that was registered (`millstream.register_connector`), with its options."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)  # may hold secrets

    @property
    def system(self) -> System:
        """What was declared of it."""
        system = connector_declarations.find(self.name)
        if system is None:
            raise DefinitionError(f"there is no connector `{self.name}`", hint="register it before the flow is used")
        return system

    def as_source(self) -> External:
        """Refuses options that no source of this system has."""
        return self._filled(connector_declarations.SOURCE)

    def as_sink(self) -> External:
        """Refuses options that no sink of this system has."""
        return self._filled(connector_declarations.SINK)

    def _filled(self, role: str) -> External:
        return External(self.name, connector_declarations.named(self.name, role, here()).filled(self.options, role))

    @property
    def identity(self) -> object:
        """Its name, and the options that identify a source, where they are not the default."""
        known = {o.name: o for o in self.system.source or ()}
        identifying = [(n, v) for n, v in sorted(self.options.items()) if n in known and known[n].identifies]
        return (self.name, tuple((n, str(v)) for n, v in identifying if v != known[n].default))

    @property
    def described(self) -> str:
        """Its name, and the options that were given, without secrets."""
        return self._shown(connector_declarations.SOURCE)

    @property
    def target(self) -> str:
        """The same of a sink."""
        return self._shown(connector_declarations.SINK)

    def _shown(self, role: str) -> str:
        known = {o.name: o for o in self.system.options(role) or ()}
        shown_options = [
            f"{n} = {'...' if known[n].secret else v}"
            for n, v in self.options.items()
            if n in known and v != known[n].default
        ]
        return f"{self.name}({', '.join(shown_options)})"


def connector(name: str, /, **options: object) -> External:
    """A system that was registered with `register_connector`, or that an installed package offers: to read from
    (`Flow.source`) or to write to (`Stream.sink`).
    """
    system = connector_declarations.find(name)
    if system is None:
        connector_declarations.named(name, connector_declarations.SOURCE, here())
    return External(name.lower(), dict(options))
