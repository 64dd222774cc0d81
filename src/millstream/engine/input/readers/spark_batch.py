"""Reads a slice with one of Spark's batch readers, such as the sealed segments of a topic."""

from __future__ import annotations

from pyspark.sql import SparkSession

from millstream.connect.forms import SparkFormat
from millstream.engine.input.readers.columns import FormRead, Wanted, ddl
from millstream.model.types.schema import ddl_type


def read(spark: SparkSession, wanted: Wanted, form: SparkFormat) -> FormRead:
    """The reader's rows within the slice, with the columns of the source."""
    reader = spark.read.format(form.format).options(**form.options)
    if form.typed:
        reader = reader.schema(ddl(wanted.schema, f"`{form.partition}` INT", f"`{form.position}` BIGINT"))
    frame = reader.load(list(form.paths)) if form.paths else reader.load()
    if form.ranges is not None:
        part, pos = f"`{form.partition}`", f"`{form.position}`"
        inside = [f"({part} = {p} AND {pos} >= {s}L AND {pos} < {e}L)" for p, (s, e) in form.ranges.items()]
        frame = frame.where(" OR ".join(inside) or "false")
    if form.columns or not form.typed:
        kinds = {f.name: ddl_type(f.type) for f in wanted.schema if f.type is not None}
        computed = [f"CAST({form.columns.get(n, f'`{n}`')} AS {k}) AS `{n}`" for n, k in kinds.items()]
        system = [f"CAST(`{form.partition}` AS INT) AS `$part`", f"CAST(`{form.position}` AS BIGINT) AS `$pos`"]
        return FormRead(frame.selectExpr(*computed, *system), scanned=True)
    for given, name in ((form.partition, "$part"), (form.position, "$pos")):
        if given != name:
            frame = frame.withColumnRenamed(given, name)
    return FormRead(frame, scanned=True)
