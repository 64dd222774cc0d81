"""The Nexmark benchmark as a source: persons, auctions and bids, each generated from its number alone."""

from __future__ import annotations

from functools import partial

import pyarrow as pa

from millstream.clock import EARLIEST, LATEST
from millstream.connect.nexmark import KINDS, SCHEMAS, Nexmark, events
from millstream.errors import DefinitionError
from millstream.model.connectors import Generator
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
    """Generate persons, auctions or bids of the Nexmark benchmark.

    Event n is a person, an auction or a bid, depending on n modulo 50 (1 : 3 : 46). `rate` is the pace in events per
    second of processing time (None: as fast as possible) and `events` limits their number. `event_rate` is the number
    of events per second of event time (by default 10,000, unless `rate` determines it).
    """
    if kind not in KINDS:
        raise DefinitionError(f"unknown kind of event {kind!r}", hint="one of: " + ", ".join(KINDS), origin=here())
    Generator("nexmark", _nothing, rate, events)  # validates rate and events
    _check("seed", seed, -(2**63), 2**63 - 1)
    _check("event_rate", event_rate, 1, 10**12)
    _check("base_time_us", base_time_us, EARLIEST, LATEST)
    _check("out_of_order", out_of_order, 1, 10**9)
    settings = {"rate": event_rate or max(1, int(rate or 10_000)), "seed": seed, "out_of_order_group": out_of_order}
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


def _check(name: str, value: object, least: int, most: int) -> None:
    """Refuse an option that is not an integer in its range."""
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        shown = str(value)[:60]
        raise DefinitionError(f"{name} must be a whole number from {least} to {most}, not {shown!r}", origin=here())


def _nothing(start: int, end: int) -> pa.Table:
    raise NotImplementedError


def _make(kind: str, config: Nexmark, start: int, end: int) -> pa.Table:
    return events(kind, start, end, config)
