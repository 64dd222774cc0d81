"""What a sealed segment should be: Parquet in some settings, or an Arrow file. Not a case of `python -m bench`:

    python -m bench.own.log_formats

Writes the same bids (with place and time) as 64 MiB of frames would hold them in each form; then reads them with
Spark, DuckDB and PyArrow, in turn, and prints medians. Spark has no reader for Arrow files, so they go through
mapInArrow.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from millstream.engine.spark import session
from millstream.log.storage.segment import placed

ROWS, FILES, ROUNDS = 1_300_000, 3, 5


def bids() -> pa.Table:
    random = np.random.default_rng(0)
    table = pa.table(
        {
            "auction": random.integers(1000, 60_000, ROWS),
            "bidder": random.integers(1000, 100_000, ROWS),
            "price": random.integers(100, 100_000_000, ROWS),
            "channel": pa.array([("Google", "Baidu", "Apple", "Facebook")[i] for i in random.integers(0, 4, ROWS)]),
            "date_time": pa.array(1_767_225_600_000_000 + np.arange(ROWS) * 100, pa.timestamp("us", "UTC")),
        }
    )
    return placed(table, 0, 0, np.full(ROWS, 1_767_225_600_000_000))


def parquet(**settings: Any) -> Callable[[pa.Table, Path], None]:
    return lambda table, path: pq.write_table(table, path, **settings)


def arrow(compression: str | None) -> Callable[[pa.Table, Path], None]:
    def write(table: pa.Table, path: Path) -> None:
        options = pa.ipc.IpcWriteOptions(compression=compression)
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema, options=options) as writer:
            writer.write_table(table, max_chunksize=128 << 10)

    return write


NUMBERS = ["auction", "bidder", "price", "date_time"]
OTHERS = ["channel", "$part", "$time"]
DELTA = {"$offset": "DELTA_BINARY_PACKED"}
FORMS: dict[str, Callable[[pa.Table, Path], None]] = {
    "parquet as PyArrow writes it (snappy)": parquet(),
    "parquet zstd 1": parquet(compression="zstd", compression_level=1),
    "parquet zstd 1, $offset delta": parquet(
        compression="zstd", compression_level=1, use_dictionary=NUMBERS + OTHERS, column_encoding=DELTA
    ),
    "parquet lz4, $offset delta": parquet(compression="lz4", use_dictionary=NUMBERS + OTHERS, column_encoding=DELTA),
    "parquet zstd 1, $offset delta, no dictionaries for numbers": parquet(
        compression="zstd", compression_level=1, use_dictionary=OTHERS, column_encoding=DELTA
    ),
    "parquet lz4, $offset delta, no dictionaries for numbers": parquet(
        compression="lz4", use_dictionary=OTHERS, column_encoding=DELTA
    ),
    "the same, 128 Ki rows a group": parquet(
        compression="lz4", use_dictionary=OTHERS, column_encoding=DELTA, row_group_size=128 << 10
    ),
    "as segments are: zstd 1, 128 Ki rows a group": parquet(
        compression="zstd",
        compression_level=1,
        use_dictionary=OTHERS,
        column_encoding=DELTA,
        row_group_size=128 << 10,
    ),
    "arrow": arrow(None),
    "arrow lz4": arrow("lz4"),
}


def from_arrow() -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for name in batch.column(0).to_pylist():
                with pa.memory_map(name) as file:
                    reader = pa.ipc.open_file(file)
                    for i in range(reader.num_record_batches):
                        yield reader.get_batch(i).select(["auction", "price", "$offset"])

    return work


def main() -> None:
    table = bids()
    with tempfile.TemporaryDirectory() as work:
        spark = session.start(Path(work) / "spark.log")
        times: dict[str, dict[str, list[float]]] = {f: {} for f in FORMS}
        files: dict[str, list[str]] = {}
        for turn in range(ROUNDS):
            for form, write in FORMS.items():
                folder = Path(work) / f"form{list(FORMS).index(form)}"
                folder.mkdir(exist_ok=True)
                ending = "arrow" if form.startswith("arrow") else "parquet"
                path = folder / f"{turn % FILES}.{ending}"
                timed(times[form], "write", lambda: write(table, path))  # noqa: B023
                files[form] = sorted(str(p) for p in folder.iterdir())
        for turn in range(ROUNDS + 1):  # the first warms up
            for form in FORMS:
                kept = times[form] if turn else {}
                names = files[form]
                timed(kept, "spark", lambda: spark_sum(spark, names))  # noqa: B023
                if not form.startswith("arrow"):
                    sql = f'SELECT sum(auction), sum(price), max("$offset") FROM read_parquet({names!r})'
                    timed(kept, "duckdb", lambda: duckdb.sql(sql).fetchall())  # noqa: B023
        session.stop()
        rows = ROWS / 1e6
        print(f"{'':<60} {'MiB':>6} {'write':>8} {'spark':>8} {'duckdb':>8}   (M rows/s, medians of {ROUNDS})")
        for form, taken in times.items():
            size = Path(files[form][0]).stat().st_size / 2**20
            rates = [
                f"{rows * n / statistics.median(taken[k]):>8.1f}" if k in taken else f"{'-':>8}"
                for k, n in (("write", 1), ("spark", FILES), ("duckdb", FILES))
            ]
            print(f"{form:<60} {size:>6.1f} {' '.join(rates)}")


def spark_sum(spark: Any, names: list[str]) -> None:
    from pyspark.sql import functions as f

    if names[0].endswith("arrow"):
        one_each = spark.createDataFrame([(n,) for n in names], "name string").repartition(len(names))
        frame = one_each.mapInArrow(from_arrow(), "auction bigint, price bigint, `$offset` bigint")
    else:
        frame = spark.read.parquet(*names)
    frame.agg(f.sum("auction"), f.sum("price"), f.max("`$offset`")).collect()


def timed(kept: dict[str, list[float]], what: str, work: Callable[[], object]) -> None:
    begin = time.perf_counter()
    work()
    kept.setdefault(what, []).append(time.perf_counter() - begin)


if __name__ == "__main__":
    main()
