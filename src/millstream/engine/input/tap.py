"""A tap: a Spark Structured Streaming source whose records are written to a topic of the log, each exactly once.

Spark numbers its micro-batches and, after a crash, repeats the last one with the same records. The topic identifies a
batch by its number and by the checkpoint that numbered it, and accepts it once. The flow reads the topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import orjson
from pyspark.sql import DataFrame, SparkSession

from millstream.connect.port import SourcePort, SparkTap
from millstream.engine.spark.errors import translated
from millstream.engine.spark.frames import collected
from millstream.errors import RunError, SourceUnreadable
from millstream.model.types.schema import ddl_type
from millstream.model.types.unknown_column import missing_column
from millstream.plan.plan import PlannedSource


def taps(
    spark: SparkSession, sources: Iterable[PlannedSource], ports: Mapping[str, SourcePort], root: Path
) -> list[Tap]:
    """Start the taps that write the records of Spark's own streams to the log while a flow runs."""
    tapped = [(s, tap) for s in sources if (tap := ports[s.name].tap()) is not None]
    return [Tap(spark, s, tap, root / s.name) for s, tap in tapped]


class Tap:
    """One running tap."""

    def __init__(self, spark: SparkSession, source: PlannedSource, tap: SparkTap, checkpoint: Path) -> None:
        self._source, self._topic, self._checkpoint = source, tap.topic, checkpoint
        self._failed: BaseException | None = None
        with translated(None):
            frame = spark.readStream.format(tap.format).options(**tap.options).load()
            self._check(frame)
            named = frame.selectExpr(
                *(f"CAST(`{f.name}` AS {ddl_type(f.type)}) AS `{f.name}`" for f in source.schema if f.type is not None)
            )
            self._query = (
                named.writeStream.foreachBatch(self._land)
                .option("checkpointLocation", str(checkpoint))
                .queryName(f"tap_{source.name}")
                .start()
            )

    def check(self) -> None:
        """Raise the error that stopped the tap."""
        if self._failed is not None:
            raise self._failed
        error = self._query.exception()
        if error is not None:
            raise RunError(
                f"the tap of the source `{self._source.name}` stopped",
                detail=str(error).splitlines()[0],
                hint="the records written so far are kept; it resumes from there when the flow restarts",
            )

    def close(self) -> None:
        """Stop writing. The current batch is repeated on the next start, and identified by its number."""
        self._query.stop()

    def _land(self, batch: DataFrame, number: int) -> None:
        try:
            rows = collected(batch)
            if rows.num_rows:
                self._topic.append(
                    rows.cast(self._topic.schema),
                    producer=f"tap/{self._source.name}/{self._numbered_by()}",
                    sequence=number,
                )
        except BaseException as error:
            self._failed = error
            raise

    def _numbered_by(self) -> str:
        """The identity of the checkpoint: a new checkpoint restarts the batch numbers."""
        return str(orjson.loads((self._checkpoint / "metadata").read_bytes())["id"])

    def _check(self, frame: DataFrame) -> None:
        for name in self._source.schema.names:
            if name not in frame.columns:
                raise missing_column(
                    SourceUnreadable,
                    f"the Spark stream of `{self._source.name}`",
                    name,
                    frame.columns,
                    hint="correct the schema of the source",
                )
