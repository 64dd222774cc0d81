"""What follows the commit of a statement: what was kept for definitions that are gone is removed, and what a new one
needs is made.

Each step may be taken any number of times, and no flow starts before all are done. Steps that were cut off are taken
when the home is opened again, or before the next statement that changes something.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream import paths
from millstream.errors import DefinitionError, MillstreamError, UnknownName
from millstream.live import sources
from millstream.live.answer import Answer
from millstream.runtime.inspect.lag import release_flow
from millstream.sql.catalog import KIND_OF
from millstream.sql.connectors import topic_of
from millstream.sql.parse.statements import CreateSource, CreateTable, Drop

if TYPE_CHECKING:
    from millstream.live.deployment import Live

FORGET_VIEW, FORGET_TABLE, MAKE_TABLE = "forget view", "forget table", "make table"
MAKE_TOPIC, DROP_TOPIC = "make topic", "drop topic"


def finish(live: Live, name: str | None = None) -> None:
    """Take the steps that are still to be taken; with a `name`, only if one of them makes or removes what has it."""
    pending = live.definitions.pending
    if name is not None and all(step.lower() != name.lower() for _, step in pending):
        return
    with live.lock:
        kept = live.definitions
        if not kept.dropped and not kept.pending:
            return
        for flow in kept.dropped:
            _drop_flow(live, flow)
        for what, step in kept.pending:
            _step(live, what, step)
        done = kept.copy()
        done.dropped, done.pending = [], []
        done.save()
        live.definitions = done


def _drop_flow(live: Live, flow: str) -> None:
    live.stop(flow)
    feed = live.feeds.pop(flow, None)
    if feed is not None:
        feed.end()
    live.home.forget_run(flow)
    live.home.store.forget_flow(flow)
    release_flow(flow, live.home.log)
    if paths.is_part(flow):  # a name that no flow can have was kept by an earlier version, and never ran
        paths.delete_tree(paths.flow_folder(live.home.path, flow), within=live.home.path)


def _step(live: Live, what: str, name: str) -> None:
    home, entry = live.home, live.catalog.get(name)
    if what == FORGET_VIEW:
        flow, _, view = name.rpartition("/")
        home.store.forget_view(view, flow)
    elif what == FORGET_TABLE:
        home.drop_table(name)
    elif what == MAKE_TABLE and isinstance(entry, CreateTable):
        sources.make_table(home, live.catalog, entry)
    elif what == MAKE_TOPIC and isinstance(entry, CreateSource):
        sources.make_topic(home, live.catalog, entry)
    elif what == DROP_TOPIC:
        try:
            home.log.drop(name)
        except UnknownName:
            pass  # it is gone


def topic(live: Live, statement: Drop) -> Answer:
    """DROP TOPIC: records and all; refused while a source reads it or a sink writes to it."""
    name = statement.name
    for entry in live.catalog.entries.values():
        if topic_of(entry) == name:
            raise DefinitionError(
                f"the {KIND_OF[type(entry)]} `{entry.name}` uses the topic `{name}`",
                hint=f"DROP {KIND_OF[type(entry)].upper()} {entry.name} first",
            )
    if not live.home.log.exists(name):
        if statement.if_exists:
            return Answer(said=f"there is no topic {name}")
        live.home.log.topic(name)  # says which there are
    before, kept = live.definitions, live.definitions.copy()
    kept.pending.append((DROP_TOPIC, name))
    live.commit(live.catalog, kept)
    try:
        finish(live)
    except MillstreamError:
        if live.home.log.exists(name):  # refused, as when somebody writes to it
            before.revision = live.definitions.revision
            live.commit(live.catalog, before)
        raise
    return Answer(said=f"dropped the topic {name}")
