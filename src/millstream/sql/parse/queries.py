"""Query parsing: converts the tokens of a SELECT to a tree, including streaming syntax, and checks it against an
allow-list.

Syntax that Spark's grammar lacks is rewritten before parsing, token by token, so that every part of the tree still has
its position in the text:

    TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE))   ->  TUMBLE(t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)
    SESSION(TABLE t PARTITION BY a, DESCRIPTOR(ts), ...)          ->  SESSION(t, PARTITION_BY(a), DESCRIPTOR(ts), ...)
    FROM HISTORY OF t, FROM CHANGELOG OF t                        ->  FROM HISTORY_OF(t), FROM CHANGELOG_OF(t)
    FROM CHANGELOG(TABLE t), FROM TO_CHANGELOG(TABLE t)           ->  FROM CHANGELOG_OF(t)
    ASOF JOIN t MATCH_CONDITION (NEAREST(a.ts, t.ts))             ->  ASOF JOIN t MATCH_CONDITION (ASOF_NEAREST(...))
    FROM t MATCH_RECOGNIZE (...) AS m                             ->  FROM t LATERAL VIEW MATCH_RECOGNIZE(7, 90) m
"""

from __future__ import annotations

import re
from collections.abc import Container

from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from millstream.errors import DefinitionError, Origin, StatementRefused, Unsupported
from millstream.model.expression import check_interval
from millstream.model.functions import AGGREGATE, GENERATOR, SCALAR, UNREPEATABLE
from millstream.sql.bind import pivot
from millstream.sql.dialects.function_forms import BINNED, known_tokens
from millstream.sql.dialects.function_names import in_spark, instead_of
from millstream.sql.parse import match_recognize
from millstream.sql.parse.checks import completeness
from millstream.sql.parse.checks.allow_list import (
    CHANGELOG,
    CLOCK,
    KEYWORDS,
    STREAMING,
    WINDOW,
    beyond_double,
    called,
    forbidden,
    not_allowed,
    reads,
    unrepeatable,
)
from millstream.sql.parse.checks.syntax_errors import unreadable
from millstream.sql.parse.text import DIALECT, NodeNotes, Text, closing, token_at, too_deep, word
from millstream.sql.relations.as_of_syntax import NEAREST

TABLE_FUNCTIONS = ("TUMBLE", "HOP", "CUMULATE", "SESSION", "COUNT_WINDOW", "CALENDAR")
CHANGELOGS = ("CHANGELOG", "TO_CHANGELOG")
BUILT_IN = SCALAR | AGGREGATE | WINDOW | CLOCK | KEYWORDS | GENERATOR | STREAMING
"""The built-in functions, by lower-case name."""
ANY = "*"
"""As an allowed function: allows every name, for texts that are only inspected."""
_DEEPEST = 200
"""The maximum nesting of parentheses, and half of the maximum depth of a tree."""
_LONGEST = 20_000
"""The maximum number of tokens in one query."""
_SPELLINGS = {BINNED: ("date_bin",), "rand": ("random",), "uuid": ("gen_random_uuid", "uuidv4", "uuidv7", "gen_uuid")}
"""Names of functions that the parser reads as another function."""


_QUERY_BEGINS = "a query begins with SELECT, WITH or VALUES"
_WITH_BEFORE = {
    "INSERT": "WITH follows the table: INSERT INTO t WITH x AS (SELECT ...) SELECT ... FROM x",
    "MERGE": "put the query after USING: MERGE INTO t USING (SELECT ...) AS x ON ... WHEN MATCHED THEN ...",
    "UPDATE": "put the query after FROM: UPDATE t SET ... FROM (SELECT ...) AS x WHERE ...",
    "DELETE": "put the query after USING: DELETE FROM t USING (SELECT ...) AS x WHERE ...",
}
"""Where to put a WITH that precedes a statement."""


def parse(text: Text, tokens: tuple[Token, ...], *, functions: Container[str] = ()) -> exp.Query:
    """The tree of a query. Rejects anything else, and functions that are not on the list (or in `functions`)."""
    tree = parsed(text, tokens)
    if isinstance(tree, exp.Values):
        tree = exp.select("*").from_(tree)
    if not isinstance(tree, exp.Query):
        raise StatementRefused(
            f"only a SELECT is allowed here, not {kind(tree)}",
            hint=_WITH_BEFORE.get(kind(tree) if tree.args.get("with_") is not None else "", _QUERY_BEGINS),
            origin=text.of_token(tokens[0]),
        )
    check(text, tree, tokens[0], functions=functions)
    return tree


