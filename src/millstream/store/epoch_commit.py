"""The transaction of an epoch in the embedded store: refuses a former owner, changes the views, adds errors, late rows
and panes, removes what has expired, and records the epoch. `duckdb.py` opens the transaction.
"""

from __future__ import annotations

from collections.abc import Mapping

import duckdb

from millstream.clock import ALL_READ, BEGINNING
from millstream.errors import LeaseLost, RecoveryFailed
from millstream.store.names import quoted, stored_name
from millstream.store.port import EpochCommit, ViewSpec
from millstream.store.statements import apply_changes, as_json, insert, remove, value

KEPT_EPOCHS = 100
"""The number of epochs of a flow whose rows are kept."""
REPLAYABLE = "replayed_in IS NULL AND reason <> 'it belongs to no window'"
"""SQL for the late rows that were not replayed yet."""


def commit_epoch(cursor: duckdb.DuckDBPyConnection, commit: EpochCommit, views: Mapping[str, ViewSpec]) -> None:
    """Apply an epoch to the views of its flow, inside a transaction."""
    row = commit.row
    _fence(cursor, commit)
    last = value(cursor, "SELECT max(number) FROM millstream.epochs WHERE flow = ?", [commit.flow])
    if last is not None and row.number != last + 1:
        raise RecoveryFailed(f"epoch {row.number} of `{commit.flow}` does not follow epoch {last} in the store")
    for name, table in commit.changes.items():
        apply_changes(cursor, views[name], table, upsert=commit.upsert)
    for name, table in commit.mended.items():
        remove(cursor, name + "$errors", table)
    for suffix, tables in (("$errors", commit.errors), ("$late", commit.late), ("$panes", commit.panes)):
        for name, table in tables.items():
            insert(cursor, name + suffix, table)
    if commit.replayed is not None:
        late = quoted(commit.replayed + "$late")
        cursor.execute(f"UPDATE {late} SET replayed_in = ? WHERE {REPLAYABLE}", [row.number])
    if BEGINNING < commit.watermark < ALL_READ:  # at the end of time, nothing expires
        _retain(cursor, commit, views)
    cursor.execute(
        "INSERT INTO millstream.epochs VALUES (?, ?, ?, ?, ?, ?, ?, ?, make_timestamptz(?))",
        [commit.flow, row.number, commit.token, row.plan, *(as_json(x) for x in (row.slices, row.clock)),
         as_json(row.version), as_json(row.progress), int(row.clock["now"])],
    )  # fmt: skip
    if row.number % KEPT_EPOCHS == 0:
        sql = "DELETE FROM millstream.epochs WHERE flow = ? AND number <= ?"
        cursor.execute(sql, [commit.flow, row.number - KEPT_EPOCHS])


def _fence(cursor: duckdb.DuckDBPyConnection, commit: EpochCommit) -> None:
    """Refuse an owner that was replaced by another; inside the transaction, so no takeover can intervene."""
    current = value(cursor, "SELECT token FROM millstream.flows WHERE flow = ?", [commit.flow])
    if current != commit.token:
        raise LeaseLost(
            f"the flow `{commit.flow}` was taken over by another process",
            detail=f"this one holds token {commit.token}, the flow is at {current}",
            hint="nothing was written; stop this process",
        )


def _retain(cursor: duckdb.DuckDBPyConnection, commit: EpochCommit, views: Mapping[str, ViewSpec]) -> None:
    """Remove the rows and panes whose time is over."""
    for view in views.values():
        if view.retention is not None and view.time_column is not None:
            horizon = min(commit.watermark, 2**61) - view.retention
            time = f"epoch_us({quoted(view.time_column)})"
            cursor.execute(f"DELETE FROM {quoted(stored_name(view))} WHERE {time} <= ?", [horizon])
        if view.panes_kept is not None:
            horizon = min(commit.watermark, 2**61) - view.panes_kept
            ends = view.panes is not None and "window_end" in view.panes.names
            time = "coalesce(watermark, window_end)" if ends else "watermark"  # the first panes have no watermark
            cursor.execute(f"DELETE FROM {quoted(view.name + '$panes')} WHERE epoch_us({time}) <= ?", [horizon])
