"""The steps after the commit of a statement: remove what was kept for dropped definitions, and create what a new one
needs.

Each step is idempotent, and no flow starts before all are done. Interrupted steps are repeated when the home is opened
again, or before the next statement that changes something.
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
from millstream.sql.parse.statement_values import CreateSource, CreateTable, Drop

if TYPE_CHECKING:
    from millstream.live.deployment import Deployment

FORGET_VIEW, FORGET_TABLE, MAKE_TABLE = "forget view", "forget table", "make table"
MAKE_TOPIC, DROP_TOPIC = "make topic", "drop topic"


def finish(deployment: Deployment, name: str | None = None) -> None:
    """Execute the pending steps; with a `name`, only if one of them creates or removes the object of that name."""
    pending = deployment.definitions.pending
    if name is not None and all(step.lower() != name.lower() for _, step in pending):
        return
    with deployment.lock:
        kept = deployment.definitions
        if not kept.dropped and not kept.pending:
            return
        for flow in kept.dropped:
            _drop_flow(deployment, flow)
        for what, step in kept.pending:
            _step(deployment, what, step)
        done = kept.copy()
        done.dropped, done.pending = [], []
        done.save()
        deployment.definitions = done


def _drop_flow(deployment: Deployment, flow: str) -> None:
    deployment.stop(flow)
    feed = deployment.feeds.pop(flow, None)
    if feed is not None:
        feed.end()
    deployment.home.forget_run(flow)
    deployment.home.store.forget_flow(flow)
    release_flow(flow, deployment.home.log)
    if paths.is_part(flow):  # an earlier version accepted names that no flow can have; such a flow never ran
        deployment.home.state.drop(flow)
        paths.delete_tree(paths.flow_folder(deployment.home.path, flow), within=deployment.home.path)


def _step(deployment: Deployment, what: str, name: str) -> None:
    home, entry = deployment.home, deployment.catalog.get(name)
    if what == FORGET_VIEW:
        flow, _, view = name.rpartition("/")
        home.store.forget_view(view, flow)
    elif what == FORGET_TABLE:
        home.drop_table(name)
    elif what == MAKE_TABLE and isinstance(entry, CreateTable):
        sources.make_table(home, deployment.catalog, entry)
    elif what == MAKE_TOPIC and isinstance(entry, CreateSource):
        sources.make_topic(home, deployment.catalog, entry)
    elif what == DROP_TOPIC:
        try:
            home.log.drop(name)
        except UnknownName:
            pass  # it does not exist any more


def topic(deployment: Deployment, statement: Drop) -> Answer:
    """DROP TOPIC, with its records; refused while a source reads it or a sink writes to it."""
    name = statement.name
    for entry in deployment.catalog.entries.values():
        if topic_of(entry) == name:
            raise DefinitionError(
                f"the {KIND_OF[type(entry)]} `{entry.name}` uses the topic `{name}`",
                hint=f"DROP {KIND_OF[type(entry)].upper()} {entry.name} first",
            )
    if not deployment.home.log.exists(name):
        if statement.if_exists:
            return Answer(message=f"there is no topic {name}")
        deployment.home.log.topic(name)  # raises with a list of the topics
    before, kept = deployment.definitions, deployment.definitions.copy()
    kept.pending.append((DROP_TOPIC, name))
    deployment.commit(deployment.catalog, kept)
    try:
        finish(deployment)
    except MillstreamError:
        if deployment.home.log.exists(name):  # refused, as when another process writes to it
            before.revision = deployment.definitions.revision
            deployment.commit(deployment.catalog, before)
        raise
    return Answer(message=f"dropped the topic {name}")
