"""Reading a home from any process: through the process that owns it, or from the files when no process owns it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import sleep
from types import TracebackType
from typing import Any, TypeVar

from millstream.clock import SystemClock
from millstream.errors import Cancelled, ConnectionLost, HomeDamaged, HomeInUse
from millstream.limits import Limits, interruptible
from millstream.log.log import Log
from millstream.log.topic import Topic
from millstream.result import Result
from millstream.runtime.home_dir import check_format
from millstream.runtime.inspect.status import (
    ERROR,
    checked_failed_views,
    flow_rows,
    view_rows,
    warnings_for,
    watermark_rows,
)
from millstream.runtime.supervision.lease import HomeOwner, owner_of
from millstream.serve.client import LocalClient
from millstream.sql.query.store_query import read_query
from millstream.store.files import has_store, open_store
from millstream.store.port import AsOf, Store, epochs_read

T = TypeVar("T")


PAUSE, PAUSES = 0.05, 100
"""How long to wait until a new owner of the home answers: seconds per attempt, and the number of attempts."""


class Reader:
    """Queries a home without changing its views. Created by `millstream.connect`.

    It survives a change of owner: it reconnects to the next one, and reads the files when there is none.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()
        if not (self.path / "millstream.json").exists():
            raise HomeDamaged(
                f"there is no Millstream home at {self.path}",
                hint="name the directory of `millstream run --home DIR`",
            )
        check_format(self.path / "millstream.json")
        self._log = Log(self.path / "log", SystemClock())
        self._client: LocalClient | None = None
        if self._connected() is None and not has_store(self.path):
            raise HomeDamaged(
                f"the home {self.path} has no views yet", hint="run a flow in it first: `millstream run FLOW.py`"
            )

    def _ask(self, ask: Callable[[LocalClient], T], look: Callable[[Store], T]) -> T:
        """Call the process that owns the home, or read its store when there is no owner. Owners may change in the
        meantime.
        """
        waited = 0
        while True:
            client = self._connected()
            try:
                return ask(client) if client is not None else self._look(look)
            except ConnectionLost:
                self._client = None
                if waited >= PAUSES:
                    raise
            except (HomeInUse, Cancelled) as error:  # the home has an owner now, which will answer shortly
                if waited >= PAUSES:
                    raise HomeInUse(
                        f"the home {self.path} is in use by a process that does not respond yet",
                        detail=error.detail,
                        hint="try again in a moment",
                    ) from None
                sleep(PAUSE)
            waited += 1

    def _connected(self) -> LocalClient | None:
        if self._client is None:
            with suppress(OSError):
                self._client = LocalClient(self.path)
        return self._client

    def _look(self, look: Callable[[Store], T]) -> T:
        """Read the store and close it immediately, so that a process that takes over the home does not have to wait."""
        before = owner_of(self.path / "lock")
        store = open_store(self.path, read_only=True, limits=Limits.of(home=self.path))
        try:
            with interruptible(lambda: _token(owner_of(self.path / "lock")) != _token(before)):
                return look(store)
        finally:
            store.close()

    def query(self, sql: str, *, failed_views: str = ERROR) -> Result:
        """Answer a SELECT (Spark SQL) over the views, as of one epoch.

        A failed view raises ViewFailed. With ``failed_views="warn"``, its last rows are returned with a warning.
        """
        how = checked_failed_views(failed_views)
        return self._ask(lambda c: c.query(sql, how), lambda s: _answered(s, sql, how))

    def views(self) -> list[dict[str, Any]]:
        """List the views with rows, last epoch, watermark, freshness, and the counts of late records and errors."""
        return self._ask(lambda c: c.views(), lambda s: view_rows(s, SystemClock().now()))

    def flows(self) -> list[dict[str, Any]]:
        """List the flows that have run in this home, with their progress."""
        return self._ask(lambda c: c.flows(), lambda s: flow_rows(s, {}))

    def watermarks(self) -> list[dict[str, Any]]:
        """Return the progress of every partition of every source, and which partition holds its flow back."""
        # without an owner no flow runs: this is the state at the end of the last run
        return self._ask(lambda c: c.watermarks(), lambda s: watermark_rows(s, None))

    def topic(self, name: str) -> Topic:
        """Return a topic of the home's log, to read from and to append to. The log has its own locks."""
        return self._log.topic(name)

    def close(self) -> None:
        """Close the connection."""
        self._log.close()
        if self._client is not None:
            self._client.close()

    def __repr__(self) -> str:
        owner = owner_of(self.path / "lock") if self._client is not None else None
        through = "reads the files" if self._client is None else "through the process that owns it"
        return f"<Reader {self.path}: {through}{'' if owner is None else f' ({owner.pid})'}>"

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _token(owner: HomeOwner | None) -> int:
    return owner.token if owner is not None else 0


def _answered(store: Store, sql: str, failed_views: str) -> Result:
    translated = read_query(sql, store.tables(), dialect=store.dialect)
    warnings = warnings_for(store, {}, translated.tables, SystemClock().now(), failed_views)
    as_of: AsOf = {}
    table = store.query(translated.sql, apart=translated.apart, as_of=as_of)
    return Result(table, warnings, epochs_read(as_of, translated.tables))
