"""Chained stages told as nodes: what they take, what they do, and what they keep."""

from __future__ import annotations

from collections.abc import Iterator

from millstream.model.duration import Duration
from millstream.plan.node import Node, named, plain, shown_name
from millstream.plan.stages import Append, Chained, First, Once, Regroup, Sort, Stage


def chain_nodes(stage: Chained, before: Stage) -> Iterator[Node]:
    """The nodes of a stage that is chained to another one."""
    sql = {c.name: plain(c.sql) for c in stage.take.columns} if stage.take is not None else {}
    if stage.take is not None and stage.take.renames is None:
        gives = ", ".join(named(shown_name(n), e) for n, e in sql.items() if not n.startswith("$id"))
        kept = "" if stage.take.keep is None else f" where {plain(stage.take.keep)}"
        yield Node("select", "", (("runs", "native Spark SQL, on changed rows only"), ("gives", gives + kept)))
    facts = [("takes", "rows as they come" if isinstance(before, Append) else "changes of the stage before")]
    what = stage.what
    if not isinstance(what, Once):
        facts.append(("keys", ", ".join(stage.keys) or "none"))
    if isinstance(what, First):
        facts.append(("order", ", ".join(_order(s, sql) for s in what.order)))
        if what.rank is not None:
            facts.append(("rank", what.rank))
    elif isinstance(what, Regroup):
        arguments = {m.name: sql.get(f"@{m.name}", "*") for m in what.measures}
        facts.append(("measures", ", ".join(f"{m.name} = {m.kind}({arguments[m.name]})" for m in what.measures)))
    facts += [("placed", "in the driver"), ("state", _state(stage))]
    yield Node("kernel", _name(what), tuple(facts))


def _name(what: First | Regroup | Once) -> str:
    if isinstance(what, First):
        return f"top {what.count:,}"
    return "aggregate of changing rows" if isinstance(what, Regroup) else "distinct"


def _order(sort: Sort, sql: dict[str, str]) -> str:
    by = sql.get(sort.column, shown_name(sort.column))
    way = " DESC" if sort.descending else ""
    usual = sort.nulls_first is not sort.descending
    return f"{by}{way}" + ("" if usual else f" NULLS {'FIRST' if sort.nulls_first else 'LAST'}")


def _state(stage: Chained) -> str:
    """What is kept, and for how long."""
    if isinstance(stage.what, First) and stage.grows:
        rows = f"rows of {stage.what.count:,} per key" if stage.keys else f"{stage.what.count:,} rows"
    elif stage.grows:
        rows = "every different row of its input"
    else:
        rows = "all rows of its input"
    if stage.ends is None:
        return f"{rows}, for good"
    end, late = stage.ends
    return f"{rows}, until {end}" + (f" + {Duration(late)} allowed" if late else "")
