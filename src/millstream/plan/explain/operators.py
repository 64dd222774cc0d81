"""Chained stages told as nodes: what they take, what they do, and what they keep."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from millstream.model.types.duration import Duration
from millstream.plan.explain.node import Node, named, plain, shown_name
from millstream.plan.operators.changelog import Logged
from millstream.plan.operators.process import Folded
from millstream.plan.operators.temporal_filter import Present
from millstream.plan.stages import (
    Append,
    AsOf,
    Chained,
    Column,
    Constant,
    Every,
    Explode,
    First,
    Join,
    Once,
    Over,
    Project,
    Regroup,
    Sets,
    Settled,
    Sort,
    Stage,
    Stored,
    Take,
)

_SETS = {"intersect": "rows in both", "except": "rows in the first only"}


def take_nodes(take: Take) -> Iterator[Node]:
    """What is done with changes on their way to a chained stage."""
    for op in take.ops:
        if isinstance(op, Project) and op.renames is None:
            gives = ", ".join(named(shown_name(c.name), plain(c.sql)) for c in op.columns if _is_told(c))
            kept = "" if op.keep is None else f" where {plain(op.keep)}"
            yield Node("select", "", (("runs", "native Spark SQL, on changed rows only"), ("gives", gives + kept)))
        elif isinstance(op, Explode):
            facts = (("runs", "native Spark SQL, on changed rows only"), ("of", plain(op.array)))
            yield Node("flat_map", op.name, facts)


def _is_told(column: Column) -> bool:
    return not column.name.startswith("$id")


def chain_nodes(stage: Chained, before: Sequence[Stage]) -> Iterator[Node]:
    """The node of a stage that is chained to others."""
    only = [op for s in stage.sides for t in s.takes for op in t.ops if isinstance(op, Project)]
    sql = {c.name: plain(c.sql) for op in only for c in op.columns}
    rows = "rows as they come" if all(isinstance(b, Append) for b in before) else "changes of the stage before"
    if len(stage.sides) > 1:
        rows = "rows and changes of both sides"
    elif any(isinstance(b, Append) and b.ordered for b in before):
        rows = "rows in the order of event time, held until the watermark has passed them"
    facts = [("takes", rows)]
    what = stage.what
    if not isinstance(what, Once | Every | Sets | Settled | Stored | Logged | Present):
        facts.append(("keys", ", ".join(sql.get(k, shown_name(k)) for k in stage.keys) or "none"))
    if isinstance(what, First | Over):
        facts.append(("order", ", ".join(_order(s, sql) for s in what.order)))
    if isinstance(what, First) and what.rank is not None:
        facts.append(("rank", what.rank))
    elif isinstance(what, Over):
        facts.append(("gives", ", ".join(f"{c.name} = {c.function}(...)" for c in what.calls)))
    elif isinstance(what, Regroup):
        arguments = {m.name: sql.get(f"@{m.name}", "*") for m in what.measures}
        facts.append(("measures", ", ".join(f"{m.name} = {m.kind}({arguments[m.name]})" for m in what.measures)))
    elif isinstance(what, Join):
        facts += _join(what)
    elif isinstance(what, AsOf):
        facts.append(("chooses", f"{what.direction} by {what.times[1]}, when the watermark has passed {what.times[0]}"))
    elif isinstance(what, Stored):
        table = f"what came and went in the table {what.table}"
        facts = [("takes", "nothing: it is there from the first epoch on" if isinstance(what, Constant) else table)]
    elif not isinstance(what, First | Once | Every | Sets | Settled):
        facts += what.facts(stage)
    facts += [("placed", "in the driver"), ("state", _state(stage))]
    yield Node("kernel", _name(what), tuple(facts))


def _join(what: Join) -> list[tuple[str, str]]:
    facts = [] if what.test is None else [("where", plain(what.test.sql))]
    if any(what.pads) or what.how == "anti":
        when = "when it is certain that none comes" if what.certain else "at once, and taken back when one comes"
        facts.append(("without a partner", when))
    return facts


def _name(what: object) -> str:
    if isinstance(what, First):
        return f"top {what.count:,}"
    if isinstance(what, Join):
        return f"{what.how} join"
    if isinstance(what, Sets):
        return _SETS[what.keep]
    names = {Regroup: "aggregate of changing rows", Once: "distinct", Every: "rows as they are", Stored: "stored table"}
    more = {Over: "window functions", Settled: "rows that change no more", AsOf: "as-of join", Constant: "one row"}
    return {**names, **more}.get(type(what)) or str(what.name)  # type: ignore[attr-defined]


def _order(sort: Sort, sql: dict[str, str]) -> str:
    by = sql.get(sort.column, shown_name(sort.column))
    way = " DESC" if sort.descending else ""
    usual = sort.nulls_first is not sort.descending
    return f"{by}{way}" + ("" if usual else f" NULLS {'FIRST' if sort.nulls_first else 'LAST'}")


def _state(stage: Chained) -> str:
    """What is kept, and for how long."""
    kept = _kept(stage)
    forgets = isinstance(stage.what, First | Once | Regroup | Over | Sets | Every | Join)
    if stage.ttl is None or not forgets:
        return kept
    return kept.replace("for good", f"until {Duration(stage.ttl)} after it changed")


def _kept(stage: Chained) -> str:
    what = stage.what
    if isinstance(what, Every) and stage.grows:
        return "none"
    if isinstance(what, Stored):
        return "one row" if isinstance(what, Constant) else "the rows of the table as it was last seen"
    if isinstance(what, Settled):
        return f"rows until {what.column} is past"
    if isinstance(what, AsOf):
        chosen = "per key those that a later row may choose, for good"
        return f"left: rows until {what.times[0]} is past; right: {chosen}"
    if isinstance(what, Join):
        kept = ["each row until its time bound is past" if s.bounded else "all rows, for good" for s in stage.sides]
        return kept[0] if kept[0] == kept[1] else f"left: {kept[0]}; right: {kept[1]}"
    if not isinstance(what, First | Once | Regroup | Over | Sets | Every):
        return str(what.state(stage))
    if isinstance(what, First) and stage.grows:
        rows = f"rows of {what.count:,} per key" if stage.keys else f"{what.count:,} rows"
    elif isinstance(what, Folded):
        rows = "accumulators per key" if stage.keys else "one row"
    elif stage.grows and isinstance(what, Regroup) and not what.order:
        rows = "a row per key" if stage.keys else "one row"
    elif stage.grows:
        rows = "every different row of its input"
    else:
        rows = "all rows of its input"
    if stage.ends is None:
        return f"{rows}, for good"
    end, late = stage.ends
    return f"{rows}, until {end}" + (f" + {Duration(late)} allowed" if late else "")
