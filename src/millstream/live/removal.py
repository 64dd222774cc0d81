"""Definitions that go, with all that was kept for them. A removal that was cut off is finished at the next start."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING

from millstream.errors import DefinitionError
from millstream.live.answer import Answer
from millstream.runtime.lag import release_flow
from millstream.sql.catalog import KIND_OF
from millstream.sql.places import topic_of
from millstream.sql.statements import Create, CreateTable, Drop

if TYPE_CHECKING:
    from millstream.live.live import Live


def forget(live: Live, entries: Sequence[Create]) -> None:
    """Forget definitions; flows that have no view left go with them, others go on without them."""
    names = {e.name.lower() for e in entries}
    touched = {d.flow for n, d in live.definitions.entries.items() if n in names and d.flow}
    for flow in touched:
        live.stop(flow)
    for name in names:
        live.catalog.remove(name)
        live.broken.pop(name, None)
        live.definitions.entries.pop(name, None)
    emptied = [f for f in touched if f not in live.flows()]
    for flow in emptied:
        live.definitions.flows.pop(flow, None)
        live.definitions.dropped.append(flow)
    live.definitions.save()
    for entry in entries:
        if isinstance(entry, CreateTable):
            live.home.drop_table(entry.name)
        elif KIND_OF[type(entry)] in ("view", "sink"):
            live.home.store.forget_view(entry.name)
    finish(live)
    for flow in touched - set(emptied):
        live.restart(flow)


def finish(live: Live) -> None:
    """Remove what is left of flows that were dropped."""
    if not live.definitions.dropped:
        return
    for flow in live.definitions.dropped:
        feed = live.feeds.pop(flow, None)
        if feed is not None:
            feed.end()
        live.home.store.forget_flow(flow)
        release_flow(flow, live.home.log)
        shutil.rmtree(live.home.path / "flows" / flow, ignore_errors=True)
    live.definitions.dropped.clear()
    live.definitions.save()


def topic(live: Live, statement: Drop) -> Answer:
    """DROP TOPIC: records and all; refused while a source reads it or a sink writes to it."""
    name = statement.name
    for entry in live.catalog.entries.values():
        if topic_of(entry) == name:
            raise DefinitionError(
                f"the {KIND_OF[type(entry)]} `{entry.name}` uses the topic `{name}`",
                hint=f"DROP {KIND_OF[type(entry)].upper()} {entry.name} first",
            )
    if statement.if_exists and not live.home.log.exists(name):
        return Answer(said=f"there is no topic {name}")
    live.home.log.drop(name)
    return Answer(said=f"dropped the topic {name}")
