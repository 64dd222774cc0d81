"""NATURAL JOIN and USING: the columns that both sides of a join share, and that the result has once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from millstream.errors import SchemaError
from millstream.model.expression import Expr, col
from millstream.sql.parse.text import Text
from millstream.sql.relations.relation import HIDDEN, Relation


def spelled_out(text: Text, left: Relation, right: Sequence[str], join: exp.Join) -> exp.Join:
    """A NATURAL JOIN as a join with USING; any other join unchanged. `right` has the columns of the right side."""
    if (join.args.get("method") or "").upper() != "NATURAL":
        return join
    theirs = {n.lower() for n in right}
    names = [n for n in left.names if n.lower() in theirs]
    if not names:
        raise SchemaError(
            "NATURAL JOIN: the two sides have no column in common",
            detail=f"left: {', '.join(left.names)}; right: {', '.join(right)}",
            hint="write CROSS JOIN, or JOIN ... ON with a condition",
            origin=text.of_node(join.this),
        )
    spelled = join.copy()
    spelled.set("method", None)
    spelled.set("using", [exp.to_identifier(n) for n in names])
    return spelled


def names_of(text: Text, left: Relation, join: exp.Join) -> list[str]:
    """The columns of USING. Rejects those that are ambiguous on the left side."""
    names = [i.name for i in join.args.get("using") or ()]
    for name in names:
        if name.lower() in left.ambiguous:
            raise SchemaError(
                f"`{name}` in USING or NATURAL JOIN: the left side has several columns of this name",
                hint="write ON with the names of the relations: ON a.id = c.id",
                origin=text.of_node(join.this),
            )
    return names


def missing(text: Text, name: str, known: Sequence[str], join: exp.Join) -> SchemaError:
    """The error for a column of USING that one side does not have."""
    return SchemaError(
        f"USING ({name}): one side has no such column",
        detail="it has: " + ", ".join(n for n in known if not n.startswith(HIDDEN)),
        hint="write ON a.x = b.y where the two columns have different names",
        origin=text.of_node(join.this),
    )


def merged(relation: Relation, left: Relation, names: Mapping[str, str]) -> Relation:
    """The rows of a RIGHT or FULL join whose USING columns have the value of the side that has one.

    `names` has the columns of the left and of the right side. The left side's own columns keep a hidden name, to which
    ``a.id`` refers.
    """
    moved: dict[str, str] = {}
    for name in names:
        hidden = f"{HIDDEN}left_{name}"
        while hidden in relation.stream.schema:
            hidden = f"{HIDDEN}left_{hidden}"
        moved[name] = hidden
    columns: dict[str, Expr] = {n: col(n) for n in relation.stream.schema.names}
    for mine, theirs in names.items():
        columns[mine] = Expr(exp.Coalesce(this=exp.column(mine), expressions=[exp.column(theirs)]))
        columns[moved[mine]] = col(mine)
    aliases = {
        a: {k: moved.get(v, v) if a in left.aliases else v for k, v in c.items()} for a, c in relation.aliases.items()
    }
    times = relation.times - set(names)
    return replace(relation, stream=relation.stream.select(**columns), aliases=aliases, times=times)
