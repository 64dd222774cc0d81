"""The results of lookups, recorded before they are used, so that an epoch that is run again has the same ones.

In the folder of an operator, for every epoch:

- ``<epoch>-<fingerprint>.arrow``: results that the driver has asked for;
- ``<epoch>-<fingerprint>-<attempt>-<shards>-<shard>-<task>.arrow``: those of a task;
- ``<epoch>-<fingerprint>-<attempt>-<shards>-<shard>.json``: the files that count for the tasks of a shard, for another
  attempt at a task of the same job;
- ``<epoch>-<fingerprint>.json``: the files of tasks that count. The driver writes it before it uses what they gave.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import orjson
import polars as pl
import pyarrow as pa

from millstream.kernels.python.by_key import KEY
from millstream.plan.operators.python.lookup import AsyncLookup
from millstream.state.ipc import ipc_bytes
from millstream.state.storage import Storage


@dataclass(frozen=True)
class LookupRecords:
    """The recorded results of one operator in one epoch."""

    storage: Storage
    step: str
    start: str
    """The beginning of the names of its files."""

    @classmethod
    def of(cls, storage: Storage, operator: AsyncLookup, epoch: int) -> LookupRecords:
        """The records of an operator in an epoch."""
        return cls(storage, operator.step, f"{operator.step}/{epoch:012d}-{operator.fingerprint}")

    @property
    def of_driver(self) -> str:
        """The file with the results that the driver has asked for."""
        return f"{self.start}.arrow"

    def names(self) -> list[str]:
        """The files with results that count. If no attempt has used any yet: those that attempts have left."""
        used = [*self.storage.sizes([self.of_driver]), *self.listed(f"{self.start}.json")]
        if used:
            return used
        left = sorted(n for n in self.storage.names() if n.startswith(f"{self.start}-") and n.endswith(".arrow"))
        return list(self.storage.sizes(left))  # listings may lag behind

    def note(self, names: Sequence[str]) -> None:
        """Record which files of tasks count, before their results are used."""
        self.storage.put(f"{self.start}.json", orjson.dumps(list(dict.fromkeys(names))))

    def listed(self, name: str) -> list[str]:
        """The names in a file of names; none if it does not exist."""
        try:
            found: list[str] = orjson.loads(memoryview(self.storage.map(name)))
        except FileNotFoundError:
            return []
        return found

    def read(self, names: Sequence[str]) -> pl.DataFrame | None:
        """The results in some files; None if there are none. The first file with a result for a key counts."""
        tables = [pa.ipc.open_file(self.storage.map(name)).read_all() for name in names]
        if not tables:
            return None
        frame = pl.from_arrow(pa.concat_tables(tables, promote_options="permissive"))
        assert isinstance(frame, pl.DataFrame)
        return frame.unique(KEY, keep="first", maintain_order=True)

    def write(self, name: str, results: pl.DataFrame) -> None:
        """Write results. They are durable when this returns."""
        self.storage.put(name, ipc_bytes(results.to_arrow()))


def forget(storage: Storage, step: str, before: int) -> None:
    """Remove the recorded results of epochs before this one."""
    names = ((n, n.rpartition("/")[2].lstrip(".")) for n in storage.names() if n.startswith(f"{step}/"))
    storage.delete(n for n, file in names if int(file.partition("-")[0]) < before)
