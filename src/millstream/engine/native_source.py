"""A source whose slice is read without Spark's readers in one epoch: in the driver, or by the tasks of a job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from millstream.engine.driver.epoch_io import polars
from millstream.engine.input.native_prelude import NativeScan
from millstream.engine.input.native_slices import NativeSlice
from millstream.engine.input.readers.columns import Wanted
from millstream.engine.input.readers.doubtful_lines import DoubtfulLines, accumulator, received
from millstream.engine.input.readers.json_task import DoubtfulLine
from millstream.engine.tasks.native_scan_task import NativeScanTask
from millstream.engine.tasks.scan_task import ScanTask
from millstream.kernels.intake import Intake, take_in


class NativeSource:
    """A slice, its scans, and the doubtful lines that were met."""

    def __init__(self, spark: SparkSession, wanted: Wanted, part: NativeSlice, scans: Sequence[NativeScan]) -> None:
        self._spark, self._wanted, self._slice = spark, wanted, part
        self._scans = [replace(scan, now=wanted.now) for scan in scans]
        self._found = DoubtfulLines()
        self._sent: Any = None

    @property
    def small(self) -> bool:
        """Whether the driver should read it."""
        return self._slice.small

    @property
    def lines(self) -> list[DoubtfulLine] | None:
        """The doubtful lines of the slice, once it was read; None if there are too many for the driver."""
        return self._found.lines if self._sent is None else received(self._sent.value)

    def taken_in(self, tasks: Sequence[ScanTask]) -> dict[int, Intake]:
        """Read the slice in the driver: the intake of each scan."""
        batches = [b for share in self._slice.shares for b in share.batches(self._found.add)]
        if not batches:
            return {}
        source_rows = polars(pa.Table.from_batches(batches))
        intakes = {}
        for scan, task in zip(self._scans, tasks, strict=True):
            rows = scan.rows(source_rows)
            assert rows is not None, "checked when the plan was bound"
            intakes[task.scan] = take_in(rows, task.roles, task.future, task.known)
        return intakes

    def task(self, tasks: Sequence[ScanTask]) -> NativeScanTask:
        """The task that reads shares of the slice."""
        if self._slice.of_lines is not None:
            self._sent = accumulator(self._spark)
        return NativeScanTask(self._slice.shares, list(zip(self._scans, tasks, strict=True)), self._sent)

    def doubtful(self) -> DataFrame:
        """The rows of the doubtful lines, after Spark has parsed them."""
        return self._parsed(self._wanted)

    def errors(self) -> DataFrame | None:
        """The same rows with the details that error tables show. All errors of the slice are among them; None if they
        are not known.
        """
        if self._slice.of_lines is None or not self.lines:
            return None
        return self._parsed(replace(self._wanted, details=True, only=None))

    def _parsed(self, wanted: Wanted) -> DataFrame:
        assert self._slice.of_lines is not None
        return self._slice.of_lines(self.lines or (), wanted).selected(wanted, by_line=True)
