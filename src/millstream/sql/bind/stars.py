"""Expands ``*`` and ``a.*`` with EXCEPT, REPLACE and RENAME to columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.errors import DefinitionError, UnknownName
from millstream.model.types.unknown_column import unknown_column
from millstream.sql.relations.relation import HIDDEN, Relation, own

if TYPE_CHECKING:
    from millstream.sql.bind.binder import _Query

Item = tuple[str, exp.Expr]
"""An output column: its name and its expression."""


def spelled_out(query: _Query, relation: Relation, node: exp.Expr) -> list[Item]:
    """The columns of a star."""
    star = node.this if isinstance(node, exp.Column) else node
    columns = _of(query, relation, node) if isinstance(node, exp.Column) else _all(relation)
    columns = [(n, c) for n, c in columns if c not in relation.clocks]
    left_out = [e.name for e in star.args.get("except_") or ()]
    replaced = {a.alias.lower(): a.this for a in star.args.get("replace") or ()}
    renamed = {a.this.name.lower(): a.alias for a in star.args.get("rename") or ()}
    there = {n.lower() for n, _ in columns} | {c.lower() for c in relation.clocks}
    for name in (*left_out, *replaced, *renamed):
        if name.lower() not in there and not name.startswith(HIDDEN):  # those are excluded anyway
            of = node.sql(dialect="spark")[:60]
            raise unknown_column(name, [n for n, _ in columns], of=of, origin=query.text.of_node(node))
    out = {n.lower() for n in left_out}
    return [(renamed.get(n.lower(), n), replaced.get(n.lower(), own(c))) for n, c in columns if n.lower() not in out]


def check_names(query: _Query, items: list[Item]) -> None:
    """Reject duplicate output names."""
    seen: set[str] = set()
    twice: dict[str, tuple[str, exp.Expr]] = {}
    for name, inner in items:
        if name.lower() in seen:
            twice.setdefault(name.lower(), (name, inner))
        seen.add(name.lower())
    if not twice:
        return
    names = [n for n, _ in twice.values()]
    listed = ", ".join(names)
    raise DefinitionError(
        "two columns of the result are called " + ", and two ".join(f"`{n}`" for n in names),
        hint=f"give one of them another name: ... AS other_name; or leave it out: SELECT a.*, b.* EXCEPT ({listed})",
        origin=query.text.of_node(next(iter(twice.values()))[1]),
    )


def plain_name(column: str) -> str:
    """The user-visible name of a stream's column: a join renames the columns of its right side."""
    first, _, rest = column.removeprefix(HIDDEN).partition("_")
    moved = column.startswith(HIDDEN) and (first.isdigit() or first == "left") and rest
    return rest if moved else column


def _all(relation: Relation) -> list[tuple[str, str]]:
    """The columns of all relations: name and stream column."""
    columns = [(n, n) for n in relation.names]
    if relation.ambiguous:  # columns of a join with the name of an earlier one
        there = [n for n in relation.stream.schema.names if n.startswith(HIDDEN) and n not in relation.unseen]
        moved = [(plain_name(n), n) for n in there]
        columns += [(n, c) for n, c in moved if n != c and n.lower() in relation.ambiguous]
    return columns


def _of(query: _Query, relation: Relation, node: exp.Column) -> list[tuple[str, str]]:
    """The columns of one relation."""
    alias = node.table.lower()
    if alias not in relation.aliases:
        raise UnknownName(
            f"there is nothing called `{node.table}` in FROM",
            detail="there are: " + ", ".join(relation.aliases),
            origin=query.text.of_node(node),
        )
    return [(plain_name(c), c) for c in relation.aliases[alias].values()]
