"""Sends the changes of an operator to their receivers: other operators by key group, the view, its sink, the driver.

Tasks call it for every operator they run, and the driver for the operators that it runs before the job.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import orjson
import polars as pl
import pyarrow as pa

from millstream.connect.port import PartsWriter
from millstream.engine.driver.epoch_io import HotKeys, polars
from millstream.engine.driver.update_pairs import paired
from millstream.engine.exchange.graph import Edge, Graph, GraphNode, taken_columns
from millstream.engine.exchange.hot_keys import repeated, split_side
from millstream.engine.exchange.parcels import CHANGES, DRIVER, FILE, FINAL, PART, REFUSED, SIDE, Batches, Sender
from millstream.errors import SinkError
from millstream.kernels.changes import types_of
from millstream.kernels.hashing import hashed
from millstream.kernels.kernel import kernel_of
from millstream.kernels.native_projection import projected
from millstream.model.reserved import OP, PLACE
from millstream.plan.operators.inputs import Take
from millstream.plan.operators.operator import Operator
from millstream.plan.plan import Plan, PlannedView
from millstream.state.ipc import ipc_bytes
from millstream.state.shard import shard_of
from millstream.state.storage import Storage

COMBINED_SIDE = -2
"""The side of rows that were combined before they were sent."""
FILE_BYTES = 1 << 20
"""Finished changes of more bytes than this become a file that the driver maps; smaller ones travel as a parcel."""


@dataclass(frozen=True)
class Routes:
    """Where changes go in one epoch."""

    graph: Graph
    shards: int
    whole: frozenset[int]
    """The operators that run in one shard in this epoch, over all of their state."""
    files: Storage
    """The storage for files of finished changes."""
    parts: Mapping[int, PartsWriter] = field(default_factory=dict)
    """The views whose finished changes tasks write to their sink."""
    hot: HotKeys = field(default_factory=dict)
    """The hot keys of joins."""

    def deliver(self, node: GraphNode, changes: pl.DataFrame, sender: Sender, file: str) -> Batches:
        """Send the changes of an operator. `file` is the name of a file for the changes of its view."""
        order = node.operator.orders_rows
        if node.operator.appends:
            changes = _appended(node, changes)
        for edge in node.edges:
            yield from self.along(edge, changes, order, sender)
        if node.to_driver:
            yield from sender.rows(CHANGES, node.number, changes)
        if node.finish is not None:
            if node.finish.ops:
                yield from sender.records(node.finish, changes)
            else:
                yield from self.finished(node, _computed(node.finish, changes), sender, file)

    def finished(self, node: GraphNode, changes: pl.DataFrame, sender: Sender, file: str) -> Batches:
        """Send the changes of a view after its last projection: as parcels, or as a file that the driver maps; or write
        them to its sink.
        """
        final = in_order(changes)
        if node.view.post is not None and not node.operator.appends:
            final = polars(paired(node.view, final.to_arrow()))
        if not len(final):
            return
        if node.number in self.parts:
            yield self._part(node, final, sender, file)
        elif final.estimated_size() <= FILE_BYTES:
            yield from sender.rows(FINAL, node.number, final)
        else:
            self.files.put(file, ipc_bytes(final.to_arrow()))
            yield sender.data(FILE, node.number, file.encode())

    def _part(self, node: GraphNode, final: pl.DataFrame, sender: Sender, file: str) -> pa.RecordBatch:
        """Write changes to the sink of their view. The driver gets the name of the part, or the error."""
        rows = node.view.for_sink(final.to_arrow(compat_level=pl.CompatLevel.oldest()))
        try:
            part = self.parts[node.number].write(rows, Path(file).stem)
        except SinkError as error:
            refused = {"message": error.message, "detail": error.detail, "hint": error.hint}
            return sender.data(REFUSED, node.number, orjson.dumps(refused))
        return sender.data(PART, node.number, orjson.dumps(asdict(part)))

    def along(self, edge: Edge, changes: pl.DataFrame, order: Sequence[str], sender: Sender) -> Batches:
        """Send changes to one side of an operator, each row to the shard of its key."""
        if edge.ops:
            yield from sender.records(edge, changes)
            return
        operator = self.graph.nodes[edge.view].operator
        side = operator.sides[edge.side]
        carried = tuple(f"{PLACE}{i}" for i in range(len(order)))
        rows = _computed(edge, changes).select(OP, *carried, *taken_columns(side))
        if operator.keeps_place:
            yield from sender.rows(SIDE, edge.view, rows, sender.shard, edge.side)
            return
        hashes = _hashes(operator, edge.side, rows)
        sender.counts.note(edge.view, edge.side, hashes, rows.select(operator.keys), None)
        if operator.shrinks_input and self.shards > 1:
            rows, hashes, combined = _shrunk(operator, rows, hashes)
            if combined is not None:
                for shard, part in self.split(edge.view, combined["$h"].to_numpy(), combined):
                    yield from sender.rows(SIDE, edge.view, part, shard, COMBINED_SIDE)
        keys, sides = split_side(self.hot, operator)
        if len(keys) and self.shards > 1:
            yield from self._along_hot(edge, hashes, rows, sender, keys, sides)
            return
        for shard, part in self.split(edge.view, hashes, rows):
            yield from sender.rows(SIDE, edge.view, part, shard, edge.side)

    def _along_hot(
        self, edge: Edge, hashes: np.ndarray, rows: pl.DataFrame, sender: Sender, keys: np.ndarray, sides: np.ndarray
    ) -> Batches:
        """Send rows of an operator with hot keys: those of the split side in turn to all shards, those of the other
        side to each of them.
        """
        owner = shard_of(hashes, self.shards)
        spread = np.isin(hashes, keys[sides == edge.side])
        owner[spread] = (sender.origin + np.arange(int(spread.sum()))) % self.shards
        everywhere = np.isin(hashes, keys[sides != edge.side])
        if everywhere.any():
            copied = rows.filter(pl.Series(everywhere))
            for shard in range(self.shards):
                yield from sender.rows(SIDE, edge.view, copied, shard, edge.side)
            rows, owner = rows.filter(pl.Series(~everywhere)), owner[~everywhere]
        for shard, part in by_shard(owner, self.shards, rows):
            yield from sender.rows(SIDE, edge.view, part, shard, edge.side)

    def split(self, view: int, hashes: np.ndarray, rows: pl.DataFrame) -> Iterator[tuple[int, pl.DataFrame]]:
        """The rows of an operator by shard, from the hashes of their keys. The order of rows is preserved."""
        if not len(rows):
            return
        if view in self.whole or self.shards == 1:
            yield 0, rows
            return
        yield from by_shard(shard_of(hashes, self.shards), self.shards, rows)

    def sent(self, driver: ChangesInDriver, plan: Plan) -> list[pa.RecordBatch]:
        """The changes of operators that the driver has run, as parcels for operators on the executors."""
        sender = Sender(DRIVER)
        found: list[pa.RecordBatch] = []
        for edge, take in self.graph.sends:
            rows = driver.changes_for(plan.views[edge.view], take)
            if rows is not None:
                found += self.along(edge, rows, (), sender)
        return found


def by_shard(owner: np.ndarray, shards: int, rows: pl.DataFrame) -> Iterator[tuple[int, pl.DataFrame]]:
    """Rows by the shard that each goes to. The order of rows is preserved."""
    if not len(rows):
        return
    first = int(owner[0])
    if (owner == first).all():
        yield first, rows
        return
    order = np.argsort(owner, kind="stable")
    ordered = rows[pl.Series(order, dtype=pl.UInt32)]
    edges = np.searchsorted(owner[order], np.arange(shards + 1))
    for shard in range(shards):
        start, end = int(edges[shard]), int(edges[shard + 1])
        if end > start:
            yield shard, ordered.slice(start, end - start)


def _shrunk(
    operator: Operator, rows: pl.DataFrame, hashes: np.ndarray
) -> tuple[pl.DataFrame, np.ndarray, pl.DataFrame | None]:
    """Rows after those of frequent keys have been combined, the hashes of their keys, and combined rows of another
    form.
    """
    frequent = repeated(hashes)
    shrink = kernel_of(operator).shrink
    if frequent is None or shrink is None:
        return rows, hashes, None
    combined = shrink(operator, rows.filter(pl.Series(frequent)))
    rows, hashes = rows.filter(pl.Series(~frequent)), hashes[~frequent]
    if "$h" in combined.columns:
        return rows, hashes, combined
    together = pl.concat([rows, combined])
    return together, np.concatenate([hashes, _hashes(operator, 0, combined)]), None


class ChangesInDriver(Protocol):
    """The driver's part of an epoch, as far as it sends changes."""

    def changes_for(self, view: PlannedView, take: Take) -> pl.DataFrame | None:
        """The changes of an operator that another takes."""
        ...


