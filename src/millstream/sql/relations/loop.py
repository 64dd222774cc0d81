"""WITH RECURSIVE: binds a query that is computed from itself to a loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.errors import SchemaError, Unsupported
from millstream.model.steps.relations.loop import Iterated, Round, depends
from millstream.sql.relations import from_items
from millstream.sql.relations.relation import Relation

if TYPE_CHECKING:
    from millstream.sql.bind.binder import _Query

ROUNDS = 1_000
"""The number of rounds in one epoch after which a loop is considered infinite."""


def calls_itself(cte: exp.CTE) -> bool:
    """Whether a CTE reads its own rows."""
    return any(t.name.lower() == cte.alias.lower() for t in cte.this.find_all(exp.Table))


def loop(query: _Query, cte: exp.CTE, columns: Sequence[str], ctes: Mapping[str, Relation]) -> Relation:
    """The rows of a recursive CTE: its initial rows UNION those derived from them."""
    text, node = query.text, cte.this
    if not isinstance(node, exp.Union):
        raise Unsupported(
            "a recursive CTE is the initial rows UNION the rows that follow from them",
            hint="WITH RECURSIVE r AS (SELECT ... FROM edges UNION SELECT ... FROM r JOIN edges ON ...)",
            origin=text.of_node(node),
        )
    first = from_items.renamed(text, query.settled(query.query(node.left, ctes), node.left), columns, cte)
    rows = Round(first.stream.schema)
    inner = Relation(first.stream._with(rows)).called(cte.alias)
    iteration = query.settled(query.query(node.right, {**ctes, cte.alias.lower(): inner}), node.right)
    if len(iteration.names) != len(first.names):
        raise SchemaError(
            f"the parts of a UNION have {len(first.names)} and {len(iteration.names)} columns",
            detail=f"{', '.join(first.names)}  against  {', '.join(iteration.names)}",
            hint="select the same number of columns in both",
            origin=text.of_node(node.right),
        )
    iteration = from_items.renamed(text, iteration, list(first.names), node.right)
    if not depends(iteration.stream.step, rows):
        raise Unsupported(f"`{cte.alias}` refers to itself where that is not supported", origin=text.of_node(node.left))
    copies = not node.args.get("distinct")
    step = Iterated(
        first.stream.step, rows, iteration.stream.step, True, ROUNDS, True, copies, origin=text.of_node(cte)
    )
    return Relation(first.stream._with(step)).called(cte.alias)
