"""The auction house of the demo: the flow, its stored table, and the queries of the screen."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.model.flow import Flow

if TYPE_CHECKING:
    from millstream.home import Home

NAME = "auction_house"

CATEGORIES = [
    {"category": 10, "name": "books"},
    {"category": 11, "name": "clocks"},
    {"category": 12, "name": "maps"},
    {"category": 13, "name": "paintings"},
    {"category": 14, "name": "violins"},
]


@dataclass(frozen=True)
class Panel:
    """A view on the screen: its title, the query for its top rows, and the visible columns."""

    view: str
    title: str
    how: str
    sql: str
    columns: tuple[tuple[str, str], ...]
    """Heading and kind: id, text, minute, number, bar (a number that is also drawn) or money (in cents)."""

    def query(self, rows: int) -> str:
        """The query for its top rows."""
        return f"{self.sql} LIMIT {rows}"


PANELS = (
    Panel(
        "hot_auctions",
        "Hot auctions",
        "20 s window every 4 s",
        "SELECT auction, bids, top_bid FROM hot_auctions "
        "WHERE window_end = (SELECT max(window_end) - INTERVAL 16 SECONDS FROM hot_auctions) "
        "ORDER BY bids DESC, auction",
        (("auction", "id"), ("bids", "bar"), ("top bid", "money")),
    ),
    Panel(
        "category_prices",
        "Average price per category",
        "with a stored table",
        "SELECT category, auctions, opening, reserve FROM category_prices ORDER BY category",
        (("category", "text"), ("lots", "number"), ("opening", "money"), ("reserve", "money")),
    ),
    Panel(
        "seller_sales",
        "Sellers' sales",
        "since the start",
        "SELECT seller, auctions, worth FROM seller_sales ORDER BY auctions DESC, worth DESC",
        (("seller", "id"), ("auctions", "bar"), ("on offer", "money")),
    ),
    Panel(
        "bids_per_minute",
        "Bids per minute",
        "1 min windows",
        "SELECT window_start, bids, bidders, volume FROM bids_per_minute ORDER BY window_start DESC",
        (("minute", "minute"), ("bids", "number"), ("bidders", "number"), ("volume", "money")),
    ),
    Panel(
        "newcomers",
        "New members per state",
        "since the start",
        "SELECT state, members FROM newcomers ORDER BY members DESC, state",
        (("state", "text"), ("members", "bar")),
    ),
)


def house(rate: int, begin: int) -> Flow:
    """The flow. `begin` is the time of event 0 in micros, so that events happen now."""
    import millstream as ms

    flow = Flow(NAME)
    persons, auctions, bids = (
        flow.source(
            f"{kind}s",
            ms.nexmark(kind, rate=rate, base_time_us=begin),
            event_time="date_time",
            lateness="1 second",
        )
        for kind in ("person", "auction", "bid")
    )
    (
        bids.key_by("auction")
        .window(ms.hopping("20 seconds", "4 seconds"))
        .aggregate(bids=ms.count(), top_bid=ms.max("price"))
        .view("hot_auctions", retention="2 minutes")
    )
    (
        bids.window(ms.tumbling("1 minute"))
        .aggregate(bids=ms.count(), bidders=ms.count_distinct("bidder"), volume=ms.sum("price"))
        .view("bids_per_minute")
    )
    (
        auctions.select(category_id="category", opening="initial_bid", reserve="reserve", date_time="date_time")
        .enrich("categories", on={"category_id": "category"}, columns="name STRING")
        .key_by(category="name")
        .aggregate(auctions=ms.count(), opening=ms.avg("opening"), reserve=ms.avg("reserve"))
        .view("category_prices")
    )
    auctions.key_by("seller").aggregate(auctions=ms.count(), worth=ms.sum("reserve")).view("seller_sales")
    persons.key_by("state").aggregate(members=ms.count()).view("newcomers")
    return flow


def prepared(home: Home, rate: int) -> Flow:
    """The flow, with its table stored in the home; a home that was used before resumes at its next event."""
    home.put_table("categories", CATEGORIES)
    last = home.store.last(NAME)
    offsets = last.progress["offsets"].values() if last is not None else ()
    number = max((offset for by in offsets for offset in by.values()), default=0)
    return house(rate, time.time_ns() // 1000 - number * 1_000_000 // rate)
