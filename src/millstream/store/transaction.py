"""One transaction of the store."""

from __future__ import annotations

from collections.abc import Callable

import duckdb

from millstream.store.open import failed


class Transaction:
    """A cursor inside one transaction: committed at the end, rolled back on any error."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection, noted: Callable[..., None]) -> None:
        self._cursor = cursor
        self._noted = noted

    def __enter__(self) -> duckdb.DuckDBPyConnection:
        self._cursor.execute("SET TimeZone = 'UTC'")
        self._cursor.execute("BEGIN")
        return self._cursor

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                self._cursor.execute("COMMIT")
            else:
                self._cursor.execute("ROLLBACK")
        except duckdb.Error as late:
            self._noted(late, committing=error is None)
            if error is None:
                raise failed(late) from late
        finally:
            self._cursor.close()
        if isinstance(error, duckdb.Error):
            self._noted(error)
            raise failed(error) from error
