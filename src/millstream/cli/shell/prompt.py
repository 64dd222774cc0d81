"""The prompt of the shell: colours, completion, history, and when a statement is complete."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, completion_is_selected, is_searching
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.formatted_text.utils import split_lines
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import Lexer
from prompt_toolkit.styles import Style
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from millstream.cli.output import plural
from millstream.cli.shell.backslash_commands import HELP, is_order
from millstream.errors import DefinitionError
from millstream.sql.parse.script import SqlScript, complete_script
from millstream.sql.parse.statement_parser import FIRST, KINDS, PLACES, SHOWN
from millstream.sql.parse.text import Text, tokens, word

if TYPE_CHECKING:
    from millstream.cli.connection import Connection

PROMPT = "millstream> "
CONTINUED = "...> "
MOST_NAMES = 30
"""Names whose columns are looked up when a statement names none of them yet."""

WORDS = frozenset(FIRST) | set(KINDS) | set(SHOWN) | set(PLACES) | set(
    """
    ACCUMULATING AFTER ALIGNED ALL ALLOWED ANALYZE AND ANY AS ASC BETWEEN BIGINT BOOLEAN BY CALENDAR CASCADE CASE CAST
    CHANGE CLOSE CUMULATE DATE DAY DAYS DECIMAL DELETE DESC DESCRIPTOR DISCARDING DISTINCT DOUBLE EARLY ELSE EMIT END
    EPOCH EVERY EXCEPT EXISTS EXPLAIN FALSE FILL FILTER FLOW FOR FRACTION FROM FULL GROUP HAVING HISTORY HOP HOUR HOURS
    IF IN INNER INT INTERSECT INTERVAL INTO IS JOIN KEY LATE LATENESS LEFT LIKE LIMIT LIVE MATERIALIZED MINUTE MINUTES
    NEVER NOT NULL OF OFFSET ON ONCE OR ORDER OUTER OVER PARTITION PRIMARY RANK REPEATEDLY REPLACE RETAIN RETRACTING
    RETURNS RIGHT ROW ROWS ROW_NUMBER SECOND SECONDS SESSION SNAPSHOT STRING SUBSCRIBE TABLE THEN TIMESTAMP TO TOPIC
    TRUE TUMBLE UNION UNTIL USING WATCH WATERMARK WHEN WHERE WITH WITHIN
    """.split()
)  # fmt: skip
"""Keywords, for colours and completion."""

FUNCTIONS = tuple(
    """
    count sum avg min max first last collect_list count_distinct stddev variance coalesce concat date_trunc lower upper
    length round abs substring split size element_at from_json to_json to_timestamp
    """.split()
)

STYLE = Style.from_dict(
    {
        "prompt": "bold ansicyan",
        "keyword": "bold ansiblue",
        "text": "ansigreen",
        "number": "ansimagenta",
        "comment": "ansibrightblack italic",
        "order": "ansiyellow",
    }
)
_TEXT = (TokenType.STRING, TokenType.RAW_STRING, TokenType.NATIONAL_STRING)
_CLOSERS = ("", "'", '"', "`", "*/")


class SqlLexer(Lexer):
    """Colours by the tokens of our own grammar."""

    def lex_document(self, document: Document) -> Callable[[int], StyleAndTextTuples]:
        """The pieces of each line with their colours."""
        lines = list(split_lines(coloured(document.text)))
        return lambda number: lines[number] if number < len(lines) else []


def coloured(sql: str) -> StyleAndTextTuples:
    """A text in pieces, each with its colour; together they are the text."""
    if is_order(sql):
        return [("class:order", sql)]
    pieces: StyleAndTextTuples = []
    at = 0
    for token in _tokens(sql):
        start, end = max(at, token.start), min(len(sql), token.end + 1)
        pieces.append(("class:comment" if sql[at:start].strip() else "", sql[at:start]))
        pieces.append((_style(token), sql[start:end]))
        at = max(at, end)
    rest = sql[at:]
    pieces.append(("class:comment" if rest.lstrip().startswith(("--", "/*")) else "", rest))
    return [p for p in pieces if p[1]]


def _tokens(sql: str) -> list[Token]:
    """The tokens, also while a quote or a comment is still open."""
    for closer in _CLOSERS:
        try:
            return tokens(Text(sql + closer))
        except DefinitionError:
            continue
    return []


def _style(token: Token) -> str:
    if token.token_type in _TEXT:
        return "class:text"
    if token.token_type is TokenType.NUMBER:
        return "class:number"
    keyword = word(token)
    return "class:keyword" if keyword and all(w in WORDS for w in keyword.split()) else ""


class SqlCompleter(Completer):
    r"""Completes keywords, functions, names and columns; files after ``\i``."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """What may follow before the cursor."""
        del complete_event
        before = document.text_before_cursor
        if is_order(before):
            yield from self._orders(before.lstrip())
            return
        if _inside_text(before):
            return
        begun = _begun(before)
        if not begun:
            return
        for candidate, meta in self._candidates(document.text, before, begun):
            if candidate.lower().startswith(begun.rpartition(".")[2].lower()) and candidate.lower() != begun.lower():
                yield Completion(candidate, -len(begun.rpartition(".")[2]), display_meta=meta)

    def _candidates(self, text: str, before: str, begun: str) -> Iterator[tuple[str, str]]:
        names = self._connection.names()
        if "." in begun:
            name = _meant(begun.partition(".")[0], text, names)
            yield from ((c, "column") for c in (self._connection.columns(name) if name else ()))
            return
        used = [n for n in names if n.lower() in {w.lower() for w in _words(text)}]
        for name in used or names[:MOST_NAMES]:
            yield from ((c, f"column of {name}") for c in self._connection.columns(name))
        yield from ((n, "name") for n in names)
        upper = not begun.islower()
        yield from ((w if upper else w.lower(), "") for w in sorted(WORDS))
        yield from ((f"{f}(", "function") for f in FUNCTIONS)

    def _orders(self, before: str) -> Iterator[Completion]:
        order, space, argument = before.partition(" ")
        if not space:
            known = {w.split()[0] for line in HELP for w in line.split() if w.startswith("\\")}
            yield from (Completion(k, -len(order)) for k in sorted(known) if k.startswith(order))
        elif order == "\\i":
            folder = Path(argument).parent if argument and not argument.endswith("/") else Path(argument or ".")
            files = sorted(folder.glob("*.sql")) if folder.is_dir() else []
            yield from (Completion(str(p), -len(argument)) for p in files if str(p).startswith(argument))
        elif order.startswith("\\d") or order == "\\watch":
            names = self._connection.names()
            yield from (Completion(n, -len(argument)) for n in names if n.lower().startswith(argument.lower()))


def _begun(before: str) -> str:
    """The word that is being typed."""
    at = len(before)
    while at and (before[at - 1].isalnum() or before[at - 1] in "_$."):
        at -= 1
    return before[at:]


def _inside_text(before: str) -> bool:
    """Whether the cursor is inside quotes or a comment."""
    last = coloured(before + "x")[-1]
    return last[0] in ("class:text", "class:comment")


def _words(text: str) -> list[str]:
    return [str(t.text) for t in _tokens(text)]


def _meant(alias: str, text: str, names: Iterable[str]) -> str | None:
    """The object that the name before a dot refers to: itself, or the target of the alias."""
    known = {n.lower(): n for n in names}
    if alias.lower() in known:
        return known[alias.lower()]
    words = [w.lower() for w in _words(text)]
    for i, name in enumerate(words):
        following = [w for w in words[i + 1 : i + 3] if w != "as"]
        if name in known and following[:1] == [alias.lower()]:
            return known[name]
    return None


def finished_input(text: str) -> str | SqlScript | None:
    """The part of the input that Enter submits: a backslash command, or whole statements (or none at all) as a script;
    None while it is incomplete.
    """
    return text if is_order(text) else complete_script(text)


def history_file() -> Path:
    """The file with the history of the shell: in the user's state directory."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "millstream" / "history"


