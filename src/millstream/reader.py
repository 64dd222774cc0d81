"""Reading a home from any process: through the one that owns it, or the files themselves when nobody does."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from millstream.clock import SystemClock
from millstream.errors import HomeDamaged, HomeInUse
from millstream.log.log import Log
from millstream.log.topic import Topic
from millstream.result import Result
from millstream.runtime.place import check_format
from millstream.runtime.status import flow_rows, view_rows, watermark_rows
from millstream.serve.local import LocalClient
from millstream.sql.reading import translate

if TYPE_CHECKING:
    from millstream.store.duckdb import DuckStore

T = TypeVar("T")


class Reader:
    """Asks questions of a home and changes none of its views. Made by `millstream.connect`."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()
        if not (self.path / "millstream.json").exists():
            raise HomeDamaged(
                f"there is no Millstream home at {self.path}",
                hint="name the directory given to `millstream run --home DIR`",
            )
        check_format(self.path / "millstream.json")
        self._log = Log(self.path / "log", SystemClock())
        self._client: LocalClient | None = None
        with suppress(OSError):
            self._client = LocalClient(self.path)
        if self._client is None and not (self.path / "store.duckdb").exists():
            raise HomeDamaged(
                f"the home {self.path} has no views yet", hint="run a flow in it first: `millstream run FLOW.py`"
            )

    def _ask(self, ask: Callable[[LocalClient], T], look: Callable[[DuckStore], T]) -> T:
        """Ask the process that owns the home; or look into its store, and let go of it at once, so that nobody who
        wants to own the home has to wait.
        """
        from millstream.store.duckdb import DuckStore

        if self._client is None:
            with suppress(OSError):
                self._client = LocalClient(self.path)
        if self._client is not None:
            return ask(self._client)
        try:
            store = DuckStore(self.path / "store.duckdb", read_only=True)
        except HomeInUse as error:
            try:
                self._client = LocalClient(self.path)  # its owner has just begun to answer
            except OSError:
                raise HomeInUse(
                    f"the home {self.path} is in use by a process that does not answer yet",
                    detail=error.detail,
                    hint="try again in a moment",
                ) from None
            return ask(self._client)
        try:
            return look(store)
        finally:
            store.close()

    def query(self, sql: str) -> Result:
        """Answer a SELECT (Spark SQL) over the views, as of one epoch."""
        return self._ask(lambda c: c.query(sql), lambda s: Result(s.query(translate(sql, s.tables()))))

    def views(self) -> list[dict[str, Any]]:
        """The views with rows, last epoch, watermark, freshness, late and error counts."""
        return self._ask(lambda c: c.views(), lambda s: view_rows(s, SystemClock().now()))

    def flows(self) -> list[dict[str, Any]]:
        """The flows that have run here, and how far they have come."""
        return self._ask(lambda c: c.flows(), lambda s: flow_rows(s, {}))

    def watermarks(self) -> list[dict[str, Any]]:
        """How far every partition of every source has come, and which one holds its flow back."""
        # no flow runs when there is nobody to ask: as it was when the last one did
        return self._ask(lambda c: c.watermarks(), lambda s: watermark_rows(s, None))

    def topic(self, name: str) -> Topic:
        """A topic of the home's log, to read and to append to; the log has locks of its own."""
        return self._log.topic(name)

    def close(self) -> None:
        """Hang up."""
        self._log.close()
        if self._client is not None:
            self._client.close()

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
