"""The binder: converts SQL definitions to the steps of a flow, the same steps that the Python methods create.

This module binds names: sources, views and the items of FROM. `select.py` binds the rest of a SELECT.
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Mapping

from sqlglot import exp

from millstream.errors import DefinitionError, SchemaError, Unsupported
from millstream.model.connector_declarations import checked
from millstream.model.error_policy import QUARANTINE
from millstream.model.flow import Flow
from millstream.model.steps.final_rows import final
from millstream.model.steps.step import View
from millstream.model.types.schema import Schema
from millstream.model.windows.trigger import ON_CLOSE
from millstream.sql.bind import emit
from millstream.sql.bind.rewrites import rewritten
from millstream.sql.bind.select import bind_select, limited, main_select_of
from millstream.sql.catalog import Catalog, Generators, schema_of
from millstream.sql.connectors import SOURCE_OPTIONS, VIEW_OPTIONS, check_start, connector_of, sink_of
from millstream.sql.parse import queries
from millstream.sql.parse.checks import completeness
from millstream.sql.parse.checks.allow_list import CHANGELOG
from millstream.sql.parse.statement_values import Clauses, Create, CreateSink, CreateSource, CreateTable, CreateView
from millstream.sql.parse.text import Text, not_too_deep, tokens
from millstream.sql.relations import array_functions, changelog, computed_columns, constant, from_items, loop, windows
from millstream.sql.relations.relation import Relation
from millstream.sql.subqueries.correlated import Outer

_ARTICLES = {"union": "a UNION", "intersect": "an INTERSECT", "except": "an EXCEPT"}


class Binder:
    """Binds definitions of a catalog into one flow, each of them once."""

    def __init__(
        self,
        flow: Flow,
        catalog: Catalog,
        generators: Generators,
        *,
        start: str = "",
        as_before: Container[str] = (),
    ) -> None:
        self.flow, self.catalog, self.generators, self.start = flow, catalog, generators, start
        self.as_before = as_before
        """Views and sinks (by lower-case name) whose state predates the extraction of join keys from OR."""
        self.keyed_by_or: set[str] = set()
        """Views and sinks with a join whose keys were extracted from OR."""
        flow.functions.update(catalog.functions)
        self._bound: dict[str, Relation] = {}
        self._binding: list[str] = []

    def renew(self, catalog: Catalog) -> None:
        """Continue with a later catalog, in which everything bound so far is unchanged."""
        self.catalog = catalog
        self.flow.functions.update(catalog.functions)

    def definition(self, entry: Create) -> View | None:
        """Bind a definition of any kind; returns what it adds to the flow: a view, a sink, or nothing."""
        if isinstance(entry, CreateView):
            return self.view(entry)
        if isinstance(entry, CreateSink) and entry.is_fed:
            return self.sink(entry)
        if isinstance(entry, CreateSource):
            self.named(entry.name)
        return None

    def view(self, entry: CreateView) -> View:
        """Add a view to the flow."""
        with entry.piece.text.at(entry.piece.tokens[0]):
            relation = self.named(entry.name)
            options = checked(entry.options, VIEW_OPTIONS, "a view")
            check_start(str(options.get("start", "")))
            if options.get("tables", "live") not in ("live", ""):
                raise DefinitionError(
                    f"tables = '{options['tables'][:60]}' is not known",
                    hint="tables = 'live' updates the view when a stored table changes; without it, old rows stay",
                )
            retain = entry.clauses.retain or entry.options.get("retain")
            policy = str(options.get("on_error", QUARANTINE)).lower()
            ttl = options.get("state_ttl")
            return relation.stream.view(entry.name, retention=retain, state_ttl=ttl, on_error=policy)

    def sink(self, entry: CreateSink) -> View:
        """Add a sink to the flow."""
        with entry.piece.text.at(entry.piece.tokens[0]):
            if entry.query is not None:
                self._binding.append(entry.name.lower())
                try:
                    stream = self.query(entry.piece.text, entry.query, entry.clauses).stream
                finally:
                    self._binding.pop()
            else:
                stream = self.named(entry.view).stream
            to = sink_of(entry, self.catalog)
            to.check_columns(entry.name, stream.schema)
            return stream.sink(entry.name, to)

    def named(self, name: str) -> Relation:
        """The relation for a name of the catalog."""
        key = name.lower()
        if key not in self._bound:
            entry = self.catalog.get(name)
            if key in self._binding:
                raise DefinitionError(f"`{name}` is defined by itself")
            self._binding.append(key)
            try:
                if isinstance(entry, CreateSource):
                    self._bound[key] = self._source(entry)
                elif isinstance(entry, CreateView):
                    self._bound[key] = self.query(entry.piece.text, entry.query, entry.clauses, entry.options)
                elif isinstance(entry, CreateTable):
                    schema = schema_of(self.catalog, entry)
                    assert schema is not None
                    self._bound[key] = Relation(self.flow.table(entry.name, schema=schema)).called(entry.name)
                else:
                    raise self.catalog.missing(name, beside=self._binding)
            finally:
                self._binding.pop()
        return self._bound[key]

    def query(
        self, text: Text, query: exp.Query, clauses: Clauses | None = None, options: Mapping[str, object] | None = None
    ) -> Relation:
        """The relation for a whole query."""
        with not_too_deep(text):
            completeness.check_clauses(text, query)
            return _Query(self, text, clauses or Clauses(), options or {}).whole(rewritten(query))

    def takes_keys_out_of_or(self) -> bool:
        """Whether joins extract keys from OR. Joins of views whose state predates this do not."""
        name = self._binding[-1] if self._binding else ""
        if name in self.as_before:
            return False
        self.keyed_by_or.add(name)
        return True

    def _source(self, entry: CreateSource) -> Relation:
        text = entry.piece.text
        with text.at(entry.piece.tokens[0]):
            connector = connector_of(entry, self.generators, start=self.start)
            options = checked(entry.options, SOURCE_OPTIONS, "a source")
            if "punctuation" in options:
                punctuation = Text(options["punctuation"], "punctuation")
                queries.parsed(
                    punctuation, tuple(tokens(punctuation))
                )  # the model parses it again, without a limit on the work
            column, lateness = entry.watermark or (None, None)
            schema = schema_of(self.catalog, entry)
            event_time = computed_columns.event_time(entry, connector, schema) or self._time(schema, column)
            stream = self.flow.source(
                entry.name,
                connector,
                schema=schema,
                event_time=event_time,
                lateness=None if "punctuation" in options else lateness,
                key=entry.key or None,
                processing_time=computed_columns.processing_time(entry),
                **options,
            )
            return computed_columns.relation(entry, stream)

    def _time(self, schema: Schema | None, column: str | None) -> str | None:
        """The event time in the spelling of the schema."""
        if column is None or schema is None:
            return column
        return next((n for n in schema.names if n.lower() == column.lower()), column)


class _Query:
    """Binds one query text."""

    def __init__(self, binder: Binder, text: Text, clauses: Clauses, options: Mapping[str, object]) -> None:
        self.binder, self.text, self.clauses, self.options = binder, text, clauses, options
        self.main_select: exp.Select | None = None
        """The SELECT that EMIT and similar clauses apply to."""
        self.closes_rows = False
        """Whether EMIT ON CLOSE applies to the rows of the whole query, although it groups."""
        self._numbers = itertools.count()

    def whole(self, query: exp.Query) -> Relation:
        self.main_select = main_select_of(query)
        emit.check_whole(self, query)
        relation = self.settled(self.query(query, {}), query)
        closes = self.closes_rows or (self.main_select is None and self.clauses.trigger == ON_CLOSE)
        if not closes:
            return relation
        with self.text.at(query):
            return relation.with_stream(final(relation.stream))

    def settled(self, relation: Relation, node: exp.Expr) -> Relation:
        """The relation with a pending row number resolved: without a bound, all rows are numbered."""
        if relation.ranked is None:
            return relation
        with self.text.at(node):
            whole = relation.ranked.whole()
        return whole.called(next(iter(relation.aliases), None))

    def number(self) -> int:
        """A number that is unique within this query."""
        return next(self._numbers)

    def with_ctes(self, node: exp.Expr, ctes: Mapping[str, Relation]) -> Mapping[str, Relation]:
        """The CTEs in scope inside a query."""
        with_clause = node.args.get("with_")
        if with_clause is None:
            return ctes
        for cte in with_clause.expressions:
            ctes = self.with_cte(with_clause, cte, ctes)
        return ctes

    def with_cte(self, with_clause: exp.Expr, cte: exp.CTE, ctes: Mapping[str, Relation]) -> Mapping[str, Relation]:
        """The CTEs in scope after one CTE of a WITH."""
        columns = [c.name for c in (cte.args["alias"].args.get("columns") or [])]
        if with_clause.args.get("recursive") and loop.calls_itself(cte):
            return {**ctes, cte.alias.lower(): loop.loop(self, cte, columns, ctes)}
        relation = self.query(cte.this, ctes)
        return {**ctes, cte.alias.lower(): from_items.renamed(self.text, relation, columns, cte)}

    def query(self, node: exp.Expr, ctes: Mapping[str, Relation], outer: Outer | None = None) -> Relation:
        """Bind a query with the CTEs in scope; `outer` has the columns of the enclosing rows that it uses."""
        ctes = self.with_ctes(node, ctes)
        if isinstance(node, exp.Subquery):
            return limited(self, self.query(node.this, ctes, outer), node, outer)
        if isinstance(node, exp.SetOperation):
            if outer is not None:
                raise Unsupported(
                    f"{node.key.upper()} inside a correlated subquery",
                    hint="write one subquery for each part",
                    origin=self.text.of_node(node),
                )
            return limited(self, self._set(node, ctes), node)
        if isinstance(node, exp.Select):
            return bind_select(self, node, ctes, outer)
        if isinstance(node, exp.Values):
            return constant.values(self, node)
        raise Unsupported(
            "this is not supported in a view",
            hint="a view is a SELECT; docs/language.md lists the forms",
            origin=self.text.of_node(node),
        )

    def _set(self, node: exp.SetOperation, ctes: Mapping[str, Relation]) -> Relation:
        left = self.settled(self.query(node.left, ctes), node.left)
        right = self.settled(self.query(node.right, ctes), node.right)
        if len(left.names) != len(right.names):
            raise SchemaError(
                f"the parts of {_ARTICLES[node.key]} have {len(left.names)} and {len(right.names)} columns",
                detail=f"{', '.join(left.names)}  against  {', '.join(right.names)}",
                hint="select the same number of columns in both; NULL AS name fills one in",
                origin=self.text.of_node(node.right),
            )
        with self.text.at(node.right):
            if left.names != right.names:
                right = from_items.renamed(self.text, right, list(left.names), node.right)
            mine, theirs = from_items.widened(left.stream, right.stream), from_items.widened(right.stream, left.stream)
            once = bool(node.args.get("distinct"))
            if isinstance(node, exp.Intersect):
                stream = mine.intersect(theirs, copies=not once)
            elif isinstance(node, exp.Except):
                stream = mine.subtract(theirs, copies=not once)
            else:
                stream = mine.union(theirs)
                stream = stream.distinct() if once else stream
        return Relation(stream, times=left.times & right.times, clocks=left.clocks & right.clocks)

    def source(
        self, node: exp.Expr, ctes: Mapping[str, Relation], *, version: bool = False, outer: Outer | None = None
    ) -> Relation:
        """Bind one item of FROM; with `version` the caller handles its FOR SYSTEM_TIME AS OF."""
        if node.args.get("version") is not None and not version:
            raise Unsupported(
                "FOR SYSTEM_TIME AS OF is supported on the right side of a JOIN only",
                origin=self.text.of_node(node.args["version"]) or self.text.of_node(node),
            )
        table_alias = node.args.get("alias")
        columns = (
            [c.name for c in (table_alias.args.get("columns") or ())] if isinstance(table_alias, exp.TableAlias) else []
        )
        alias = node.alias or None
        if isinstance(node, exp.Subquery):
            if outer is not None and columns:
                raise Unsupported(
                    "other names for the columns of a correlated subquery",
                    hint="set them in its SELECT",
                    origin=self.text.of_node(node),
                )
            return from_items.renamed(self.text, self.query(node, ctes, outer), columns, node).called(alias)
        if isinstance(node, exp.Values):
            return constant.values(self, node)
        if array_functions.call_of(node) is not None:
            beside = constant.one_row(self) if outer is None else outer.values(outer.names)
            return array_functions.beside(self, beside, node)
        if not isinstance(node, exp.Table):
            raise Unsupported(f"`{node.sql(dialect='spark')[:60]}` in FROM", origin=self.text.of_node(node))
        if isinstance(node.this, exp.Anonymous):
            name = windows.name_of(node.this)
            if name == CHANGELOG:
                return changelog.relation(self, node, ctes, columns)
            if name not in windows.GROUPING or name in ("window", "session_window"):
                what = (
                    "FROM HISTORY OF can be used in queries, not in views"
                    if name == "history_of"
                    else f"`{name}` in FROM"
                )
                raise Unsupported(what, origin=self.text.of_node(node))
            call = windows.table_call(self.text, node.this)
            assert call.table is not None
            inner = self.by_name(call.table, node, ctes)
            windowed = windows.windowed(self.text, call, inner)
            return from_items.renamed(self.text, windowed, columns, node).called(alias or call.table)
        return from_items.renamed(self.text, self.by_name(node.name, node, ctes), columns, node).called(
            alias or node.name
        )

    def by_name(self, name: str, node: exp.Expr, ctes: Mapping[str, Relation]) -> Relation:
        """The relation for a name in FROM."""
        if name.lower() in ctes:
            return ctes[name.lower()].called(name)
        with self.text.at(node):
            return self.binder.named(name).called(name)
