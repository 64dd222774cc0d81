"""Adds fingerprints of their content to operators and to the plan, so that a changed flow can be compared with its kept
state.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from millstream.model.error_policy import QUARANTINE
from millstream.plan.code_identity import code_identity
from millstream.plan.operators.inputs import Side
from millstream.plan.parts import Batches, Feed, Op
from millstream.plan.plan import Plan, PlannedSource, PlannedView


def identify(plan: Plan) -> Plan:
    """Fill in the fingerprints and the plan's id."""
    operators: dict[str, str] = {}
    views = tuple(_view(plan, v, operators) for v in plan.views)
    shown = [(v.name, v.fingerprint, v.retention) for v in views]
    return replace(plan, views=views, id=_digest([plan.flow, [_source(s) for s in plan.sources], shown]))


def _view(plan: Plan, view: PlannedView, before: dict[str, str]) -> PlannedView:
    """The view with its fingerprint; `before` has those of the upstream operators, by view."""
    before[view.name] = found = _digest(view.operator.fingerprint_parts(_Parts(plan, before)))
    content = [found, repr(view.post), view.columns, *called(plan, repr(view.post))]
    content += [] if view.on_error == QUARANTINE else [("on_error", view.on_error)]
    return replace(view, fingerprint=_digest(content), operator=replace(view.operator, fingerprint=found))


@dataclass(frozen=True)
class _Parts:
    """The contents of the parts of a plan that an operator consists of."""

    plan: Plan
    before: Mapping[str, str]

    def feed(self, feed: Feed) -> object:
        """The content of a feed."""
        plan = self.plan
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

    def side(self, side: Side) -> object:
        """The content of a side. It includes the name of its input, because that is where the state it was built from
        is stored.
        """
        takes = [(t.view, self.before[t.view], _ops(t.ops), *called(self.plan, repr(_ops(t.ops)))) for t in side.takes]
        return (side.columns, takes)

    def called(self, text: str) -> list[str]:
        """The identities of the Python functions that some SQL calls."""
        return called(self.plan, text)


def _ops(ops: tuple[Op, ...]) -> list[object]:
    return [(o.identity, o.schema.names) if isinstance(o, Batches) else repr(o) for o in ops]


def called(plan: Plan, text: str) -> list[str]:
    """The identities of the Python functions that some SQL calls."""
    return [code_identity(f.call) for f in plan.functions if re.search(rf"\b{f.name}\(", text, re.IGNORECASE)]


def _source(source: PlannedSource) -> object:
    computed = source.options.computed_time
    how = repr(source.options) if computed is None else (repr(source.options), computed)
    return (source.name, source.connector.identity, repr(source.schema), how)


def _digest(content: object) -> str:
    return hashlib.sha256(repr(content).encode()).hexdigest()[:16]
