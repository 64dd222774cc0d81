"""The connection to the process that executes SQL: the owner of the home, or this process when there is none."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from millstream.cli.shell.waiting import patiently
from millstream.errors import ConnectionLost, HomeInUse, MillstreamError, QueryError
from millstream.model.types.values import python_values
from millstream.runtime.inspect.status import has_failed
from millstream.sql.parse.script import SqlScript, as_script
from millstream.sql.parse.text import word

if TYPE_CHECKING:
    from millstream.home import Home
    from millstream.live.answer import Answer, Changes
    from millstream.serve.client import LocalClient
    from millstream.serve.replies import Speaks

READS = ("SELECT", "WITH", "VALUES", "SHOW", "DESCRIBE", "DESC", "EXPLAIN", "SET", "(")
"""The first words of statements that can be repeated: they change nothing but the session."""

RECONNECT_SECONDS = 0.2
"""How long a subscription waits before it reconnects."""

NAMED = ("SOURCES", "VIEWS", "TABLES")
"""The objects of SHOW whose names can be completed."""


Begin: TypeAlias = "Callable[[], tuple[Speaks, Callable[[], None]]]"
"""Opens a session; returns it, and the function that ends it."""


class Connection:
    """A session that can be replaced by a new one, and the names that are known in it. Not thread-safe."""

    def __init__(
        self,
        begin: Begin,
        *,
        where: str = "",
        starting: Callable[[], bool] = lambda: False,
        hangs_up: bool = False,
        failing: Callable[[], int] = lambda: 0,
        pause: Callable[[float], None] = time.sleep,
        tries: int = 150,
    ) -> None:
        self._begin, self._pause, self._tries = begin, pause, tries
        self._session, self._end = begin()
        self.where = where
        """The home and the process that executes statements, as text."""
        self.starting = starting
        """Whether Spark is starting."""
        self.failing = failing
        """The number of failed flows."""
        self.hangs_up = hangs_up
        """Whether a subscription ends only with its session."""
        self._number = 0
        """Counts the sessions."""
        self._set: dict[str, str] = {}
        """The effects of SET, to be repeated in a new session."""
        self._names: tuple[str, ...] | None = None
        self._columns: dict[str, tuple[str, ...]] = {}

    def execute(self, sql: str | SqlScript, *, name: str = "SQL") -> Iterator[Answer]:
        """Execute the statements of a text or script; an error in one is raised when it is reached.

        When the connection to the process that owns the home is lost, this reconnects. Statements that only read are
        then repeated; for others the error states that they may have been executed.
        """
        script = as_script(sql, name)
        reads = all(word(s.tokens[0]) in READS for s in script)
        done = 0
        while True:
            number = self._number
            try:
                for answer in self._answers(script):
                    done += 1
                    yield answer
                return
            except ConnectionLost as error:
                if not self.hangs_up or number != self._number:  # the session was replaced
                    raise
                self.anew()
                if not reads or done:
                    raise self._doubtful(done, reads=reads) from error
                reads = False  # once

    def _answers(self, script: SqlScript) -> Iterator[Answer]:
        waiting = iter(script)
        for answer in self._session.execute(script):
            statement = next(waiting, None)
            if statement is not None and word(statement.tokens[0]) == "SET" and len(statement.tokens) > 2:
                self._set[word(statement.tokens[1])] = statement.sql
            if answer.changes is not None and self.hangs_up:
                answer = replace(answer, changes=self._resumed(answer.changes))
            yield answer

    def _resumed(self, changes: Iterator[Changes]) -> Iterator[Changes]:
        """The changes of a subscription; after a lost connection, those after the last received ones."""
        resume = ""
        while True:
            number = self._number
            try:
                for change in changes:
                    resume = change.resume
                    yield change
                return
            except ConnectionLost:
                if not resume or number != self._number:
                    raise
            self._wait_for_owner()
            again = next(iter(self._session.execute(resume)))
            assert again.changes is not None
            changes = again.changes

    def _wait_for_owner(self) -> None:
        """Connect to the next process that owns the home."""
        for left in range(self._tries - 1, -1, -1):
            try:
                return self.anew()
            except QueryError:
                if not left:
                    raise
            self._pause(RECONNECT_SECONDS)

    def anew(self) -> None:
        """Leave the session, with what still runs in it, and open another one with the same settings."""
        self._number += 1  # before the waiting threads of the old one wake up
        self._end()
        try:
            self._session, self._end = self._begin()
        except OSError:
            raise self._gone() from None
        for sql in self._set.values():
            list(self._session.execute(sql))

    def _gone(self) -> QueryError:
        return QueryError(
            "the process that owned the home has ended, and no other process has taken over",
            hint=r"try again when it runs; or leave with \q and start the shell again, which then opens the home",
        )

    def _doubtful(self, done: int, *, reads: bool) -> ConnectionLost:
        outcome = f"{done} of the statements were executed; the next one " if done else "the statement "
        return ConnectionLost(
            "the connection to the process that owns the home ended during the statement",
            detail=outcome + ("was not answered" if reads else "may or may not have been executed"),
            hint="connected again; " + ("repeat it" if reads else "check before you repeat it: SHOW ..., SELECT ..."),
        )

    def names(self) -> tuple[str, ...]:
        """The names of the sources, views and tables."""
        if self._names is None:
            listed = [n for kind in NAMED for n in self._first_column(f"SHOW {kind};")]
            self._names = tuple(dict.fromkeys(listed))
        return self._names

    def columns(self, name: str) -> tuple[str, ...]:
        """The columns of one of them; empty when it is unknown."""
        if name not in self._columns:
            self._columns[name] = self._first_column(f"DESCRIBE {name};")
        return self._columns[name]

    def forget_names(self) -> None:
        """Invalidate the cached names after an object was created or dropped."""
        self._names = None
        self._columns.clear()

    def close(self) -> None:
        """End the session."""
        self._end()

    def _first_column(self, sql: str) -> tuple[str, ...]:
        with suppress(MillstreamError):
            for answer in list(self.execute(sql)):
                if answer.result is not None:
                    return tuple(str(v) for v in python_values(answer.result.to_arrow().column(0)))
        return ()


@contextmanager
def connected(
    home: Path, memory: str | None = None, master: str | None = None, state: str | None = None
) -> Iterator[Connection]:
    """Connect to a home: through the process that owns it; otherwise this process opens it and runs its flows."""
    client = _client(home)
    if client is None:
        from millstream.home import Home

        try:
            opened = Home(home, memory=memory, spark_master=master, state=state)
        except HomeInUse:
            client = _client(home)  # its owner has just begun to answer
            if client is None:
                raise
    with _remote(home, client) if client is not None else _embedded(opened, home) as connection:
        yield connection


def _client(home: Path) -> LocalClient | None:
    from millstream.serve.client import LocalClient

    try:
        return LocalClient(home)
    except OSError:
        return None


def _failed(flows: list[dict[str, Any]]) -> int:
    return sum(has_failed(str(f["state"])) for f in flows)


@contextmanager
def _embedded(home: Home, where: Path) -> Iterator[Connection]:
    try:
        _ = home.store  # once it is open, other processes are answered
        runs = home.session().deployment.runs

        def starting() -> bool:
            return any(run.state == "starting" for run in list(runs.values()))

        yield Connection(
            lambda: (home.session(), lambda: None),
            where=f"{where}, opened here",
            starting=starting,
            failing=lambda: _failed(home.flows()),
        )
    finally:
        patiently(home.close, lambda: "stopping the flows ... (Ctrl-C: at once, and nothing is lost)")


@contextmanager
def _remote(home: Path, first: LocalClient) -> Iterator[Connection]:
    from millstream.serve.client import LocalClient

    waiting, used = [first], [first]

    def begin() -> tuple[Speaks, Callable[[], None]]:
        client = waiting.pop() if waiting else LocalClient(home)
        used[:] = [client]
        return client.session(), client.close

    def failing() -> int:
        with suppress(MillstreamError):
            return _failed(used[0].flows())
        return 0

    connection = Connection(begin, where=f"{home}, through the process that owns it", failing=failing, hangs_up=True)
    try:
        yield connection
    finally:
        connection.close()
