"""The task of one part of a merge: merges the rows of a range of hashes, and tells the driver the run that it wrote."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import orjson
import pyarrow as pa

from millstream.engine.exchange.parcels import RUNS, Batches, Sender, parcels_of
from millstream.state.compaction import RunMerge, merge
from millstream.state.run import StateRun
from millstream.state.run_block import RunBlock
from millstream.state.shard import RunCache, shard_range
from millstream.state.storage import Storage


@dataclass(frozen=True)
class MergeTask:
    """What the tasks of a merge need. Each performs one part."""

    merge: RunMerge
    parts: int
    state: Storage

    def run(self, batches: Batches, part: int, attempt: int) -> Batches:
        """Perform one part. The name of its file has the attempt, so that a repeated task overwrites nothing."""
        for _ in batches:
            pass
        wanted = self.merge
        runs = wanted.runs.meeting(shard_range(part, self.parts))
        cache = RunCache(self.state)  # verifies what it reads: a merge must not give damaged rows a new checksum
        name = f"{wanted.name}-{part}-{attempt}-c.arrow"
        args = (runs, wanted.unique, wanted.expiry, wanted.watermark)
        written = merge(cache, name, *args, oldest=wanted.oldest, part=(part, self.parts))
        if written is not None:
            yield Sender(part).data(RUNS, -1, RunBlock.of([written]).encoded())


def merged_runs(batches: Iterable[pa.RecordBatch]) -> list[StateRun]:
    """The runs that the tasks of a merge wrote, in the order of their hashes."""
    parcels = sorted(parcels_of(batches), key=lambda p: p.place)
    return [run for p in parcels for run in RunBlock.from_columns([orjson.loads(p.payload)]).runs]
