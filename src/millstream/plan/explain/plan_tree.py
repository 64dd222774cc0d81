"""Renders a plan as a tree: its input, what runs natively, what a kernel does, what is kept and for how long.

Plan in, `Node`s out. `text` draws them for users, `as_json` returns them for programs. Nothing here depends on Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millstream.model.guarantees import VIEW_PROMISES
from millstream.model.source_options import SourceOptions
from millstream.model.types.duration import Duration
from millstream.plan.explain.node import Node, named, plain, shown_name
from millstream.plan.explain.operator_node import PlanNames, operator_node, placed, state, take_nodes
from millstream.plan.lowering.native_subset import is_native_scan
from millstream.plan.operators.operator import Operator, view_of
from millstream.plan.parts import Batches, Explode, Feed, Lookup, Op, Project
from millstream.plan.plan import Plan, PlannedSource, PlannedView, Scan


def explain(plan: Plan, only: str | None = None) -> Node:
    """The plan as a tree: its sources, then every view with the path of its rows; or `only` one of the views."""
    sources = tuple(_source(plan, s) for s in plan.sources)
    shown = [v for v in plan.views if not v.inner and (only is None or v.name.lower() == only.lower())]
    views = tuple(_view(plan, v) for v in shown)
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
    for label, text in node.facts:
        yield f"{indent}{bar}{label.ljust(width)}  {text}"
    for i, child in enumerate(node.children):
        last = i == len(node.children) - 1
        yield f"{indent}{'└─ ' if last else '├─ '}{_title(child)}"
        yield from _below(child, indent + ("   " if last else "│  "))


# ---------------------------------------------------------------- sources and scans


def _event_time(options: SourceOptions) -> str:
    """The event time, and how its watermark advances."""
    idle = options.idle_timeout
    ignored = "" if idle is None else f", partitions without records for {idle} are ignored"
    name = options.event_time
    if name is None:
        return f"when it is read{ignored}"
    column = name if options.computed_time is None else named(name, plain(options.computed_time))
    mark = options.punctuation
    watermark = f"lateness {options.lateness}" if mark is None else f"watermark from {plain(mark)}"
    return f"{column}, {watermark}{ignored}"


def _source(plan: Plan, source: PlannedSource) -> Node:
    options = source.options
    facts = [("reads", source.connector.described), ("event time", _event_time(options))]
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


def _positions(plan: Plan, source: PlannedSource) -> str:
    if not source.positions:
        return "not needed"
    operators = [(view_of(v.name), v.operator) for v in plan.views if source.name in v.operator.sources]
    ordered = [f"{name}.{column}" for name, o in operators for column in o.ordered_columns]
    kept = [name for name, o in operators if o.reads_scans and o.keyed_scan and o.needs_positions]
    held = [name for name, o in operators if o.appends and o.stateful]
    return f"rows carry them: {', '.join(ordered or kept or held)} depends on the order of rows"


def _readers(plan: Plan, scan: Scan) -> list[str]:
    return [v.name for v in plan.views if not v.inner and any(f.scan == scan.id for f in v.operator.feeds)]


def _scan(plan: Plan, view: PlannedView, feed: Feed) -> Node:
    scan = next(s for s in plan.scans if s.id == feed.scan)
    sql = {c.name: plain(c.sql) for c in scan.columns}
    facts = [("runs", _runs(scan))]
    others = [n for n in _readers(plan, scan) if n != view_of(view.name)]
    if others:
        facts.append(("shared", f"with {', '.join(others)}"))
    facts += [_op(op) for op in scan.ops if not _passes_on(op)]
    if feed.keep is not None:
        facts.append(("where", sql[feed.keep]))
    computed = [sql[c] for c in feed.columns]
    if view.operator.keyed_scan:
        keys = len(view.operator.keys)
        pairs = [named(n, e) for n, e in zip(view.operator.keys, computed[:keys], strict=True)]
        if pairs:
            facts.append(("keys", ", ".join(pairs)))
        if computed[keys:]:
            facts.append(("columns", ", ".join(dict.fromkeys(computed[keys:]))))
    else:
        pairs = [named(shown_name(n), e) for n, e in zip(view.operator.columns, computed, strict=True)]
        facts.append(("columns", ", ".join(pairs)))
    return Node("scan", f"{scan.id} of {scan.source}", tuple(facts))


def _runs(scan: Scan) -> str:
    if any(isinstance(op, Batches) for op in scan.ops):
        return "Spark SQL, and Python on the executors"
    return "Arrow and Polars; Spark SQL where only Spark reads the rows" if is_native_scan(scan) else "Spark SQL"


def _op(op: Op) -> tuple[str, str]:
    if isinstance(op, Explode):
        return "flat_map", f"{op.name} = each of {plain(op.array)}" + (
            ", rows without one are kept" if op.keep_empty else ""
        )
    if isinstance(op, Lookup):
        on = " and ".join(mine if mine == theirs else f"{mine} = {theirs}" for mine, theirs in op.on)
        added = ", ".join(f.name for f in op.columns)
        unmatched = "rows without a match are dropped" if op.required else "rows without a match are kept"
        return "enrich", f"{added} from the table {op.table} by {on} (broadcast join; {unmatched})"
    if isinstance(op, Batches):
        return "map_batches", f"{op.identity.split(':')[0]} over {op.takes} batches (Python)"
    return "select", _projection(op)


def _passes_on(op: Op) -> bool:
    """Whether an op only passes columns on."""
    return isinstance(op, Project) and op.keep is None and all(plain(c.sql) == c.name for c in op.columns)


def _projection(project: Project) -> str:
    columns = ", ".join(named(c.name, plain(c.sql)) for c in project.columns if not c.name.startswith("$"))
    return columns if project.keep is None else f"{columns} where {plain(project.keep)}"


# ---------------------------------------------------------------- kernels and views


def _view(plan: Plan, view: PlannedView) -> Node:
    parts = list(_path(plan, view))
    if view.post is not None:
        parts.append(
            Node(
                "select",
                "",
                (("runs", "Spark SQL, on changed rows only"), ("gives", _projection(view.post))),
            )
        )
    return Node("view", view.name, (), (*parts, *_kept(plan, view)))


def _path(plan: Plan, view: PlannedView) -> Iterator[Node]:
    """The path of a row to the end of a view's operator."""
    operator = view.operator
    if operator.reads_scans:
        yield from (_scan(plan, view, f) for f in operator.feeds)
        if operator.keyed_scan:
            yield _exchange(plan, operator)
            yield _kernel(plan, operator)
        return
    for number, side in enumerate(operator.sides):
        if len(operator.sides) > 1:
            parts = (n for take in side.takes for n in (*_before(plan, view, take.view), *take_nodes(take)))
            yield Node("side", ("left", "right")[number], (), tuple(parts))
            continue
        for take in side.takes:
            yield from _before(plan, view, take.view)
            yield from take_nodes(take)
    yield operator_node(plan, operator)


