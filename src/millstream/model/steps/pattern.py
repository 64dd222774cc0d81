"""The pattern-matching step: which rows of each key match a pattern, and what each match returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from millstream.errors import DefinitionError, Origin, SchemaError, Unsupported
from millstream.model.connectors import check_name
from millstream.model.expression import Expr, col
from millstream.model.origin import here
from millstream.model.patterns.navigation import Names, Navigation, Reading, parsed
from millstream.model.patterns.navigation import checked as sound
from millstream.model.patterns.pattern import Pattern, Skip
from millstream.model.patterns.tree import Never, Part, checked, named, unwanted, walk
from millstream.model.types.duration import Duration
from millstream.model.types.schema import Field, Schema, ddl_type

if TYPE_CHECKING:
    from millstream.model.steps.step import Select, Step

TIMED_OUT = "$timed_out"


@dataclass(frozen=True, eq=False)
class Matched:
    """Rows of each key, in event-time order, that match a pattern. The result has the values that measures refer to."""

    input: Step
    keys: tuple[tuple[str, Expr], ...]
    time: str
    slack: int
    """How long after the time of a row others of that time may still arrive, in micros."""
    order: tuple[tuple[str, bool, bool], ...]
    """The order of rows with equal times: column, descending, NULL first."""
    pattern: Part
    conditions: Mapping[str, tuple[Reading, ...]]
    outputs: tuple[tuple[str, Navigation], ...]
    skip: Skip
    within: Duration | None
    all_rows: bool
    timeouts: bool
    origin: Origin | None = None

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables that rows can match, then those that must not occur."""
        return named(self.pattern) + unwanted(self.pattern)

    @property
    def added(self) -> tuple[tuple[str, Expr], ...]:
        """The keys that are not columns of the row."""
        return tuple((n, e) for n, e in self.keys if e.spark() != f"`{n}`")

    @property
    def rows(self) -> tuple[str, ...]:
        """The columns of a row that the result has: all of them if all rows are returned."""
        return self.input.schema.names if self.all_rows else ()

    @cached_property
    def schema(self) -> Schema:
        """The keys, the whole row if all rows are returned, then the values."""
        before = self.input.schema
        keys = [Field(n, e.type_in(before)) for n, e in self.keys]
        row = [f for f in before if f.name in self.rows and f.name not in dict(self.keys)]
        values = [Field(n, navigation.type_in(before)) for n, navigation in self.outputs]
        return Schema((*keys, *row, *values, *([Field(TIMED_OUT, pa.bool_())] if self.timeouts else [])))


def matched(
    step: Step,
    keys: tuple[tuple[str, Expr], ...],
    time: str | None,
    tree: Part,
    conditions: Mapping[str, exp.Expr],
    measures: Mapping[str, exp.Expr],
    *,
    skip: Skip,
    within: Duration | None,
    order: tuple[tuple[str, bool, bool], ...] = (),
    subsets: Mapping[str, tuple[str, ...]] | None = None,
    all_rows: bool = False,
    timeouts: bool = False,
    origin_of: Callable[[exp.Expr], Origin | None] = lambda _: here(),
    build: Callable[[exp.Expr], Expr] = sound,
) -> Select:
    """The checked step of a pattern whose conditions and measures are trees, followed by the measures."""
    from millstream.model.steps.step import Select  # that module imports this one

    step, time, slack = _in_order(step, time)
    schema = step.schema
    taken, also = named(checked(tree)), unwanted(tree)
    known: dict[str, tuple[str, ...]] = {n.lower(): (n,) for n in (*taken, *also)}
    if len(known) != len(taken) + len(also):
        raise DefinitionError("two variables differ only in case", origin=here())
    for name, parts in (subsets or {}).items():
        if name.lower() in known or not parts:
            raise DefinitionError(f"the name `{name}` for several variables is already in use", origin=here())
        known[name.lower()] = tuple(_variable(p, taken) for p in parts)
    for name in conditions:
        if name.lower() not in known or known[name.lower()] != (name,):
            raise DefinitionError(
                f"there is a condition for `{name}`, which is not a variable of the pattern",
                detail="its variables are: " + ", ".join((*taken, *also)),
                origin=origin_of(conditions[name]),
            )
    if skip.variable is not None:
        skip = Skip(skip.to, _variable(skip.variable, taken))
    if within is None and (timeouts or any(isinstance(p, Never) for p in walk(tree))):
        raise DefinitionError(
            "time-outs need a limit on how long a match may take", hint="add WITHIN, or .within(...)", origin=here()
        )
    read = {n: Names(known, schema, n, build).condition(c, origin_of(c)) for n, c in conditions.items()}
    for readings in read.values():
        for reading in readings:
            _check_condition(reading, schema)
    outputs: dict[Navigation, str] = {}
    gives: list[tuple[str, Expr]] = [(n, col(n)) for n in (schema.names if all_rows else ())]
    gives += [(n, col(n)) for n, _ in keys if not all_rows or n not in schema]
    for name, measure in measures.items():
        check_name(name, "column")
        reading = Names(known, schema, None, build).measure(measure, origin_of(measure))
        places = {p: outputs.setdefault(n, f"$m{len(outputs)}") for p, n in reading.navigations.items()}
        gives.append((name, reading.tree.substitute({p: col(n) for p, n in places.items()})))
    if timeouts:
        gives.append((TIMED_OUT.removeprefix("$"), col(TIMED_OUT)))
    if not gives:
        raise DefinitionError("a match needs at least one measure", origin=here())
    values = tuple((name, navigation) for navigation, name in outputs.items())
    match = Matched(step, keys, time, slack, order, tree, read, values, skip, within, all_rows, timeouts, here())
    return Select(match, tuple(gives), Schema.of(Field(n, e.type_in(match.schema)) for n, e in gives))


