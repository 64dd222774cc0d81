"""Stored tables for enrichment: every version is a file, so that an epoch that is run again sees the one it saw
before.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from millstream.state.run import write_durably


class Tables:
    """The stored tables of a home: ``tables/<name>/<version>.arrow``. Versions count from 1 and are never rewritten."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def newest(self) -> Mapping[str, int]:
        """The newest version of every table."""
        found = {}
        for folder in sorted(self._root.glob("*")):
            versions = [int(f.stem) for f in folder.glob("*.arrow")]
            if versions:
                found[folder.name] = max(versions)
        return found

    def path(self, name: str, version: int) -> Path:
        """The file of one version of a table."""
        return self._root / name / f"{version:06d}.arrow"

    def drop(self, name: str) -> None:
        """Forget a table."""
        shutil.rmtree(self._root / name, ignore_errors=True)

    def put(self, name: str, data: pa.Table) -> None:
        """Keep a new version; durable when this returns."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, data.schema) as writer:
            writer.write_table(data)
        path = self.path(name, self.newest().get(name, 0) + 1)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_durably(path, sink.getvalue())