def parsed(text: Text, tokens: tuple[Token, ...]) -> exp.Expr:
    """The tree of a Spark SQL statement, unchecked."""
    if not tokens:
        raise DefinitionError("an expression is expected here", origin=text.origin(0, 0))
    if len(tokens) > _LONGEST:
        raise StatementRefused(
            f"the query is longer than {_LONGEST:,} words", hint="split it into views", origin=text.of_token(tokens[0])
        )
    depth = 0
    for token in tokens:
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if depth > _DEEPEST:
            raise StatementRefused(f"more than {_DEEPEST} nested brackets", origin=text.of_token(token))
    with text.at(tokens[0]):
        brought = known_tokens(_in_known_form(text, list(tokens)))
    try:
        trees = [t for t in DIALECT.parser().parse(brought, text.sql) if t is not None]
    except ParseError as error:
        raise unreadable(text, tokens, error) from None
    except RecursionError:
        raise too_deep(text, tokens[0]) from None
    except (SqlglotError, ValueError, TypeError, AttributeError, IndexError, KeyError):
        raise DefinitionError("the statement cannot be parsed", origin=text.of_token(tokens[0])) from None
    if len(trees) != 1:
        raise DefinitionError("one statement is expected here", origin=text.of_token(tokens[0]))
    if _depth(trees[0]) > 2 * _DEEPEST:
        raise too_deep(text, tokens[0])
    for node in trees[0].walk():
        if node._meta is not None:
            node._meta = NodeNotes(node._meta)
    for cte in trees[0].find_all(exp.CTE):
        cte.set("materialized", None)  # a planner hint that does not affect the result
    with text.at(tokens[0]):
        tree = in_spark(trees[0], exp.ToChar)  # it would be rendered without its format
        completeness.check_literals(text, brought, tree)
        tree = pivot.spelled_out(in_spark(tree))
    for number in tree.find_all(exp.Literal):
        if beyond_double(number):
            raise DefinitionError(
                f"the number {number.name[:60]} is outside the range of DOUBLE", origin=text.of_node(number)
            )
    return tree


def _depth(tree: exp.Expr) -> int:
    """The depth of a tree."""
    level, depth = [tree], 0
    while level:
        level, depth = [child for node in level for child in node.iter_expressions()], depth + 1
    return depth


def check(text: Text, tree: exp.Expr, first: Token, *, functions: Container[str] = ()) -> None:
    """Reject everything in a tree that is not known to be safe."""
    for interval in tree.find_all(exp.Interval):
        check_interval(interval, text.of_node(interval) or text.of_token(first))
    node = forbidden(tree)
    if node is not None:
        raise not_allowed(node, text.of_node(node) or text.of_token(first))
    for table in tree.find_all(exp.Table):
        if table.args.get("db") or table.args.get("catalog"):
            raise StatementRefused(
                f"`{table.sql(dialect='spark')[:60]}`: name a view, table or source without a schema or path",
                hint="there are no schemas: write the name alone; SHOW TABLES and SHOW VIEWS list what there is",
                origin=text.of_node(table) or text.of_token(first),
            )
    function = reads(tree)
    if function is not None:
        raise StatementRefused(
            f"the function `{function}` cannot be used",
            detail="it reads files, settings or other text as SQL",
            hint="declare files as a source: CREATE SOURCE name (columns) FROM FILES('folder', format = 'csv')",
            origin=_call(text, tree, function, first)[1],
        )
    for name in called(tree):
        if name in UNREPEATABLE and name not in CLOCK:
            written, origin = _call(text, tree, name, first)
            raise unrepeatable(written, origin)
        if name not in BUILT_IN and name not in functions and ANY not in functions:
            written, origin = _call(text, tree, name, first)
            raise StatementRefused(f"the function `{written}` cannot be used", hint=instead_of(written), origin=origin)


def _call(text: Text, tree: exp.Expr, name: str, first: Token) -> tuple[str, Origin]:
    """The text and position of the call that would be rendered as the function `name`: the parser renames some
    functions.
    """
    for spelling in (name, *_SPELLINGS.get(name, ())):
        pattern = re.compile(
            rf"(?<![\w$`])`?{re.escape(spelling)}`?(?=\s*(/\*.*?\*/\s*)?\()", re.IGNORECASE | re.DOTALL
        )
        match = pattern.search(text.sql, first.start) or (
            re.compile(rf"\b{re.escape(spelling)}\b", re.IGNORECASE).search(text.sql, first.start)
        )
        if match is not None:
            return spelling, text.origin(match.start(), match.end() - 1)
    call = next((f for f in tree.find_all(exp.Func) if f.name.lower() == name or f.sql_name().lower() == name), None)
    return name, text.of_node(call) or text.of_token(first)


