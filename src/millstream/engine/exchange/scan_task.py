"""The task that reads a scan: takes rows in, runs operators that pass rows on, and sends parcels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
import orjson
import polars as pl
import pyarrow as pa

from millstream.engine.driver.epoch_io import polars
from millstream.engine.exchange.collected import Collected
from millstream.engine.exchange.graph import GraphNode
from millstream.engine.exchange.parcels import COUNTS, NEWEST, ROWS, Batches, Sender
from millstream.engine.exchange.routes import Routes
from millstream.kernels.intake import Intake, gather, take_in
from millstream.kernels.scan_input import Role
from millstream.plan.operators.operator import Operator

FOLD_ROWS = 400_000
"""Partials of more rows than this are folded before more rows are taken in."""


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
        """Take in the rows of one partition."""
        shards = 1 if self.routes is None else self.routes.shards
        sender, total, number = Sender(partition, partition % shards), Intake(), 0
        passing = Collected()
        for batch in batches:
            if not batch.num_rows:
                continue
            rows = polars(pa.Table.from_batches([batch]))
            total.add(take_in(rows, self.roles, self.future, self.known))
            for role in self.roles:
                node = self._passes_on(role.view)
                if node is None:
                    _fold(total, role)
                    continue
                passing.add(role.view, total.frames.pop(role.view, []))
                full = passing.full(role.view)
                if full is not None:
                    number += 1
                    yield from self._pass_on(node, full, sender, self._file(number, attempt, sender))
        for view, frames in passing.rest():
            node = self._passes_on(view)
            assert node is not None
            number += 1
            yield from self._pass_on(node, frames, sender, self._file(number, attempt, sender))
        partials = 0
        for view, frames in total.frames.items():
            operator = next(r.operator for r in self.roles if r.view == view)
            rows = _whole(operator, frames)
            partials += len(rows) if operator.keyed_scan else 0
            yield from self._send(view, operator, rows, sender)
        yield sender.data(COUNTS, self.scan, _counts(total, partials))
        yield from sender.keys()
        if self.newest_of is not None and self.routes is not None and total.tally.newest:
            newest = orjson.dumps({self.newest_of: max(total.tally.newest.values())})
            for shard in range(self.routes.shards):
                yield sender.data(NEWEST, -1, newest, shard)

    def _file(self, number: int, attempt: int, sender: Sender) -> str:
        return f"{self.name}-{sender.origin}-{attempt}-{number}.arrow"

    def _passes_on(self, view: int) -> GraphNode | None:
        """The operator of a view, if this task runs it."""
        node = None if self.routes is None else self.routes.graph.nodes.get(view)
        return node if node is not None and node.level == 0 else None

    def _pass_on(self, node: GraphNode, frames: list[pl.DataFrame], sender: Sender, file: str) -> Batches:
        assert self.routes is not None
        rows = gather(node.operator, frames)
        if rows is not None and len(rows):
            yield from self.routes.deliver(node, rows, sender, file)

    def _send(self, view: int, operator: Operator, rows: pl.DataFrame, sender: Sender) -> Batches:
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
