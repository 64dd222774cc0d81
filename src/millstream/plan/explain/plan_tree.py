"""A plan told as a tree: what comes in, what runs natively, what a kernel does, what is kept and how long.

Plan in, `Node`s out; `text` draws them for people, `as_json` is for programs. Nothing here knows Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millstream.model.guarantees import VIEW_PROMISES
from millstream.model.source_options import SourceOptions
from millstream.model.types.duration import Duration
from millstream.model.windows.accumulation import Accumulation
from millstream.model.windows.kinds import CountWindow
from millstream.model.windows.trigger import ON_CHANGE, ON_CLOSE, Trigger
from millstream.model.windows.window import Window
from millstream.plan.explain.node import Node, named, plain, shown_name
from millstream.plan.explain.operators import chain_nodes, take_nodes
from millstream.plan.rules.order import ORDERED
from millstream.plan.stages import (
    ROW,
    Aggregation,
    Append,
    Batches,
    Chained,
    Explode,
    Feed,
    First,
    Lookup,
    Op,
    Plan,
    Project,
    Scan,
    SourceStage,
    ViewStage,
    view_of,
)

_GROWING = {
    "collect": "collect keeps every value",
    **dict.fromkeys(("ordered_list", "ordered_text"), "an aggregate with an order keeps every value"),
    **{
        kind: f"{kind} keeps every different value"
        for kind in (
            "count_distinct",
            "collect_set",
            "sum_distinct",
            "avg_distinct",
            "mode",
            "percentile",
            "percentile_disc",
        )
    },
}


def explain(plan: Plan) -> Node:
    """The whole plan as a tree: its sources, then every view with the path its rows take."""
    sources = tuple(_source(plan, s) for s in plan.sources)
    views = tuple(_view(plan, v) for v in plan.views if not v.inner)
    facts = [("plan", plan.id)]
    if plan.tables:
        facts.append(("stored tables", ", ".join(plan.tables)))
    return Node("flow", plan.flow, tuple(facts), sources + views)


def text(root: Node) -> str:
    """The tree as lines."""
    return "\n".join([_title(root), *_below(root, "")])


def as_json(node: Node) -> dict[str, Any]:
    """The tree as plain data."""
    return {
        "kind": node.kind,
        "name": node.name,
        "facts": dict(node.facts),
        "children": [as_json(c) for c in node.children],
    }


def _title(node: Node) -> str:
    return f"{node.kind} {node.name}".rstrip()


def _below(node: Node, indent: str) -> Iterator[str]:
    bar = "│  " if node.children else "   "
    width = max((len(label) for label, _ in node.facts), default=0)
    for label, said in node.facts:
        yield f"{indent}{bar}{label.ljust(width)}  {said}"
    for i, child in enumerate(node.children):
        last = i == len(node.children) - 1
        yield f"{indent}{'└─ ' if last else '├─ '}{_title(child)}"
        yield from _below(child, indent + ("   " if last else "│  "))


# ---------------------------------------------------------------- sources and scans


def _event_time(options: SourceOptions) -> str:
    name = options.event_time or ""
    return name if options.computed_time is None else named(name, plain(options.computed_time))


def _source(plan: Plan, source: SourceStage) -> Node:
    options = source.options
    behind = f"lateness {options.lateness}" if options.punctuation is None else f"told by {plain(options.punctuation)}"
    time = "when it is read" if options.event_time is None else f"{_event_time(options)}, {behind}"
    idle = "" if options.idle_timeout is None else f", goes on without a partition silent for {options.idle_timeout}"
    facts = [("reads", source.connector.described), ("event time", time + idle)]
    if options.max_rows is not None:
        facts.append(("per epoch", f"at most {options.max_rows:,} rows"))
    facts.append(("positions", _positions(plan, source)))
    for scan in plan.scans_of(source.name):
        readers = _readers(plan, scan)
        if readers:
            shared = "one pass shared by" if len(readers) > 1 else "read by"
            facts.append((f"scan {scan.id}", f"{shared} {', '.join(readers)}"))
        else:
            facts.append((f"scan {scan.id}", "accounts for every row"))
    return Node("source", source.name, tuple(facts))


def _positions(plan: Plan, source: SourceStage) -> str:
    if not source.positions:
        return "not needed"
    ordered = [
        f"{view.name.partition('~')[0]}.{m.name}"
        for view in plan.views
        if isinstance(view.stage, Aggregation) and source.name in view.stage.sources
        for m in view.stage.measures
        if m.kind in ORDERED
    ]
    counted = [
        view_of(view.name)
        for view in plan.views
        if isinstance(view.stage, Aggregation) and source.name in view.stage.sources and view.stage.keeps_records
    ]
    held = [
        view_of(view.name)
        for view in plan.views
        if isinstance(view.stage, Append) and view.stage.ordered and source.name in view.stage.sources
    ]
    return f"rows carry them: {', '.join(ordered or counted or held)} depends on the order of rows"


def _readers(plan: Plan, scan: Scan) -> list[str]:
    return [v.name for v in plan.views if not v.inner and any(f.scan == scan.id for f in v.stage.feeds)]


def _scan(plan: Plan, view: ViewStage, feed: Feed) -> Node:
    scan = next(s for s in plan.scans if s.id == feed.scan)
    sql = {c.name: plain(c.sql) for c in scan.columns}
    facts = [("runs", _runs(scan.ops))]
    others = [n for n in _readers(plan, scan) if n != view_of(view.name)]
    if others:
        facts.append(("shared", f"with {', '.join(others)}"))
    facts += [_op(op) for op in scan.ops if not _passes_on(op)]
    if feed.keep is not None:
        facts.append(("where", sql[feed.keep]))
    computed = [sql[c] for c in feed.columns]
    if isinstance(view.stage, Aggregation):
        keys = len(view.stage.keys)
        pairs = [named(n, e) for n, e in zip(view.stage.keys, computed[:keys], strict=True)]
        if pairs:
            facts.append(("keys", ", ".join(pairs)))
        if computed[keys:]:
            facts.append(("columns", ", ".join(dict.fromkeys(computed[keys:]))))
    else:
        pairs = [named(shown_name(n), e) for n, e in zip(view.stage.columns, computed, strict=True)]
        facts.append(("columns", ", ".join(pairs)))
    return Node("scan", f"{scan.id} of {scan.source}", tuple(facts))


def _runs(ops: tuple[Op, ...]) -> str:
    python = any(isinstance(op, Batches) for op in ops)
    return "native Spark SQL, and Python on the executors" if python else "native Spark SQL"


def _op(op: Op) -> tuple[str, str]:
    if isinstance(op, Explode):
        return "flat_map", f"{op.name} = each of {plain(op.array)}" + (
            ", rows without one stay" if op.keep_empty else ""
        )
    if isinstance(op, Lookup):
        on = " and ".join(mine if mine == theirs else f"{mine} = {theirs}" for mine, theirs in op.on)
        added = ", ".join(f.name for f in op.columns)
        unmatched = "rows without a match go away" if op.required else "rows without a match stay"
        return "enrich", f"{added} from the table {op.table} by {on} (broadcast join; {unmatched})"
    if isinstance(op, Batches):
        return "map_batches", f"{op.identity.split(':')[0]} over {op.takes} batches (Python)"
    return "select", _projection(op)


def _passes_on(op: Op) -> bool:
    """Whether an op only hands the columns over."""
    return isinstance(op, Project) and op.keep is None and all(plain(c.sql) == c.name for c in op.columns)


def _projection(project: Project) -> str:
    columns = ", ".join(named(c.name, plain(c.sql)) for c in project.columns if not c.name.startswith("$"))
    return columns if project.keep is None else f"{columns} where {plain(project.keep)}"


# ---------------------------------------------------------------- kernels and views


def _view(plan: Plan, view: ViewStage) -> Node:
    parts = list(_path(plan, view))
    if view.post is not None:
        parts.append(
            Node(
                "select",
                "",
                (("runs", "native Spark SQL, on changed rows only"), ("gives", _projection(view.post))),
            )
        )
    return Node("view", view.name, (), (*parts, *_kept(plan, view)))


def _path(plan: Plan, view: ViewStage) -> Iterator[Node]:
    """The way of a row to the end of a view's stage."""
    stage = view.stage
    if isinstance(stage, Chained):
        for number, side in enumerate(stage.sides):
            if len(stage.sides) > 1:
                parts = (n for take in side.takes for n in (*_before(plan, view, take.view), *take_nodes(take)))
                yield Node("side", ("left", "right")[number], (), tuple(parts))
                continue
            for take in side.takes:
                yield from _before(plan, view, take.view)
                yield from take_nodes(take)
        yield from chain_nodes(stage, [plan.view(n).stage for n in stage.inputs])
        return
    yield from (_scan(plan, view, f) for f in stage.feeds)
    if isinstance(stage, Aggregation):
        yield _exchange(stage)
        yield _kernel(plan, stage)


