"""Binding: ask Spark's analyser for the types of a plan, so that kernels and store know them before the first row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from millstream.engine.binding.union_types import ScanTypes, common, scans_widened, take_widened
from millstream.engine.driver.projection import through
from millstream.engine.input import prelude
from millstream.engine.input.readers.slices import empty
from millstream.engine.spark.errors import translated
from millstream.engine.spark.frames import arrow_schema
from millstream.errors import SchemaError, Unsupported
from millstream.model.aggregates.aggregate import BOOLEAN_ONLY, PLAIN_ONLY, settled_type, takes
from millstream.model.reserved import OP, PANES
from millstream.model.steps.step import INDEX, summed_type
from millstream.model.types.scalars import mean_type
from millstream.model.types.schema import TIMESTAMP, ddl_type
from millstream.model.windows.accumulation import Accumulation
from millstream.plan.rules.guards import guarded
from millstream.plan.stages import (
    ROW,
    Aggregation,
    Append,
    AsOf,
    Batches,
    Call,
    Chained,
    First,
    Join,
    Measure,
    Op,
    Over,
    Plan,
    Project,
    Regroup,
    Stored,
    Take,
    ViewStage,
    view_of,
)

Types = dict[int | str, dict[str, pa.DataType]]
"""The columns that a scan (by number) and a view's stage (by the view's name) give."""


def bind(spark: SparkSession, plan: Plan, tables: Mapping[str, DataFrame], *, retract: bool) -> Plan:
    """The plan with all types known. `retract` asks for changes that carry the old row."""
    plan = guarded(plan)
    with translated(None):
        scanned: dict[int, dict[str, pa.DataType]] = {}
        for scan in plan.scans:
            source = plan.source(scan.source)
            frame = prelude.columns(prelude.through(empty(spark, source), scan, source, tables, 0), scan)
            said = {c.name: c.sql for c in scan.columns}
            scanned[scan.id] = {f.name: f.type for f in arrow_schema(frame, said)}
        return bind_views(spark, plan, scanned, retract=retract)


def bind_views(spark: SparkSession, plan: Plan, scanned: ScanTypes, *, retract: bool) -> Plan:
    """The plan with the types of its views, from those of the columns that its scans give."""
    plan, known = scans_widened(plan, scanned)
    types: Types = dict(known.items())
    fed = plan.inputs
    views = tuple(_view(spark, v, types, retract=retract or v.name in fed) for v in plan.views)
    for view in views:
        if view.name == view_of(view.name):  # and no stage before a view
            _check_columns(view)
    return replace(plan, views=views)


def _check_columns(view: ViewStage) -> None:
    """Refuse a column that has no type."""
    for column in view.schema or ():
        if pa.types.is_null(column.type):
            raise SchemaError(
                f"the column `{column.name}` of `{view.name}` is NULL in all rows and has no type",
                hint=f"give it a type: CAST(NULL AS STRING) AS {column.name}",
            )


def _view(spark: SparkSession, view: ViewStage, types: Types, *, retract: bool) -> ViewStage:
    """The view with its types, which are added to those known: views come in the order of their chains."""
    stage = view.stage
    if isinstance(stage, Append):
        kinds = [
            _same(view_of(stage.step), n, [types[f.scan][f.columns[i]] for f in stage.feeds])
            for i, n in enumerate(stage.columns)
        ]
        stored = [pa.field(n, k) for n, k in zip(stage.columns, kinds, strict=True)]
        types[view.name] = dict(zip(stage.columns, kinds, strict=True))
        return replace(view, schema=pa.schema([*stored, *(pa.field(h, TIMESTAMP) for h in view.hidden)]))
    panes, bound, retracts = None, stage, True
    if isinstance(stage, Chained):
        bound, schema = _chained(spark, stage, types)
    else:
        filtered = view.post is not None and view.post.keep is not None
        asked = (retract or view.sink is not None) and stage.windowing.accumulation is Accumulation.RETRACTING
        computes = view.post is not None and view.post.renames is None
        bound = keyed = _aggregation(stage, types, retract=asked or computes)
        retracts = asked or filtered
        schema = result_schema(keyed)
        panes = panes_schema(keyed) if keyed.windowing.panes is not None else None
    types[view.name] = {f.name: f.type for f in schema}
    if view.post is not None:
        schema = _projected(spark, schema, [view.post])
    kinds = pa.schema([pa.field(f.name, f.type) for f in schema])
    return replace(view, stage=bound, panes=panes, schema=kinds, retracts=retracts)


def _projected(spark: SparkSession, schema: pa.Schema, ops: Sequence[Op]) -> pa.Schema:
    """The columns that ops make of others."""
    ddl = ", ".join(f"`{f.name}` {ddl_type(f.type)}" for f in schema)
    mark = [] if any(isinstance(op, Batches) for op in ops) else [f"`{OP}` STRING"]
    frame = through(spark.createDataFrame([], ", ".join([*mark, ddl])), ops)
    said = {c.name: c.sql for op in ops if isinstance(op, Project) for c in op.columns}
    return pa.schema([f for f in arrow_schema(frame, said) if f.name != OP])


def _chained(spark: SparkSession, stage: Chained, types: Types) -> tuple[Chained, pa.Schema]:
    """A chained stage with its types, and the columns of its results."""
    view = view_of(stage.step)
    sides, known = [], {}
    if isinstance(stage.what, Stored):
        kinds = {f.name: f.type for f in stage.what.schema}
        bound = replace(stage, sides=(replace(stage.sides[0], types=tuple(kinds.values())),))
        return bound, pa.schema([pa.field(c, kinds.get(c, pa.int64())) for c in stage.result])
    for side in stage.sides:
        each = [_taken(spark, take, types) for take in side.takes]
        names = tuple(dict.fromkeys((*side.columns, *side.names)))
        given = {n: [e[n] for e in each] for n in names}
        mine = {n: common(kinds) or _same(view, n, kinds) for n, kinds in given.items()}
        takes = tuple(take_widened(t, e, mine, names) for t, e in zip(side.takes, each, strict=True))
        sides.append(replace(side, takes=takes, types=tuple(mine[c] for c in side.columns)))
        _check_keys(view, {k: mine[k] for k in stage.keys})
        known.update(mine)
    bound = replace(stage, sides=tuple(sides))
    what = stage.what
    if isinstance(what, Join | AsOf):
        _check_pairs(view, bound)
    if isinstance(what, Regroup):
        measures = _measures(view, what.measures, lambda m: known[f"@{m.name}"])
        known |= {m.name: _answer(m) for m in measures}
        bound = replace(bound, what=replace(what, measures=measures))
    elif isinstance(what, First | Over):
        for sort in what.order:
            if pa.types.is_nested(known[sort.column]):
                raise SchemaError(
                    f"`{view}` cannot be put in order by {ddl_type(known[sort.column])}",
                    hint="use a field of it, or to_json(...)",
                )
        if isinstance(what, Over):
            known |= {c.name: _called(view, c, known) for c in what.calls}
        elif what.rank is not None:
            known[what.rank] = pa.int64()
    elif hasattr(what, "types"):
        known |= what.types(known)
    known |= dict.fromkeys(ROW, pa.int64())
    return bound, pa.schema([pa.field(c, known[c]) for c in stage.result])


def _taken(spark: SparkSession, take: Take, types: Types) -> dict[str, pa.DataType]:
    """The columns that a take gives."""
    known = types[take.view]
    if not take.ops:
        return known
    only = take.ops[0] if len(take.ops) == 1 else None
    names = only.renames if isinstance(only, Project) else None
    if names is not None:
        return {name: known[given] for name, given in names.items()}
    given = pa.schema([pa.field(n, t) for n, t in known.items()])
    return {f.name: f.type for f in _projected(spark, given, take.ops)}


def _check_pairs(view: str, stage: Chained) -> None:
    """Refuse keys that are of different kinds on the two sides."""
    for key in stage.keys:
        left, right = (dict(zip(s.columns, s.types, strict=True))[key] for s in stage.sides)
        alike = left == right or (pa.types.is_integer(left) and pa.types.is_integer(right))
        if not alike and not (pa.types.is_floating(left) and pa.types.is_floating(right)):
            raise SchemaError(
                f"the join of `{view}` compares {ddl_type(left)} with {ddl_type(right)}",
                hint="cast one of them, as in CAST(a.id AS BIGINT) = b.id",
            )


def _called(view: str, call: Call, known: Mapping[str, pa.DataType]) -> pa.DataType:
    """The type of a window function's result."""
    if call.function in ("row_number", "rank", "dense_rank", "ntile", "count"):
        return pa.int64()
    if call.function in ("percent_rank", "cume_dist"):
        return pa.float64()
    of = known[call.argument or ""]
    if call.function in ("sum", "avg"):
        name = str(call.function)
        if not takes(name, of):
            raise SchemaError(f"{name}(...) OVER of `{view}` needs numbers, but its argument is {ddl_type(of)}")
        return summed_type("sum", of) if name == "sum" else mean_type(of)
    return of


