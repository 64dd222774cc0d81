"""Binding: queries Spark's analyser for the types of a plan, so that kernels and store know them before the first row.

The engine binds a plan once, before its first epoch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from millstream.engine.binding.union_types import ScanTypes, common, scans_widened, take_widened
from millstream.engine.driver.projection import through
from millstream.engine.input import prelude
from millstream.engine.input.readers.slices import empty
from millstream.engine.spark.errors import translated
from millstream.engine.spark.frames import arrow_schema
from millstream.errors import SchemaError
from millstream.model.reserved import OP
from millstream.model.types.schema import TIMESTAMP, ddl_type
from millstream.plan.operators.inputs import Take
from millstream.plan.operators.measures import check_keys, same_type
from millstream.plan.operators.operator import ROW, Operator, view_of
from millstream.plan.parts import Op, Project
from millstream.plan.plan import Plan, PlannedView
from millstream.plan.rules.guards import guarded

Types = dict[int | str, dict[str, pa.DataType]]
"""The columns of a scan (by number) and of a view's operator (by the view's name)."""


def bind(spark: SparkSession, plan: Plan, tables: Mapping[str, DataFrame], *, retract: bool) -> Plan:
    """The plan with all types known. `retract` requests changes that carry the old row."""
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
    """The plan with the types of its views, from the column types of its scans."""
    plan, known = scans_widened(plan, scanned)
    typed = ((s, pa.schema([(c.name, known[s.id][c.name]) for c in s.columns])) for s in plan.scans)
    plan = replace(plan, scans=tuple(replace(s, types=types) for s, types in typed))
    types: Types = dict(known.items())
    fed = plan.inputs
    views = tuple(_view(spark, v, types, retract=retract or v.name in fed) for v in plan.views)
    for view in views:
        if view.name == view_of(view.name):  # and not an inner view
            _check_columns(view)
    return replace(plan, views=views)


def _check_columns(view: PlannedView) -> None:
    """Refuse a column that has no type."""
    for column in view.schema or ():
        if pa.types.is_null(column.type):
            raise SchemaError(
                f"the column `{column.name}` of `{view.name}` is NULL in all rows and has no type",
                hint=f"give it a type: CAST(NULL AS STRING) AS {column.name}",
            )


def _view(spark: SparkSession, view: PlannedView, types: Types, *, retract: bool) -> PlannedView:
    """The view with its types, which are added to the known types. Views come in plan order."""
    operator = view.operator
    panes, retracts = None, True
    if operator.reads_scans:
        filtered = view.post is not None and view.post.keep is not None
        asked = (retract or view.sink is not None) and operator.retracting
        computes = view.post is not None and view.post.renames is None
        bound, schema, panes = operator.bind_scans(types, retract=asked or computes)
        retracts = asked or filtered
    else:
        bound, schema = _bound(spark, operator, types)
    types[view.name] = {f.name: f.type for f in schema}
    results = schema
    if view.post is not None:
        schema = _projected(spark, schema, [view.post])
    hidden = [pa.field(h, TIMESTAMP) for h in view.hidden] if operator.appends else []
    kinds = pa.schema([*(pa.field(f.name, f.type) for f in schema), *hidden])
    return replace(view, operator=bound, results=results, panes=panes, schema=kinds, retracts=retracts)


def _projected(spark: SparkSession, schema: pa.Schema, ops: Sequence[Op]) -> pa.Schema:
    """The columns after ops."""
    ddl = ", ".join(f"`{f.name}` {ddl_type(f.type)}" for f in schema)
    frame = through(spark.createDataFrame([], f"`{OP}` STRING, {ddl}"), ops)
    said = {c.name: c.sql for op in ops if isinstance(op, Project) for c in op.columns}
    return pa.schema([f for f in arrow_schema(frame, said) if f.name != OP])


def _bound(spark: SparkSession, operator: Operator, types: Types) -> tuple[Operator, pa.Schema]:
    """An operator over others with its types, and the columns of its results."""
    view = view_of(operator.step)
    sides, known = [], {}
    for side in operator.sides:
        each = [_taken(spark, take, types) for take in side.takes]
        if not each:
            sides.append(side)
            continue
        names = tuple(dict.fromkeys((*side.columns, *side.names)))
        given = {n: [e[n] for e in each] for n in names}
        mine = {n: common(kinds) or same_type(view, n, kinds) for n, kinds in given.items()}
        takes = tuple(take_widened(t, e, mine, names) for t, e in zip(side.takes, each, strict=True))
        sides.append(replace(side, takes=takes, types=tuple(mine[c] for c in side.columns)))
        check_keys(view, {k: mine[k] for k in operator.keys})
        known.update(mine)
    bound, added = replace(operator, sides=tuple(sides)).bind(known)
    known = {**known, **added, **dict.fromkeys(ROW, pa.int64())}
    return bound, pa.schema([pa.field(c, known[c]) for c in operator.result])


def _taken(spark: SparkSession, take: Take, types: Types) -> dict[str, pa.DataType]:
    """The columns of a take."""
    known = types[take.view]
    if not take.ops:
        return known
    only = take.ops[0] if len(take.ops) == 1 else None
    names = only.renames if isinstance(only, Project) else None
    if names is not None:
        return {name: known[given] for name, given in names.items()}
    given = pa.schema([pa.field(n, t) for n, t in known.items()])
    return {f.name: f.type for f in _projected(spark, given, take.ops)}