def of_pattern(
    step: Step,
    keys: tuple[tuple[str, Expr], ...],
    time: str | None,
    pattern: Pattern,
    measures: Mapping[str, str | Expr],
    *,
    all_rows: bool = False,
    timeouts: bool = False,
) -> Select:
    """The step of a pattern defined in Python."""
    if not isinstance(pattern, Pattern):
        raise DefinitionError(
            f"{pattern!r} is not a pattern", hint='e.g. ms.pattern().then("a", "price > 100")', origin=here()
        )
    return matched(
        step,
        keys,
        time,
        pattern.tree(),
        {n: parsed(c) for n, c in pattern.conditions.items()},
        {n: parsed(m) for n, m in measures.items()},
        skip=pattern.skip,
        within=pattern.longest,
        subsets=pattern.subsets,
        all_rows=all_rows,
        timeouts=timeouts,
    )


def _in_order(step: Step, time: str | None) -> tuple[Step, str, int]:
    """A step whose rows can be ordered by event time, the column with it, and its slack."""
    from millstream.model.steps.event_times import nearest, times_of  # that module imports this one
    from millstream.model.steps.relations.hold_until import Settling
    from millstream.model.steps.step import changes

    known = times_of(step)
    name = time if time is not None else nearest(step) or ""
    if name not in known:
        raise Unsupported(
            f"`{name}` has no watermark here" if name else "a pattern needs an event time",
            detail="rows are matched in the order of event time, when the watermark has passed them",
            hint="declare it with the source (event_time=..., in SQL WATERMARK FOR ...), and keep its column",
            origin=here(),
        )
    slack = known[name]
    return (Settling(step, name, here()) if changes(step) else step), name, slack


def _variable(name: str, known: tuple[str, ...]) -> str:
    variable = next((n for n in known if n.lower() == name.lower()), None)
    if variable is None:
        raise DefinitionError(
            f"`{name}` is not a variable of the pattern", detail="its variables are: " + ", ".join(known), origin=here()
        )
    return variable


def _check_condition(reading: Reading, schema: Schema) -> None:
    kind = reading.type_in(schema)
    if kind is not None and not pa.types.is_boolean(kind):
        raise SchemaError(
            f"a variable needs a condition, but this is {ddl_type(kind)}",
            hint="compare it with something, as in `price > 100`",
            origin=reading.tree.origin or here(),
        )
    facts = [n.kind for n in reading.navigations.values() if n.kind in ("classifier", "number")]
    if facts:
        raise DefinitionError(
            "a condition cannot use CLASSIFIER() or MATCH_NUMBER()", origin=reading.tree.origin or here()
        )
    if any(n.mode == "final" for n in reading.navigations.values()):
        raise DefinitionError("FINAL has no meaning in a condition", origin=reading.tree.origin or here())