def result_schema(stage: Aggregation) -> pa.Schema:
    """The columns of an aggregation's answers."""
    borders = [pa.field(b, pa.int64() if b == INDEX else TIMESTAMP) for b in stage.borders]
    keys = [pa.field(n, t) for n, t in zip(stage.keys, stage.key_types, strict=True)]
    return pa.schema([*borders, *keys, *(pa.field(m.name, _answer(m)) for m in stage.measures)])


def panes_schema(stage: Aggregation) -> pa.Schema:
    """The columns of a history of panes."""
    kinds = (pa.int64(), pa.string(), pa.bool_(), pa.bool_(), TIMESTAMP, pa.int64())
    return pa.schema([*result_schema(stage), *(pa.field(n, t) for n, t in zip(PANES, kinds, strict=True))])


def _aggregation(stage: Aggregation, types: Types, *, retract: bool) -> Aggregation:
    view = view_of(stage.step)

    def kind(place: int, name: str) -> pa.DataType:
        return _same(view, name, [types[f.scan][f.columns[place]] for f in stage.feeds])

    keys = tuple(kind(i, n) for i, n in enumerate(stage.keys))
    _check_keys(view, dict(zip(stage.keys, keys, strict=True)))
    place = {m.name: len(keys) + i for i, m in enumerate(m for m in stage.measures if m.has_argument)}
    measures = _measures(view, stage.measures, lambda m: kind(place[m.name], m.name))
    return replace(stage, key_types=keys, measures=measures, retract=retract)


