"""The Nexmark auction house as a source: persons, auctions and bids, each made from its number alone."""

from __future__ import annotations

from functools import partial

import pyarrow as pa

from millstream.connect.nexmark import KINDS, SCHEMAS, Nexmark, events
from millstream.errors import DefinitionError
from millstream.model.connector import Generator
from millstream.model.origin import here


def nexmark(
    kind: str,
    *,
    rate: float | None = None,
    events: int | None = None,
    seed: int = 0,
    event_rate: int | None = None,
    base_time_us: int | None = None,
    out_of_order: int = 1,
) -> Generator:
    """Persons, auctions or bids of the Nexmark benchmark.

    Event n of the auction house is a person, an auction or a bid by n modulo 50 (1 : 3 : 46). `rate` paces the house in
    events per second of processing time (None: as fast as possible) and `events` bounds it; `event_rate` is how many
    events a second of event time holds (10,000 unless the rate says otherwise).
    """
    if kind not in KINDS:
        raise DefinitionError(f"unknown kind of event {kind!r}", hint="one of: " + ", ".join(KINDS), origin=here())
    settings = {"rate": event_rate or int(rate or 10_000), "seed": seed, "out_of_order_group": out_of_order}
    if base_time_us is not None:
        settings["base_time_us"] = base_time_us
    config = Nexmark(**settings)
    return Generator(
        f"nexmark {kind}",
        partial(_make, kind, config),
        rate,
        events,
        schema=SCHEMAS[kind],
        key=f"{kind} {config}",
    )


def _make(kind: str, config: Nexmark, start: int, end: int) -> pa.Table:
    return events(kind, start, end, config)
