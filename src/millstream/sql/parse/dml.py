"""Parses statements that change rows of stored tables: ON CONFLICT, MERGE, UPDATE and DELETE, COPY."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Any, NoReturn

from sqlglot import exp
from sqlglot.tokens import Token  # type: ignore[attr-defined]

from millstream.errors import DefinitionError, StatementRefused, Unsupported
from millstream.sql.parse import queries
from millstream.sql.parse.connector_call import column_names
from millstream.sql.parse.cursor import Cursor
from millstream.sql.parse.script import StatementText
from millstream.sql.parse.statement_values import (
    Assignments,
    Copy,
    Delete,
    Merge,
    OnConflict,
    Place,
    Statement,
    Update,
    When,
)
from millstream.sql.parse.text import Text, plain_value, word

_MERGE_INSTEAD = "MERGE INTO table USING source ON condition WHEN MATCHED THEN UPDATE SET ... | DELETE"
_NO_RETURNING = "SELECT the rows afterwards"
_OTHER = (exp.Query, exp.Star, exp.Window, exp.AggFunc, exp.UDTF)
_Expression = Callable[[tuple[Any, ...]], exp.Expr]


# ---------------------------------------------------------------- ON CONFLICT


def conflict_begins(c: Cursor) -> int:
    """The position of ON CONFLICT (or RETURNING) after the query of an INSERT; the end if there is none."""
    depth, begin = 0, c.end
    for at in range(c.at, c.end):
        keyword = word(c.piece.tokens[at])
        depth += (keyword == "(") - (keyword == ")")
        if depth or keyword not in ("ON", "RETURNING"):
            continue
        after = Cursor(c.piece, first=at, last=c.end)
        if keyword == "RETURNING" or (
            after.accept("ON", "CONFLICT")
            and (after.peek("DO") or after.peek("ON", "CONSTRAINT") or (after.peek("(") and _target_then_do(after)))
        ):
            begin = min(begin, at)
    return begin


def _target_then_do(c: Cursor) -> bool:
    c.bracketed()
    return c.peek("DO") or c.peek("WHERE")


def on_conflict(c: Cursor, expression: _Expression) -> OnConflict | None:
    """``ON CONFLICT [(columns)] DO NOTHING | DO UPDATE SET column = value, ... [WHERE condition]``; None if there is
    none.
    """
    conflict: OnConflict | None = None
    if c.accept("ON", "CONFLICT"):
        columns: tuple[str, ...] = ()
        if c.peek("ON", "CONSTRAINT"):
            _refuse(c, "ON CONFLICT ON CONSTRAINT is not supported", "name the key columns: ON CONFLICT (id)")
        if c.peek("("):
            inner = c.bracketed()
            columns = tuple(column_names(inner))
        if c.peek("WHERE"):
            _refuse(c, "a condition before DO is not supported", "a key has no condition: ON CONFLICT (id) DO ...")
        c.expect("DO", hint="ON CONFLICT (id) DO NOTHING, or DO UPDATE SET column = value")
        if c.accept("NOTHING"):
            conflict = OnConflict("nothing", columns)
        else:
            c.expect("UPDATE", "SET", hint="DO NOTHING, or DO UPDATE SET column = value")
            conflict = _set(c, columns, expression)
    if c.peek("RETURNING"):
        _refuse(c, "RETURNING is not supported", _NO_RETURNING)
    return conflict


def _set(c: Cursor, columns: tuple[str, ...], expression: _Expression) -> OnConflict:
    values: list[tuple[str, exp.Expr]] = []
    end = _top_level(c, ("WHERE", "RETURNING"))
    part = Cursor(c.piece, first=c.at, last=end)
    while True:
        if part.peek("("):
            _refuse(part, "SET (a, b) = (x, y) is not supported", "SET a = x, b = y")
        name = part.name("column")
        if part.accept("."):
            name = part.name("column")
        part.expect("=", hint="SET column = value, ...")
        first = part.at
        tokens = part.until_comma()
        if not tokens:
            part.fail("a value is expected here")
        values.append((name, _row_value(c.text, expression(tokens), c.piece.tokens[first])))
        if not part.accept(","):
            break
    part.finish()
    c.at = end
    where = None
    if c.accept("WHERE"):
        end = _top_level(c, ("RETURNING",))
        tokens = c.piece.tokens[c.at : end]
        if not tokens:
            c.fail("a condition is expected here")
        where = _row_value(c.text, expression(tokens), tokens[0])
        c.at = end
    return OnConflict("update", columns, tuple(values), where)


def _top_level(c: Cursor, words: tuple[str, ...]) -> int:
    """The position of the first of some words outside of parentheses; the end if there is none."""
    depth = 0
    for at in range(c.at, c.end):
        keyword = word(c.piece.tokens[at])
        depth += (keyword == "(") - (keyword == ")")
        if not depth and keyword in words:
            return at
    return c.end


# ---------------------------------------------------------------- UPDATE and DELETE


def update_or_delete(piece: StatementText, kind: type[exp.Expr], functions: Container[str]) -> Statement:
    """An UPDATE or DELETE: of rows that its WHERE selects, or of rows that match those of another relation."""
    text, first = piece.text, piece.tokens[0]
    tree = queries.parsed(text, piece.tokens)
    if not isinstance(tree, kind) or not isinstance(tree.this, exp.Table):
        raise DefinitionError(
            "the statement cannot be parsed",
            hint="UPDATE name SET a = 1 WHERE condition; DELETE FROM name WHERE condition",
            origin=text.of_token(first),
        )
    other = tree.args.get("from_") if isinstance(tree, exp.Update) else tree.args.get("using")
    if not other:
        name = queries.only_rows_of(text, tree, first)
        if isinstance(tree, exp.Update):
            return Update(piece, name, tree)
        assert isinstance(tree, exp.Delete)
        return Delete(piece, name, tree)
    relations = [other.this] if isinstance(other, exp.From) else list(other)
    known = ("this", "expressions", "where", "from_") if isinstance(tree, exp.Update) else ("this", "where", "using")
    more = next((a for a, v in tree.args.items() if v and a not in known), None)
    if len(relations) > 1 or relations[0].args.get("joins") or more is not None:
        extra = "RETURNING" if more == "returning" else "more than one relation"
        raise Unsupported(
            f"{queries.kind(tree)} with {extra} is not supported",
            hint=_NO_RETURNING if more == "returning" else _MERGE_INSTEAD,
            origin=text.of_token(first),
        )
    where = tree.args.get("where")
    parts = _Parts(piece, functions)
    action = "update" if isinstance(tree, exp.Update) else "delete"
    values = parts.assignments(tree.expressions) if action == "update" else ()
    return Merge(
        piece,
        *parts.target(tree.this),
        *parts.source(relations[0], tree.args.get("with_")),
        on=parts.value(where.this) if where is not None else exp.true(),
        whens=(When("matched", action, values=values),),
        what=queries.kind(tree),
    )


# ---------------------------------------------------------------- MERGE


def merge(piece: StatementText, functions: Container[str]) -> Merge:
    """``MERGE INTO target USING source ON condition WHEN ...``."""
    text, first = piece.text, piece.tokens[0]
    tree = queries.parsed(text, piece.tokens)
    if not isinstance(tree, exp.Merge) or not isinstance(tree.this, exp.Table) or not tree.args.get("whens"):
        raise DefinitionError(
            "the statement cannot be parsed",
            hint=_MERGE_INSTEAD + " WHEN NOT MATCHED THEN INSERT ...",
            origin=text.of_token(first),
        )
    if tree.args.get("returning"):
        raise Unsupported("RETURNING is not supported", hint=_NO_RETURNING, origin=text.of_token(first))
    parts = _Parts(piece, functions)
    if tree.args.get("using_cond") or tree.args.get("on") is None:
        raise Unsupported(
            "MERGE needs ON condition", hint="USING source ON target.id = source.id", origin=text.of_token(first)
        )
    whens = tuple(parts.when(w) for w in tree.args["whens"].expressions)
    for kind in ("matched", "not matched", "not matched by source"):
        mine = [w for w in whens if w.kind == kind]
        if any(w.condition is None for w in mine[:-1]):
            raise DefinitionError(
                f"a WHEN {kind.upper()} after one without a condition can never apply",
                hint="WHEN ... AND condition THEN, and the one without a condition last",
                origin=text.of_token(first),
            )
    return Merge(
        piece,
        *parts.target(tree.this),
        *parts.source(tree.args["using"], tree.args.get("with_")),
        on=parts.value(tree.args["on"]),
        whens=whens,
    )


class _Parts:
    """The checked parts of a MERGE."""

    def __init__(self, piece: StatementText, functions: Container[str]) -> None:
        self.piece, self.text, self.first, self.functions = piece, piece.text, piece.tokens[0], functions

    def target(self, table: exp.Table) -> tuple[str, str]:
        """The table whose rows change, and its alias in the statement."""
        alias = table.args.get("alias")
        more = any(v for a, v in table.args.items() if a not in ("this", "alias"))
        named = alias is None or (isinstance(alias.this, exp.Identifier) and not alias.columns)
        if more or not isinstance(table.this, exp.Identifier) or not named:
            raise Unsupported(
                "the target is the name of a stored table, and an alias", origin=self.text.of_token(self.first)
            )
        return table.name, table.alias or table.name

    def source(self, using: exp.Expr, ctes: exp.Expr | None) -> tuple[exp.Query, str]:
        """The rows to merge as a query, and their alias in the statement."""
        query = exp.select("*").from_(using.copy())
        if ctes is not None:
            query.set("with_", ctes.copy())
        queries.check(self.text, query, self.first, functions=with_files(self.functions))
        check_files(self.piece, query)
        return query, using.alias_or_name

    def when(self, clause: exp.Expr) -> When:
        """One WHEN clause."""
        kind = (
            "matched"
            if clause.args["matched"]
            else "not matched by source"
            if clause.args.get("source")
            else "not matched"
        )
        condition = clause.args.get("condition")
        predicate = None if condition is None else self.value(condition)
        then = clause.args["then"]
        action = then.name.upper() if isinstance(then, exp.Var) else queries.kind(then)
        fits = {"matched": ("UPDATE", "DELETE"), "not matched": ("INSERT",)}.get(kind, ("UPDATE", "DELETE"))
        if action == "DO NOTHING":
            return When(kind, "nothing", predicate)
        if action not in fits:
            raise DefinitionError(
                f"WHEN {kind.upper()} cannot {action}",
                hint=f"WHEN {kind.upper()} THEN {' or '.join(fits)} or DO NOTHING",
                origin=self.text.of_node(then) or self.text.of_token(self.first),
            )
        if action == "DELETE":
            return When(kind, "delete", predicate)
        if then.args.get("where") is not None:
            raise Unsupported(
                "WHERE after THEN", hint="WHEN MATCHED AND condition THEN", origin=self.text.of_token(self.first)
            )
        if action == "UPDATE":
            if any(isinstance(e, exp.Star) for e in then.expressions):
                if kind != "matched":
                    raise DefinitionError(
                        "SET * takes the values of the source, which has no row here",
                        hint="SET column = value, ...",
                        origin=self.text.of_token(self.first),
                    )
                return When(kind, "update", predicate, every=True)
            return When(kind, "update", predicate, self.assignments(then.expressions))
        return self._insert(kind, predicate, then)

    def _insert(self, kind: str, condition: exp.Expr | None, then: exp.Expr) -> When:
        if isinstance(then.this, exp.Star):
            return When(kind, "insert", condition, every=True)
        inserted_values = then.args.get("expression")
        values = (
            inserted_values.expressions
            if isinstance(inserted_values, exp.Tuple)
            else [inserted_values.this]
            if isinstance(inserted_values, exp.Paren)
            else []
        )
        named = then.this.expressions if isinstance(then.this, exp.Tuple) else [then.this] if then.this else []
        named = [n.this if isinstance(n, exp.Paren) else n for n in named]
        if not values or not all(isinstance(n, exp.Column | exp.Identifier) for n in named):
            raise DefinitionError(
                "INSERT (column, ...) VALUES (value, ...) is expected here", origin=self.text.of_token(self.first)
            )
        if named and len(named) != len(values):
            raise DefinitionError(f"{len(values)} values for {len(named)} columns", origin=self.text.of_node(then))
        names = [n.name for n in named] or [""] * len(values)
        return When(kind, "insert", condition, tuple((n, self.value(v)) for n, v in zip(names, values, strict=True)))

    def assignments(self, parts: Iterable[exp.Expr]) -> Assignments:
        """``column = value, ...``."""
        pairs = []
        for part in parts:
            target = part.this if isinstance(part, exp.EQ) else None
            if not isinstance(target, exp.Column):
                raise DefinitionError(
                    "SET column = value, ... is expected here",
                    origin=self.text.of_node(part) or self.text.of_token(self.first),
                )
            pairs.append((target.name, self.value(part.expression)))
        return tuple(pairs)

    def value(self, node: exp.Expr) -> exp.Expr:
        """An expression over columns of a single row."""
        queries.check(self.text, node, self.first, functions=self.functions)
        return _row_value(self.text, node, self.first)


def _row_value(text: Text, node: exp.Expr, first: Token) -> exp.Expr:
    """Reject anything but an expression over the columns of a row."""
    if isinstance(node, exp.Var | exp.Column) and node.name.upper() == "DEFAULT":
        raise Unsupported(
            "DEFAULT is not supported: columns have none",
            hint="NULL",
            origin=text.of_node(node) or text.of_token(first),
        )
    other = node.find(*_OTHER)
    if other is not None:
        raise Unsupported(
            "only columns of the two rows are allowed here",
            hint="compute it in the source: MERGE INTO table USING (SELECT ...) AS s ON ...",
            origin=text.of_node(other) or text.of_token(first),
        )
    return node


# ---------------------------------------------------------------- files


FILES = "files"
"""The function that represents the rows of files, in FROM of an INSERT and in USING of a MERGE."""


class with_files:
    """The functions that may be called, including FILES(...)."""

    def __init__(self, functions: Container[str]) -> None:
        self._functions = functions

    def __contains__(self, name: object) -> bool:
        return name == FILES or name in self._functions


def check_files(piece: StatementText, query: exp.Query) -> None:
    """Reject FILES(...) where it is not a relation."""
    for call in query.find_all(exp.Anonymous):
        if call.name.lower() == FILES and not isinstance(call.parent, exp.Table):
            raise StatementRefused(
                "FILES(...) can only be used in FROM",
                hint="SELECT ... FROM FILES('data.csv')",
                origin=piece.text.of_node(call),
            )


def place_of(call: exp.Anonymous) -> Place:
    """The arguments of FILES(...)."""
    arguments: list[Any] = []
    options: dict[str, Any] = {}
    for part in call.expressions:
        named = isinstance(part, exp.EQ | exp.Kwarg | exp.PropertyEQ)
        try:
            value = plain_value(part.expression if named else part)
        except ValueError:
            raise DefinitionError("FILES(...) takes literals", hint="FILES('data', format = 'csv')") from None
        if named and part.this.name.lower() in options:
            raise DefinitionError(f"the option `{part.this.name}` is specified twice")
        if named:
            options[part.this.name.lower()] = value
        else:
            arguments.append(value)
    return Place("FILES", tuple(arguments), options)


# ---------------------------------------------------------------- COPY


def copy(c: Cursor) -> Copy:
    """``COPY table [(columns)] FROM 'path' [[WITH] (FORMAT csv, HEADER, ...)]``."""
    c.expect("COPY")
    if c.peek("("):
        _refuse(
            c, "COPY (query) TO is not supported", "CREATE SINK name FROM view INTO FILES('folder', format = 'csv')"
        )
    c.accept("INTO")
    table = c.name("table")
    columns = tuple(column_names(c.bracketed())) if c.peek("(") else ()
    if c.peek("TO"):
        _refuse(c, "COPY ... TO is not supported", "CREATE SINK name FROM view INTO FILES('folder', format = 'csv')")
    c.expect("FROM", hint=f"COPY {table} FROM 'file.csv' (FORMAT csv, HEADER)")
    path = c.string("the path of a file or folder")
    c.accept("WITH")
    options: dict[str, Any] = {}
    if c.peek("("):
        inner = c.bracketed()
        while not inner.done:
            name = str(inner.take().text).lower()
            if name in options:
                inner.at -= 1
                inner.fail(f"the option `{name}` is specified twice")
            inner.accept("=")
            options[name] = True if inner.at >= inner.end or inner.peek(",") else inner.value(name)
            if not inner.done:
                inner.expect(",")
    else:
        while not c.done:  # COPY t FROM 'x' CSV HEADER, the syntax of older Postgres versions
            keyword = word(c.take())
            if keyword in ("CSV", "JSON", "PARQUET"):
                options["format"] = keyword.lower()
            elif keyword == "HEADER":
                options["header"] = True
            else:
                c.at -= 1
                c.fail("this is not expected here", hint=f"COPY {table} FROM '{path}' (FORMAT csv, HEADER)")
    return Copy(c.piece, table, columns, path, options)


def _refuse(c: Cursor, message: str, hint: str) -> NoReturn:
    token = c.take()
    raise Unsupported(message, hint=hint, origin=c.text.of_token(token))