def kept_history() -> History:
    """The history of earlier shells, where it can be stored."""
    path = history_file()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(path)


def prompt_text(failing: int) -> str:
    """The prompt; it says how many flows have failed.

    >>> prompt_text(0), prompt_text(1), prompt_text(2)
    ('millstream> ', 'millstream (1 flow has failed)> ', 'millstream (2 flows have failed)> ')
    """
    if not failing:
        return PROMPT
    return PROMPT.replace(">", f" ({plural(failing, 'flow')} {'has' if failing == 1 else 'have'} failed)>")


def make_prompt(connection: Connection) -> Callable[[], str | SqlScript]:
    """Return the function that reads one input from the terminal: a backslash command, or whole statements as a script.
    Raises KeyboardInterrupt for Ctrl-C and EOFError for Ctrl-D.
    """
    finished: list[str | SqlScript | None] = [None]
    keys = KeyBindings()
    typing = ~is_searching & ~completion_is_selected

    @keys.add("enter", filter=typing)
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        finished[0] = finished_input(buffer.text)
        if finished[0] is not None:
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    session: PromptSession[str] = PromptSession(
        multiline=Condition(lambda: True),
        prompt_continuation=lambda width, _line, _wrapped: [("class:prompt", CONTINUED.rjust(width))],
        lexer=SqlLexer(),
        completer=SqlCompleter(connection),
        complete_while_typing=False,
        history=kept_history(),
        enable_history_search=True,
        key_bindings=keys,
        style=STYLE,
    )

    def read() -> str | SqlScript:
        finished[0] = None
        typed = session.prompt([("class:prompt", prompt_text(connection.failing()))])
        return typed if finished[0] is None else finished[0]

    return read
