r"""The shell's backslash commands: their names, and the SQL that each runs."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from millstream.errors import DefinitionError, UnknownName

HELP = {
    r"\d [name]": "all sources, tables and views; or the columns of one",
    r"\ds \dt \dv": "the sources, the tables, the views",
    r"\df": "the flows and their progress",
    r"\dk \dp \dx": "the sinks, the topics, the functions",
    r"\watch v [5s]": "a view or query, redrawn as it changes; Ctrl-C ends it",
    r"\i file.sql": "the statements of a file",
    r"\x [on|off]": "one line per value instead of a table",
    r"\timing [on|off]": "how long statements take",
    r"\pager [on|off]": "page results that are longer than the screen",
    r"\?": "this page",
    r"\q": "exit; Ctrl-D does, too",
}
LISTS = {
    "ds": ("SOURCES",),
    "dt": ("TABLES",),
    "dv": ("VIEWS",),
    "df": ("FLOWS",),
    "dk": ("SINKS",),
    "dp": ("TOPICS",),
    "dx": ("FUNCTIONS",),
    "d": ("SOURCES", "TABLES", "VIEWS"),
}
SWITCHES = ("timing", "x", "pager")
_OTHERS = ("q", "?", "i", "watch", *SWITCHES)
_ALIASES = {"quit": "q", "exit": "q", "h": "?", "help": "?", "include": "i"}

HELP_SQL = """\
Statements end with ; and may run over several lines. Some to begin with:
  CREATE SOURCE bids FROM GENERATOR('nexmark', kind = 'bid', rate = 100);
  CREATE VIEW hot AS SELECT auction, count(*) AS bids FROM bids GROUP BY auction;
  SELECT * FROM hot ORDER BY bids DESC LIMIT 10;
  SUBSCRIBE TO hot;      its changes as they happen; Ctrl-C ends it
  EXPLAIN VIEW hot;      how it is computed and what it keeps"""


@dataclass(frozen=True)
class BackslashCommand:
    """A parsed backslash command."""

    name: str
    argument: str = ""

    @property
    def statements(self) -> tuple[str, ...]:
        """The SQL that it stands for; empty when the shell handles it itself."""
        if self.name == "d" and self.argument:
            return (f"DESCRIBE {self.argument};",)
        return tuple(f"SHOW {kind};" for kind in LISTS.get(self.name, ()))


def is_order(line: str) -> bool:
    """Whether a line is for the shell itself."""
    return line.lstrip().startswith("\\")


def read_order(line: str) -> BackslashCommand:
    """The command of a line."""
    word, _, argument = line.strip().rstrip(";").removeprefix("\\").partition(" ")
    name = _ALIASES.get(word.lower(), word.lower())
    known = (*LISTS, *_OTHERS)
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        raise UnknownName(
            f"there is no command \\{word}", hint=f"did you mean \\{close[0]}?" if close else r"\? lists them"
        )
    argument = argument.strip()
    if name in ("i", "watch") and not argument:
        raise DefinitionError(f"\\{name} needs a {'file' if name == 'i' else 'view'}")
    return BackslashCommand(name, argument)


def switched(order: BackslashCommand, now: bool) -> bool:
    """The new state of a switch after a command: on, off, or toggled."""
    argument = order.argument.lower()
    if argument not in ("", "on", "off"):
        raise DefinitionError(f"\\{order.name} is on or off, not {order.argument}")
    return not now if not argument else argument == "on"


def help_text() -> str:
    """What can be typed."""
    width = max(len(name) for name in HELP)
    return "\n".join([f"  {name.ljust(width)}  {means}" for name, means in HELP.items()] + ["", HELP_SQL])
