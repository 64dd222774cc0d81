"""The task that calls a user's function over batches (`map_batches`) on changes between two levels.

The records of one edge are spread out: each field is a column, next to one column with everything else of a parcel
(`expressions.py`). All other rows pass through unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from millstream.engine.exchange.parcels import Batches
from millstream.engine.input.python_batches import called_on_changes
from millstream.engine.tasks.route_task import KEEP
from millstream.model.reserved import OP
from millstream.plan import parts

OTHERS = "$others"
"""The column with everything of a parcel but the record."""


@dataclass(frozen=True)
class BatchesTask:
    """What a task needs to call the function: it, and the fields of the records."""

    op: parts.Batches
    fields: Sequence[str]

    def run(self, batches: Batches) -> Batches:
        """Call the function on the records of each batch that passed the conditions before it."""
        for batch in batches:
            others = batch.filter(pc.is_null(batch.column(OP)))
            if others.num_rows:
                yield self._empty(others)
            mine = pa.Table.from_batches([batch.filter(batch.column(KEEP))])
            if mine.num_rows:
                yield from self._called(mine)

    def _empty(self, others: pa.RecordBatch) -> pa.RecordBatch:
        """Rows that are not records of this edge, with the columns that records have afterwards."""
        count = others.num_rows
        kinds = [pa.field(OP, pa.string()), *self.op.schema.to_arrow()]
        head = [others.column(OTHERS), others.column(KEEP)]
        columns = [*head, *(pa.nulls(count, f.type) for f in kinds)]
        return pa.RecordBatch.from_arrays(columns, names=[OTHERS, KEEP, *(f.name for f in kinds)])

    def _called(self, mine: pa.Table) -> Batches:
        done = called_on_changes(self.op, mine.select([OP, *self.fields]))
        if done.num_rows:
            first = mine.slice(0, 1).select([OTHERS, KEEP]).take(pa.array([0] * done.num_rows, pa.int64()))
            for i, name in enumerate((OTHERS, KEEP)):
                done = done.add_column(i, name, first[name])
            yield from done.combine_chunks().to_batches()