def only_rows_of(text: Text, tree: exp.Expr, first: Token) -> str:
    """The table that an UPDATE or DELETE changes. Rejects everything but SET and WHERE over its own columns."""
    table = tree.this
    assert isinstance(table, exp.Table)
    known = {"this", "expressions", "where"} if isinstance(tree, exp.Update) else {"this", "where"}
    more = next((a for a, v in tree.args.items() if v and a not in known), None)
    more = more or next((a for a, v in table.args.items() if v and a not in ("this", "alias")), None)
    alias = table.args.get("alias")
    plain = isinstance(table.this, exp.Identifier) and (alias is None or isinstance(alias.this, exp.Identifier))
    if more is not None or not plain:
        raise Unsupported(
            f"{kind(tree)} takes one table, {'SET and ' if isinstance(tree, exp.Update) else ''}WHERE, and no more",
            detail=f"it also has: {more.rstrip('_').upper()}" if more else None,
            origin=text.of_token(first),
        )
    for part in (*tree.args.get("expressions", ()), tree.args.get("where")):
        if part is None:
            continue
        check(text, part, first)
        other = part.find(exp.Query, exp.Star, exp.Window, exp.AggFunc, exp.UDTF)
        if other is not None:
            raise Unsupported(
                "only columns of the table itself are allowed here",
                hint="MERGE INTO the table USING (SELECT ...), which computes other values first",
                origin=text.of_node(other) or text.of_token(first),
            )
        for column in part.find_all(exp.Column):
            if column.table and column.table.lower() in (table.name.lower(), table.alias.lower()):
                column.set("table", None)
    for part in tree.args.get("expressions", ()):
        target = part.this if isinstance(part, exp.EQ) else None
        if not isinstance(target, exp.Column) or target.table:
            raise DefinitionError(
                "SET column = value, ... is expected here", origin=text.of_node(part) or text.of_token(first)
            )
    return table.name


def kind(tree: exp.Expr) -> str:
    """The kind of statement of a tree."""
    return str(tree.this).upper() if isinstance(tree, exp.Command) else tree.key.upper()


def _in_known_form(text: Text, tokens: list[Token]) -> list[Token]:
    done: list[Token] = []
    skip: set[int] = set()
    for i, token in enumerate(tokens):
        if i in skip:
            continue
        keyword, following = word(token), tokens[i + 1] if i + 1 < len(tokens) else None
        called_now = following is not None and following.token_type is TokenType.L_PAREN
        before = word(done[-1]) if done else ""
        if keyword == match_recognize.NAME and called_now:
            stands, end = match_recognize.cut(tokens, i)
            done += stands
            skip |= set(range(i + 1, end))
            continue
        if keyword in CHANGELOGS and _is_changelog(tokens, i, before):
            done.append(token_at(TokenType.VAR, CHANGELOG.upper(), token))
            if not called_now:  # CHANGELOG OF name, or of a subquery in parentheses
                end = closing(tokens, i + 2) if tokens[i + 2].token_type is TokenType.L_PAREN else i + 2
                inner = _in_known_form(text, tokens[i + 2 : end + 1])
                last = tokens[min(end, len(tokens) - 1)]
                done += [token_at(TokenType.L_PAREN, "(", token), *inner, token_at(TokenType.R_PAREN, ")", last)]
                skip |= set(range(i + 1, end + 1))
        elif (
            keyword == "TABLE"
            and called_now
            and i + 2 < len(tokens)
            and word(tokens[i + 2]) in (*TABLE_FUNCTIONS, *CHANGELOGS)
        ):
            skip |= {i + 1, closing(tokens, i + 1)}
        elif keyword == "TABLE" and before in ("(", "=>") and following is not None:
            continue
        elif (
            keyword == "HISTORY" and word(following) == "OF" and before in ("FROM", "JOIN", ",") and i + 2 < len(tokens)
        ):
            name = tokens[i + 2]
            done += [token_at(TokenType.VAR, "HISTORY_OF", token), token_at(TokenType.L_PAREN, "(", token), name]
            done.append(token_at(TokenType.R_PAREN, ")", name))
            skip |= {i + 1, i + 2}
        elif keyword == "MATCH_CONDITION" and called_now:
            _check_match(text, tokens, i + 1)
            done.append(token_at(TokenType.MATCH_CONDITION, token.text, token))
        elif keyword == "NEAREST" and called_now and before == "(" and _word_before(done, 2) == "MATCH_CONDITION":
            done.append(token_at(TokenType.VAR, NEAREST.upper(), token))
        elif keyword == "PARTITION BY" and _in_table_function(tokens, i):
            end = _end_of_partition(tokens, i)
            done += [token_at(TokenType.COMMA, ",", token), token_at(TokenType.VAR, "PARTITION_BY", token)]
            done += [
                token_at(TokenType.L_PAREN, "(", token),
                *tokens[i + 1 : end],
                token_at(TokenType.R_PAREN, ")", token),
            ]
            skip |= set(range(i + 1, end))
        elif keyword == "TRUNC" and called_now and _cuts_number(tokens, i + 1):
            done.append(token_at(TokenType.VAR, "TRUNCATE", token))
        elif keyword in ("SESSION", "WINDOW", "TUMBLE", "HOP") and called_now:
            done.append(token_at(TokenType.VAR, token.text, token))
        else:
            done.append(token)
    return done