def _before(plan: Plan, view: ViewStage, name: str) -> Iterator[Node]:
    """The way of a row to a stage that gives changes to a view's."""
    owner = view_of(name)
    if owner == view_of(view.name):
        yield from _path(plan, plan.view(name))
        return
    kind = "of the view" if name == owner else "inside the view"
    yield Node("changes", f"{kind} {owner}", (("shared", "computed once"),))


_ANSWERS: dict[Trigger, str] = {ON_CHANGE: "in every epoch that changes it", ON_CLOSE: "when the window closes"}


def _exchange(stage: Aggregation) -> Node:
    if not stage.keys:
        return Node("exchange", "none: there is no key")
    placed = "inline for small slices, on the executors for large ones"
    if len(stage.feeds) > 1:
        placed = "inline, because several scans feed it"
    return Node("exchange", f"by key group of ({', '.join(stage.keys)})", (("placed", placed),))


def _kernel(plan: Plan, stage: Aggregation) -> Node:
    how = stage.windowing
    facts = [
        ("keys", ", ".join(stage.keys) or "none"),
        ("window", str(stage.window)),
        ("answers", _ANSWERS.get(how.trigger, str(how.trigger))),
        ("measures", ", ".join(_measures(plan, stage))),
        ("state", _state(plan, stage)),
    ]
    if how.accumulation is not Accumulation.RETRACTING:
        facts.insert(3, ("panes are", str(how.accumulation)))
    if how.panes is not None:
        facts.append(("history", f"of panes, for {how.panes}"))
    if stage.window.is_global and stage.keys:
        facts.append(("hint", 'to bound the state, add .window(ms.tumbling("1 hour")) or another window'))
    return Node("kernel", "aggregate" if stage.by_slices else "aggregate with panes", tuple(facts))


