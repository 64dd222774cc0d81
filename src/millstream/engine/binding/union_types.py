"""Unions of values of different types: numbers become the widest type, and NULL takes the type of its counterpart, as
in SQL.

The SQL layer casts where a query states the types (`sql/relations/from_items.py`). Only the engine knows the types of
some expressions; it casts those when it binds a plan. Fingerprints are already known then, so no view changes its
identity.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from millstream.model.types.scalars import widest
from millstream.model.types.schema import ddl_type
from millstream.plan.operators.inputs import Take
from millstream.plan.operators.operator import Operator
from millstream.plan.parts import Column, Feed, Project
from millstream.plan.plan import Plan, Scan

ScanTypes = Mapping[int, Mapping[str, pa.DataType]]
"""By scan, the types of its columns."""


_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}
"""The number of digits of integer types."""
_MOST_DIGITS = 38


def common(kinds: Collection[pa.DataType]) -> pa.DataType | None:
    """The common type of values of these types in a union; None if there is none."""
    found = {k for k in kinds if not pa.types.is_null(k)}
    if len(found) < 2:
        return next(iter(found or kinds))
    decimals = [k for k in found if pa.types.is_decimal(k)]
    plain = found.difference(decimals)
    if not decimals or (plain and widest(plain) is None):
        return widest(found)
    if any(pa.types.is_floating(k) for k in plain):
        return pa.float64()
    scale = max(k.scale for k in decimals)
    digits = scale + max([*(k.precision - k.scale for k in decimals), *(_DIGITS[k] for k in plain)])
    return pa.decimal128(digits, scale) if digits <= _MOST_DIGITS else None


def scans_widened(plan: Plan, types: ScanTypes) -> tuple[Plan, dict[int, dict[str, pa.DataType]]]:
    """The plan whose operators read columns of one type from all their scans, and the resulting columns of the
    scans.
    """
    scans = {s.id: _Columns(s, dict(types[s.id])) for s in plan.scans}
    views = tuple(replace(v, operator=_widened(v.operator, scans)) for v in plan.views)
    known = {i: s.types for i, s in scans.items()}
    if all(s.added == {} for s in scans.values()):
        return plan, known
    return replace(plan, scans=tuple(s.scan for s in scans.values()), views=views), known


def take_widened(
    take: Take, types: Mapping[str, pa.DataType], target: Mapping[str, pa.DataType], names: Iterable[str]
) -> Take:
    """A take whose columns have the wanted types."""
    casts = {n for n in names if types[n] != target[n]}
    if not casts:
        return take
    last = take.ops[-1] if take.ops else None
    if isinstance(last, Project):
        columns = tuple(Column(c.name, _cast(c.sql, target[c.name])) if c.name in casts else c for c in last.columns)
        return replace(take, ops=(*take.ops[:-1], replace(last, columns=columns)))
    quoted = ((n, f"`{n}`") for n in names)
    columns = tuple(Column(n, _cast(sql, target[n]) if n in casts else sql) for n, sql in quoted)
    return replace(take, ops=(*take.ops, Project(None, columns)))


@dataclass
class _Columns:
    """The columns of a scan, and those that are added to it."""

    before: Scan
    types: dict[str, pa.DataType]
    added: dict[str, str] = field(default_factory=dict)
    """The names of added columns, by their SQL."""

    def sql(self, name: str) -> str:
        """The SQL of a column."""
        return next(c.sql for c in self.scan.columns if c.name == name)

    def add(self, sql: str, kind: pa.DataType) -> str:
        """The name of a column with this SQL."""
        name = self.added.setdefault(sql, f"$wide{len(self.added)}")
        self.types[name] = kind
        return name

    @property
    def scan(self) -> Scan:
        """The scan with all of them."""
        return replace(self.before, columns=(*self.before.columns, *(Column(n, s) for s, n in self.added.items())))


def _widened(operator: Operator, scans: Mapping[int, _Columns]) -> Operator:
    if not operator.reads_scans or len(operator.feeds) < 2:
        return operator
    keys = len(operator.keys)
    wide: dict[int, pa.DataType] = {}
    for place in range(len(operator.feeds[0].columns)):
        kinds = {scans[f.scan].types[f.columns[place]] for f in operator.feeds}
        found = common(kinds) if len(kinds) > 1 else None
        if found is not None:
            wide[place] = pa.float64() if place < keys and pa.types.is_floating(found) else found
    if not wide:
        return operator
    return replace(operator, feeds=tuple(_feed(f, scans[f.scan], wide, keys) for f in operator.feeds))


def _feed(feed: Feed, scan: _Columns, wide: Mapping[int, pa.DataType], keys: int) -> Feed:
    """A feed with columns of other types, and with the hash of the converted keys."""
    columns = list(feed.columns)
    for place, kind in wide.items():
        sql = scan.sql(columns[place])
        if scan.types[columns[place]] != kind:
            sql = _cast(sql, kind)
        if place < keys and pa.types.is_floating(kind):
            sql = f"({sql} + 0.0D)"  # -0.0 and 0.0 are one key
        if sql != scan.sql(columns[place]):
            columns[place] = scan.add(sql, kind)
    made = replace(feed, columns=tuple(columns))
    if made.columns[:keys] == feed.columns[:keys]:
        return made
    return replace(made, hash=scan.add(f"xxhash64({', '.join(scan.sql(c) for c in columns[:keys])})", pa.int64()))


def _cast(sql: str, kind: pa.DataType) -> str:
    return f"CAST({sql} AS {ddl_type(kind)})"
