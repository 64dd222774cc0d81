"""Definitions on disk: ``catalog.json`` in the home, written whole (temp, fsync, rename) whenever one changes, and then
once more as ``catalog.json.copy`` and into the store. A file that is missing or older than a copy is damage; a repair
puts it back.

    {"format": 1, "entries": [{"name": "bids", "kind": "source", "sql": "CREATE SOURCE bids ...", "schema": "..."},
                              {"name": "hot", "kind": "view", "sql": "CREATE VIEW hot AS ...", "flow": "bids"}],
     "flows": {"bids": {"start": "", "paused": false}}, "dropped": [], "pending": [], "revision": 7, "crc": 123}

A definition is kept as it was written. `schema` is that of a source whose columns were found in its data.

The write of this file is the commit point of a statement. What the statement does elsewhere follows it: flows in
`dropped` are removed with all they keep, and the steps in `pending` are taken (see `cleanup.py`). Both stay listed
until that is done, by this process or by the next one that opens the home.
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
from millstream.state.run import write_durably

HINT = "`millstream repair` says what can be done"
OLDER = "what was defined since would be lost"


@dataclass
class Definition:
    """One definition as it is kept."""

    sql: str
    kind: str
    flow: str = ""
    """The flow of a view or sink."""
    schema: str = ""


@dataclass
class FlowNote:
    """What is known of a flow that SQL made."""

    start: str = ""
    paused: bool = False


@dataclass
class Definitions:
    """All definitions of a home, in the order they were made, by name in lower case."""

    path: Path
    entries: dict[str, Definition] = field(default_factory=dict)
    flows: dict[str, FlowNote] = field(default_factory=dict)
    dropped: list[str] = field(default_factory=list)
    pending: list[tuple[str, str]] = field(default_factory=list)
    """Steps that follow the last commit: what is to be done, and the name that it is done to."""
    revision: int = 0
    """How often they were written."""
    keep: Callable[[bytes], None] = lambda _: None
    """Puts a copy of what was written into the store."""

    def copy(self) -> Definitions:
        """Definitions to change, and then to commit."""
        flows = {n: replace(f) for n, f in self.flows.items()}
        entries = {n: replace(d) for n, d in self.entries.items()}
        rest = list(self.dropped), list(self.pending), self.revision, self.keep
        return Definitions(self.path, entries, flows, *rest)

    def used_flows(self) -> list[str]:
        """The flows that views and sinks run in."""
        return list(dict.fromkeys(d.flow for d in self.entries.values() if d.flow))

    def remove(self, names: Iterable[str]) -> set[str]:
        """Take definitions out, and flows that have none left; gives the flows that had one of them. What is kept for
        them is listed as to be removed.
        """
        touched = set()
        for name in names:
            gone = self.entries.pop(name)
            if gone.flow:
                touched.add(gone.flow)
                self.pending.append(("forget view", f"{gone.flow}/{name}"))
            if gone.kind == "table":
                self.pending.append(("forget table", name))
        for flow in sorted(touched - set(self.used_flows())):
            self.flows.pop(flow, None)
            self.dropped.append(flow)
        return touched

    @classmethod
    def load(cls, home: Path, kept: bytes | None = None, keep: Callable[[bytes], None] = lambda _: None) -> Definitions:
        """Read them; none when there is no file, nor a copy of it. Only for the owner of the home. `kept` is the copy
        in the store, and `keep` puts one there.
        """
        path, copy, known = home / FILE, home / COPY, catalog_file.revision_of(kept)
        if not os.path.lexists(path) and not os.path.lexists(copy):
            if known > 0:
                raise HomeDamaged(f"the catalog {path} and its copy are missing", detail=OLDER, hint=HINT)
            return cls(path, keep=keep)
        found = cls.read(path)
        found.keep = keep
        with suppress(HomeDamaged):
            known = max(known, cls.read(copy).revision if os.path.lexists(copy) else -1)
        if found.revision < known:
            raise HomeDamaged(f"the catalog {path} is older than its copy", detail=OLDER, hint=HINT)
        data = path.read_bytes()
        if not copy.is_file() or copy.read_bytes() != data:
            found._write_copy(data)
        if kept != data:
            found._keep(data)
        return found

    @classmethod
    def read(cls, path: Path) -> Definitions:
        """Read a catalog, or a copy of one."""
        found = catalog_file.read(path)
        try:
            entries = {e.pop("name"): Definition(**e) for e in found["entries"]}
            flows = {n: FlowNote(**f) for n, f in found["flows"].items()}
            pending = [(str(what), str(name)) for what, name in found.get("pending", [])]
            dropped, revision = [str(f) for f in found["dropped"]], int(found.get("revision", 0))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise HomeDamaged(f"the catalog {path} cannot be read", detail=str(error), hint=HINT) from None
        return cls(path, entries, flows, dropped, pending, revision)

    def save(self) -> None:
        """Write them, and then the copies; durable when this returns. Without copies they are committed, too: whoever
        opens the home next writes those.
        """
        data = self._written()
        try:
            with files_named(self.path.parent):
                write_durably(self.path, data)
        except (OSError, MillstreamError):
            if not self.path.exists() or self.path.read_bytes() != data:
                raise  # as before; else the new ones are there, and only the last sync of the folder failed
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
