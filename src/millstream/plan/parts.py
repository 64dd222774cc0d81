"""The parts of a plan: native columns and steps, feeds, measures. Frozen values, shared by `plan/`, kernels and
engine.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millstream.model.aggregates.aggregate import Aggregator
from millstream.model.types.schema import Field, Schema

INEXACT = frozenset({"variance", "stddev", "var_pop", "stddev_pop", "skewness", "kurtosis", "user", "approx_top_k"})
"""Aggregates whose partials may not be folded in any grouping and order."""

_QUOTED = re.compile("`((?:[^`]|``)+)`")


@dataclass(frozen=True)
class Column:
    """A column computed natively: its name and Spark SQL."""

    name: str
    sql: str

    @property
    def only_names(self) -> str | None:
        """The column whose quoted name is the SQL; None if the SQL computes something."""
        quoted = _QUOTED.fullmatch(self.sql)
        return None if quoted is None else quoted[1].replace("``", "`")


@dataclass(frozen=True)
class Project:
    """Filter, then compute columns (native)."""

    keep: str | None
    columns: tuple[Column, ...]

    @property
    def renames(self) -> dict[str, str] | None:
        """New names with the columns they stand for, if it only renames."""
        found = {c.name: c.only_names for c in self.columns}
        names = {new: old for new, old in found.items() if old is not None}
        return names if self.keep is None and len(names) == len(found) else None


@dataclass(frozen=True)
class NativeProjection:
    """A projection that kernels evaluate themselves, as nested tuples (see `plan/lowering/native_subset.py`)."""

    keep: tuple[Any, ...] | None
    columns: tuple[tuple[str, tuple[Any, ...]], ...]

    @property
    def renames(self) -> bool:
        """Whether it only renames and selects columns."""
        return self.keep is None and all(value[0] == "col" for _, value in self.columns)


@dataclass(frozen=True)
class Explode:
    """One row per element of an array (native)."""

    name: str
    array: str
    keep_empty: bool


@dataclass(frozen=True, eq=False)
class Batches:
    """A Python function over batches of rows, on the executors."""

    function: Callable[[Any], Any]
    takes: str
    schema: Schema
    identity: str


@dataclass(frozen=True)
class Lookup:
    """A broadcast join to a stored table (native)."""

    table: str
    on: tuple[tuple[str, str], ...]
    columns: tuple[Field, ...]
    required: bool


Op = Project | Explode | Batches | Lookup


@dataclass(frozen=True)
class Feed:
    """The columns of a scan that an operator reads. `record` is SQL for the whole row as JSON, for late rows."""

    scan: int
    source: str
    keep: str | None
    record: str
    columns: tuple[str, ...]
    """For pass-through operators: the view's columns. For an aggregation: its keys, then the argument of each aggregate
    that has one.
    """
    hash: str = ""
    slice: str = ""
    gap: str = ""
    """For sessions whose gap is an expression: the column with the gap in micros."""


@dataclass(frozen=True, eq=False)
class Measure:
    """One aggregate of an aggregation; `type` is the type of its argument, once bound."""

    name: str
    kind: str
    has_argument: bool
    user: Aggregator | None = None
    returns: pa.DataType | None = None
    type: pa.DataType | None = None

    @property
    def is_exact(self) -> bool:
        """Whether partials may be folded in any grouping and order. Sums of floating-point numbers may not."""
        of_floats = self.type is not None and bool(pa.types.is_floating(self.type))
        return self.kind not in INEXACT and not (self.kind in ("sum", "avg") and of_floats)
