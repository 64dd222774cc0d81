"""Shared partials: aggregations with the same keys over one scan combine the rows once.

Rows are combined by key and by the slices of the finest window, with the measures of all these aggregations. The
condition of an aggregation becomes a condition of its measures. Partials are far fewer than rows, and the partials of
each aggregation are folded from them: its slices are unions of the finest ones.

`kernels/intake.py` calls `bases` and `shares`. The result is what each aggregation would have combined alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import polars as pl
import pyarrow as pa

from millstream.kernels.aggregates.combine import fold, group_columns, in_order, sums_fit
from millstream.kernels.aggregates.partials import PARTIALS, by_expressions
from millstream.kernels.scan_input import Role
from millstream.kernels.windows import assign, late_rows
from millstream.model.windows.window import Window
from millstream.plan.operators.aggregates.aggregation import Aggregation
from millstream.plan.parts import Measure

SHARED = frozenset({"count", "sum", "avg", "min", "max", "bool_and", "bool_or"})
"""Aggregates whose partials are a number or two: folding them again costs little."""
_ALIKE = {"avg": "sum"}
"""Aggregates with the partials of another one."""


@dataclass(frozen=True)
class Base:
    """Aggregations whose partials are folded from one: that of the first, which has the finest slices."""

    roles: list[Role] = field(default_factory=list)


@dataclass(frozen=True)
class ViewPartials:
    """What one aggregation gets of some rows: partials, and how many rows its condition kept, and were late for it."""

    role: Role
    partials: pl.DataFrame
    kept: int
    late: int


def bases(roles: Sequence[Role]) -> tuple[list[Base], list[Role]]:
    """The aggregations that share partials, and the roles that share with none."""
    by_keys: dict[tuple[str, ...], list[Base]] = {}
    others: list[Role] = []
    for role in sorted(roles, key=_width):
        if not _may_share(role):
            others.append(role)
            continue
        keys = (role.feed.hash, *role.feed.columns[: len(role.operator.keys)])
        known = by_keys.setdefault(keys, [])
        fitting = next((base for base in reversed(known) if _contains(role, base.roles[0])), None)  # the coarsest
        if fitting is None:
            known.append(Base([role]))
        else:
            fitting.roles.append(role)
    found = [base for some in by_keys.values() for base in some]
    others += [base.roles[0] for base in found if len(base.roles) == 1]
    return [base for base in found if len(base.roles) > 1], others


def _may_share(role: Role) -> bool:
    operator = role.operator
    if not isinstance(operator, Aggregation) or operator.keeps_records or not isinstance(operator.window, Window):
        return False
    return all(m.kind in SHARED and by_expressions(m) and not _is_long(m) for m in operator.measures)


def _is_long(measure: Measure) -> bool:
    """Whether its sum might need more digits than a number of 64 bits has."""
    if measure.type is None or measure.kind not in ("sum", "avg"):
        return False
    return not pa.types.is_integer(measure.type)


def _width(role: Role) -> float:
    """The length of its slices; those of a global window are the coarsest."""
    window = role.operator.window if isinstance(role.operator, Aggregation) else None
    return window.slice.micros if isinstance(window, Window) and not window.is_global else float("inf")


def _contains(coarse: Role, fine: Role) -> bool:
    """Whether slices of one aggregation are unions of slices of the other."""
    window, within = coarse.operator.window, fine.operator.window
    if window.is_global:
        return True
    width, apart = within.slice.micros, window.offset.micros - within.offset.micros
    return not within.is_global and window.slice.micros % width == 0 and apart % width == 0


@dataclass(frozen=True)
class _Term:
    """A measure over the rows that meet a condition. Equal ones are computed once."""

    kind: str
    argument: str | None
    condition: str | None

    def value(self) -> pl.Expr | None:
        """The values that are aggregated. A row that does not meet the condition has none."""
        if self.condition is None:
            return None if self.argument is None else pl.col(self.argument)
        value = pl.lit(1, pl.Int8) if self.argument is None else pl.col(self.argument)
        return pl.when(pl.col(self.condition)).then(value)


def shares(base: Base, rows: pl.DataFrame) -> list[ViewPartials] | None:
    """What each aggregation gets of the rows of a scan; None if a sum might be too large, so that each must combine
    the rows alone and report it.
    """
    terms: dict[_Term, Measure] = {}
    for role in base.roles:
        for measure, term in _terms(role):
            terms.setdefault(term, replace(measure, name=f"{len(terms)}", kind=term.kind))
    sums = {term.argument for term in terms if term.kind == "sum"}
    if not all(sums_fit(rows[name]) for name in sums if name is not None):
        return None
    finest = base.roles[0]
    by = [pl.col(c).alias(n) for c, n in zip(_group_of_rows(finest), _group(finest), strict=True)]
    exprs = [e for term, m in terms.items() for e in PARTIALS[m.kind].combine(m, term.value())]
    partials = rows.group_by(by).agg(exprs)
    return [_share(role, partials, terms, is_finest=_width(role) == _width(finest)) for role in base.roles]


def _terms(role: Role) -> Iterator[tuple[Measure, _Term]]:
    """The measures of an aggregation, and last the number of its rows."""
    operator, feed = role.operator, role.feed
    arguments = iter(feed.columns[len(operator.keys) :])
    for measure in operator.measures:
        argument = next(arguments) if measure.has_argument else None
        yield measure, _Term(_ALIKE.get(measure.kind, measure.kind), argument, feed.keep)
    yield Measure("", "count", has_argument=False), _Term("count", None, feed.keep)


def _group_of_rows(role: Role) -> list[str]:
    """The columns of a scan that rows are grouped by: hash, slice, keys."""
    return [role.feed.hash, role.feed.slice, *role.feed.columns[: len(role.operator.keys)]]


def _group(role: Role) -> list[str]:
    """Their names among shared partials."""
    return ["$h", "$s", *(f"$key{i}" for i in range(len(role.operator.keys)))]


def _share(role: Role, partials: pl.DataFrame, terms: dict[_Term, Measure], *, is_finest: bool) -> ViewPartials:
    """The partials of one aggregation."""
    operator = role.operator
    columns = [pl.col(c).alias(n) for c, n in zip(_group(role), ["$h", "$s", *operator.keys], strict=True)]
    for measure, term in _terms(role):
        shared = terms[term]
        parts = [e.meta.output_name() for e in PARTIALS[term.kind].combine(shared, term.value())]
        columns += [pl.col(part).alias(measure.name + part.removeprefix(shared.name)) for part in parts]
    mine = assign.sliced(operator, partials.select(columns))
    kept = mine if role.feed.keep is None else mine.filter(pl.col("$n") > 0)
    in_time, late = late_rows.in_time(operator, kept, role.watermark)
    rows = int(kept["$n"].sum())
    is_late = int(kept["$n"].filter(late).sum()) if late.any() else 0
    by = group_columns(operator)
    return ViewPartials(role, (in_order if is_finest else fold)(operator, in_time, by), rows, is_late)
