"""Relations: an item of FROM as a stream with the names of its columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa
from sqlglot import exp

from millstream.errors import SchemaError, Unsupported
from millstream.model.expression import CLOCK, Expr, clock_word, is_lambda_parameter
from millstream.model.functions import GENERATOR, UNREPEATABLE
from millstream.model.reserved import OF
from millstream.model.steps.temporal_conditions import misplaced
from millstream.model.streams.stream import Stream
from millstream.model.windows.kinds import AnyWindow
from millstream.sql import early_checks, unknown_names
from millstream.sql.bind.grouping import aggregates
from millstream.sql.parse.checks import completeness
from millstream.sql.parse.checks.allow_list import GROUPS, called, unrepeatable
from millstream.sql.parse.text import NodeNotes, Text

BORDERS = ("window_start", "window_end", "window_time")
HIDDEN = OF
"""The prefix of hidden columns that a query adds."""


@dataclass(frozen=True)
class WindowedColumns:
    """A window from FROM that is applied by a later GROUP BY."""

    window: AnyWindow
    partition: tuple[str, ...] = ()
    time: str | None = None
    """Its time column."""


@dataclass(frozen=True)
class Ranked:
    """A ROW_NUMBER() that has no bound yet."""

    name: str
    bounded: Callable[[int, bool], Relation]
    """The relation of the first n rows, with or without the number as a column."""
    whole: Callable[[], Relation]
    """The relation of all rows with their numbers."""


@dataclass(frozen=True)
class Relation:
    """A stream in FROM."""

    stream: Stream
    aliases: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """From alias to a map from column name (in lower case) to stream column."""
    times: frozenset[str] = frozenset()
    """Columns that are the event time."""
    clocks: frozenset[str] = frozenset()
    """Names for the processing time; the stream has no such columns."""
    windowed: WindowedColumns | None = None
    ranked: Ranked | None = None
    ambiguous: frozenset[str] = frozenset()
    """Names (in lower case) that several relations of a join have."""
    unseen: frozenset[str] = frozenset()
    """Stream columns that hold the values of subqueries and have no name in the text."""

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that `*` expands to."""
        hidden = tuple(n for n in self.stream.schema.names if not n.startswith(HIDDEN) and n not in self.unseen)
        return (*hidden, *BORDERS) if self.windowed is not None else hidden

    def called(self, alias: str | None) -> Relation:
        """The same relation under an alias."""
        if not alias:
            return self
        return replace(self, aliases={alias.lower(): {n.lower(): n for n in (*self.names, *self.clocks)}})

    def with_stream(self, stream: Stream) -> Relation:
        """The same names over a stream in which only the rows changed."""
        assert self.ranked is None, "a ROW_NUMBER() that is still to be computed would not see these rows"
        return replace(self, stream=stream)

    def resolved(self, text: Text, node: exp.Expr, *, also: Iterable[str] = ()) -> exp.Expr:
        """A copy of an expression with every column resolved to a stream column; `also` names columns that are added
        later.
        """
        inner = node.find(exp.Query)
        if inner is not None:
            raise Unsupported(
                "a subquery is not allowed here",
                hint="it can in FROM, WHERE, SELECT, HAVING, ORDER BY and ON of inner joins; or make a view of it",
                origin=text.of_node(inner),
            )
        tree = node.copy()
        select = node.find_ancestor(exp.Select)
        if isinstance(tree, exp.Column):
            return self._column(text, tree, set(also), select)
        for column in list(tree.find_all(exp.Column)):
            if not is_lambda_parameter(column):
                column.replace(self._column(text, column, set(also), select))
        return tree

    def expr(self, text: Text, node: exp.Expr, *, clock: bool = False) -> Expr:
        """An expression over the columns of the stream; with `clock` it may read the current time."""
        tree = self.resolved(text, node)
        for column in tree.find_all(exp.Column):
            if self.windowed is not None and column.name in BORDERS:
                raise Unsupported(
                    f"`{column.name}` can be used only after GROUP BY window_start, window_end",
                    origin=text.of_node(node),
                )
            if column.name in self.clocks:
                raise Unsupported(
                    f"`{column.name}` is the time of processing, which differs from run to run",
                    hint="use it as the time of a window only",
                    origin=text.of_node(node),
                )
        return checked(text, tree, clock=clock)

    def has_fields(self, column: str) -> bool:
        """Whether a dot after a column can refer to one of its fields; if not, the column may be an outer alias."""
        kind = next((f.type for f in self.stream.schema if f.name == column), None)
        return kind is None or bool(pa.types.is_nested(kind))

    def _type(self, column: str) -> pa.DataType | None:
        return next((f.type for f in self.stream.schema if f.name == column), None)

    def _column(self, text: Text, column: exp.Column, also: set[str], select: exp.Select | None) -> exp.Expr:
        parts = [p.name for p in column.parts]
        unseen = frozenset() if column.meta.get("resolved") else self.unseen
        own = (n for n in self.stream.schema.names if n not in unseen)
        everything = (*own, *self.names, *self.clocks, *sorted(also))
        known = {n.lower(): n for n in everything}
        if len(parts) == 1 and parts[0].lower() in self.ambiguous and not column.meta.get("resolved"):
            owners = [a for a, within in self.aliases.items() if parts[0].lower() in within]
            raise SchemaError(
                f"`{parts[0]}` is a column of {' and of '.join(f'`{a}`' for a in owners)}",
                hint=f"qualify it: {owners[0]}.{parts[0]}" if owners else None,
                origin=text.of_node(column),
            )
        if len(parts) > 1 and parts[0].lower() in self.aliases:
            within = self.aliases[parts[0].lower()]
            if parts[1].lower() not in within:
                raise unknown_names.column(text, column, parts[1], list(within.values()), of=parts[0])
            name, rest = within[parts[1].lower()], parts[2:]
        elif parts[0].lower() in known and (len(parts) == 1 or self.has_fields(known[parts[0].lower()])):
            name, rest = known[parts[0].lower()], parts[1:]
        else:
            within = next((a for a in self.aliases.values() if parts[0].lower() in a), {})
            if parts[0].lower() not in within or (len(parts) > 1 and not self.has_fields(within[parts[0].lower()])):
                if len(parts) > 1 and parts[0].lower() in {*known, *within}:
                    raise unknown_names.field(text, column, parts, self._type(known.get(parts[0].lower()) or parts[0]))
                if len(parts) > 1:
                    raise unknown_names.relation(text, column, parts, self.aliases)
                raise unknown_names.column(text, column, parts[0], [*self.names, *also], select=select)
            name, rest = within[parts[0].lower()], parts[1:]
        early_checks.check_fields(text, column, name, self._type(name), rest)
        if isinstance(column.parent, exp.Bracket) and column.parent.this is column and not rest:
            early_checks.check_elements(text, column.parent, name, self._type(name))
        reference: exp.Expr = exp.column(name)
        reference.this._meta = NodeNotes(column.this.meta)
        reference._meta = NodeNotes(resolved=True)  # it may be visited again
        for part in rest:
            reference = exp.Dot(this=reference, expression=exp.to_identifier(part))
        return reference


