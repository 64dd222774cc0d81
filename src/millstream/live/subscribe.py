"""SUBSCRIBE: the changes of a view as they are committed, or the records of a topic as they arrive."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.errors import ConnectionLost, MillstreamError, QueryError, Unsupported, ViewFailed
from millstream.live.answer import Answer, Changes
from millstream.model.change_op import ChangeOp
from millstream.model.reserved import OP, SHOWN_OP, free_name
from millstream.runtime.supervision.run import BROKEN
from millstream.sql.connectors import topic_of
from millstream.sql.parse.statement_values import CreateSource, CreateView, Subscribe
from millstream.store.names import quoted

if TYPE_CHECKING:
    from millstream.live.deployment import Deployment
    from millstream.live.feed import ChangeFeed
    from millstream.log.topic import Topic

PATIENCE = 0.5
"""Seconds after which a silent subscription sends a keep-alive."""

_EPOCH = "(SELECT coalesce(max(number), 0) FROM millstream.epochs WHERE flow = '{flow}')"


def subscribe(deployment: Deployment, statement: Subscribe) -> Answer:
    """Start a subscription; the changes of the result continue until they are closed."""
    entry = deployment.catalog.get(statement.view)
    if isinstance(entry, CreateSource) or (entry is None and deployment.home.log.exists(statement.view)):
        name = statement.view if entry is None else topic_of(entry)
        if name is None:
            raise Unsupported(
                f"the source `{statement.view}` cannot be subscribed to",
                hint=f"CREATE VIEW all_{statement.view} AS SELECT * FROM {statement.view}, and SUBSCRIBE to that",
            )
        if statement.epoch is not None:
            raise QueryError(f"`{statement.view}` has no epochs", hint="a topic has offsets: AS OF OFFSETS (0)")
        return Answer(changes=_records(deployment, deployment.home.log.topic(name), statement))
    if not isinstance(entry, CreateView):
        raise deployment.catalog.missing(statement.view, "view or topic")
    if statement.offsets is not None:
        raise QueryError(f"the view `{entry.name}` has no offsets", hint="a view has epochs: AS OF EPOCH 7")
    flow = deployment.flow_of(entry.name)
    feed = deployment.feeds.get(flow)
    if feed is None:
        raise QueryError(f"the flow `{flow}` of `{entry.name}` does not run", hint=f"RESUME {flow}")
    return Answer(changes=_changes(deployment, feed, flow, entry.name, statement))


def _changes(deployment: Deployment, feed: ChangeFeed, flow: str, view: str, statement: Subscribe) -> Iterator[Changes]:
    def after(epoch: int) -> str:
        return f"SUBSCRIBE TO `{view}` AS OF EPOCH {epoch}"

    last = deployment.home.store.last(flow)
    at = statement.epoch if statement.epoch is not None else last.number if last is not None else 0
    present = last.number if last is not None else 0
    if statement.epoch is not None:
        oldest = feed.oldest()
        if at < present and (oldest is None or at + 1 < oldest):
            raise _not_kept(flow, at, oldest)
    if statement.snapshot and statement.epoch is None:
        at, rows = _snapshot(deployment, flow, view, present)
        yield Changes(at, rows, snapshot=True, resume=after(at))
    while not feed.ended:
        epoch_changes = feed.after(at, PATIENCE)
        if epoch_changes is None:
            _check_runs(deployment, flow, view)
            yield Changes(at, None, resume=after(at))
            continue
        if epoch_changes.epoch > at + 1:  # the subscriber reads more slowly than the flow writes
            raise _not_kept(flow, at, epoch_changes.epoch)
        at = epoch_changes.epoch
        table = epoch_changes.changes.get(view)
        del epoch_changes
        # an epoch without changes of this view is also a keep-alive: it detects a subscriber that is gone
        yield Changes(at, _shown(table) if table is not None and table.num_rows else None, resume=after(at))
    if not deployment.closed.is_set():
        raise QueryError(f"the view `{view}` was dropped: no more changes follow")
    raise _closing()


def _not_kept(flow: str, at: int, oldest: int | None) -> QueryError:
    return QueryError(
        f"the changes after epoch {at} of `{flow}` are no longer kept",
        detail=f"the oldest that are kept are those of epoch {oldest}" if oldest else "none are kept",
        hint="SUBSCRIBE ... WITH SNAPSHOT begins with the current rows",
    )


def _closing() -> ConnectionLost:
    return ConnectionLost("the process that owns the home closes it", hint="subscribe again when it runs")


def _check_runs(deployment: Deployment, flow: str, view: str) -> None:
    """End the subscription when no more changes follow."""
    run = deployment.runs.get(flow)
    if run is not None and run.state in BROKEN:
        error = run.error
        raise ViewFailed(
            f"the view `{view}` has failed: the flow `{flow}` {run.status}",
            detail=error.detail if isinstance(error, MillstreamError) else None,
            hint=f"fix the cause, then RESUME {flow}",
        )


def _snapshot(deployment: Deployment, flow: str, view: str, present: int) -> tuple[int, pa.Table]:
    """The rows of a view and their epoch, read together; `present` is the last epoch of its flow."""
    if view not in deployment.home.store.tables():
        return present, None
    epoch = _EPOCH.format(flow=flow)
    rows = deployment.home.store.query(
        f"SELECT {epoch} AS \"$epoch\", '{ChangeOp.INSERT}' AS {quoted(OP)}, * FROM {quoted(view)}"
    )
    number = (
        rows["$epoch"][0].as_py()
        if rows.num_rows
        else deployment.home.store.query(f"SELECT {epoch} AS n")["n"][0].as_py()
    )
    return int(number), _shown(rows)


def _shown(table: pa.Table) -> pa.Table:
    """Convert rows for a subscriber: the kind of change first, then the columns of the view or topic."""
    columns = [c for c in table.column_names if not c.startswith("$")]
    kinds = table[OP] if OP in table.column_names else pa.array([ChangeOp.INSERT.value] * table.num_rows, pa.string())
    return table.select(columns).add_column(0, free_name(SHOWN_OP, columns), kinds)


def _records(deployment: Deployment, topic: Topic, statement: Subscribe) -> Iterator[Changes]:
    at = topic.start() if statement.snapshot else topic.end()
    if statement.offsets is not None:
        at = _from_offsets(topic, statement.offsets)
    while not deployment.closed.is_set():
        moved = False
        for partition, end in topic.end().items():
            start = at.get(partition, 0)
            if end > start:
                end = min(end, start + 10_000)
                table = topic.read(partition, start, end)
                at[partition], moved = end, True
                yield Changes(end, _shown(table), resume=_after(statement.view, at))
        if not moved:
            yield Changes(0, None, resume=_after(statement.view, at))
            deployment.closed.wait(0.1)
    raise _closing()


def _after(name: str, at: dict[int, int]) -> str:
    return f"SUBSCRIBE TO `{name}` AS OF OFFSETS ({', '.join(str(at[p]) for p in sorted(at))})"


def _from_offsets(topic: Topic, offsets: tuple[int, ...]) -> dict[int, int]:
    """Where to begin in each partition; refused when these records do not exist, or no longer exist."""
    start, end = topic.start(), topic.end()
    if len(offsets) != topic.partitions:
        raise QueryError(
            f"{len(offsets)} offsets for the {topic.partitions} partitions of `{topic.name}`",
            hint="give one offset for each partition",
        )
    for partition, offset in enumerate(offsets):
        if not start[partition] <= offset <= end[partition]:
            raise QueryError(
                f"the topic `{topic.name}` cannot be read from offset {offset:,} of partition {partition}",
                detail=f"it holds the offsets {start[partition]:,} to {end[partition]:,}",
                hint="SUBSCRIBE ... WITH SNAPSHOT begins with the existing records",
            )
    return dict(enumerate(offsets))
