"""The shell on a terminal: Ctrl-C ends what is typed or runs and never the shell, and Ctrl-D leaves."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

PATIENCE = 60
ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[a-zA-Z]|[=>])")

BEFORE = """
import fcntl, signal, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGINT, signal.default_int_handler)  # who runs the tests in the background has it ignored
"""

SHELL = """
import itertools, sys, threading
import pyarrow as pa
from millstream.cli.connection import Connection
from millstream.cli.options import Settings
from millstream.cli.shell.shell import Shell
from millstream.cli.shell.prompt import make_prompt
from millstream.live.answer import Answer, Changes
from millstream.result import Result
from millstream.sql.parse.script import as_script

class Double:
    def execute(self, sql, *, name="SQL"):
        sql = as_script(sql, name).text.sql
        if "forever" in sql:
            print("it runs", flush=True)
            threading.Event().wait()
        elif "SUBSCRIBE" in sql:
            beat = threading.Event()
            def changes():
                yield Changes(1, pa.table({"op": ["+I"], "n": [41]}))
                while True:
                    beat.wait(0.05)
                    yield Changes(1, None)
            yield Answer(changes=changes())
        elif "many" in sql:
            yield Answer(result=Result(pa.table({"n": range(200)})))
        else:
            yield Answer(result=Result(pa.table({"n": [len(sql)]})))

sessions = []
def begin():
    sessions.append(Double())
    return sessions[-1], lambda: None

connection = Connection(begin, where="a double")
Shell(connection, Settings()).run(make_prompt(connection))
print(f"left after {len(sessions)} sessions")
"""


class Terminal:
    """A program on a terminal of its own, and what it has shown since somebody last looked."""

    def __init__(self, program: str, folder: Path) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
        environment = {"PROMPT_TOOLKIT_NO_CPR": "1", "TERM": "xterm", "XDG_STATE_HOME": str(folder), "PAGER": "cat"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", f"{BEFORE}\n{program}"],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            env={**os.environ, **environment},
        )
        os.close(slave)
        self.seen = ""

    def until(self, text: str) -> str:
        """Wait for a text; gives what was shown up to its end."""
        deadline = time.monotonic() + PATIENCE
        while text not in self.seen:
            ready, _, _ = select.select([self.master], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{text!r} did not come; there was:\n{self.seen}"
            self.seen += ESCAPES.sub("", os.read(self.master, 65536).decode(errors="replace"))
        found, _, self.seen = self.seen.partition(text)
        return found + text

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    opened = Terminal(SHELL, tmp_path)
    yield opened
    opened.close()


def test_the_shell_outlives_every_interruption(terminal: Terminal, tmp_path: Path) -> None:
    terminal.until("\\q to leave.")
    terminal.until("millstream> ")

    terminal.type("SELECT 1")
    terminal.until("SELECT 1")
    terminal.type("\x03")  # the statement being typed
    terminal.until("millstream> ")

    terminal.type("SELECT\rtwo;\r")  # over two lines
    terminal.until("...> ")
    terminal.until("(1 row, ")

    terminal.type("SELECT forever;\r")
    terminal.until("it runs")
    terminal.type("\x03")  # the statement that runs
    terminal.until("cancelled")
    terminal.until("millstream> ")

    terminal.type("SUBSCRIBE TO v;\r")
    terminal.until("41")
    terminal.type("\x03")  # the subscription
    terminal.until("subscription ended")
    terminal.until("millstream> ")

    terminal.type("WATCH v EVERY 1 SECOND;\r")
    terminal.until("UTC; Ctrl-C ends")
    terminal.until("(1 row)")
    terminal.type("\x03")  # the picture
    terminal.until("millstream> ")

    terminal.type("SELECT many;\r")  # longer than the screen: through the pager
    terminal.until("199")
    terminal.until("(200 rows, ")

    terminal.type("\\timing off\r")
    terminal.until("timing is off")
    terminal.until("millstream> ")
    terminal.type("\x04")
    terminal.until("left after 3 sessions")
    assert terminal.process.wait(PATIENCE) == 0
    assert "SELECT many;" in (tmp_path / "millstream" / "history").read_text(encoding="utf-8")
