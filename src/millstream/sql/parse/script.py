"""Scripts: the text of one or more statements, split once. Later stages receive the script, not the text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from millstream.errors import DefinitionError
from millstream.sql.parse.text import Text, tokens


@dataclass(frozen=True)
class StatementText:
    """One statement of a text: its tokens, without the semicolon."""

    text: Text
    tokens: tuple[Token, ...]
    ended: bool = False
    """Whether a semicolon followed."""

    @property
    def sql(self) -> str:
        """The statement as written."""
        return self.text.sql[self.tokens[0].start : self.tokens[-1].end + 1]


@dataclass(frozen=True)
class SqlScript:
    """A text and its statements."""

    text: Text
    statements: tuple[StatementText, ...]

    def __iter__(self) -> Iterator[StatementText]:
        return iter(self.statements)

    def __len__(self) -> int:
        return len(self.statements)

    @property
    def is_complete(self) -> bool:
        """Whether a semicolon ends every statement."""
        return all(s.ended for s in self.statements)

    def only(self, statement: StatementText) -> SqlScript:
        """A script with one of the statements; it keeps its position in the text, for error messages."""
        start = statement.tokens[0].start
        before = self.text.sql[:start]
        blank = "\n" * before.count("\n") + " " * (start - before.rfind("\n") - 1)
        return SqlScript(Text(blank + statement.sql, self.text.name), (statement,))


def split(text: Text) -> SqlScript:
    """The statements of a text."""
    statements: list[StatementText] = []
    current: list[Token] = []
    for token in tokens(text):
        if token.token_type is TokenType.SEMICOLON:
            if current:
                statements.append(StatementText(text, tuple(current), ended=True))
            current = []
        else:
            current.append(token)
    if current:
        statements.append(StatementText(text, tuple(current)))
    return SqlScript(text, tuple(statements))


def as_script(sql: str | SqlScript, name: str = "SQL") -> SqlScript:
    """A script unchanged, or a text split into one; `name` is the name of the text in error messages."""
    return sql if isinstance(sql, SqlScript) else split(Text(sql, name))


def complete_script(sql: str) -> SqlScript | None:
    """A text as a script; None while a shell must wait for more input: an unfinished statement or an open quote."""
    try:
        script = split(Text(sql))
    except DefinitionError:
        return None
    return script if script.is_complete else None
