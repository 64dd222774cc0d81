"""The Nexmark events: persons, auctions and bids of an auction house, each computed from its number alone.

Event number m is a person, an auction or a bid by m mod 50 (1 : 3 : 46), and every field of it is a hash of (seed,
field, m). So no state is kept between events, a range gives the same events however it is divided, and ranges can be
generated in parallel. Positions count the stream as it arrives: without disorder the event at position n is number n;
with `out_of_order_group` g the numbers inside every g positions are permuted.

The rules are those of the Java generator (github.com/nexmark/nexmark) except for one: bidders are offset by
1000 exactly like persons (Java adds 1000 twice), so a bidder is found among the persons by id. The random
values themselves differ from Java's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.connect.nexmark_fields import CYCLE, FIELDS, TIME, Chunk, Ints, time_of
from millstream.errors import DefinitionError

KINDS = ("person", "auction", "bid")

SCHEMAS: dict[str, pa.Schema] = {
    "person": pa.schema(
        {
            "id": pa.int64(),
            "name": pa.string(),
            "email_address": pa.string(),
            "credit_card": pa.string(),
            "city": pa.string(),
            "state": pa.string(),
            "date_time": TIME,
            "extra": pa.string(),
        }
    ),
    "auction": pa.schema(
        {
            "id": pa.int64(),
            "item_name": pa.string(),
            "description": pa.string(),
            "initial_bid": pa.int64(),
            "reserve": pa.int64(),
            "date_time": TIME,
            "expires": TIME,
            "seller": pa.int64(),
            "category": pa.int64(),
            "extra": pa.string(),
        }
    ),
    "bid": pa.schema(
        {
            "auction": pa.int64(),
            "bidder": pa.int64(),
            "price": pa.int64(),
            "channel": pa.string(),
            "url": pa.string(),
            "date_time": TIME,
            "extra": pa.string(),
        }
    ),
}

_PLACE = {"person": (0, 1), "auction": (1, 3), "bid": (4, 46)}
"""Where in a cycle of 50 a kind starts, and how many it has there."""

_SHUFFLE = 953
_CHUNK = 32_768
"""Rows made at a time: their arrays stay in the processor's cache, and their text below Arrow's 2 GiB."""


@dataclass(frozen=True)
class Nexmark:
    """What a run of the generator depends on. Equal values give equal events."""

    rate: int = 10_000
    """Events of all kinds per second of event time. The size of windows and of their state depends on it."""
    seed: int = 0
    base_time_us: int = 1_767_225_600_000_000
    """The time of event 0, in microseconds since 1970; by default 2026-01-01T00:00:00Z."""
    out_of_order_group: int = 1
    """Events are permuted inside groups of this many positions; 1 leaves them in order of time."""

    def __post_init__(self) -> None:
        if self.rate < 1:
            message = f"nexmark rate {self.rate} is not positive"
            raise DefinitionError(message, hint="give the events per second of event time, such as rate=10_000")
        if self.out_of_order_group < 1 or (self.out_of_order_group % _SHUFFLE == 0):
            message = f"nexmark out_of_order_group {self.out_of_order_group} cannot be permuted"
            raise DefinitionError(message, hint=f"give a positive number that is no multiple of {_SHUFFLE}")


def event_number(n: Ints, config: Nexmark) -> Ints:
    """The number of the event at each position `n` of the stream."""
    group = config.out_of_order_group
    return n if group == 1 else n - n % group + n % group * _SHUFFLE % group


def event_time_us(n: Ints | int, config: Nexmark) -> Ints:
    """The event time at each position `n`, in microseconds, cut to whole milliseconds."""
    return time_of(event_number(np.asarray(n, np.int64), config), config.rate, config.base_time_us)


def count(kind: str, start: int, end: int, config: Nexmark | None = None) -> int:
    """How many events of `kind` are at the positions [start, end); `config` matters for disorder only."""
    group = 1 if config is None else config.out_of_order_group
    if config is None or group == 1:
        return max(_rank(kind, end) - _rank(kind, start), 0)

    def before(n: int) -> int:
        whole = n - n % group
        return _rank(kind, whole) + int(_is_kind(kind, event_number(np.arange(whole, n), config)).sum())

    return max(before(end) - before(start), 0)


def events(
    kind: str, start: int, end: int, config: Nexmark | None = None, columns: Sequence[str] | None = None
) -> pa.Table:
    """The events of `kind` at the positions [start, end), in order of position.

    Only the `columns` asked for are made, in that order; text costs most. For every cut, events(a, c) is
    events(a, b) followed by events(b, c).

    >>> events("bid", 0, 50, columns=["auction", "bidder"]).num_rows
    46
    """
    config = config or Nexmark()
    schema = _schema(kind, columns)
    batches = []
    for numbers in _numbers(kind, start, end, config):
        chunk = Chunk(kind, numbers, config.seed, config.rate, config.base_time_us)
        batches.append(pa.record_batch([pa.array(FIELDS[kind][name](chunk)) for name in schema.names], schema=schema))
    return pa.Table.from_batches(batches, schema=schema)


def _schema(kind: str, columns: Sequence[str] | None) -> pa.Schema:
    if kind not in SCHEMAS:
        message = f"no nexmark kind {kind!r}"
        raise DefinitionError(message, hint=f"the kinds are {', '.join(KINDS)}")
    whole = SCHEMAS[kind]
    if columns is None:
        return whole
    unknown = [name for name in columns if name not in whole.names]
    if unknown:
        message = f"nexmark {kind} has no column {unknown[0]!r}"
        raise DefinitionError(message, hint=f"its columns are {', '.join(whole.names)}")
    return pa.schema([whole.field(name) for name in columns])


# --- numbers and times --------------------------------------------------------------------------------------


def _rank(kind: str, n: int) -> int:
    """How many event numbers below `n` are of `kind`."""
    offset, share = _PLACE[kind]
    return n // CYCLE * share + min(max(n % CYCLE - offset, 0), share)


def _is_kind(kind: str, numbers: Ints) -> npt.NDArray[np.bool_]:
    offset, share = _PLACE[kind]
    place = numbers % CYCLE - offset
    return (place >= 0) & (place < share)


def _numbers(kind: str, start: int, end: int, config: Nexmark) -> Iterator[Ints]:
    """The event numbers of `kind` at the positions [start, end), chunk by chunk."""
    if config.out_of_order_group == 1:
        offset, share = _PLACE[kind]
        first, last = _rank(kind, start), _rank(kind, end)
        for low in range(first, last, _CHUNK):
            ranks = np.arange(low, min(low + _CHUNK, last), dtype=np.int64)
            cycle = ranks // share
            yield ranks + (cycle * (CYCLE - share) + offset)
    else:
        for low in range(start, end, _CHUNK):
            numbers = event_number(np.arange(low, min(low + _CHUNK, end), dtype=np.int64), config)
            yield numbers[_is_kind(kind, numbers)]
