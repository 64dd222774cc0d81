"""Reading a home from any process: through the one that owns it, or the files themselves when nobody does."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from millstream.clock import SystemClock
from millstream.errors import HomeDamaged, HomeInUse
from millstream.home import check_format
from millstream.result import Result
from millstream.runtime.status import flow_rows, view_rows, watermark_rows
from millstream.sql.reading import translate

if TYPE_CHECKING:
    from millstream.serve.local import LocalClient
    from millstream.store.duckdb import DuckStore


class Reader:
    """Asks questions of a home and changes nothing. Made by `millstream.connect`."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()
        if not (self.path / "millstream.json").exists():
            raise HomeDamaged(
                f"there is no Millstream home at {self.path}",
                hint="name the directory given to `millstream run --home DIR`",
            )
        check_format(self.path / "millstream.json")
        self._client: LocalClient | None = None
        self._store: DuckStore | None = None
        self._connect()

    def _connect(self) -> None:
        from millstream.serve.local import LocalClient
        from millstream.store.duckdb import DuckStore

        try:
            self._client = LocalClient(self.path)
        except OSError:
            store = self.path / "store.duckdb"
            if not store.exists():
                raise HomeDamaged(
                    f"the home {self.path} has no views yet",
                    hint="run a flow in it first: `millstream run FLOW.py`",
                ) from None
            try:
                self._store = DuckStore(store, read_only=True)
            except HomeInUse as error:
                try:
                    self._client = LocalClient(self.path)  # its owner has just begun to answer
                except OSError:
                    raise HomeInUse(
                        f"the home {self.path} is in use by a process that does not answer yet",
                        detail=error.detail,
                        hint="try again in a moment",
                    ) from None

    def query(self, sql: str) -> Result:
        """Answer a SELECT (Spark SQL) over the views, as of one epoch."""
        if self._client is not None:
            return self._client.query(sql)
        assert self._store is not None
        return Result(self._store.query(translate(sql, self._store.tables())))

    def views(self) -> list[dict[str, Any]]:
        """The views with rows, last epoch, watermark, freshness, late and error counts."""
        if self._client is not None:
            return self._client.views()
        assert self._store is not None
        return view_rows(self._store, SystemClock().now())

    def flows(self) -> list[dict[str, Any]]:
        """The flows that have run here, and how far they have come."""
        if self._client is not None:
            return self._client.flows()
        assert self._store is not None
        return flow_rows(self._store, {})

    def watermarks(self) -> list[dict[str, Any]]:
        """How far every partition of every source has come, and which one holds its flow back."""
        if self._client is not None:
            return self._client.watermarks()
        assert self._store is not None
        return watermark_rows(self._store, None)  # no flow runs: as it was when the last one did

    def close(self) -> None:
        """Hang up."""
        for held in (self._client, self._store):
            if held is not None:
                held.close()

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
