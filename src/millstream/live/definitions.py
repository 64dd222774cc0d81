"""Definitions on disk: ``catalog.json`` in the home, written whole (temp, fsync, rename) on every change, and then
again as ``catalog.json.copy`` and to the store. A file that is missing or older than a copy is damage; a repair
restores it.

    {"format": 1, "entries": [{"name": "bids", "kind": "source", "sql": "CREATE SOURCE bids ...", "schema": "..."},
                              {"name": "hot", "kind": "view", "sql": "CREATE VIEW hot AS ...", "flow": "bids"}],
     "flows": {"bids": {"start": "", "paused": false}}, "dropped": [], "pending": [], "revision": 7, "crc": 123}

The text of a definition is kept unchanged. `schema` is that of a source whose columns were inferred from its data.

The write of this file is the commit point of a statement. Its effects elsewhere follow: flows in
`dropped` are removed with all their data, and the steps in `pending` are executed (see `cleanup.py`). Both stay listed
until this process, or the next one that opens the home, has done that.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from millstream.errors import DiskFull, HomeDamaged, MillstreamError
from millstream.runtime.home_dir import files_named
from millstream.runtime.recovery import catalog_file
from millstream.runtime.recovery.catalog_file import COPY, FILE
from millstream.state.durable import write_durably

HINT = "`millstream repair` lists what can be done"
OLDER = "what was defined since would be lost"


@dataclass
class Definition:
    """One stored definition."""

    sql: str
    kind: str
    flow: str = ""
    """The flow of a view or sink."""
    schema: str = ""


@dataclass
class FlowNote:
    """What is known about a flow that SQL created."""

    start: str = ""
    paused: bool = False


@dataclass
class Definitions:
    """All definitions of a home, in order of creation, by name in lower case."""

    path: Path
    entries: dict[str, Definition] = field(default_factory=dict)
    flows: dict[str, FlowNote] = field(default_factory=dict)
    dropped: list[str] = field(default_factory=list)
    pending: list[tuple[str, str]] = field(default_factory=list)
    """The steps that follow the last commit: the action and the name of its object."""
    revision: int = 0
    """The number of writes."""
    keep: Callable[[bytes], None] = lambda _: None
    """Writes a copy to the store."""

    def copy(self) -> Definitions:
        """Return a copy to modify and then commit."""
        flows = {n: replace(f) for n, f in self.flows.items()}
        entries = {n: replace(d) for n, d in self.entries.items()}
        rest = list(self.dropped), list(self.pending), self.revision, self.keep
        return Definitions(self.path, entries, flows, *rest)

    def used_flows(self) -> list[str]:
        """The flows that views and sinks run in."""
        return list(dict.fromkeys(d.flow for d in self.entries.values() if d.flow))

    def remove(self, names: Iterable[str]) -> set[str]:
        """Remove definitions, and flows that have none left; returns the flows that had one of them. Their stored data
        is listed for removal.
        """
        touched = set()
        for name in names:
            definition = self.entries.pop(name)
            if definition.flow:
                touched.add(definition.flow)
                self.pending.append(("forget view", f"{definition.flow}/{name}"))
            if definition.kind == "table":
                self.pending.append(("forget table", name))
        for flow in sorted(touched - set(self.used_flows())):
            self.flows.pop(flow, None)
            self.dropped.append(flow)
        return touched

    @classmethod
    def load(cls, home: Path, kept: bytes | None = None, keep: Callable[[bytes], None] = lambda _: None) -> Definitions:
        """Read the definitions; empty when there is neither a file nor a copy of it. Only for the owner of the home.
        `kept` is the copy in the store, and `keep` writes one there.
        """
        path, copy, known = home / FILE, home / COPY, catalog_file.revision_of(kept)
        if not os.path.lexists(path) and not os.path.lexists(copy):
            if known > 0:
                raise HomeDamaged(f"the catalog {path} and its copy are missing", detail=OLDER, hint=HINT)
            return cls(path, keep=keep)
        definitions = cls.read(path)
        definitions.keep = keep
        with suppress(HomeDamaged):
            known = max(known, cls.read(copy).revision if os.path.lexists(copy) else -1)
        if definitions.revision < known:
            raise HomeDamaged(f"the catalog {path} is older than its copy", detail=OLDER, hint=HINT)
        data = path.read_bytes()
        if not copy.is_file() or copy.read_bytes() != data:
            definitions._write_copy(data)
        if kept != data:
            definitions._keep(data)
        return definitions

    @classmethod
    def read(cls, path: Path) -> Definitions:
        """Read a catalog, or a copy of one."""
        content = catalog_file.read(path)
        try:
            entries = {e.pop("name"): Definition(**e) for e in content["entries"]}
            flows = {n: FlowNote(**f) for n, f in content["flows"].items()}
            pending = [(str(what), str(name)) for what, name in content.get("pending", [])]
            dropped, revision = [str(f) for f in content["dropped"]], int(content.get("revision", 0))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise HomeDamaged(f"the catalog {path} cannot be read", detail=str(error), hint=HINT) from None
        return cls(path, entries, flows, dropped, pending, revision)

    def save(self) -> None:
        """Write the definitions and then the copies; durable when this returns. They are committed even if the copies
        fail: the next process that opens the home writes those.
        """
        data = self._written()
        try:
            with files_named(self.path.parent):
                write_durably(self.path, data)
        except (OSError, MillstreamError):
            if not self.path.exists() or self.path.read_bytes() != data:
                raise  # unchanged; otherwise the new ones are in place, and only the last sync of the directory failed
        self.revision += 1
        self._write_copy(data)
        self._keep(data)

    def _write_copy(self, data: bytes) -> None:
        with suppress(OSError, DiskFull):
            write_durably(self.path.with_name(COPY), data)

    def _keep(self, data: bytes) -> None:
        with suppress(MillstreamError, OSError):
            self.keep(data)

    def _written(self) -> bytes:
        content: dict[str, Any] = {
            "format": catalog_file.FORMAT,
            "entries": [{"name": n, **vars(d)} for n, d in self.entries.items()],
            "flows": {n: vars(f) for n, f in self.flows.items()},
            "dropped": self.dropped,
            "pending": self.pending,
            "revision": self.revision + 1,
        }
        return catalog_file.encode(content)
