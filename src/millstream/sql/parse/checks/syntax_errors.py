"""Readable syntax errors: what is wrong, where, and what to write instead.

The parser's own messages become a sentence about the text, with a hint for syntax that users know from other databases.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Any

from sqlglot.errors import ParseError
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from millstream.errors import DefinitionError
from millstream.sql.parse.text import Text, word

_KEYWORDS = (
    "SELECT FROM WHERE GROUP ORDER HAVING LIMIT OFFSET QUALIFY UNION INTERSECT EXCEPT JOIN LEFT RIGHT FULL INNER CROSS "
    "LATERAL VALUES DISTINCT BETWEEN LIKE WINDOW OVER PARTITION WITH WHEN THEN ELSE CASE AND NOT NULL EXISTS"
).split()
"""Keywords that a misspelled word may mean."""

_NEVER_NAMES = frozenset({*_KEYWORDS, "BY", "ON", "USING", "END", "OR", "IS", "IN", "AS", "INTO", "SET"})
"""Words that cannot be a column name without quotes."""

_INSTEAD = {
    "~": "write `text RLIKE 'pattern'`, or regexp_like(text, 'pattern')",
    "!~": "write `NOT text RLIKE 'pattern'`",
    "**": "write power(x, 2)",
    "//": "write `a DIV b`, or floor(a / b)",
    "|/": "write sqrt(x)",
    "||/": "write cbrt(x)",
    "@>": "write array_contains(array, value)",
    "<@": "write array_contains(array, value)",
    "&&": "write arrays_overlap(a, b), or AND between conditions",
    "@": "write abs(x)",
    "!": "write factorial(n), or NOT before a condition",
    "!!": "write factorial(n)",
    "$": "write a string in single quotes: 'text'",
    "{": "write named_struct('a', 1), or map('a', 1)",
    "TOP": "write ORDER BY ... LIMIT n at the end",
    "EMIT": "write EMIT ON CHANGE (the default) or EMIT ON CLOSE at the end of a view",
    "POSITIONAL": "write JOIN ... ON with a column that both sides have",
    "MATCH_CONDITION": "write the comparison of times in ON: ON a.id = b.id AND a.ts >= b.ts",
    "WITH": "write WITH (...) before AS: CREATE VIEW name WITH (option = value) AS SELECT ...",
    "EPOCH": "a query reads the latest epoch; SUBSCRIBE TO view AS OF EPOCH n returns the changes since then",
    "FINAL": "write EMIT ON CLOSE at the end of a view",
    "PERCENT": "LIMIT takes a number of rows",
    "LEFT": "write LEFT JOIN ... ON condition",
    "RIGHT": "write RIGHT JOIN ... ON condition",
    "FULL": "write FULL JOIN ... ON condition",
    "INNER": "write JOIN ... ON condition",
    "CROSS": "write CROSS JOIN name",
    "GROUP": "write GROUP BY column, ...",
    "ORDER": "write ORDER BY column, ...",
    "PARTITION": "write OVER (PARTITION BY column ORDER BY column)",
    "PARTITION BY": "write OVER (PARTITION BY column ORDER BY column)",
    "USE": "leave it out: there are no indexes",
    "SAMPLE": "leave it out: a view gives the same result every time",
}
"""What to write instead of operators and clauses of other databases."""

_MISSING = re.compile(r"Expect(?:ed|ing) (?P<what>.+)")


def unreadable(text: Text, tokens: Sequence[Token], error: ParseError) -> DefinitionError:
    """The error for a statement that the parser rejected."""
    first_error: dict[str, Any] = error.errors[0] if error.errors else {}
    problem = str(first_error.get("description") or "").rstrip(".")
    at = _place(tokens, first_error)
    token = tokens[at]
    hint = _hint(tokens, at, problem)
    return DefinitionError(
        "the statement cannot be parsed",
        detail=_detail(tokens, at, problem),
        hint=hint,
        origin=text.of_token(token),
    )


def _place(tokens: Sequence[Token], error: dict[str, Any]) -> int:
    """The token that the parser reports; the last one if it reports none."""
    line, column, marked = error.get("line"), error.get("col"), str(error.get("highlight") or "")
    for i, token in enumerate(tokens):
        if token.line == line and token.col == column and (not marked or token.text == marked or marked in token.text):
            return i
    return len(tokens) - 1


def _detail(tokens: Sequence[Token], at: int, problem: str) -> str:  # noqa: PLR0911 - one for each kind of mistake
    """What is wrong, as a sentence about the text."""
    token_text = f"`{tokens[at].text[:60]}`"
    many = re.search(r"provided arguments \((\d+)\).*supported arguments \((\d+)\)", problem)
    if many is not None:
        name = _call_around(tokens, at)
        called = f"`{name}`" if name else "the function"
        return f"{called} takes at most {_arguments(int(many[2]))}, not {many[1]}"
    if "<class" in problem or problem.startswith("Required") or "at least one argument" in problem:
        name = _call_around(tokens, at)
        empty = tokens[at].token_type is TokenType.R_PAREN and at and tokens[at - 1].token_type is TokenType.L_PAREN
        if name and empty:
            return f"`{name}` needs an argument"
        if name and tokens[at].token_type is TokenType.R_PAREN:
            return f"`{name}` needs more arguments"
        return "a value or an expression is missing here"
    if problem in ("Expecting )", "Expecting ]"):
        return f"a closing `{problem[-1]}` is missing {'after' if at == len(tokens) - 1 else 'before'} {token_text}"
    if "TYPE after CAST" in problem or problem.startswith("Expected type"):
        if tokens[at].token_type is TokenType.R_PAREN or word(tokens[at]) == "AS":
            return "the type is missing"
        return f"{token_text} is not a type"
    if "table name" in problem or "database name" in problem:
        return f"the name of a view, table or source is missing after {token_text}"
    after = re.fullmatch(r"Expected (\w+(?: or \w+)?) after (\w+)", problem)
    if after is not None:
        return f"{after[1]} is missing: {after[2]} needs it"
    if problem == "Expected CTE to have alias":
        return "a query in WITH needs a name: WITH name AS (SELECT ...)"
    if problem.startswith("Found multiple"):
        return f"{problem.split(chr(39))[1]} appears twice"
    missing = _MISSING.fullmatch(problem)
    if missing is not None and not problem.startswith("Expecting an"):
        return f"{missing['what'].strip(chr(39))} is expected at {token_text}"
    if tokens[at].token_type is TokenType.R_PAREN:
        return "there is one closing `)` too many, or something is missing before it"
    if word(tokens[at]) in _NEVER_NAMES and at == len(tokens) - 1:
        return f"something is missing after {token_text}"
    return f"{token_text} is not expected here"


def _arguments(number: int) -> str:
    return {0: "no argument", 1: "one argument"}.get(number, f"{number} arguments")


def _call_around(tokens: Sequence[Token], at: int) -> str:
    """The function whose parentheses contain a token, or end at it."""
    depth = 1 if tokens[at].token_type is not TokenType.R_PAREN else 0
    for i in range(at, 0, -1):
        depth += (tokens[i].token_type is TokenType.R_PAREN) - (tokens[i].token_type is TokenType.L_PAREN)
        if depth == 0 and tokens[i].token_type is TokenType.L_PAREN:
            before = tokens[i - 1]
            plain = before.text[:1].isalpha() and word(before) not in _NEVER_NAMES
            return str(before.text).lower() if plain else ""
    return ""


def _hint(tokens: Sequence[Token], at: int, problem: str) -> str:
    """What to write instead."""
    around = [i for i in (at, at - 1, at + 1) if 0 <= i < len(tokens)]
    if word(tokens[at - 1]) == "AS" and at and word(tokens[at]) in _NEVER_NAMES:
        return f"a name that is an SQL keyword must be in backticks: `{tokens[at].text}`"
    if problem == "Expected CTE to have alias":
        return "WITH name AS (SELECT ...) SELECT ... FROM name"
    for i in around:
        for said_here in _signs(tokens, i):
            if said_here in _INSTEAD:
                return _INSTEAD[said_here]
    for i in around:
        close = _close(tokens[i])
        if close is not None:
            return f"did you mean {close}?"
    if "TYPE after" in problem or problem.startswith("Expected type"):
        return "types are those of Spark SQL: BIGINT, DOUBLE, DECIMAL(10, 2), STRING, BOOLEAN, DATE, TIMESTAMP, ..."
    if "argument" in problem or ("<class" in problem and _call_around(tokens, at)):
        return "functions are those of Spark SQL; docs/guide/steps.md lists them"
    if tokens[at].token_type is TokenType.R_PAREN or problem == "Expecting )":
        return "count the brackets"
    return "queries are written in Spark SQL; docs/language.md lists the forms"


def _signs(tokens: Sequence[Token], at: int) -> list[str]:
    """A token as a keyword or an operator, longest first: two adjacent signs may be one operator."""
    token = tokens[at]
    if token.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
        return []
    signs = [word(token)]
    if at + 1 < len(tokens) and tokens[at + 1].start == token.end + 1:
        signs.insert(0, word(token) + word(tokens[at + 1]))
    if at and tokens[at - 1].end + 1 == token.start:
        signs.insert(0, word(tokens[at - 1]) + word(token))
    if at + 1 < len(tokens) and word(token) == "AS":
        signs.insert(0, f"AS {word(tokens[at + 1])}")
    return signs


def _close(token: Token) -> str | None:
    """The keyword that a name was probably meant to be."""
    keyword = word(token)
    if not keyword.isalpha() or keyword in _NEVER_NAMES or len(keyword) < 3:
        return None
    close = difflib.get_close_matches(keyword, _KEYWORDS, n=1, cutoff=0.7)
    return close[0] if close else None