def in_order(rows: pl.DataFrame, *, keep: bool = False) -> pl.DataFrame:
    """Rows by the columns that give their order, if they have such columns; without these columns, unless `keep`."""
    order = [c for c in rows.columns if c.startswith(PLACE)]
    if not order:
        return rows
    ordered = rows.sort(order, maintain_order=True)
    return ordered if keep else ordered.drop(order)


def _appended(node: GraphNode, rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of scans as inserts, with the columns of their order."""
    view, order = node.view, node.operator.orders_rows
    hidden = [pl.col("$ts").cast(pl.Datetime("us", "UTC"))] if "$ts" in view.hidden else []
    places = [pl.col(c).alias(f"{PLACE}{i}") for i, c in enumerate(order)]
    return rows.select(pl.lit("+I").alias(OP), *places, *view.columns, *hidden)


def _computed(edge: Edge, changes: pl.DataFrame) -> pl.DataFrame:
    """Changes after the projections of an edge, with the columns that carry their order."""
    if not edge.projections:
        return changes
    carried = [c for c in changes.columns if c.startswith(PLACE)]
    rows = projected(changes, edge.projections, (OP, *carried))
    assert rows is not None, "the graph has checked that kernels can compute it"
    return rows


def _hashes(operator: Operator, side: int, rows: pl.DataFrame) -> np.ndarray:
    """The hashes under which the kernel of an operator keeps the keys of rows."""
    if not operator.keys:
        return np.full(len(rows), hashed(rows.head(1), ())[0][0] if len(rows) else 0)
    kinds = types_of(operator.sides[side])
    keys = rows.select(operator.keys).cast({k: kinds[k] for k in operator.keys})  # type: ignore[arg-type]
    return hashed(keys, operator.keys)[0]
