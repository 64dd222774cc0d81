"""Connections to DuckDB for expected results. A new instance takes 30 ms, so the tests of a process share two."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import duckdb

_numbers = count()


@functools.cache
def _instance(null_order: str) -> duckdb.DuckDBPyConnection:
    """One per order of NULLs, which is a setting of the instance."""
    connection = duckdb.connect(config={"threads": 1, "default_null_order": null_order})
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    return connection


@contextmanager
def connected(*, as_spark: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with an empty database of its own, which ends with it."""
    connection, name = _attached(as_spark)
    with connection:
        try:
            yield connection
        finally:
            connection.execute(f"USE memory; DETACH {name}")


def connection(*, as_spark: bool = False) -> duckdb.DuckDBPyConnection:
    """The same for a test that cannot say when it ends; the database stays as long as the process."""
    return _attached(as_spark)[0]


def _attached(as_spark: bool) -> tuple[duckdb.DuckDBPyConnection, str]:
    """A connection and the name of its database. `as_spark`: NULLs are sorted as Spark sorts them."""
    name = f"empty_{next(_numbers)}"
    connection = _instance("nulls_first_on_asc_last_on_desc" if as_spark else "nulls_last").cursor()
    connection.execute(f"ATTACH ':memory:' AS {name}; USE {name}")
    return connection, name