def _check_match(text: Text, tokens: list[Token], opening: int) -> None:
    """Reject more than one comparison in MATCH_CONDITION, which the parser does not support."""
    depth = 0
    for token in tokens[opening : closing(tokens, opening)]:
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if depth == 1 and token.token_type in (TokenType.EQ, TokenType.NEQ, TokenType.AND, TokenType.OR):
            raise DefinitionError(
                f"`{token.text}` in MATCH_CONDITION: it takes one comparison, with >=, >, <= or <",
                hint="the other conditions belong in ON: MATCH_CONDITION (a.ts >= b.ts) ON a.id = b.id AND ...",
                origin=text.of_token(token),
            )


def _is_changelog(tokens: list[Token], at: int, before: str) -> bool:
    """Whether the word at a position starts CHANGELOG OF name, or CHANGELOG(TABLE name), in FROM."""
    following, inside = (word(t) for t in (*tokens[at + 1 : at + 3], None, None)[:2])
    if following == "OF" and at + 2 < len(tokens):
        return before in ("FROM", "JOIN", ",")
    opened = following == "(" and (inside == "TABLE" or before in ("FROM", "JOIN"))
    return opened or (following == "(" and before == "(" and _word_before(tokens[:at], 2) == "TABLE")


def _word_before(done: list[Token], back: int) -> str:
    return word(done[-back]) if len(done) >= back else ""


def _cuts_number(tokens: list[Token], opening: int) -> bool:
    """Whether TRUNC is the numeric one, ``trunc(x)`` or ``trunc(x, 2)``: the one for dates has a quoted unit."""
    end, depth, commas = closing(tokens, opening), 0, []
    for i in range(opening, end):
        depth += (tokens[i].token_type is TokenType.L_PAREN) - (tokens[i].token_type is TokenType.R_PAREN)
        if depth == 1 and tokens[i].token_type is TokenType.COMMA:
            commas.append(i)
    behind = tokens[commas[0] + 1] if commas else None
    return behind is None or behind.token_type in (TokenType.NUMBER, TokenType.DASH)


def _in_table_function(tokens: list[Token], at: int) -> bool:
    depth = 0
    for i in range(at - 1, 0, -1):
        depth += (tokens[i].token_type is TokenType.R_PAREN) - (tokens[i].token_type is TokenType.L_PAREN)
        if depth < 0:
            return word(tokens[i - 1]) in TABLE_FUNCTIONS
    return False


def _end_of_partition(tokens: list[Token], at: int) -> int:
    """Where the columns end: before the comma and DESCRIPTOR, or before the closing parenthesis."""
    depth = 0
    for i in range(at + 1, len(tokens)):
        token = tokens[i]
        if depth == 0 and (
            token.token_type is TokenType.R_PAREN
            or (
                token.token_type is TokenType.COMMA
                and i + 2 < len(tokens)
                and (word(tokens[i + 1]) in ("DESCRIPTOR", "INTERVAL") or word(tokens[i + 2]) == "=>")
            )
        ):
            return i
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
    return len(tokens)
