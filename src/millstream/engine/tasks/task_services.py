"""The services of kernels in tasks: lookups, with results that are recorded before they are used, and conditions over
pairs of rows, which Spark has evaluated before (`pairs.py`).

A task writes its results to a file of its own and tells the driver its name. Another attempt at the task finds them
through a file of names. If both run at once, the results of the one that was recorded first count for both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import orjson
import polars as pl

from millstream.engine.driver.lookup_calls import asked
from millstream.engine.driver.lookup_records import LookupRecords
from millstream.engine.exchange.pairs import satisfied
from millstream.kernels.kernel import Services
from millstream.kernels.python.by_key import KEY
from millstream.kernels.python.lookup import answers, lookup_keys
from millstream.plan.operators.operator import Operator
from millstream.plan.operators.python.lookup import AsyncLookup
from millstream.plan.operators.relations.join import PairCondition
from millstream.plan.operators.relations.loop import Loop
from millstream.state.storage import Storage


@dataclass(frozen=True)
class LookupTasks:
    """What tasks need to perform lookups."""

    storage: Storage
    epoch: int
    attempt: int
    shards: int
    known: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By operator: the files with the results of earlier attempts at the epoch."""

    def share(self, operator: AsyncLookup) -> AsyncLookup:
        """An operator with its part of the calls that may run at once. Every task makes at least one."""
        return replace(operator, parallel=max(1, operator.parallel // self.shards))


class TaskServices:
    """The services of a task for one operator: lookups, its pairs that satisfy a condition, and what others provide."""

    def __init__(
        self,
        others: Services,
        lookups: LookupTasks | None,
        shard: int,
        attempt: int,
        pairs: Sequence[pl.DataFrame] | None = None,
    ) -> None:
        self._others, self._lookups, self._shard, self._attempt = others, lookups, shard, attempt
        self._pairs = pairs
        self.files: list[str] = []
        """The files with the results that were used, but for those of earlier attempts at the epoch."""

    def look_up(self, operator: AsyncLookup, requests: pl.DataFrame) -> pl.DataFrame:
        """The results for some lookups: recorded ones, and new ones."""
        if self._lookups is None:
            return self._others.look_up(operator, requests)
        tasks = self._lookups
        records = LookupRecords.of(tasks.storage, operator, tasks.epoch)
        mine = f"{records.start}-{tasks.attempt}-{tasks.shards}-{self._shard}"
        names = [n for n in tasks.known.get(operator.step, ()) if self._concerns(records, n)]
        self.files = records.listed(f"{mine}.json")
        found = records.read([*names, *self.files])
        new = _without(requests, found)
        if len(new):
            asking = tasks.share(operator)
            fresh = answers(operator, new, asked(asking, lookup_keys(operator, new)))
            file = f"{mine}-{self._attempt}.arrow"
            records.write(file, fresh)
            before, self.files = self.files, records.listed(f"{mine}.json")
            if self.files != before:  # another attempt at this task was faster
                found = records.read([*names, *self.files])
                fresh = _without(fresh, found)
            self.files = [*self.files, file]
            tasks.storage.put(f"{mine}.json", orjson.dumps(self.files))
            found = fresh if found is None else pl.concat([found, fresh], how="vertical_relaxed")
        assert found is not None, "there are lookups"
        return found.join(requests, on=KEY, how="semi", maintain_order="left")

    def _concerns(self, records: LookupRecords, name: str) -> bool:
        """Whether a file may have results for this shard: not, if it is that of another one among as many."""
        parts = name.removeprefix(f"{records.start}-").removesuffix(".arrow").split("-")
        tasks = self._lookups
        assert tasks is not None
        return len(parts) != 4 or parts[1] != str(tasks.shards) or parts[2] == str(self._shard)

    def holds(self, operator: Operator, condition: PairCondition, pairs: pl.DataFrame) -> pl.Series:
        """Those that Spark has let through."""
        return self._others.holds(operator, condition, pairs) if self._pairs is None else satisfied(pairs, self._pairs)

    def fixpoint(self, operator: Loop, tables: list[pl.DataFrame]) -> pl.DataFrame:
        """By the others."""
        return self._others.fixpoint(operator, tables)

    def key_hash(self, operator: Operator, grouping_set: int) -> int:
        """By the others."""
        return self._others.key_hash(operator, grouping_set)


def _without(rows: pl.DataFrame, found: pl.DataFrame | None) -> pl.DataFrame:
    return rows if found is None else rows.join(found, on=KEY, how="anti", maintain_order="left")
