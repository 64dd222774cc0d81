"""Give stages and the plan a fingerprint of their content, so that a changed flow can be compared with its kept
state.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace

from millstream.model.error_policy import QUARANTINE
from millstream.model.windows.kinds import Custom, Session
from millstream.plan.code_identity import code_identity
from millstream.plan.stages import (
    Aggregation,
    Append,
    Batches,
    Chained,
    Feed,
    First,
    Measure,
    Op,
    Plan,
    Regroup,
    SourceStage,
    Stage,
    ViewStage,
)


def identify(plan: Plan) -> Plan:
    """Fill in the fingerprints and the plan's id."""
    stages: dict[str, str] = {}
    views = tuple(_view(plan, v, stages) for v in plan.views)
    shown = [(v.name, v.fingerprint, v.retention) for v in views]
    return replace(plan, views=views, id=_digest([plan.flow, [_source(s) for s in plan.sources], shown]))


def _view(plan: Plan, view: ViewStage, stages: dict[str, str]) -> ViewStage:
    """The view with its fingerprint; `stages` has those of the stages before it, by view."""
    stages[view.name] = stage = _stage(plan, view.stage, stages)
    content = [stage, repr(view.post), view.columns, *called(plan, repr(view.post))]
    content += [] if view.on_error == QUARANTINE else [("on_error", view.on_error)]
    return replace(view, fingerprint=_digest(content), stage=replace(view.stage, fingerprint=stage))


def _stage(plan: Plan, stage: Stage, stages: dict[str, str]) -> str:
    if isinstance(stage, Chained):
        # the name of its input too: that is where the state lies which its own state was made of
        what: object = repr(stage.what)
        if isinstance(stage.what, Regroup):
            what = (_measures(stage.what.measures), stage.what.order)
        elif isinstance(stage.what, First) and stage.grows:
            what = (what, "rows have numbers")
        elif hasattr(stage.what, "identity"):
            what = stage.what.identity
        sides = [
            (
                side.columns,
                [(t.view, stages[t.view], _ops(t.ops), *called(plan, repr(_ops(t.ops)))) for t in side.takes],
            )
            for side in stage.sides
        ]
        also = [*called(plan, repr(what)), *([] if stage.ttl is None else [("ttl", stage.ttl)])]
        return _digest(["chained", type(stage.what).__name__, what, stage.keys, sides, *also])
    feeds = [_feed(plan, f) for f in stage.feeds]
    if isinstance(stage, Append):
        how_late = [] if stage.lateness is None else [("lateness", stage.lateness, sorted(stage.beside))]
        return _digest(["append", stage.columns, feeds, *(["ordered"] if stage.ordered else []), *how_late])
    how = [_windowing(stage), *(["corrected"] if stage.corrected else [])]
    return _digest(["aggregate", stage.keys, how, _measures(stage.measures), feeds])


def _measures(measures: tuple[Measure, ...]) -> list[object]:
    return [(m.name, m.kind, m.has_argument, str(m.returns), code_identity(m.user) if m.user else "") for m in measures]


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
    ops = _ops(scan.ops)
    wanted = [sql.get(feed.keep or "", ""), *(sql[c] for c in feed.columns)]
    wanted += called(plan, repr((ops, wanted)))
    named = set(re.findall("`([^`]+)`", repr((ops, wanted))))
    types = [(f.name, str(f.type)) for f in plan.source(feed.source).schema if f.name in named]
    computed = plan.source(feed.source).options.computed_time
    how = [] if computed is None else [computed, *called(plan, computed)]
    clock = ["the time of processing"] if plan.reads_clock(feed) else []
    return (feed.source, types, ops, wanted, *how, *clock)


def _ops(ops: tuple[Op, ...]) -> list[object]:
    return [(o.identity, o.schema.names) if isinstance(o, Batches) else repr(o) for o in ops]


def called(plan: Plan, text: str) -> list[str]:
    """What names the Python functions that some SQL calls."""
    return [code_identity(f.call) for f in plan.functions if re.search(rf"\b{f.name}\(", text, re.IGNORECASE)]


def _source(source: SourceStage) -> object:
    computed = source.options.computed_time
    how = repr(source.options) if computed is None else (repr(source.options), computed)
    return (source.name, source.connector.identity, repr(source.schema), how)


def _digest(content: object) -> str:
    return hashlib.sha256(repr(content).encode()).hexdigest()[:16]
