"""The state of Python operators as a table: the keys in state, and the fields of each."""

from __future__ import annotations

import polars as pl
import pyarrow as pa

from millstream.clock import BEGINNING
from millstream.errors import UnknownName
from millstream.plan.operators.operator import view_of
from millstream.runtime.epoch.progress import Progress
from millstream.state.manifest import load_version
from millstream.state.run import StateRun
from millstream.state.shard import RunCache, StateReader
from millstream.state.storage import Storage
from millstream.state.version import Version
from millstream.store.port import EpochRow

_UNIQUE = ("$h", "$a", "$b")
_TOUCHED = "$t"
"""The column that only they have."""


def state_table(state: Storage, row: EpochRow | None, view: str) -> pa.Table:
    """Return the state of the process that computes a view, as of a committed epoch: a column for each key and each
    field.
    """
    version = Version() if row is None else load_version(row.version, state)
    marks = {} if row is None else Progress.from_json(row.progress).watermarks.last
    after = min(marks.values(), default=BEGINNING)
    for step, runs in version.runs.items():
        if view_of(step) != view or not runs or not _is_of_process(state, runs[0]):
            continue
        state_rows = StateReader(RunCache(state), runs, _UNIQUE).scan(after)
        if state_rows is not None:
            alive = state_rows.filter(~pl.col("$gone") & (pl.col("$x") > after))
            columns = [pl.col(c).alias(c.lstrip("@")) for c in state_rows.columns if not c.startswith("$")]
            return alive.select(columns).to_arrow()
    raise UnknownName(
        f"the view `{view}` has no process with state", hint="state is kept with the first view of a process"
    )


def _is_of_process(state: Storage, run: StateRun) -> bool:
    return _TOUCHED in RunCache(state).open(run).batch(0)[0].columns
