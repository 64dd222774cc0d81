"""Definitions on disk: ``catalog.json`` in the home, written whole (temp, fsync, rename) whenever one changes.

    {"format": 1, "entries": [{"name": "bids", "kind": "source", "sql": "CREATE SOURCE bids ...", "schema": "..."},
                              {"name": "hot", "kind": "view", "sql": "CREATE VIEW hot AS ...", "flow": "bids"}],
     "flows": {"bids": {"start": "", "paused": false}}, "dropped": [], "crc": 123}

A definition is kept as it was written. `schema` is that of a source whose columns were found in its data. Flows in
`dropped` are to be removed with all they keep; they stay listed until that is done.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from millstream.errors import HomeDamaged, HomeTooNew
from millstream.state.run import write_durably

FORMAT = 1
FILE = "catalog.json"


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

    @classmethod
    def load(cls, home: Path) -> Definitions:
        """Read them; none when there is no file."""
        path = home / FILE
        if not path.exists():
            return cls(path)
        try:
            found = orjson.loads(path.read_bytes())
            told = found.pop("crc")
            if found["format"] > FORMAT:
                raise HomeTooNew(
                    f"the catalog {path} has format {found['format']}; this Millstream knows those up to {FORMAT}",
                    detail="it was written by a newer version; nothing was touched",
                    hint="upgrade: pip install --upgrade millstream",
                )
            if told != _crc(found):
                raise ValueError("the checksum does not fit")
            entries = {e.pop("name"): Definition(**e) for e in found["entries"]}
            flows = {n: FlowNote(**f) for n, f in found["flows"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise HomeDamaged(
                f"the catalog {path} cannot be read",
                detail=str(error),
                hint="put it back from a checkpoint, or move it away and define everything anew",
            ) from None
        return cls(path, entries, flows, list(found["dropped"]))

    def save(self) -> None:
        """Write them; durable when this returns."""
        content: dict[str, Any] = {
            "format": FORMAT,
            "entries": [{"name": n, **vars(d)} for n, d in self.entries.items()],
            "flows": {n: vars(f) for n, f in self.flows.items()},
            "dropped": self.dropped,
        }
        write_durably(self.path, orjson.dumps({**content, "crc": _crc(content)}, option=orjson.OPT_INDENT_2))


def _crc(content: dict[str, Any]) -> int:
    return zlib.crc32(orjson.dumps(content, option=orjson.OPT_SORT_KEYS))
