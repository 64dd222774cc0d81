"""Auctions joined to a stored table: `TABLES` is stored in the home first, and `enrich` looks rows up in it.

    millstream run examples/enrich.py
    millstream query "SELECT * FROM offers ORDER BY offered DESC"

A new version of the table (from a start with other rows, or from home.put_table) is used from the next epoch on.
"""

import millstream as ms

TABLES = {
    "categories": [
        {"id": 10, "name": "books", "fragile": False},
        {"id": 11, "name": "clocks", "fragile": True},
        {"id": 12, "name": "maps", "fragile": False},
        {"id": 13, "name": "paintings", "fragile": True},
    ]
}

flow = ms.Flow("offers")

auctions = flow.source("auctions", ms.nexmark("auction", events=100_000), event_time="date_time")

(
    auctions.select(category_id="category", offer="reserve", date_time="date_time")
    .enrich("categories", on={"category_id": "id"}, columns="name STRING, fragile BOOLEAN")
    .key_by(category="coalesce(name, 'something else')")
    .aggregate(auctions=ms.count(), offered=ms.sum("offer"), dearest=ms.max("offer"))
    .view("offers")
)