def own(column: str) -> exp.Column:
    """A stream column, which needs no alias to qualify it."""
    reference = exp.column(column)
    reference.meta["resolved"] = True
    return reference


def checked(text: Text, tree: exp.Expr, *, clock: bool = False) -> Expr:
    """An expression of a live view, checked to be deterministic. A condition with `clock` may also compare with the
    current time.
    """
    total = next(aggregates.aggregates_in(tree), None)
    if total is not None:
        raise SchemaError(
            f"the aggregate `{total.sql(dialect='spark')[:60]}` is not allowed here",
            hint="HAVING, or WHERE in an outer query, can use the results of a GROUP BY",
            origin=text.of_node(total) or text.of_node(tree),
        )
    for node in tree.walk():
        if isinstance(node, exp.Window):
            raise Unsupported(
                f"`{node.sql(dialect='spark')[:60]}` is not supported here",
                hint="window functions are allowed in SELECT and in QUALIFY: compute them in a subquery",
                origin=text.of_node(node),
            )
        if isinstance(node, exp.Star):
            raise SchemaError(
                "* is not allowed here",
                hint="count(*) counts rows; other functions take columns: name them",
                origin=text.of_node(node),
            )
    word = clock_word(tree)
    if word is not None:
        raise unrepeatable(word, text.of_node(tree))
    for name in called(tree):
        if name in CLOCK and not clock:
            raise misplaced(name, text.of_node(tree))
        if name in UNREPEATABLE - CLOCK:
            raise unrepeatable(name, text.of_node(tree))
        if name in GENERATOR:
            raise Unsupported(
                f"`{name}` turns one row into several, and is not allowed here",
                hint="alone in SELECT, explode(tags) AS tag can; or FROM ... LATERAL VIEW explode(tags) t AS tag",
                origin=text.of_node(tree),
            )
        if name in GROUPS:
            raise Unsupported(
                f"`{name}` needs the windows of a GROUP BY, and is not allowed here",
                hint="GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE), with TUMBLE_START(...) in SELECT",
                origin=text.of_node(tree),
            )
    early_checks.check(text, tree)
    completeness.check_expression(text, tree)
    return Expr(tree, text.of_node(tree))


def swap(node: exp.Expr, table: Callable[[exp.Expr], exp.Expr | None]) -> exp.Expr:
    """A tree with parts replaced, from the outside in."""
    swapped = table(node)
    if swapped is not None:
        return swapped
    for child in list(node.iter_expressions()):
        new = swap(child, table)
        if new is not child:
            child.replace(new)
    return node
