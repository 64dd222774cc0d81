"""Reads SQL files into one catalog, statement by statement; every error is recorded, and nothing runs."""

from __future__ import annotations

from pathlib import Path

from sqlglot import exp

from millstream.cli.commands.project.check import Report
from millstream.cli.shell.shell import read_file
from millstream.connect.registry import columns_of
from millstream.errors import DuplicateName, MillstreamError, Origin
from millstream.live import sources
from millstream.model.flow import Flow
from millstream.plan.explain.operator_node import growing_states
from millstream.plan.planner import plan
from millstream.sql.bind.binder import Binder
from millstream.sql.catalog import Catalog, read_by, schema_of, tables_of
from millstream.sql.connectors import connector_of, is_on_demand, topic_of
from millstream.sql.parse import statement_parser
from millstream.sql.parse.script import StatementText, split
from millstream.sql.parse.statement_values import (
    Ask,
    Create,
    CreateFunction,
    CreateSource,
    CreateTable,
    CreateView,
    Delete,
    Describe,
    Drop,
    Explain,
    Insert,
    Statement,
    Subscribe,
    Update,
)
from millstream.sql.parse.text import Text, word


class Checking:
    """Reads SQL files into one catalog, statement by statement."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.catalog = Catalog()
        self.unsure: set[str] = set()
        """Names whose definition is wrong or unknown: what depends on them is not checked."""

    def file(self, path: Path) -> None:
        """Check the statements of a file."""
        try:
            script = split(Text(*read_file(path)))
        except MillstreamError as error:
            error.origin = error.origin or Origin(str(path), 1)
            self.report.errors.append(error)
            return
        for piece in script:
            self.report.statements += 1
            self.piece(piece)

    def piece(self, piece: StatementText) -> None:
        """Check one statement."""
        try:
            statement = statement_parser.statement(piece, functions=self.catalog.functions)
        except MillstreamError as error:
            self.report.errors.append(error)
            self._doubt(piece)
            return
        try:
            with piece.text.at(piece.tokens[0]):
                if isinstance(statement, Create):
                    self._create(statement)
                else:
                    self._other(statement)
        except MillstreamError as error:
            self.report.errors.append(error)
            if isinstance(statement, Create):
                self.unsure.add(statement.name.lower())

    def _doubt(self, piece: StatementText) -> None:
        """Register the name of a definition that cannot be read, so that its uses are not reported as unknown."""
        words = [word(t) for t in piece.tokens[:10]]
        kind = next((i for i, w in enumerate(words) if w in statement_parser.KINDS), None)
        if words[:1] != ["CREATE"] or kind is None:
            return
        rest = piece.tokens[kind + 1 :]
        while rest and word(rest[0]) in ("IF", "NOT", "EXISTS"):
            rest = rest[1:]
        if rest:
            self.unsure.add(str(rest[0].text).lower())

    # ------------------------------------------------------------ definitions

    def _create(self, entry: Create) -> None:
        self.catalog.check_free(entry)
        there = self.catalog.get(entry.name)
        if there is not None and not entry.or_replace:
            if entry.if_not_exists:
                return
            raise DuplicateName(f"`{entry.name}` is defined already", detail=f"at {_place(there)}")
        self.catalog.add(entry)
        self.unsure.discard(entry.name.lower())
        if isinstance(entry, CreateFunction):
            self.catalog.functions[entry.name.lower()] = sources.function(entry)
        elif isinstance(entry, CreateSource) and not self._columns_known(entry):
            self.unsure.add(entry.name.lower())
        elif read_by(entry) & self.unsure:
            self.unsure.add(entry.name.lower())
        else:
            self._bind(entry)

    def _columns_known(self, entry: CreateSource) -> bool:
        """Whether the columns of a source are declared or can be inferred; otherwise that is a warning."""
        if schema_of(self.catalog, entry) is not None or is_on_demand(entry.place):
            return True
        why, connector = "they are the columns of its topic", connector_of(entry, {})
        try:
            columns = columns_of(connector, None)
            if columns is not None:
                self.catalog.add(entry, columns)
                return True
        except MillstreamError as error:
            why = error.message
        self.report.warnings.append(
            MillstreamError(
                f"the columns of `{entry.name}` are not declared: what reads it cannot be checked",
                detail=why,
                hint=f"CREATE SOURCE {entry.name} (column TYPE, ...) FROM ...",
                origin=entry.piece.text.of_token(entry.piece.tokens[0]),
            )
        )
        return False

    def _bind(self, entry: Create) -> None:
        flow = Flow("checked")
        if isinstance(entry, CreateTable):
            schema_of(self.catalog, entry)
        elif Binder(flow, self.catalog, sources.GENERATORS).definition(entry) is not None:
            planned = plan(flow)
            if isinstance(entry, CreateView):
                self.report.warnings += [self._warning(entry, text) for _, text in growing_states(planned)]

    def _warning(self, entry: CreateView, state: str) -> MillstreamError:
        text: Text = entry.piece.text
        group = entry.query.find(exp.Group, exp.Distinct)
        return MillstreamError(
            f"the state of the view `{entry.name}` grows without bound",
            detail=f"state: {state}",
            hint=self._clause(entry),
            origin=text.of_node(group) or text.of_token(entry.piece.tokens[0]),
        )

    def _clause(self, entry: Create) -> str:
        """The clause that would bound the state of a view."""
        for name in sorted(self.catalog.sources_of(entry)):
            source = self.catalog.get(name)
            if isinstance(source, CreateSource) and source.watermark is not None:
                return f"a window in GROUP BY bounds it: GROUP BY TUMBLE({source.watermark[0]}, INTERVAL '1' HOUR), ..."
        return (
            "a window in GROUP BY bounds it; it needs an event time of the source: "
            "WATERMARK FOR ts AS ts - INTERVAL '4' SECOND"
        )

    # ------------------------------------------------------------ everything else

    def _other(self, statement: Statement) -> None:
        for name in _named(statement):
            plain = name.partition("$")[0].lower()
            if plain in self.unsure or self.catalog.get(plain) is not None or plain in self._topics():
                continue
            if isinstance(statement, Drop) and statement.if_exists:
                continue
            token = next((t for t in statement.piece.tokens if str(t.text) == name), None)
            with statement.piece.text.at(token):
                raise self.catalog.missing(name)
        if isinstance(statement, Drop):
            dropped = [statement.name, *(d.name for d in self.catalog.dependents(statement.name))]
            for name in dropped if statement.cascade else dropped[:1]:
                self.catalog.remove(name)

    def _topics(self) -> set[str]:
        return {topic.lower() for e in self.catalog.entries.values() if (topic := topic_of(e)) is not None}


def _named(statement: Statement) -> list[str]:
    """The names that a statement other than a definition uses."""
    match statement:
        case Ask(query=query):
            return list(tables_of(query))
        case Insert(target=target, query=query):
            return [target, *(tables_of(query) if query is not None else ())]
        case Update(table=name) | Delete(table=name) | Describe(name=name) | Subscribe(view=name):
            return [name]
        case Drop(kind=kind, name=name):
            return [] if kind == "TOPIC" else [name]
        case Explain(view=view, query=query):
            return list(tables_of(query)) if query is not None else [view]
    return []


def _place(entry: Create) -> str:
    origin = entry.piece.text.of_token(entry.piece.tokens[0])
    return f"{origin.file}:{origin.line}"
