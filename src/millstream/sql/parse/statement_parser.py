"""Statements: from text to values. What is a query goes to `queries.py`, what follows one to `view_clauses.py`."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokens import TokenType  # type: ignore[attr-defined]

from millstream.errors import DefinitionError, MillstreamError, SchemaError, StatementRefused, Unsupported
from millstream.model.connector_declarations import SINK, SOURCE, spellings
from millstream.model.reserved import OF, check_user_columns
from millstream.model.types.duration import Duration
from millstream.model.types.schema import Schema
from millstream.sql.dialects import type_names
from millstream.sql.dialects.other_databases import CONSTRAINTS, INSTEAD, REFUSED
from millstream.sql.parse import dml, literals, queries, view_clauses
from millstream.sql.parse.column_clauses import clauses_begin, key_begins, without_lengths
from millstream.sql.parse.column_clauses import read as read_clauses
from millstream.sql.parse.connector_call import column_names, read_place
from millstream.sql.parse.cursor import Cursor
from millstream.sql.parse.script import StatementText, split
from millstream.sql.parse.statement_values import (
    Ask,
    Clauses,
    ColumnDef,
    CreateFunction,
    CreateSink,
    CreateSource,
    CreateTable,
    CreateView,
    Describe,
    Drop,
    Explain,
    Insert,
    OnConflict,
    Pause,
    SetOption,
    Show,
    Statement,
    Subscribe,
)
from millstream.sql.parse.text import Text, not_too_deep, word

_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
_DEEPEST_TYPE = 100
KINDS = ("SOURCE", "TABLE", "VIEW", "SINK", "FUNCTION")
SHOWN = ("SOURCES", "VIEWS", "SINKS", "FLOWS", "TABLES", "FUNCTIONS", "TOPICS")
PLACES = (*spellings(SOURCE), *spellings(SINK))
FIRST = ("SELECT", "CREATE", "INSERT", "UPSERT", "UPDATE", "DELETE", "MERGE", "COPY", "SUBSCRIBE", "EXPLAIN",
         "DESCRIBE", "SHOW", "DROP", "PAUSE", "RESUME", "SET", "WITH", "VALUES")  # fmt: skip


def read(text: Text, *, functions: Container[str] = ()) -> list[Statement]:
    """The statements of a text. The first mistake is raised."""
    return [statement(p, functions=functions) for p in split(text)]


def statement(piece: StatementText, *, functions: Container[str] = (), kept: bool = False) -> Statement:
    """The one statement of a piece. With `kept` it is a definition of the catalog, whose columns an older version may
    have taken with clauses that are refused today: these stay without effect.
    """
    for token in piece.tokens:
        if token.token_type is not TokenType.STRING and token.text.lower().startswith(OF):
            with piece.text.at(token):
                check_user_columns([token.text])
    with not_too_deep(piece.text, piece.tokens[0]):
        return _Reading(piece, functions, kept=kept).statement()


class _Reading:
    def __init__(self, piece: StatementText, functions: Container[str], *, kept: bool = False) -> None:
        self.piece, self.functions, self.kept = piece, functions, kept
        self.cursor = Cursor(piece)

    def statement(self) -> Statement:
        c = self.cursor
        first = word(c.token)
        if first in ("SELECT", "WITH", "VALUES", "("):
            return Ask(self.piece, self._query(c.end))
        parse: dict[str, Callable[[], Statement]] = {
            "CREATE": self._create,
            "INSERT": self._insert,
            "UPSERT": self._insert,
            "UPDATE": lambda: self._whole(dml.update_or_delete(self.piece, exp.Update, self.functions)),
            "DELETE": lambda: self._whole(dml.update_or_delete(self.piece, exp.Delete, self.functions)),
            "MERGE": lambda: self._whole(dml.merge(self.piece, self.functions)),
            "COPY": lambda: dml.copy(self.cursor),
            "SUBSCRIBE": self._subscribe,
            "EXPLAIN": self._explain,
            "DESCRIBE": self._describe,
            "DESC": self._describe,
            "SHOW": self._show,
            "DROP": self._drop,
            "PAUSE": self._pause,
            "RESUME": self._pause,
            "SET": self._set,
        }
        if first not in parse:
            if first in REFUSED:
                raise StatementRefused(
                    f"{first} is not a Millstream statement",
                    hint=INSTEAD.get(first, "docs/guide/sql.md lists the statements"),
                    origin=c.text.of_token(self.piece.tokens[0]),
                )
            if first in INSTEAD:
                c.fail("a statement is expected here", hint=INSTEAD[first])
            c.one_of(FIRST, "a statement")
        parsed = parse[first]()
        c.finish()
        return parsed

    # ------------------------------------------------------------ definitions

    def _create(self) -> Statement:
        c = self.cursor
        c.expect("CREATE")
        replace = c.accept("OR", "REPLACE")
        c.accept("LIVE") or c.accept("MATERIALIZED")
        kind = c.one_of(KINDS, "what to create")
        skip = c.accept("IF", "NOT", "EXISTS")
        name = c.name(kind.lower())
        common: dict[str, Any] = {"or_replace": replace, "if_not_exists": skip}
        if kind == "SOURCE":
            return self._source(name, common)
        if kind == "TABLE":
            columns, watermark, key = self._columns(c.bracketed())
            if watermark is not None and not self.kept:
                raise Unsupported(
                    f"a table has no WATERMARK, as `{name}` would",
                    hint="only the records of a source have an event time: CREATE SOURCE ... FROM LOG(...)",
                    origin=c.text.of_token(self.piece.tokens[0]),
                )
            return CreateTable(self.piece, name, columns=columns, key=key, **common)
        if kind == "VIEW":
            options = self._options() if c.accept("WITH") else {}
            c.expect("AS", hint=f"CREATE VIEW {name} AS SELECT ...")
            query, view_clauses = self._query_with_clauses()
            return CreateView(self.piece, name, query=query, clauses=view_clauses, options=options, **common)
        if kind == "FUNCTION":
            c.expect("AS", hint=f"CREATE FUNCTION {name} AS 'module:function' RETURNS BIGINT")
            target = c.string("module:function")
            if not _FUNCTION.fullmatch(target):
                c.at -= 1
                c.fail(f"`{target[:60]}` does not name a Python function", hint="AS 'module:function'")
            returns = ""
            if c.accept("RETURNS"):
                returns = self._type(c, c.until_comma(), "what it gives")
            return CreateFunction(self.piece, name, target=target, returns=returns, **common)
        return self._sink(name, common)

    def _source(self, name: str, common: dict[str, Any]) -> CreateSource:
        c = self.cursor
        columns: tuple[ColumnDef, ...] = ()
        watermark: tuple[str, Duration] | None = None
        key: tuple[str, ...] = ()
        if c.peek("("):
            columns, watermark, key = self._columns(c.bracketed())
            time = "" if watermark is None else watermark[0].lower()
            required = next((n.name for n in columns if n.required and n.name.lower() != time), None)
            if required is not None and not self.kept:
                raise Unsupported(
                    f"NOT NULL of `{required}` is not supported: only the event time of a source can have it",
                    hint=f"leave it out, and let views select the records that match: WHERE {required} IS NOT NULL",
                    origin=c.text.of_token(self.piece.tokens[0]),
                )
        c.expect("FROM", hint="FROM FILES('data/bids', format = 'json'), LOG('topic') or GENERATOR('nexmark', 'bid')")
        place = read_place(c, SOURCE, kept=self.kept)
        options = self._options() if c.accept("WITH") else {}
        return CreateSource(
            self.piece, name, columns=columns, watermark=watermark, key=key, place=place, options=options, **common
        )

    def _sink(self, name: str, common: dict[str, Any]) -> CreateSink:
        c = self.cursor
        if c.accept("FROM"):
            view = c.name("view")
            c.expect("INTO", hint="INTO LOG('topic'), FILES('folder', format = 'json') or CONSOLE")
            return CreateSink(self.piece, name, view=view, place=read_place(c, SINK, kept=self.kept), **common)
        c.expect("INTO", hint=f"CREATE SINK {name} FROM view INTO LOG('topic')")
        place = read_place(c, SINK, kept=self.kept)
        if not c.accept("AS"):
            return CreateSink(self.piece, name, place=place, **common)
        query, view_clauses = self._query_with_clauses()
        return CreateSink(self.piece, name, query=query, clauses=view_clauses, place=place, **common)

    def _refuse_key(self, c: Cursor) -> None:
        """Refuse the constraints of a table that are no columns."""
        for constraint, hint in CONSTRAINTS.items():
            brackets = ("(",) if constraint in ("CHECK", "UNIQUE") else ()  # else it is the name of a column
            if c.peek(constraint, *brackets) or c.peek(*constraint.split(), *brackets):
                c.fail(f"{constraint} is not supported", hint=hint)

    def _columns(self, c: Cursor) -> tuple[tuple[ColumnDef, ...], tuple[str, Duration] | None, tuple[str, ...]]:
        columns: list[ColumnDef] = []
        watermark: tuple[str, Duration] | None = None
        key: tuple[str, ...] = ()
        while not c.done:
            if c.accept("WATERMARK"):
                if watermark is not None:
                    c.fail("a source has one WATERMARK")
                watermark = self._watermark(c)
            elif key_begins(c):
                if key and not self.kept:
                    c.fail("the PRIMARY KEY is specified twice", hint="PRIMARY KEY (a, b) for a key of two columns")
                inner = c.bracketed()
                key = tuple(column_names(inner))
                self._not_enforced(c)
            else:
                self._refuse_key(c)
                column, is_key = self._column(c)
                columns.append(column)
                if is_key and key and not self.kept:
                    c.fail("the PRIMARY KEY is specified twice", hint="PRIMARY KEY (a, b) for a key of two columns")
                key = (*key, column.name) if is_key else key
            if not c.done:
                c.expect(",")
        if not columns:
            c.fail("at least one column is expected here", hint="(id BIGINT, name STRING)")
        return tuple(columns), watermark, key

    def _column(self, c: Cursor) -> tuple[ColumnDef, bool]:
        name = c.name("column")
        if c.accept("AS"):
            tokens = c.until_comma()
            if not tokens:
                c.fail("an expression is expected here")
            return ColumnDef(name, "", self._expression(tokens)), False
        first = c.at
        tokens = c.until_comma()
        end = clauses_begin(tokens)
        kind = self._type(c, tokens[:end], f"`{name}`")
        column_clauses = read_clauses(Cursor(self.piece, first=first + end, last=first + len(tokens)), kept=self.kept)
        return ColumnDef(name, kind, required=column_clauses.required), column_clauses.is_key

    def _watermark(self, c: Cursor) -> tuple[str, Duration]:
        c.expect("FOR", hint="WATERMARK FOR ts AS ts - INTERVAL '4' SECOND")
        column = c.name("column")
        c.expect("AS")
        if c.name("column") != column:
            c.at -= 1
            c.fail(f"the watermark is `{column}` minus an interval", hint=f"{column} - INTERVAL '4' SECOND")
        if not c.accept("-"):
            return column, Duration(0)
        return column, c.interval("the lateness")

    def _options(self) -> Mapping[str, Any]:
        inner = self.cursor.bracketed()
        options: dict[str, Any] = {}
        while not inner.done:
            token = inner.take()
            name = str(token.text).lower()
            if name in options and not self.kept:
                inner.at -= 1
                inner.fail(f"the option `{name}` is specified twice")
            inner.expect("=", hint="WITH (name = value, ...)")
            options[name] = inner.value(name)
            if not inner.done:
                inner.expect(",")
        return options

    # ------------------------------------------------------------ rows

    def _insert(self) -> Statement:
        c = self.cursor
        conflict: OnConflict | None = None
        if c.accept("UPSERT"):
            conflict = OnConflict("upsert")
        else:
            c.expect("INSERT", hint="INSERT INTO name VALUES (...)")
            if c.accept("OR"):
                action = c.one_of(("REPLACE", "IGNORE"), "what to do about an existing key")
                conflict = OnConflict("replace" if action == "REPLACE" else "nothing")
        c.expect("INTO", hint="INSERT INTO name VALUES (...)")
        c.accept("TABLE")
        target = c.name("table, topic or sink")
        alias = c.name("alias") if c.accept("AS") else ""
        columns: tuple[str, ...] = ()
        if c.peek("(") and not any(c.peek("(", w) for w in ("SELECT", "WITH", "(")):
            columns = tuple(column_names(c.bracketed()))
        rows: tuple[tuple[Any, ...], ...] = ()
        query = None
        if c.accept("VALUES"):
            rows = tuple(self._rows(c))
        else:
            query = self._query(dml.conflict_begins(c), dml.with_files(self.functions))
            dml.check_files(self.piece, query)
        said_more = dml.on_conflict(c, self._expression)
        if said_more is not None and conflict is not None:
            c.at -= 1
            c.fail("ON CONFLICT after OR REPLACE, OR IGNORE or UPSERT specifies it twice")
        return Insert(self.piece, target, columns, query, rows, alias, said_more or conflict)

    def _rows(self, c: Cursor) -> Iterator[tuple[Any, ...]]:
        while True:
            plain = literals.plain_row(self.piece.tokens, c.at, c.end)
            if plain is None:
                yield self._row(c.bracketed())
            else:
                row, c.at = plain
                yield row
            if not c.accept(","):
                return

    def _row(self, c: Cursor) -> tuple[Any, ...]:
        values: list[Any] = []
        while not c.done:
            tokens = c.until_comma()
            if not tokens:
                c.fail("a value is expected here")
            plain = literals.plain(tokens)
            values.append(self._expression(tokens) if plain is literals.NOT_LITERAL else plain)
            if not c.done:
                c.expect(",")
        return tuple(values)

    def _whole(self, statement: Statement) -> Statement:
        """A statement that was read to its end by other means than the cursor."""
        self.cursor.at = self.cursor.end
        return statement

    # ------------------------------------------------------------ queries and commands

    def _subscribe(self) -> Statement:
        c = self.cursor
        c.expect("SUBSCRIBE")
        c.accept("TO")
        view = c.name("view", system=True)
        snapshot = c.accept("WITH", "SNAPSHOT")
        epoch, offsets = None, None
        if c.accept("AS", "OF"):
            if c.accept("OFFSETS"):
                c.expect("(")
                offsets = [c.whole("an offset")]
                while c.accept(","):
                    offsets.append(c.whole("an offset"))
                c.expect(")")
            else:
                c.expect("EPOCH", hint="AS OF EPOCH 7 for a view, AS OF OFFSETS (12, 15) for a topic")
                epoch = c.whole("the epoch")
        return Subscribe(
            self.piece, view, snapshot=snapshot, epoch=epoch, offsets=None if offsets is None else tuple(offsets)
        )

    def _explain(self) -> Statement:
        c = self.cursor
        c.expect("EXPLAIN")
        analyze = c.accept("ANALYZE")
        if c.accept("VIEW"):
            return Explain(self.piece, analyze, view=c.name("view"))
        if word(c.token) not in ("SELECT", "WITH", "("):
            return Explain(self.piece, analyze, view=c.name("view"))
        query, view_clauses = self._query_with_clauses()
        return Explain(self.piece, analyze, query=query, clauses=view_clauses)

    def _describe(self) -> Statement:
        c = self.cursor
        c.take()
        c.accept("TABLE") or c.accept("VIEW") or c.accept("SOURCE")
        return Describe(self.piece, c.name("view", system=True))

    def _show(self) -> Statement:
        self.cursor.expect("SHOW")
        return Show(self.piece, self.cursor.one_of(SHOWN, "what to show"))

    def _drop(self) -> Statement:
        c = self.cursor
        c.expect("DROP")
        kind = c.one_of((*KINDS, "TOPIC"), "what to drop")
        missing = c.accept("IF", "EXISTS")
        name = c.name(kind.lower())
        return Drop(self.piece, kind, name, if_exists=missing, cascade=c.accept("CASCADE"))

    def _pause(self) -> Statement:
        c = self.cursor
        resume = word(c.take()) == "RESUME"
        c.accept("FLOW") or c.accept("VIEW")
        return Pause(self.piece, c.name("flow"), resume=resume)

    def _set(self) -> Statement:
        c = self.cursor
        c.expect("SET")
        if c.done:
            return SetOption(self.piece)
        name = c.name("option").lower()
        if c.token is None:
            return SetOption(self.piece, name)
        if not c.accept("="):
            c.expect("TO")
        return SetOption(self.piece, name, c.value(name))

    # ------------------------------------------------------------ parts

    def _query_with_clauses(self) -> tuple[exp.Query, Clauses]:
        c = self.cursor
        place = view_clauses.begin(c)
        query = self._query(place)
        return query, view_clauses.read(c, kept=self.kept)

    def _query(self, end: int, functions: Container[str] | None = None) -> exp.Query:
        c = self.cursor
        tokens = self.piece.tokens[c.at : end]
        if not tokens:
            c.fail("a SELECT is expected here", hint="CREATE VIEW name AS SELECT ... FROM source")
        c.at = end
        return queries.parse(c.text, tokens, functions=self.functions if functions is None else functions)

    def _expression(self, tokens: tuple[Any, ...]) -> exp.Expr:
        tree = queries.parsed(self.cursor.text, tokens)
        if isinstance(tree, exp.Query | exp.DDL | exp.DML | exp.Command):
            raise DefinitionError("an expression is expected here", origin=self.cursor.text.of_token(tokens[0]))
        queries.check(self.cursor.text, tree, tokens[0], functions=self.functions)
        return tree

    def _not_enforced(self, c: Cursor) -> None:
        c.accept("NOT", "ENFORCED")

    def _type(self, c: Cursor, tokens: tuple[Any, ...], what: str) -> str:
        """A type as it was written, once it was found to be one."""
        if not tokens:
            c.fail(f"the type of {what} is expected here", hint="e.g. BIGINT, DECIMAL(10, 2) or ARRAY<STRING>")
        spelling = type_names.spelled(self.piece.text.sql, tokens)
        if spelling.count("<") + spelling.count("(") > _DEEPEST_TYPE:
            c.fail(f"the type of {what} has more than {_DEEPEST_TYPE} brackets")
        try:
            sqlglot.parse_one(spelling, into=exp.DataType, dialect="spark")  # a type, and nothing after it
            spelling = without_lengths(spelling) if self.kept else spelling
            (field,) = Schema.parse(f"x {spelling}")
        except Unsupported as error:
            error.origin = c.text.origin(tokens[0].start, tokens[-1].end)
            raise
        except (SqlglotError, MillstreamError, ValueError):
            field = None
        if field is None or field.name != "x" or field.type is None:
            origin = c.text.origin(tokens[0].start, tokens[-1].end)
            raise SchemaError(f"`{spelling[:60]}` is not a type", hint=type_names.instead_of(spelling), origin=origin)
        return spelling
