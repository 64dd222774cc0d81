"""The task that reads a slice itself, without Spark's readers: parses, computes the columns of all scans of the source,
and combines the rows. Rows are Arrow and Polars tables all the way from the bytes of a file to the parcels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa

from millstream.engine.driver.epoch_io import polars
from millstream.engine.exchange.parcels import Batches
from millstream.engine.input.native_prelude import NativeScan
from millstream.engine.input.native_slices import Share
from millstream.engine.input.readers.doubtful_lines import DoubtfulLines
from millstream.engine.tasks.scan_task import ScanIntake, ScanTask

BATCH_ROWS = 1 << 17
"""Rows that are taken in at once: enough for the calls to pay, few enough for the cache."""


@dataclass(frozen=True)
class NativeScanTask:
    """What a task needs to read shares of a slice."""

    shares: Sequence[Share]
    scans: Sequence[tuple[NativeScan, ScanTask]]
    sent: Any = None
    """An accumulator of Spark: it brings doubtful lines to the driver."""

    def run(self, numbers: Batches, partition: int, attempt: int) -> Batches:
        """Read the shares with some numbers."""
        sender = self.scans[0][1].sender(partition)
        intakes = [(scan, ScanIntake(task, sender, attempt)) for scan, task in self.scans]
        doubtful = DoubtfulLines()
        parts = (self.shares[number] for batch in numbers for number in batch.column(0).to_pylist())
        for table in _gathered(rows for share in parts for rows in share.batches(doubtful.add)):
            for scan, intake in intakes:
                rows = scan.rows(table)
                assert rows is not None, "checked when the plan was bound"
                yield from intake.take(rows)
        for _, intake in intakes:
            yield from intake.close()
        yield from sender.keys()
        if self.sent is not None and doubtful:
            self.sent.add([doubtful.lines])


def _gathered(batches: Batches) -> Iterator[pl.DataFrame]:
    """Batches as tables of at least `BATCH_ROWS` rows, except the last: each table has its cost."""
    some: list[pa.RecordBatch] = []
    for batch in batches:
        some.append(batch)
        if sum(b.num_rows for b in some) >= BATCH_ROWS:
            yield polars(pa.Table.from_batches(some))
            some = []
    if some:
        yield polars(pa.Table.from_batches(some))
