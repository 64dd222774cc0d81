"""The scope of EMIT, ALLOWED LATENESS, panes and similar clauses: the groups of one GROUP BY, or the rows of the query.

A clause that would have no effect, or would apply to only a part of the query, is rejected. Definitions that an older
version accepted keep their meaning: their state depends on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.errors import DefinitionError, Unsupported
from millstream.model.steps.step import changes
from millstream.model.windows.accumulation import Accumulation
from millstream.model.windows.trigger import ON_CHANGE, ON_CLOSE
from millstream.sql.relations.relation import Relation

if TYPE_CHECKING:
    from millstream.sql.bind.binder import _Query


def written(query: _Query, *, trigger: bool = True) -> str | None:
    """The first clause that affects when groups emit results, as written; None if there is none."""
    clauses = query.clauses
    spellings = {
        "EMIT": trigger and clauses.trigger not in (None, ON_CHANGE),
        str(clauses.accumulation or "").upper(): clauses.accumulation not in (None, Accumulation.RETRACTING),
        "ALLOWED LATENESS": clauses.lateness is not None,
        "FILL": clauses.fill is not None,
        "panes": query.options.get("panes") is not None,
    }
    return next((name for name, there in spellings.items() if there), None)


def check_whole(query: _Query, node: exp.Expr) -> None:
    """Reject these clauses for a query that does not group, or that joins its groups with other rows."""
    clauses = query.clauses
    if query.main_select is None:
        windowed = any(c is not None for c in (clauses.accumulation, clauses.lateness, clauses.fill))
        if windowed or clauses.trigger not in (None, ON_CHANGE, ON_CLOSE):
            raise DefinitionError(
                "EMIT, ALLOWED LATENESS and FILL need the windows of a GROUP BY, and this query has none",
                hint="EMIT ON CLOSE and EMIT ON CHANGE can follow any query",
                origin=query.text.of_node(node),
            )
        return
    clause = written(query)
    if clause is None or clauses.kept or not _is_joined(query.main_select):
        return
    raise Unsupported(
        f"{clause} would apply to one side of the join only",
        detail="the groups of a subquery are joined with other rows, which change independently",
        hint="make the join a view of its own, and select from it: CREATE VIEW v AS SELECT * FROM joined EMIT ON CLOSE"
        if clause == "EMIT" and clauses.trigger == ON_CLOSE
        else f"make the subquery a view of its own, with {clause} after its GROUP BY, and join that view",
        origin=query.text.of_node(node),
    )


def _is_joined(select: exp.Select) -> bool:
    """Whether an enclosing query joins the groups with other rows."""
    inside, node = select, select.parent
    while node is not None:
        if isinstance(node, exp.Select | exp.Subquery | exp.Table) and node is not inside and node.args.get("joins"):
            return True
        if isinstance(node, exp.CTE):
            name, above = node.alias.lower(), node.find_ancestor(exp.Query)
            tables = [] if above is None else [t for t in above.find_all(exp.Table) if t.name.lower() == name]
            if any(_beside(t) for t in tables):
                return True
        node = node.parent
    return False


def _beside(table: exp.Table) -> bool:
    around = table.find_ancestor(exp.Select)
    return around is not None and bool(around.args.get("joins"))


def by_rows(query: _Query, relation: Relation, node: exp.Select) -> bool:
    """Whether groups without a window follow changing rows: they have no panes, and EMIT ON CLOSE applies to their
    rows. Rejects clauses that they do not support.
    """
    if not changes(relation.stream.step):
        return False
    clauses, closes = query.clauses, query.clauses.trigger == ON_CLOSE
    clause = written(query, trigger=not closes)
    if clauses.kept and not closes and clauses.lateness is None:
        return False
    if clause is not None:
        raise Unsupported(
            f"{clause} after a GROUP BY without a window, over rows that change",
            detail="such groups emit on every change, and nothing is late for them",
            hint="leave it out; EMIT ON CLOSE is supported where the query groups by `window_end` or an event time",
            origin=query.text.of_node(node),
        )
    query.closes_rows = query.closes_rows or closes
    return True
