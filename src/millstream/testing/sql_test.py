"""Runs tests of flows written in SQL. One readable file holds the input, the clock and the expected rows.

    -- test: bids of one auction are counted together
    INSERT INTO bids VALUES (1, 150, '2026-01-01 00:00:01'), (1, 200, '2026-01-01 00:00:02');
    SELECT auction, n FROM hot;
    -- | auction | n |
    -- | 1       | 2 |

`docs/guide/shell.md` has the full syntax. `sql_test_file.py` parses the files; this module runs them: sources are fed
by the test, the clock moves only when a test advances it, and all epochs that are due run after each step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from millstream.errors import DefinitionError, DuplicateName, MillstreamError, UnknownName
from millstream.home import Home
from millstream.live import sources
from millstream.log.rows import from_dicts
from millstream.model.connector import Connector
from millstream.model.connectors import memory
from millstream.model.flow import Flow
from millstream.model.reserved import SHOWN_OP, free_name
from millstream.model.streams.stream import Stream
from millstream.model.types.schema import Schema
from millstream.model.types.values import python_values
from millstream.plan.planner import plan
from millstream.sql.bind.binder import Binder
from millstream.sql.catalog import Catalog, schema_of
from millstream.sql.parse import statement_parser
from millstream.sql.parse.script import StatementText
from millstream.sql.parse.statement_values import (
    Ask,
    Create,
    CreateFunction,
    CreateSink,
    CreateSource,
    CreateTable,
    CreateView,
    Insert,
    Place,
    Statement,
)
from millstream.testing.script import Script
from millstream.testing.sql_test_file import Case, Step, TestFile, read_flows
from millstream.testing.sql_test_rows import difference, literal_rows

MakeScript = Callable[..., Script]
"""Creates the script of a flow in a directory, with the clock at a start time."""


@dataclass(frozen=True)
class CaseOutcome:
    """The outcome of one test."""

    case: Case
    seconds: float
    failure: str = ""
    """The failure message, in several lines; empty when the test passed."""

    @property
    def passed(self) -> bool:
        """Whether the test passed."""
        return not self.failure


def play_all(
    files: Iterable[TestFile], folder: Path, *, wanted: str = "", script: MakeScript = Script
) -> Iterator[CaseOutcome]:
    """Run the tests whose name contains `wanted`, each in its own home inside `folder`."""
    number = 0
    for file in files:
        flows: Sequence[StatementText] | None = None
        for case in file.cases:
            if wanted.lower() not in case.name.lower():
                continue
            number += 1
            since = time.perf_counter()
            failure = ""
            try:
                flows = read_flows(file) if flows is None else flows
                with _Play(file, flows, folder / f"test-{number}", script) as play:
                    play.all(case.steps)
            except AssertionError as error:
                failure = str(error)
            except MillstreamError as error:
                failure = f"not expected: {error}"
            yield CaseOutcome(case, time.perf_counter() - since, failure)


class FedFlow(Flow):
    """A flow whose sources are fed by the test, whatever they read otherwise."""

    def source(self, name: str, connector: Connector, **options: Any) -> Stream:
        """Declare a source with all its properties except where it reads from."""
        if options.get("schema") is None:
            options["schema"] = connector.known_schema
        return super().source(name, memory(), **options)


class _Play:
    """One test while it runs."""

    def __init__(self, file: TestFile, flows: Sequence[StatementText], folder: Path, script: MakeScript) -> None:
        self.file, self.folder, self.make = file, folder, script
        self.catalog = Catalog()
        self.tables: dict[str, list[dict[str, Any]]] = {}
        self.flow = FedFlow("tested")
        self.binder: Binder | None = None
        """Has bound all views and sinks of the catalog; None before the first one, and when that has to be repeated."""
        self.ended: set[str] = set()
        self.script: Script | None = None
        self._stack = ExitStack()
        later: list[Statement] = []
        for piece in flows:
            statement = statement_parser.statement(piece, functions=self.catalog.functions)
            with piece.text.at(piece.tokens[0]):
                if isinstance(statement, Create):
                    self._define(statement)
                elif isinstance(statement, Insert) and isinstance(self.catalog.get(statement.target), CreateTable):
                    later.append(statement)
        for statement in later:
            assert isinstance(statement, Insert)
            self._insert(statement)

    def __enter__(self) -> _Play:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def all(self, steps: Sequence[Step]) -> None:
        """Run the steps in order. The first step that fails ends the test."""
        for step in steps:
            try:
                self._one(step)
            except AssertionError as error:
                raise AssertionError(f"line {step.line}: {error}") from None

    def _one(self, step: Step) -> None:
        try:
            actual = self._does(step)
        except MillstreamError as error:
            if not step.error:
                raise
            if step.error.lower() not in str(error).lower():
                raise AssertionError(f"the error is another one\nexpected: {step.error}\nfound: {error}") from None
            return
        if step.error:
            raise AssertionError(f"there was no error\nexpected: {step.error}")
        if step.expected is not None:
            columns, rows = actual
            wrong = difference(step.expected, columns, rows, ordered=step.ordered)
            if wrong:
                raise AssertionError(f"{step.title}: not as expected\n{wrong}")

    def _does(self, step: Step) -> tuple[list[str], list[list[Any]]]:
        """Execute a step and return the rows that it inspects, if any."""
        if step.kind == "sql":
            assert step.piece is not None
            return self._sql(step.piece)
        script = self._started()
        if step.kind == "advance":
            script.advance(step.text)
        elif step.kind == "end":
            for name in [self._spelled(step.text)] if step.text else [s.name for s in self.flow.sources]:
                script.end(name)
                self.ended.add(name)
        elif step.kind == "changes":
            changes = script.changes(self._view(step.text))
            columns = self._columns(step.text)
            kind = free_name(SHOWN_OP, columns)
            return _as_table([{kind: op, **row} for op, row in changes], [kind, *columns])
        elif step.kind == "records":
            return _as_table(script.written(step.text), [])
        script.tick()
        return [], []

    # ------------------------------------------------------------ statements

    def _sql(self, piece: StatementText) -> tuple[list[str], list[list[Any]]]:
        statement = statement_parser.statement(piece, functions=self.catalog.functions)
        with piece.text.at(piece.tokens[0]):
            if isinstance(statement, Create):
                if self.script is not None:
                    raise DefinitionError("definitions come before the first record")
                self._define(statement)
            elif isinstance(statement, Insert):
                self._insert(statement)
            elif isinstance(statement, Ask):
                table = self._started().home.query(piece.sql).to_arrow()
                columns = [python_values(c) for c in table.columns]
                return list(table.column_names), [list(r) for r in zip(*columns, strict=True)]
            else:
                raise DefinitionError(
                    "this statement is not allowed in a test", hint="a test has INSERT, SELECT and CREATE"
                )
        return [], []

    def _define(self, entry: Create) -> None:
        """Add a definition; refuses one that does not work."""
        self.catalog.check_free(entry)
        if isinstance(entry, CreateSink) and entry.place.kind != "LOG":
            entry = replace(entry, place=Place("LOG", (entry.name,)))  # a test writes nothing outside its home
        if self.catalog.get(entry.name) is not None and not entry.or_replace:
            if entry.if_not_exists:
                return
            raise DuplicateName(f"`{entry.name}` is defined already", hint=f"CREATE OR REPLACE ... {entry.name}")
        trial = self.catalog.copy()
        trial.add(entry)
        if isinstance(entry, CreateFunction):
            trial.functions[entry.name.lower()] = sources.function(entry)
        if self.catalog.get(entry.name) is not None:
            self.binder = None  # what was bound to the entry that it replaces
        if isinstance(entry, CreateView | CreateSink):
            self._bind(trial, entry)
        else:
            Binder(FedFlow("trial"), trial, sources.GENERATORS).definition(entry)
        if isinstance(entry, CreateTable):
            self.tables[entry.name] = []
        self.catalog = trial

    def _bind(self, catalog: Catalog, *entries: Create) -> None:
        """Bind new entries of a catalog, or all of its views and sinks if they have to be bound again."""
        binder, self.binder = self.binder, None  # without one if it fails: it may have bound a part
        if binder is None:
            self.flow = FedFlow("tested")
            binder = Binder(self.flow, catalog, sources.GENERATORS)
            entries = tuple(e for e in catalog.entries.values() if isinstance(e, CreateView | CreateSink))
        else:
            binder.renew(catalog)
        for entry in entries:
            binder.definition(entry)
        if self.flow.views:
            plan(self.flow)
        self.binder = binder

    def _insert(self, statement: Insert) -> None:
        entry = self.catalog.get(statement.target)
        if not isinstance(entry, CreateSource | CreateTable):
            raise UnknownName(
                f"there is no source or table `{statement.target}` to insert into",
                detail="there are: " + ", ".join(e.name for e in self.catalog.entries.values()),
            )
        if statement.query is not None:
            raise DefinitionError("a test inserts rows: INSERT INTO ... VALUES (...)")
        if isinstance(entry, CreateTable):
            schema = schema_of(self.catalog, entry)
            assert schema is not None
            self.tables[entry.name] += literal_rows(statement, schema)
            if self.script is not None:
                self.script.home.put_table(entry.name, self._table(entry.name))
            return
        script = self._started()
        source = next((s for s in self.flow.sources if s.name == entry.name), None)
        if source is None:
            raise DefinitionError(f"no view reads the source `{entry.name}`")
        if source.name in self.ended:
            raise DefinitionError(f"the source `{source.name}` has ended")
        script.send(source.name, *literal_rows(statement, source.schema))
        script.tick()

    # ------------------------------------------------------------ the flow

    def _started(self) -> Script:
        """Return the script. It is created on first use, so that a test of definitions alone runs nothing."""
        if self.script is None:
            if self.binder is None:
                self._bind(self.catalog)
            if self.tables:
                with Home(self.folder) as home:
                    for name in self.tables:
                        home.put_table(name, self._table(name))
            self.script = self._stack.enter_context(self.make(self.flow, self.folder, start=self.file.start))
        return self.script

    def _table(self, name: str) -> Any:
        entry = self.catalog.get(name)
        assert isinstance(entry, CreateTable)
        schema = schema_of(self.catalog, entry)
        assert isinstance(schema, Schema)
        return pa.Table.from_batches([from_dicts(self.tables[name], schema.to_arrow())])

    def _spelled(self, name: str) -> str:
        return next((s.name for s in self.flow.sources if s.name.lower() == name.lower()), name)

    def _view(self, name: str) -> str:
        entry = self.catalog.get(name)
        if not isinstance(entry, CreateView):
            raise self.catalog.missing(name, "view")
        return entry.name

    def _columns(self, view: str) -> list[str]:
        return self._started().home.query(f"SELECT * FROM `{self._view(view)}` LIMIT 0").columns


def _as_table(rows: Sequence[dict[str, Any]], columns: list[str]) -> tuple[list[str], list[list[Any]]]:
    names = list(dict.fromkeys([*columns, *(c for r in rows for c in r)]))
    return names, [[r.get(c) for c in names] for r in rows]
