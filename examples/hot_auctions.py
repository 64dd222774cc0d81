"""Which auctions get the most bids? Counted per ten seconds of event time, over 200,000 Nexmark events.

    millstream explain examples/hot_auctions.py
    millstream run examples/hot_auctions.py
    millstream query "SELECT * FROM hot_auctions ORDER BY bids DESC LIMIT 10"

To read your own files instead, replace the source by a folder of JSON lines:

    flow.source("bids", ms.files("data/bids", format="json"),
                schema="auction BIGINT, price BIGINT, date_time TIMESTAMP", event_time="date_time")
"""

import millstream as ms

flow = ms.Flow("auctions")

bids = flow.source(
    "bids",
    ms.nexmark("bid", events=200_000, event_rate=2_000),
    event_time="date_time",
    lateness="4 seconds",
)

(
    bids.where("price > 100")
    .key_by("auction")
    .window(ms.tumbling("10 seconds"))
    .aggregate(bids=ms.count(), top=ms.max("price"))
    .view("hot_auctions")
)

bids.aggregate(bids=ms.count(), average=ms.avg("price"), bidders=ms.count_distinct("bidder")).view("totals")
