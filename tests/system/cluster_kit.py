"""A flow with a join, an aggregation and a top-N, its records, and what a batch says about them. It runs on a cluster,
whose executors are processes of their own.
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

ITEMS, CATEGORIES = 200, 7

VIEWS = {
    "totals": (
        ("category", "n", "total"),
        "SELECT category, count(*) AS n, sum(price) AS total FROM bids JOIN items USING (auction) GROUP BY category",
    ),
    "dear": (
        ("category", "bid", "price"),
        "SELECT category, bid, price FROM bids JOIN items USING (auction) "
        "QUALIFY row_number() OVER (PARTITION BY category ORDER BY price DESC, bid DESC) <= 3",
    ),
}
"""Of each view its columns, and the query of a batch."""

SQL = """
CREATE SOURCE bids (bid BIGINT, auction BIGINT, price BIGINT) FROM FILES('bids', format => 'parquet');
CREATE SOURCE items (auction BIGINT, category BIGINT) FROM FILES('items', format => 'parquet');
CREATE VIEW totals AS
SELECT i.category, count(*) AS n, sum(b.price) AS total FROM bids b JOIN items i ON b.auction = i.auction
GROUP BY i.category;
CREATE VIEW dear AS
SELECT i.category, b.bid, b.price FROM bids b JOIN items i ON b.auction = i.auction
QUALIFY row_number() OVER (PARTITION BY i.category ORDER BY b.price DESC, b.bid DESC) <= 3;
"""


def bids(start: int, end: int) -> pa.Table:
    """The bids [start, end)."""
    numbers = np.arange(start, end)
    return pa.table({"bid": numbers, "auction": numbers * 31 % (ITEMS + 9), "price": numbers * 7919 % 10_007})


def items() -> pa.Table:
    """All items; some bids are for others."""
    numbers = np.arange(ITEMS)
    return pa.table({"auction": numbers, "category": numbers % CATEGORIES})


def put(table: pa.Table, folder: Path, name: str) -> None:
    """Add a file to the folder of a source, whole."""
    folder.mkdir(exist_ok=True)
    hidden = folder / f".{name}.parquet"
    pq.write_table(table, hidden)
    hidden.rename(folder / f"{name}.parquet")


def flow_of(folder: Path) -> ms.Flow:
    """The flow over the files of a folder."""
    flow = ms.Flow("auctions")
    offers = flow.source(
        "bids", ms.files(folder / "bids", format="parquet"), schema="bid BIGINT, auction BIGINT, price BIGINT"
    )
    goods = flow.source("items", ms.files(folder / "items", format="parquet"), schema="auction BIGINT, category BIGINT")
    joined = offers.join(goods, on="auction")
    joined.key_by("category").aggregate(n=ms.count(), total=ms.sum("price")).view("totals")
    joined.key_by("category").top(3, "price DESC", "bid DESC").select("category", "bid", "price").view("dear")
    return flow


def compare(found: dict[str, list[dict[str, Any]]], count: int) -> None:
    """The views are those of a batch over the first `count` bids."""
    for view, (columns, sql) in VIEWS.items():
        same(found[view], batch(sql, bids=bids(0, count), items=items()), columns)


def drive(folder: Path, master: str, sizes: list[int]) -> None:
    """What a child process does: run the flow over one file of bids after the other, and print its views."""
    placements: list[str] = []
    put(items(), folder / "items", "items")
    (folder / "bids").mkdir()
    with ms.open(folder / "home", spark_master=master, memory="512m") as home:
        run = home.start(
            flow_of(folder), placement="spread", on_output=lambda r: placements.extend(r.output.placements.values())
        )
        for number, (start, end) in enumerate(zip([0, *sizes], sizes, strict=False)):
            put(bids(start, end), folder / "bids", f"{number:03d}")
            run.catch_up()
        views = {view: home.query(f"SELECT * FROM {view}").to_dicts() for view in VIEWS}
        run.stop()
    from millstream.engine.spark import session
    from millstream.engine.spark.cluster import parallelism

    spark = session.start(folder / "spark.log", master=master)
    executors = len(spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()) - 1  # the driver counts as one
    found = {"views": views, "placements": placements, "executors": executors, "shards": parallelism(spark)}
    session.stop()
    sys.stdout.write(json.dumps(found))


def drive_until(folder: Path, master: str, step: int) -> None:
    """What a child process does: run the flow over one more file of bids after the other, until the file `enough` is
    there. Prints the views and the number of bids.
    """
    put(items(), folder / "items", "items")
    (folder / "bids").mkdir()
    with ms.open(folder / "home", spark_master=master, memory="512m") as home:
        run = home.start(flow_of(folder), placement="spread")
        files = 0
        while not (folder / "enough").exists() or files < 3:
            put(bids(files * step, (files + 1) * step), folder / "bids", f"{files:05d}")
            files += 1
            run.catch_up()
            (folder / "epochs").write_text(str(files))
        views = {view: home.query(f"SELECT * FROM {view}").to_dicts() for view in VIEWS}
        run.stop()
    sys.stdout.write(json.dumps({"views": views, "bids": files * step}))


if __name__ == "__main__":
    if sys.argv[1] == "until":
        drive_until(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
    else:
        drive(Path(sys.argv[1]), sys.argv[2], [int(n) for n in sys.argv[3:]])
