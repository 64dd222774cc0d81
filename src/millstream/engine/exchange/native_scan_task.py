"""The task that reads a slice itself, without Spark's readers: parses, computes the columns of all scans of the source,
and combines the rows. Rows are Arrow and Polars tables all the way from the bytes of a file to the parcels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millstream.engine.driver.epoch_io import polars
from millstream.engine.exchange.parcels import Batches
from millstream.engine.exchange.scan_task import ScanIntake, ScanTask
from millstream.engine.input.native_prelude import NativeScan
from millstream.engine.input.native_slices import Share
from millstream.engine.input.readers.doubtful_lines import DoubtfulLines


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
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for given in self.shares[number].batches(doubtful.add):
                    table = polars(pa.Table.from_batches([given]))
                    for scan, intake in intakes:
                        rows = scan.rows(table)
                        assert rows is not None, "checked when the plan was bound"
                        yield from intake.take(rows)
        for _, intake in intakes:
            yield from intake.close()
        yield from sender.keys()
        if self.sent is not None and doubtful:
            self.sent.add([doubtful.lines])
