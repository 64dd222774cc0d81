"""The task after expressions that Spark has evaluated: sends records to the shard of their key, or to their view.

Other parcels pass through.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from millstream.engine.driver.epoch_io import polars
from millstream.engine.exchange.graph import FINISH, PAIR, PAIRS, Edge
from millstream.engine.exchange.parcels import RECORD, SCHEMA, SIDE, Batches, Sender
from millstream.engine.exchange.routes import Routes
from millstream.engine.tasks.collected import Collected
from millstream.model.reserved import PLACE

KEEP = "$keep"
"""The field of a record that says whether it passed the conditions on its way."""
_ORIGIN = 1 << 19
"""Added to the origin of parcels of these tasks, which come after those of the level itself."""


@dataclass(frozen=True)
class RouteTask:
    """What a task needs to send the records of a level."""

    level: int
    routes: Routes
    edges: tuple[Edge, ...]
    name: str
    """The beginning of the names of files."""

    def run(self, batches: Batches, partition: int, attempt: int) -> Batches:
        """Send the records of one partition."""
        sender = Sender((self.level << 20) + _ORIGIN + partition, partition % self.routes.shards)
        waiting, edges = Collected(), {edge.number: edge for edge in self.edges}
        number = 0
        for batch in batches:
            is_record = pc.equal(batch.column(0), RECORD)
            others = batch.select(SCHEMA.names).filter(pc.invert(is_record))
            if others.num_rows:
                yield others
            if others.num_rows == batch.num_rows:
                continue
            for edge in self.edges:
                mine = batch.filter(pc.and_(is_record, pc.equal(batch.column(1), edge.number)))
                if not mine.num_rows:
                    continue
                waiting.add(edge.number, [_passed(mine.column(mine.schema.get_field_index(edge.column)))])
                full = waiting.full(edge.number) if self._may_cut(edge) else None
                if full is not None:
                    number += 1
                    yield from self._send(edge, full, sender, self._file(partition, attempt, number))
        for of_edge, frames in sorted(waiting.rest(), key=lambda held: held[0]):
            number += 1
            yield from self._send(edges[of_edge], frames, sender, self._file(partition, attempt, number))
        yield from sender.keys()

    def _may_cut(self, edge: Edge) -> bool:
        """Whether records may be sent in several pieces. Both halves of an update must reach a view together."""
        return edge.side != FINISH or self.routes.graph.nodes[edge.view].view.identity is None

    def _file(self, partition: int, attempt: int, number: int) -> str:
        return f"{self.name}-{self.level}-{partition}-{attempt}-{number}.arrow"

    def _send(self, edge: Edge, frames: list[pl.DataFrame], sender: Sender, file: str) -> Batches:
        rows = pl.concat(frames, how="vertical_relaxed")
        if not len(rows):
            return
        if edge.side == PAIRS:
            yield from sender.rows(SIDE, edge.view, rows.select(PAIR), sender.shard, PAIRS)
        elif edge.side == FINISH:
            yield from self.routes.finished(self.routes.graph.nodes[edge.view], rows, sender, file)
        else:
            order = [c for c in rows.columns if c.startswith(PLACE)]
            yield from self.routes.along(Edge(edge.view, edge.side), rows, order, sender)


def _passed(records: pa.StructArray) -> pl.DataFrame:
    """The records that passed all conditions, as rows."""
    rows = polars(pa.Table.from_arrays(records.flatten(), names=[f.name for f in records.type]))
    return rows.filter(KEEP).drop(KEEP)
