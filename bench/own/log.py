"""What the durable log takes: records of 1 KB one by one with group commit, and rows in Arrow batches; and what an
fsync costs.

Everything is durable when its time ends. The records of the first part are sent by several threads that do not wait
for each other; the second part appends batches one after the other; both include sealing what was rolled. All is read
and counted afterwards.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections import deque
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.clock import SystemClock
from millstream.log import Ack, Log, Topic

WINDOW = 1_000
"""How many records a thread sends before it looks whether the oldest of them is durable."""

RECORDS, ROWS, BATCH, THREADS = 300_000, 20_000_000, 100_000, 4
SINGLE = 500


def measure(work: Path, events: int | None) -> dict[str, Any]:
    records, rows = events or RECORDS, (events or 0) * 20 or ROWS
    syncs = fsyncs(work / "fsync")
    log = Log(work / "log", SystemClock())
    lone = log.create("lone", pa.schema({"id": pa.int64(), "body": pa.string()}))
    latency = alone(lone)
    small = log.create("small", pa.schema({"id": pa.int64(), "body": pa.string()}))
    cpu = time.process_time()
    by_record = sent(small, records)
    cpu = time.process_time() - cpu
    large = log.create(
        "large",
        pa.schema({"auction": pa.int64(), "bidder": pa.int64(), "price": pa.int64(), "ts": pa.timestamp("us", "UTC")}),
    )
    by_batch = appended(large, rows)
    for topic, expected in ((small, records), (large, rows)):
        count(topic, expected)
    begin = time.perf_counter()
    reading = log.topic("large")
    read = sum(reading.read(0, p.start, p.end).num_rows for p in reading.parts(0, 0, reading.end()[0]))
    read_rate = read / (time.perf_counter() - begin)
    log.close()
    return {
        "fsync_ms_p50": statistics.median(syncs) * 1000,
        "fsync_ms_p99": sorted(syncs)[len(syncs) * 99 // 100] * 1000,
        "one_append_ms_p50": statistics.median(latency) * 1000,
        "one_append_ms_p99": sorted(latency)[len(latency) * 99 // 100] * 1000,
        "records_per_s": {"value": by_record, "at_least": 50_000},
        "cpu_us_per_record": cpu / records * 1e6,
        "rows_per_s": {"value": by_batch, "at_least": 1_000_000},
        "read_rows_per_s": read_rate,
    }


def fsyncs(path: Path) -> list[float]:
    """The bare cost of making 4 KiB durable at the end of a file."""
    taken = []
    with path.open("wb", buffering=0) as file:
        for _ in range(300):
            file.write(bytes(4096))
            begin = time.perf_counter()
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - begin)
    return taken


def alone(topic: Topic) -> list[float]:
    taken = []
    for n in range(SINGLE):
        begin = time.perf_counter()
        topic.append({"id": n, "body": "x" * 1000})
        taken.append(time.perf_counter() - begin)
    topic.close()
    return taken


def sent(topic: Topic, records: int) -> float:
    body = "x" * 1000

    def work(thread: int) -> None:
        futures: deque[Future[Ack]] = deque()
        for n in range(thread, records, THREADS):
            futures.append(topic.send({"id": n, "body": body}))
            if len(futures) == WINDOW:
                futures.popleft().result()
        for future in futures:
            future.result()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(THREADS)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    topic.close()
    return records / (time.perf_counter() - begin)


def appended(topic: Topic, rows: int) -> float:
    random = np.random.default_rng(0)
    batch = pa.record_batch(
        {
            "auction": random.integers(1000, 60_000, BATCH),
            "bidder": random.integers(1000, 100_000, BATCH),
            "price": random.integers(100, 100_000_000, BATCH),
            "ts": pa.array(1_767_225_600_000_000 + np.arange(BATCH) * 100, pa.timestamp("us", "UTC")),
        }
    )
    begin = time.perf_counter()
    for _ in range(0, rows, BATCH):
        topic.append(batch)
    topic.close()
    return rows / (time.perf_counter() - begin)


def count(topic: Topic, expected: int) -> None:
    there = sum(topic.end().values())
    if there != -(-expected // BATCH) * BATCH and there != expected:
        raise SystemExit(f"log: {there:,} records are there of {expected:,}")


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory(dir=Path(__file__).parents[1]) as folder:
        for name, value in measure(Path(folder), None).items():
            print(f"{name:<20} {value}")
