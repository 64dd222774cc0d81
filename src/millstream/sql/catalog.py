"""The catalog: all SQL definitions by name, and their dependencies. `live/definitions.py` persists it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from sqlglot import exp

from millstream.errors import DefinitionError, UnknownName
from millstream.model.python.function import Function
from millstream.model.types.schema import Schema
from millstream.sql.parse.statement_values import (
    Create,
    CreateFunction,
    CreateSink,
    CreateSource,
    CreateTable,
    CreateView,
)
from millstream.sql.query.store_query import in_sight

Kind = TypeVar("Kind", bound=Create)
KIND_OF: dict[type[Create], str] = {
    CreateSource: "source",
    CreateTable: "table",
    CreateView: "view",
    CreateSink: "sink",
    CreateFunction: "function",
}


@dataclass
class Catalog:
    """All definitions. Names are case-insensitive and unique across all kinds."""

    entries: dict[str, Create] = field(default_factory=dict)
    """By lower-case name, in creation order."""
    schemas: dict[str, Schema] = field(default_factory=dict)
    """Inferred columns of sources that were declared without columns, by lower-case name."""
    functions: dict[str, Function] = field(default_factory=dict)
    """The Python functions that were loaded, by lower-case name."""

    def get(self, name: str) -> Create | None:
        """The definition of a name."""
        return self.entries.get(name.lower())

    def of(self, kind: type[Kind]) -> list[Kind]:
        """All definitions of a kind."""
        return [e for e in self.entries.values() if isinstance(e, kind)]

    def add(self, entry: Create, schema: Schema | None = None) -> None:
        """Add a definition, or replace the one with its name."""
        self.entries[entry.name.lower()] = entry
        if schema is not None:
            self.schemas[entry.name.lower()] = schema

    def remove(self, name: str) -> None:
        """Remove a definition."""
        self.entries.pop(name.lower(), None)
        self.schemas.pop(name.lower(), None)
        self.functions.pop(name.lower(), None)

    def copy(self) -> Catalog:
        """A copy of the catalog, to try changes in."""
        return Catalog(dict(self.entries), dict(self.schemas), dict(self.functions))

    def needs(self, entry: Create) -> set[str]:
        """The names of the catalog that a definition uses directly, in lower case."""
        query = entry.query if isinstance(entry, CreateView | CreateSink) else None
        called = {str(f.this).lower() for f in query.find_all(exp.Anonymous)} if query is not None else set()
        named = read_by(entry)
        return {n for n in self.entries if n in named or (n in called and isinstance(self.entries[n], CreateFunction))}

    def dependents(self, name: str) -> list[Create]:
        """All direct and indirect dependents of a name; the most distant last."""
        entries: list[Create] = []
        names = {name.lower()}
        for entry in self.entries.values():  # created after what they need
            if (self.needs(entry) | written_by(entry)) & names and entry.name.lower() not in names:
                names.add(entry.name.lower())
                entries.append(entry)
        return entries

    def sources_of(self, entry: Create) -> set[str]:
        """The sources that a definition reads, directly or indirectly, by lower-case name."""
        return self._upstream(entry, CreateSource)

    def tables_of(self, entry: Create) -> set[str]:
        """The stored tables that a definition reads, directly or indirectly, by lower-case name."""
        return self._upstream(entry, CreateTable)

    def _upstream(self, entry: Create, kind: type[Create]) -> set[str]:
        """All that a definition reads, directly or indirectly, of one kind."""
        seen: set[str] = set()
        waiting = [entry]
        while waiting:
            new = self.needs(waiting.pop()) - seen
            seen |= new
            waiting += [self.entries[name] for name in new if not isinstance(self.entries[name], kind)]
        return {name for name in seen if isinstance(self.entries[name], kind)}

    def check_free(self, entry: Create) -> None:
        """Reject a name that a definition of another kind has."""
        there = self.get(entry.name)
        if there is not None and type(there) is not type(entry):
            raise DefinitionError(f"`{entry.name}` is already the name of a {KIND_OF[type(there)]}")

    def missing(self, name: str, what: str = "source, table or view", *, beside: Collection[str] = ()) -> UnknownName:
        """The error for an unknown name. Names in `beside` are being defined and do not count."""
        known = [e.name for n, e in self.entries.items() if n not in beside]
        close = difflib.get_close_matches(name, known, n=1)
        return UnknownName(
            f"there is no {what} `{name}`",
            detail="there are: " + (", ".join(known) or "none yet"),
            hint=f"did you mean `{close[0]}`?" if close else None,
        )


def read_by(entry: Create) -> set[str]:
    """The names that a definition reads from, known or not, in lower case."""
    if isinstance(entry, CreateSink) and entry.view:
        return {entry.view.lower()}
    query = entry.query if isinstance(entry, CreateView | CreateSink) else None
    return {n.lower() for n in tables_of(query)} if query is not None else set()


def written_by(entry: Create) -> set[str]:
    """The stored table that a sink writes to, in lower case."""
    if isinstance(entry, CreateSink) and entry.place.kind == "TABLE":
        return {str(entry.place.arguments[0]).lower()}
    return set()


def tables_of(query: exp.Expr) -> Iterator[str]:
    """The names that a query reads from, except names of CTEs in scope."""
    for table in query.find_all(exp.Table):
        name = None
        if isinstance(table.this, exp.Identifier):
            name = table.name
        elif isinstance(table.this, exp.Anonymous) and table.this.expressions:
            first = table.this.expressions[0]
            value = first.expression if isinstance(first, exp.Kwarg | exp.PropertyEQ) else first
            name = value.name if isinstance(value, exp.Column) else None
        if name is not None and name.lower() not in {n.lower() for n in in_sight(table)}:
            yield name


def schema_of(catalog: Catalog, entry: CreateSource | CreateTable) -> Schema | None:
    """The columns that are read from a source or table, if known."""
    declared = [c for c in entry.columns if c.computed is None]
    if not declared:
        return catalog.schemas.get(entry.name.lower())
    return Schema.parse(", ".join(f"`{c.name}` {c.type}" for c in declared))


Generators = Mapping[str, Callable[..., object]]
"""Generators by name, which GENERATOR('name', option = value, ...) calls."""