def _measures(plan: Plan, stage: Aggregation) -> Iterator[str]:
    feed = stage.feeds[0]
    sql = {c.name: plain(c.sql) for s in plan.scans if s.id == feed.scan for c in s.columns}
    arguments = iter(feed.columns[len(stage.keys) :])
    for measure in stage.measures:
        argument = sql[next(arguments)] if measure.has_argument else "*"
        kind = f"Python {type(measure.user).__name__}" if measure.user is not None else measure.kind
        yield f"{measure.name} = {kind}({argument})"


def _state(plan: Plan, stage: Aggregation) -> str:
    growing = "; ".join(dict.fromkeys(_GROWING[m.kind] for m in stage.measures if m.kind in _GROWING))
    also = f"; {growing}" if growing else ""
    if stage.window.is_global:
        if not stage.keys:
            return f"one row, for good{also}"
        return f"for good: grows with the number of keys{also}"
    lateness = max((plan.source(s).options.lateness for s in stage.sources), default=Duration(0))
    plus = f" + {lateness} lateness" if lateness.micros else ""
    if stage.windowing.lateness.micros:
        plus += f" + {stage.windowing.lateness} allowed"
    if isinstance(stage.window, CountWindow):
        return f"records of windows that are not complete, and a number per key for good{plus}{also}"
    if not stage.by_slices:
        return f"a row per key and window, until the window ends{plus}{also}"
    assert isinstance(stage.window, Window)
    if stage.window.is_tumbling:
        return f"until the window ends{plus}{also}"
    return f"slices of {stage.window.slice}, each until the last window over it ends{plus}{also}"


def _kept(plan: Plan, view: ViewStage) -> Iterator[Node]:
    if view.kept:
        yield _table(plan, view)
    if view.sink is not None:
        rows = "as they are" if view.identity is None else "changes, with their op"
        yield Node("sink", view.sink.target, (("rows", rows), ("guarantee", view.sink.promise(plan.guarantee))))


def _table(plan: Plan, view: ViewStage) -> Node:
    stage = view.stage
    if isinstance(stage, Chained) and isinstance(stage.what, First) and stage.identity == ROW:
        rows = f"up to {stage.what.count:,} per " + (", ".join(stage.keys) or "view")
    elif isinstance(stage, Chained) and stage.identity == ROW:
        rows = "they come and go"
    elif view.identity is None:
        rows = "appended, never changed"
    elif not view.identity:
        rows = "one row"
    else:
        rows = "one per " + ", ".join(n.removeprefix("$") for n in view.identity)
    kept = "for good"
    if view.retention is not None:
        since = "the end of its window" if view.identity is not None else "its event time"
        kept = f"each row until {Duration(view.retention)} after {since}"
    facts = (
        ("columns", ", ".join(view.columns)),
        ("rows", rows),
        ("kept", kept),
        ("guarantee", VIEW_PROMISES[plan.guarantee]),
    )
    return Node("table", view.name, facts)
