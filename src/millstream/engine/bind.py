"""Binding: ask Spark's analyser for the types of a plan, so that kernels and store know them before the first row."""

from __future__ import annotations

from collections.abc import Mapping
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
from millstream.plan.stages import Aggregation, Append, Measure, Plan, ViewStage


def bind(spark: SparkSession, plan: Plan, tables: Mapping[str, DataFrame], *, retract: bool) -> Plan:
    """The plan with all types known. `retract` asks for changes that carry the old row."""
    with translated(None):
        types = {}
        for scan in plan.scans:
            source = plan.source(scan.source)
            frame = prelude.columns(prelude.through(empty(spark, source), scan, source, tables, 0), scan)
            types[scan.id] = {f.name: f.type for f in to_arrow_schema(frame.schema, timezone="UTC")}
        return replace(plan, views=tuple(_view(spark, v, types, retract=retract) for v in plan.views))


def _view(
    spark: SparkSession, view: ViewStage, types: dict[int, dict[str, pa.DataType]], *, retract: bool
) -> ViewStage:
    stage = view.stage
    if isinstance(stage, Append):
        kinds = [
            _same(stage.step, n, [types[f.scan][f.columns[i]] for f in stage.feeds])
            for i, n in enumerate(stage.columns)
        ]
        stored = [pa.field(n, k) for n, k in zip(stage.columns, kinds, strict=True)]
        return replace(view, schema=pa.schema([*stored, *(pa.field(h, TIMESTAMP) for h in view.hidden)]))
    filtered = view.post is not None and view.post.keep is not None
    asked = (retract or view.sink is not None) and stage.windowing.accumulation is Accumulation.RETRACTING
    bound = _aggregation(stage, types, retract=asked or filtered)
    schema = result_schema(bound)
    if view.post is not None:
        ddl = ", ".join(f"`{f.name}` {ddl_type(f.type)}" for f in schema)
        frame = spark.createDataFrame([], ddl)
        frame = frame if view.post.keep is None else frame.where(view.post.keep)
        frame = frame.selectExpr(*(f"{c.sql} AS `{c.name}`" for c in view.post.columns))
        schema = to_arrow_schema(frame.schema, timezone="UTC")
    panes = panes_schema(bound) if bound.windowing.panes is not None else None
    return replace(view, stage=bound, panes=panes, schema=pa.schema([pa.field(f.name, f.type) for f in schema]))


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


def _aggregation(stage: Aggregation, types: dict[int, dict[str, pa.DataType]], *, retract: bool) -> Aggregation:
    def kind(place: int, name: str) -> pa.DataType:
        return _same(stage.step, name, [types[f.scan][f.columns[place]] for f in stage.feeds])

    keys = tuple(kind(i, n) for i, n in enumerate(stage.keys))
    for name, key in zip(stage.keys, keys, strict=True):
        if pa.types.is_nested(key):
            raise Unsupported(
                f"the key `{name}` of `{stage.step}` is {key}",
                hint="key by plain values, e.g. by a field of the struct or by to_json(...)",
            )
    place = len(keys)
    measures = []
    for measure in stage.measures:
        if not measure.has_argument:
            measures.append(measure)
            continue
        found = kind(place, measure.name)
        place += 1
        if measure.kind in ("sum", "avg", "variance", "stddev") and not _number(found):
            raise SchemaError(
                f"{measure.name}={measure.kind}(...) of `{stage.step}` needs numbers, "
                f"but its argument is {ddl_type(found)}",
                hint="cast it, as in ms.sum('CAST(price AS DOUBLE)')",
            )
        if measure.kind in ("min", "max", "count_distinct") and pa.types.is_nested(found):
            raise SchemaError(
                f"{measure.name}={measure.kind}(...) of `{stage.step}` has no order over {ddl_type(found)}",
                hint="use a field of it, or to_json(...)",
            )
        measures.append(replace(measure, type=found))
    return replace(stage, key_types=keys, measures=tuple(measures), retract=retract)


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
