"""Where a source reads or a sink writes: ``LOG('topic', partitions = 4)``, ``TABLE totals (n)``, ``CONSOLE``.

The connectors and their options are declared in `model/connector_declarations.py`. `statement_parser.py` reads WITH,
and `sql/connectors.py` has its options (SOURCE_OPTIONS).
"""

from __future__ import annotations

import difflib
from typing import Any

from millstream.model.connector_declarations import find, spellings
from millstream.sql.parse.cursor import Cursor
from millstream.sql.parse.statement_values import Place
from millstream.sql.parse.text import word


def read_place(c: Cursor, role: str, *, kept: bool) -> Place:
    """Read the system of a source or sink, with its arguments and options. `kept`: it is a stored definition, which
    may repeat an option.
    """
    if c.peek("(", ahead=1) and word(c.token) not in spellings(role):
        _find_system(c, word(c.token), role)
    kind = c.one_of(spellings(role), f"a connector to use as a {role}")
    if kind == "TABLE":
        table = c.name("table")
        return Place(kind, (table, *(column_names(c.bracketed()) if c.peek("(") else ())))
    if kind == "CONSOLE" and not c.peek("("):
        return Place(kind)
    inner = c.bracketed()
    arguments: list[Any] = []
    options: dict[str, Any] = {}
    while not inner.done:
        if inner.peek("=", ahead=1) or inner.peek("=>", ahead=1):
            name = str(inner.take().text).lower()
            if name in options and not kept:
                inner.at -= 1
                inner.fail(f"the option `{name}` is specified twice")
            inner.take()
            options[name] = inner.value(name)
        elif options:
            inner.fail("a value without a name cannot follow one with a name")
        else:
            arguments.append(inner.value(kind))
        if not inner.done:
            inner.expect(",")
    return Place(kind, tuple(arguments), options)


def _find_system(c: Cursor, name: str, role: str) -> None:
    """Load the system of this name from an installed package; refuses a name that no package has."""
    find(name)
    known = spellings(role)
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]}?" if close else "there are: " + ", ".join(known)
        c.fail(f"there is no connector `{name}` to use as a {role}", hint=hint)


def column_names(c: Cursor) -> list[str]:
    """Read all of a list of columns."""
    names = [c.name("column")]
    while c.accept(","):
        names.append(c.name("column"))
    c.finish()
    return names
