"""The rows of stored tables."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.errors import Origin
from millstream.model.types.schema import Schema


@dataclass(frozen=True, eq=False)
class TableRows:
    """The current rows of a stored table, and their changes."""

    name: str
    schema: Schema
    origin: Origin | None = None


@dataclass(frozen=True, eq=False)
class OneRow(TableRows):
    """One constant row that exists from the first epoch: the input of a query without FROM."""
