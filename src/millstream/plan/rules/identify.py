"""Give stages and the plan a fingerprint of their content, so that a changed flow can be compared with its kept
state.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace

from millstream.model.connector import Files, Generator, LogTopic, SparkStream
from millstream.model.window_kinds import Custom, Session
from millstream.plan.lower import code_identity
from millstream.plan.stages import Aggregation, Append, Batches, Feed, Plan, SourceStage, ViewStage


def identify(plan: Plan) -> Plan:
    """Fill in the fingerprints and the plan's id."""
    views = tuple(_view(plan, v) for v in plan.views)
    shown = [(v.name, v.fingerprint, v.retention) for v in views]
    return replace(plan, views=views, id=_digest([plan.flow, [_source(s) for s in plan.sources], shown]))


def _view(plan: Plan, view: ViewStage) -> ViewStage:
    stage = _stage(plan, view.stage)
    return replace(
        view, fingerprint=_digest([stage, repr(view.post), view.columns]), stage=replace(view.stage, fingerprint=stage)
    )


def _stage(plan: Plan, stage: Aggregation | Append) -> str:
    feeds = [_feed(plan, f) for f in stage.feeds]
    if isinstance(stage, Append):
        return _digest(["append", stage.columns, feeds, *(["ordered"] if stage.ordered else [])])
    measures = [
        (m.name, m.kind, m.has_argument, str(m.returns), code_identity(m.user) if m.user else "")
        for m in stage.measures
    ]
    how = [_windowing(stage), *(["corrected"] if stage.corrected else [])]
    return _digest(["aggregate", stage.keys, how, measures, feeds])


def _windowing(stage: Aggregation) -> object:
    how = stage.windowing
    window: object = repr(how.window)
    if isinstance(how.window, Custom):
        window = [code_identity(f) for f in (how.window.assign, how.window.merge) if f is not None]
    elif isinstance(how.window, Session):
        window = str(how.window)
    return (window, repr(how.trigger), str(how.accumulation), how.lateness.micros, how.panes)


def _feed(plan: Plan, feed: Feed) -> object:
    scan = next(s for s in plan.scans if s.id == feed.scan)
    sql = {c.name: c.sql for c in scan.columns}
    ops = [(o.identity, o.schema.names) if isinstance(o, Batches) else repr(o) for o in scan.ops]
    wanted = [sql.get(feed.keep or "", ""), *(sql[c] for c in feed.columns)]
    named = set(re.findall("`([^`]+)`", repr((ops, wanted))))
    types = [(f.name, str(f.type)) for f in plan.source(feed.source).schema if f.name in named]
    return (feed.source, types, ops, wanted)


def _source(source: SourceStage) -> object:
    connector = source.connector
    where: object = "memory"
    if isinstance(connector, Files):
        where = (connector.path, connector.format)
    elif isinstance(connector, Generator):
        where = (connector.name, connector.key)
    elif isinstance(connector, LogTopic):
        where = ("log", connector.topic)
    elif isinstance(connector, SparkStream):
        where = ("spark", connector.format, connector.topic)
    return (source.name, where, repr(source.schema), repr(source.options))


def _digest(content: object) -> str:
    return hashlib.sha256(repr(content).encode()).hexdigest()[:16]
