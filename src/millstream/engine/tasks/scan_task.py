"""The task that reads a scan: checks and combines rows, runs operators that pass rows on, and sends parcels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
import orjson
import polars as pl
import pyarrow as pa

from millstream.engine.driver.epoch_io import polars
from millstream.engine.exchange.graph import GraphNode
from millstream.engine.exchange.parcels import COUNTS, NEWEST, ROWS, Batches, Sender
from millstream.engine.exchange.routes import Routes
from millstream.engine.tasks.collected import Collected
from millstream.kernels.intake import Intake, gather, take_in
from millstream.kernels.scan_input import Role
from millstream.plan.operators.operator import Operator

FOLD_ROWS = 400_000
"""Partials of more rows than this are folded before more rows are read."""


@dataclass(frozen=True)
class ScanTask:
    """What a task needs to read a scan. Without `routes`, all rows go to the driver."""

    scan: int
    roles: list[Role]
    future: int
    known: Mapping[int, int] | None = None
    routes: Routes | None = None
    newest_of: str | None = None
    """The source whose newest event time operators need, if they do."""
    name: str = ""
    """The beginning of the names of files."""

    def run(self, batches: Batches, partition: int, attempt: int) -> Batches:
        """Check and combine the rows of one partition."""
        sender = self.sender(partition)
        intake = ScanIntake(self, sender, attempt)
        for batch in batches:
            if batch.num_rows:
                yield from intake.take(polars(pa.Table.from_batches([batch])))
        yield from intake.close()
        yield from sender.keys()

    def sender(self, partition: int) -> Sender:
        """The sender of the task for one partition."""
        return Sender(partition, partition % (1 if self.routes is None else self.routes.shards))

    def passes_on(self, view: int) -> GraphNode | None:
        """The operator of a view, if this task runs it."""
        node = None if self.routes is None else self.routes.graph.nodes.get(view)
        return node if node is not None and node.level == 0 else None

    def pass_on(self, node: GraphNode, frames: list[pl.DataFrame], sender: Sender, file: str) -> Batches:
        """Send the rows of an operator that this task runs to its receivers."""
        assert self.routes is not None
        rows = gather(node.operator, frames)
        if rows is not None and len(rows):
            yield from self.routes.deliver(node, rows, sender, file)

    def send(self, view: int, operator: Operator, rows: pl.DataFrame, sender: Sender) -> Batches:
        """Send rows of a scan to the operator that reads them."""
        if self.routes is None or view not in self.routes.graph.nodes:
            yield from sender.rows(ROWS, view, rows)
            return
        hashes = rows["$h"].to_numpy() if "$h" in rows.columns else np.zeros(len(rows), np.int64)
        if "$h" in rows.columns:
            weights = rows["$n"].to_numpy() if "$n" in rows.columns else None
            sender.counts.note(view, 0, hashes, rows.select(c for c in operator.keys if c in rows.columns), weights)
        for shard, part in self.routes.split(view, hashes, rows):
            yield from sender.rows(ROWS, view, part, shard)


class ScanIntake:
    """The rows that a task has combined so far."""

    def __init__(self, task: ScanTask, sender: Sender, attempt: int) -> None:
        self._task, self._sender, self._attempt = task, sender, attempt
        self._total, self._passing = Intake(), Collected()
        self._files = 0

    def take(self, rows: pl.DataFrame) -> Batches:
        """Check and combine some rows."""
        task, total = self._task, self._total
        total.add(take_in(rows, task.roles, task.future, task.known))
        for role in task.roles:
            node = task.passes_on(role.view)
            if node is None:
                _fold(total, role)
                continue
            self._passing.add(role.view, total.frames.pop(role.view, []))
            full = self._passing.full(role.view)
            if full is not None:
                yield from task.pass_on(node, full, self._sender, self._file())

    def close(self) -> Batches:
        """Send the remaining rows, and the counts."""
        task, total, sender = self._task, self._total, self._sender
        for view, frames in self._passing.rest():
            node = task.passes_on(view)
            assert node is not None
            yield from task.pass_on(node, frames, sender, self._file())
        partials = 0
        for view, frames in total.frames.items():
            operator = next(r.operator for r in task.roles if r.view == view)
            rows = _whole(operator, frames)
            partials += len(rows) if operator.keyed_scan else 0
            yield from task.send(view, operator, rows, sender)
        yield sender.data(COUNTS, task.scan, _counts(total, partials))
        if task.newest_of is not None and task.routes is not None and total.tally.newest:
            newest = orjson.dumps({task.newest_of: max(total.tally.newest.values())})
            for shard in range(task.routes.shards):
                yield sender.data(NEWEST, -1, newest, shard)

    def _file(self) -> str:
        """The name of the next file. Several scans may share a task."""
        self._files += 1
        task = self._task
        return f"{task.name}-{self._sender.origin}-{self._attempt}-{task.scan}-{self._files}.arrow"


def _fold(intake: Intake, role: Role) -> None:
    """Fold the partials of an operator, so that a task holds about one row per key."""
    frames = intake.frames.get(role.view)
    if frames and len(frames) > 1 and role.operator.keyed_scan and sum(map(len, frames)) > FOLD_ROWS:
        intake.frames[role.view] = [_whole(role.operator, frames)]


def _whole(operator: Operator, frames: list[pl.DataFrame]) -> pl.DataFrame:
    if len(frames) == 1:
        return frames[0]
    if "$n" not in frames[0].columns:
        return pl.concat(frames, how="vertical_relaxed")
    folded = gather(operator, frames)
    assert folded is not None
    return folded


def _counts(intake: Intake, partials: int) -> bytes:
    counts = {
        "tally": asdict(intake.tally),
        "late": intake.late,
        "applied": intake.applied,
        "filtered": intake.filtered,
        "partials": partials,
    }
    return orjson.dumps(counts, option=orjson.OPT_NON_STR_KEYS)
