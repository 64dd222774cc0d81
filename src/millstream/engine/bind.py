"""Binding: ask Spark's analyser for the types of a plan, so that kernels and store know them before the first row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from millstream.engine import prelude
from millstream.engine.errors import translated
from millstream.engine.readers import empty
from millstream.errors import SchemaError, Unsupported
from millstream.model.accumulation import Accumulation
from millstream.model.schema import TIMESTAMP, ddl_type
from millstream.model.step import INDEX, summed_type
from millstream.plan.stages import (
    ROW,
    Aggregation,
    Append,
    Chained,
    First,
    Measure,
    Plan,
    Project,
    Regroup,
    ViewStage,
    view_of,
)

Types = dict[int | str, dict[str, pa.DataType]]
"""The columns that a scan (by number) and a view's stage (by the view's name) give."""


def bind(spark: SparkSession, plan: Plan, tables: Mapping[str, DataFrame], *, retract: bool) -> Plan:
    """The plan with all types known. `retract` asks for changes that carry the old row."""
    with translated(None):
        types: Types = {}
        for scan in plan.scans:
            source = plan.source(scan.source)
            frame = prelude.columns(prelude.through(empty(spark, source), scan, source, tables, 0), scan)
            types[scan.id] = {f.name: f.type for f in to_arrow_schema(frame.schema, timezone="UTC")}
        fed = plan.inputs
        return replace(plan, views=tuple(_view(spark, v, types, retract=retract or v.name in fed) for v in plan.views))


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
    panes, bound = None, stage
    if isinstance(stage, Chained):
        bound, schema = _chained(spark, stage, types)
    else:
        filtered = view.post is not None and view.post.keep is not None
        asked = (retract or view.sink is not None) and stage.windowing.accumulation is Accumulation.RETRACTING
        bound = keyed = _aggregation(stage, types, retract=asked or filtered)
        schema = result_schema(keyed)
        panes = panes_schema(keyed) if keyed.windowing.panes is not None else None
    types[view.name] = {f.name: f.type for f in schema}
    if view.post is not None:
        schema = _projected(spark, schema, view.post)
    return replace(view, stage=bound, panes=panes, schema=pa.schema([pa.field(f.name, f.type) for f in schema]))


def _projected(spark: SparkSession, schema: pa.Schema, project: Project) -> pa.Schema:
    """The columns that a projection makes of others."""
    ddl = ", ".join(f"`{f.name}` {ddl_type(f.type)}" for f in schema)
    frame = spark.createDataFrame([], ddl)
    frame = frame if project.keep is None else frame.where(project.keep)
    frame = frame.selectExpr(*(f"{c.sql} AS `{c.name}`" for c in project.columns))
    return to_arrow_schema(frame.schema, timezone="UTC")


def _chained(spark: SparkSession, stage: Chained, types: Types) -> tuple[Chained, pa.Schema]:
    """A chained stage with its types, and the columns of its results."""
    known = types[stage.input]
    if stage.take is not None:
        names = stage.take.renames
        if names is not None:
            known = {name: known[given] for name, given in names.items()}
        else:
            given = pa.schema([pa.field(n, t) for n, t in known.items()])
            known = {f.name: f.type for f in _projected(spark, given, stage.take)}
    view = view_of(stage.step)
    _check_keys(view, {k: known[k] for k in stage.keys})
    bound = replace(stage, types=tuple(known[c] for c in stage.columns))
    if isinstance(stage.what, Regroup):
        measures = _measures(view, stage.what.measures, lambda m: known[f"@{m.name}"])
        answers = [pa.field(m.name, _answer(m)) for m in measures]
        keys = [pa.field(k, known[k]) for k in stage.keys]
        return replace(bound, what=Regroup(measures)), pa.schema([*keys, *answers])
    if isinstance(stage.what, First):
        for sort in stage.what.order:
            if pa.types.is_nested(known[sort.column]):
                raise SchemaError(
                    f"`{view}` cannot be put in order by {ddl_type(known[sort.column])}",
                    hint="use a field of it, or to_json(...)",
                )
    numbers = {*ROW, stage.what.rank} if isinstance(stage.what, First) else set()
    return bound, pa.schema([pa.field(c, pa.int64() if c in numbers else known[c]) for c in stage.result])


def result_schema(stage: Aggregation) -> pa.Schema:
    """The columns of an aggregation's answers."""
    borders = [pa.field(b, pa.int64() if b == INDEX else TIMESTAMP) for b in stage.borders]
    keys = [pa.field(n, t) for n, t in zip(stage.keys, stage.key_types, strict=True)]
    return pa.schema([*borders, *keys, *(pa.field(m.name, _answer(m)) for m in stage.measures)])


def panes_schema(stage: Aggregation) -> pa.Schema:
    """The columns of a history of panes."""
    marks = [("pane", pa.int64()), ("timing", pa.string()), ("is_first", pa.bool_()), ("is_last", pa.bool_())]
    clock = [("watermark", TIMESTAMP), ("epoch", pa.int64())]
    return pa.schema([*result_schema(stage), *(pa.field(n, t) for n, t in (*marks, *clock))])


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
        if measure.kind in ("sum", "avg", "variance", "stddev") and not _number(found):
            raise SchemaError(
                f"{measure.name}={measure.kind}(...) of `{view}` needs numbers, but its argument is {ddl_type(found)}",
                hint="cast it, as in ms.sum('CAST(price AS DOUBLE)')",
            )
        if measure.kind in ("min", "max", "count_distinct") and pa.types.is_nested(found):
            raise SchemaError(
                f"{measure.name}={measure.kind}(...) of `{view}` has no order over {ddl_type(found)}",
                hint="use a field of it, or to_json(...)",
            )
        measures.append(replace(measure, type=found))
    return tuple(measures)


def _answer(measure: Measure) -> pa.DataType:
    if measure.kind in ("count", "count_distinct"):
        return pa.int64()
    if measure.kind in ("avg", "variance", "stddev"):
        return pa.float64()
    if measure.kind == "user":
        return measure.returns
    return summed_type(measure.kind, measure.type)


def _same(step: str, name: str, kinds: list[pa.DataType]) -> pa.DataType:
    if any(k != kinds[0] for k in kinds):
        raise SchemaError(
            f"the column `{name}` of `{step}` has different types in the streams of a union: "
            + ", ".join(ddl_type(k) for k in kinds),
            hint="cast one of them in a .select(...)",
        )
    return kinds[0]


def _number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