def _check_keys(view: str, keys: Mapping[str, pa.DataType]) -> None:
    for name, key in keys.items():
        if pa.types.is_nested(key):
            raise Unsupported(
                f"the key `{name}` of `{view}` is {key}",
                hint="key by plain values, e.g. by a field of the struct or by to_json(...)",
            )


def _measures(view: str, given: tuple[Measure, ...], argument: Callable[[Measure], pa.DataType]) -> tuple[Measure, ...]:
    """Measures with the types of their arguments."""
    measures = []
    for measure in given:
        if not measure.has_argument:
            measures.append(measure)
            continue
        found = argument(measure)
        if not takes(measure.kind, found):
            raise SchemaError(
                f"{measure.name}={measure.kind}(...) of `{view}` needs numbers, but its argument is {ddl_type(found)}",
                hint="cast it, as in ms.sum('CAST(price AS DOUBLE)')",
            )
        if measure.kind in BOOLEAN_ONLY and not pa.types.is_boolean(found):
            raise SchemaError(
                f"{measure.name}={measure.kind}(...) of `{view}` needs a condition, but its argument is "
                f"{ddl_type(found)}",
                hint="compare it, as in price > 0",
            )
        values = [f.type for f in found] if measure.kind in ("min_by", "max_by") else [found]
        if measure.kind in PLAIN_ONLY and any(pa.types.is_nested(v) for v in values):
            raise SchemaError(
                f"{measure.name}={measure.kind}(...) of `{view}` has no order over {ddl_type(found)}",
                hint="use a field of it, or to_json(...)",
            )
        measures.append(replace(measure, type=found))
    return tuple(measures)


def _answer(measure: Measure) -> pa.DataType:
    if measure.kind == "user":
        return measure.returns
    return settled_type(measure.kind, measure.type) or summed_type(measure.kind, measure.type)


def _same(step: str, name: str, kinds: list[pa.DataType]) -> pa.DataType:
    if any(k != kinds[0] for k in kinds):
        raise SchemaError(
            f"the column `{name}` of `{step}` has different types in the streams of a union: "
            + ", ".join(ddl_type(k) for k in kinds),
            hint="cast one of them in a .select(...)",
        )
    return kinds[0]