def _before(plan: Plan, view: PlannedView, name: str) -> Iterator[Node]:
    """The path of a row to an operator that feeds a view's operator."""
    owner = view_of(name)
    if owner == view_of(view.name):
        yield from _path(plan, plan.view(name))
        return
    kind = "of the view" if name == owner else "inside the view"
    yield Node("changes", f"{kind} {owner}", (("shared", "computed once"),))


def _exchange(plan: Plan, operator: Operator) -> Node:
    if not operator.keys:
        return Node("exchange", "none: there is no key")
    return Node("exchange", f"by key group of ({', '.join(operator.keys)})", (("placed", placed(plan, operator)),))


def _kernel(plan: Plan, operator: Operator) -> Node:
    names = PlanNames(plan, operator)
    facts = [*operator.facts(names), ("state", state(plan, operator)), *operator.more_facts()]
    return Node("kernel", operator.name(), tuple(facts))


def _kept(plan: Plan, view: PlannedView) -> Iterator[Node]:
    if view.kept:
        yield _table(plan, view)
    if view.sink is not None:
        rows = "as they are" if view.identity is None else "changes, with their op"
        yield Node("sink", view.sink.target, (("rows", rows), ("guarantee", view.sink.promise(plan.guarantee))))


def _table(plan: Plan, view: PlannedView) -> Node:
    rows_text = view.operator.shown_rows()
    if rows_text is not None:
        rows = rows_text
    elif view.identity is None:
        rows = "appended, never changed"
    elif not view.identity:
        rows = "one row"
    else:
        rows = "one per " + ", ".join(n.removeprefix("$") for n in view.identity)
    kept = "indefinitely"
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
