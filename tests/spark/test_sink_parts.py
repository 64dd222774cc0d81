"""Files that tasks of Spark write: the rows of a flow in the driver, and errors that name the folder."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import millstream as ms
from millstream.connect.file_parts import STAGING
from millstream.errors import SinkError
from millstream.testing import Crash, Script

pytestmark = pytest.mark.spark


def flow(folder: Path) -> ms.Flow:
    made = ms.Flow("f")
    rows = made.source("rows", ms.memory(), schema="k BIGINT, s STRING, ts TIMESTAMP", event_time="ts")
    rows.select("k", big="upper(s)", ts="ts").sink("plain", ms.files(str(folder), format="parquet"))
    totals = rows.key_by("k").aggregate(n=ms.count(), last=ms.max("ts"))
    totals.with_columns(m="n * 2").sink("counts", ms.files(str(folder), format="parquet"))
    return made


def send(script: Script, epoch: int) -> None:
    script.send(
        "rows", *({"k": i % 7, "s": f"row {i}", "ts": 1767225600 + i} for i in range(50 * epoch, 50 * epoch + 50))
    )


def content(folder: Path, sink: str) -> dict[str, list[str]]:
    """The rows of a sink by epoch, with their types."""
    found: dict[str, list[str]] = {}
    for path in sorted(folder.glob(f"{sink}-*.parquet")):
        table = pq.ParquetFile(path).read()
        rows = [f"{table.schema} {row}" for row in table.to_pylist()]
        found.setdefault(path.name.split("-")[2].partition(".")[0], []).extend(rows)
    return {epoch: sorted(rows) for epoch, rows in found.items()}


def test_a_spread_epoch_writes_the_rows_of_one_in_the_driver(spark: object, tmp_path: Path) -> None:
    with Script(flow(tmp_path / "a"), tmp_path / "inline") as script:
        for epoch in range(3):
            send(script, epoch)
            script.tick()
        expected = [r.changes for r in script.reports]
    with Script(flow(tmp_path / "b"), tmp_path / "spread", placement="spread", shards=3) as script:
        for epoch in range(3):
            send(script, epoch)
            if epoch == 1:
                script.crash(at="before commit")
                with pytest.raises(Crash):
                    script.tick()
                assert os.listdir(tmp_path / "b" / STAGING)
                script.resume()
            if epoch == 2:
                script.crash(at="after commit")
                with pytest.raises(Crash):
                    script.tick()
                script.resume()
            script.tick()
        assert [r.changes for r in script.reports] == expected[:2]
        assert all(set(r.output.parts) == {"plain", "counts"} for r in script.reports)
    for sink in ("plain", "counts"):
        assert content(tmp_path / "b", sink) == content(tmp_path / "a", sink)
    assert "plain-000-000000000001-00000.parquet" in os.listdir(tmp_path / "b")
    assert STAGING not in os.listdir(tmp_path / "b")


def test_a_folder_that_a_task_of_spark_cannot_write_to_is_named(spark: object, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with Script(flow(tmp_path / "out"), tmp_path / "home", placement="spread", shards=2) as script:
        send(script, 0)
        with pytest.raises(SinkError, match=r"^the sink `(plain|counts)` cannot write to .*out") as error:
            script.tick()
        assert error.value.detail == "File exists"
        script.crash()
        (tmp_path / "out").unlink()
        script.resume()
        script.tick()
    assert sum(pq.ParquetFile(p).metadata.num_rows for p in (tmp_path / "out").glob("plain-*")) == 50
