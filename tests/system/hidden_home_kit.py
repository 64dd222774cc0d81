"""A flow whose executors cannot read its home: files, a topic of the home, a stored table, views and a sink of files.

Run as a module, it is the process that owns the home.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import millstream as ms
from tests.oracle import batch, same

from .cluster_kit import bids, items, put

REGIONS = pa.table({"category": list(range(7)), "region": ["north", "south", "east"] * 2 + ["west"]})
QUERY = """
SELECT region, category, count(*) AS n, sum(price) AS total
FROM bids JOIN items USING (auction) JOIN regions USING (category) GROUP BY region, category
"""
DEAR = "SELECT bid, price FROM bids WHERE price >= 5000"


def flow_of(folder: Path) -> ms.Flow:
    """Bids from files, items from a topic in the home, regions from a stored table."""
    flow = ms.Flow("hidden")
    offers = flow.source(
        "bids", ms.files(folder / "bids", format="parquet"), schema="bid BIGINT, auction BIGINT, price BIGINT"
    )
    goods = flow.source("items", ms.log("items"), schema="auction BIGINT, category BIGINT")
    named = goods.enrich("regions", on="category", columns="region STRING")
    joined = offers.join(named, on="auction")
    joined.key_by("region", "category").aggregate(n=ms.count(), total=ms.sum("price")).view("totals")
    offers.where("price >= 5000").select("bid", "price").sink("dear", ms.files(str(folder / "out"), format="parquet"))
    return flow


def compare(found: list[dict[str, Any]], folder: Path, count: int) -> None:
    """The view and the sink are those of a batch over the first `count` bids."""
    tables = {"bids": bids(0, count), "items": items(), "regions": REGIONS}
    same(found, batch(QUERY, **tables), ("region", "category", "n", "total"))
    written = [r for p in sorted((folder / "out").glob("*.parquet")) for r in pq.ParquetFile(p).read().to_pylist()]
    same(written, batch(DEAR, **tables), ("bid", "price"))


def drive(folder: Path, master: str, state: str, sizes: list[int]) -> None:
    """Run the flow over one file of bids after the other; after the first, start again with other shards."""
    placements: list[str] = []
    views: list[dict[str, Any]] = []
    for number, (start, end) in enumerate(zip([0, *sizes], sizes, strict=False)):
        with ms.open(folder / "home", spark_master=master, memory="512m", state=state) as home:
            if not number:
                home.log.create("items", items().schema, segment_rows=50)
                home.topic("items").append(items())
                home.put_table("regions", REGIONS)
            put(bids(start, end), folder / "bids", f"{number:03d}")
            run = home.start(
                flow_of(folder),
                placement="spread",
                shards=2 + 3 * number,
                on_output=lambda r: placements.extend(r.output.placements.values()),
            )
            run.catch_up()
            views = home.query("SELECT * FROM totals").to_dicts()
            run.stop()
    from millstream.engine.spark import session

    spark = session.start(folder / "spark.log", master=master)
    users = spark.range(0, 8, 1, 4).mapInArrow(_user, "user BIGINT").toArrow().column(0).to_pylist()
    session.stop()
    sys.stdout.write(json.dumps({"totals": views, "placements": placements, "users": sorted(set(users))}))


def _user(batches: Any) -> Any:
    import os

    for _ in batches:
        yield pa.record_batch([pa.array(np.array([os.getuid()]))], names=["user"])


if __name__ == "__main__":
    drive(Path(sys.argv[1]), sys.argv[2], sys.argv[3], [int(n) for n in sys.argv[4:]])
