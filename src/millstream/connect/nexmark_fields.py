"""What the fields of Nexmark events hold: hashes of (seed, field, event number), for many events at once.

Used by `nexmark` alone, which knows which events there are. A field is a function of a `Chunk`; `FIELDS`
names them all, by kind and column.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from functools import cache, lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
Table = npt.NDArray[np.uint8]
"""The letter for each of the 256 values of a random byte."""

TIME = pa.timestamp("us", tz="UTC")
CYCLE = 50
"""Of so many event numbers in a row the first is a person, the next three are auctions, the others bids."""

_FIRST_ID = 1000
_FIRST_CATEGORY, _CATEGORIES = 10, 5
_IN_FLIGHT_AUCTIONS, _ACTIVE_PEOPLE, _LEAD = 100, 1000, 10
"""Cold ids are drawn from the latest auctions and persons, and `_LEAD` ids that do not exist yet."""
_HOT_STEP = 100
"""A hot id is the latest one divisible by this."""
_FIRST_NAMES = "Peter Paul Luke John Saul Vicky Kate Julie Sarah Deiter Walter".split()
_LAST_NAMES = "Shultz Abrams Spencer White Bartels Walton Smith Jones Noris".split()
_CITIES = "Phoenix,Los Angeles,San Francisco,Boise,Portland,Bend,Redmond,Seattle,Kent,Cheyenne".split(",")
_STATES = "AZ CA ID OR WA WY".split()
_HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
_CHANNELS = 10_000


def time_of(numbers: Ints, rate: int, base_time_us: int) -> Ints:
    """The event times, in microseconds, truncated to whole milliseconds."""
    micros = numbers * 1_000_000 // rate + base_time_us
    return micros // 1000 * 1000


# --- randomness ---------------------------------------------------------------------------------------------

_WORD = (1 << 64) - 1
_GOLDEN, _MIX_1, _MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


@cache
def _stream(seed: int, field: str) -> int:
    """The start of the random stream of one field: splitmix64 of the seed and the field's name."""
    word = (seed * _GOLDEN + (zlib.crc32(field.encode()) << 32) + _GOLDEN) & _WORD
    word = (word ^ (word >> 30)) * _MIX_1 & _WORD
    word = (word ^ (word >> 27)) * _MIX_2 & _WORD
    return word ^ (word >> 31)


def _hash(seed: int, field: str, numbers: Ints) -> Hashes:
    """One random word per event: splitmix64 with the event number as its counter."""
    word = numbers.astype(np.uint64)
    word *= np.uint64(_GOLDEN)
    word += np.uint64(_stream(seed, field))
    for shift, factor in ((30, _MIX_1), (27, _MIX_2)):
        word ^= word >> np.uint64(shift)
        word *= np.uint64(factor)
    word ^= word >> np.uint64(31)
    return word


def _below(word: Hashes, bound: Ints | int) -> Ints:
    """Uniform in [0, bound), from the upper half of the words; the lower half is free for another draw."""
    scaled = (word >> np.uint64(32)) * np.asarray(bound).astype(np.uint64)
    return (scaled >> np.uint64(32)).view(np.int64)


_PRICE_BITS, _BETWEEN_BITS = 12, 20
_PRICES = np.array(
    [round(100 * math.pow(10, 6 * i / (1 << _PRICE_BITS))) for i in range((1 << _PRICE_BITS) + 1)], np.int64
)


def _price(word: Hashes) -> Ints:
    """Log-uniform in 100 .. 100,000,000: a table and straight lines between, so equal on every processor."""
    at = (word >> np.uint64(64 - _PRICE_BITS)).view(np.int64)
    between = ((word >> np.uint64(64 - _PRICE_BITS - _BETWEEN_BITS)) & np.uint64((1 << _BETWEEN_BITS) - 1)).view(
        np.int64
    )
    low = _PRICES[at]
    return low + ((_PRICES[at + 1] - low) * between >> _BETWEEN_BITS)


# --- text ---------------------------------------------------------------------------------------------------

_LETTERS = np.array([97 + i * 26 // 256 for i in range(256)], np.uint8)
_WORDS = np.where(np.arange(256) < 256 // 13, 32, _LETTERS).astype(np.uint8)
"""As `_LETTERS`, but one in 13 is a blank."""


def _text(seed: int, field: str, numbers: Ints, lengths: Ints, table: Table = _LETTERS) -> pa.Array:
    """Random text of the given lengths; it starts and ends with a letter."""
    rows = len(numbers)
    words = (int(lengths.max(initial=0)) + 7) // 8
    grid = np.empty((rows, words), "<u8")
    for i in range(words):
        grid[:, i] = _hash(seed, f"{field}/{i}", numbers)
    random = grid.view(np.uint8)
    letters = table[random]
    if table is not _LETTERS:
        every = np.arange(rows)
        for at in (np.zeros(rows, np.int64), lengths - 1):
            letters[every, at] = _LETTERS[random[every, at]]
    characters = letters[np.arange(words * 8) < lengths[:, None]]
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(characters))


def _joined(*parts: pa.Array | str) -> pa.Array:
    """The parts of every row, one after the other."""
    return pc.binary_join_element_wise(*parts, "")


def _choice(word: Hashes, names: Sequence[str]) -> pa.Array:
    return pa.array(names, pa.string()).take(pa.array(_below(word, len(names))))


@lru_cache(maxsize=4)
def _channels(seed: int) -> tuple[pa.Array, pa.Array]:
    """Every channel and its url: four hot ones, then `channel-0` and on, of which nine in ten have an id."""
    numbers = np.arange(len(_HOT_CHANNELS) + _CHANNELS, dtype=np.int64)
    words = (_text(seed, f"url.{i}", numbers, 3 + _below(_hash(seed, f"url.{i}#", numbers), 2)) for i in range(3))
    urls = pc.binary_join_element_wise("https://www.nexmark.com", *words, "item.htm?query=1", "/").to_pylist()
    has_id = _below(_hash(seed, "url.id", numbers), 10) > 0
    for i in range(_CHANNELS):
        if has_id[at := len(_HOT_CHANNELS) + i]:
            mirrored = int(f"{i:032b}"[::-1], 2)
            urls[at] += f"&channel_id={min(mirrored, (1 << 32) - mirrored)}"
    names = [*_HOT_CHANNELS, *(f"channel-{i}" for i in range(_CHANNELS))]
    return pa.array(names, pa.string()), pa.array(urls, pa.string())


# --- fields -------------------------------------------------------------------------------------------------


class Chunk:
    """Some events of one kind, identified by their numbers; its methods return the building blocks of their fields."""

    def __init__(self, kind: str, numbers: Ints, seed: int, rate: int, base_time_us: int) -> None:
        self.kind, self.numbers, self.seed = kind, numbers, seed
        self.rate, self.base_time_us = rate, base_time_us
        self.cycle = numbers // CYCLE
        """Also the latest person, counted from 0."""

    def word(self, field: str) -> Hashes:
        """A random word per event."""
        return _hash(self.seed, f"{self.kind}.{field}", self.numbers)

    def below(self, field: str, bound: int) -> Ints:
        """A random number in [0, bound) per event."""
        return _below(self.word(field), bound)

    def choice(self, field: str, names: Sequence[str]) -> pa.Array:
        """One of the names per event."""
        return _choice(self.word(field), names)

    def length(self, field: str, longest: int) -> Ints:
        """How long the text of a field is: 3 to `longest` - 1."""
        return 3 + self.below(f"{field}#", longest - 3)

    def text(self, field: str, longest: int, table: Table = _LETTERS) -> pa.Array:
        """Random text of that length."""
        return self._text(field, self.length(field, longest), table)

    def filler(self, average: int, used: Ints | int) -> pa.Array:
        """Text that brings an event of `used` bytes to `average`, give or take a fifth of what is added."""
        missing = np.maximum(average - np.broadcast_to(used, self.numbers.shape), 0)
        spread = (missing + 2) // 5
        return self._text("extra", missing - spread + _below(self.word("extra#"), 2 * spread), _LETTERS)

    def _text(self, field: str, lengths: Ints, table: npt.NDArray[np.uint8]) -> pa.Array:
        return _text(self.seed, f"{self.kind}.{field}", self.numbers, lengths, table)

    def time(self) -> pa.Array:
        """The event times."""
        return pa.array(self._time_of(self.numbers)).view(TIME)

    def _time_of(self, numbers: Ints) -> Ints:
        return time_of(numbers, self.rate, self.base_time_us)

    def last_auction(self) -> Ints:
        """The latest auction at each event, counted from 0."""
        place: Ints = np.minimum(self.numbers - self.cycle * CYCLE - 1, 2)
        return self.cycle * 3 + place

    def person(self, field: str, hot_offset: int) -> Ints:
        """The id of a person: three times in four the hot one, otherwise any active one."""
        word = self.word(field)
        active = np.minimum(self.cycle + 1, _ACTIVE_PEOPLE)
        anybody = self.cycle + 1 - active + _below(word, active + _LEAD)
        hot = self.cycle // _HOT_STEP * _HOT_STEP + hot_offset
        return _FIRST_ID + np.where(word & np.uint64(3), hot, anybody)

    def auction(self) -> Ints:
        """The id of an auction to bid on: every second time the hot one, else any that is in flight."""
        word, last = self.word("auction"), self.last_auction()
        oldest = np.maximum(last - _IN_FLIGHT_AUCTIONS, 0)
        any_other = oldest + _below(word, last - oldest + 1 + _LEAD)
        return _FIRST_ID + np.where(word & np.uint64(1), last // _HOT_STEP * _HOT_STEP, any_other)

    def expires(self) -> pa.Array:
        """When auctions end: on average after the time in which 100 auctions open."""
        now = self._time_of(self.numbers)
        life = self._time_of(self.numbers + _IN_FLIGHT_AUCTIONS * CYCLE // 3) - now
        return pa.array(now + 1000 + _below(self.word("expires"), np.maximum(life // 1000 * 2, 1)) * 1000).view(TIME)

    def channel(self, what: int) -> pa.Array:
        """The channel (0) or the url (1) of bids; every second one is of a hot channel."""
        word = self.word("channel")
        hot = _below(word, len(_HOT_CHANNELS))
        at = np.where(word & np.uint64(1), hot, len(_HOT_CHANNELS) + _below(word, _CHANNELS))
        return _channels(self.seed)[what].take(pa.array(at))


def _name(chunk: Chunk) -> pa.Array:
    return _joined(chunk.choice("first_name", _FIRST_NAMES), pa.scalar(" "), chunk.choice("last_name", _LAST_NAMES))


def _email(chunk: Chunk) -> pa.Array:
    return _joined(chunk.text("user", 7), pa.scalar("@"), chunk.text("host", 5), pa.scalar(".com"))


def _card(chunk: Chunk) -> pa.Array:
    digits = [pc.utf8_lpad(pa.array(chunk.below(f"card.{i}", 10_000)).cast(pa.string()), 4, "0") for i in range(4)]
    return pc.binary_join_element_wise(*digits, " ")


def _city(chunk: Chunk) -> pa.Array:
    return chunk.choice("city", _CITIES)


def _person_extra(chunk: Chunk) -> pa.Array:
    text = pc.add(pc.binary_length(_name(chunk)), pc.binary_length(_city(chunk))).to_numpy().astype(np.int64)
    email = chunk.length("user", 7) + chunk.length("host", 5) + len("@.com")
    return chunk.filler(200, text + email + len("1234 1234 1234 1234") + len("CA") + 8)


def _auction_extra(chunk: Chunk) -> pa.Array:
    return chunk.filler(500, chunk.length("item_name", 20) + chunk.length("description", 100) + 6 * 8)


FIELDS: dict[str, dict[str, Callable[[Chunk], pa.Array | Ints]]] = {
    "person": {
        "id": lambda c: _FIRST_ID + c.cycle,
        "name": _name,
        "email_address": _email,
        "credit_card": _card,
        "city": _city,
        "state": lambda c: c.choice("state", _STATES),
        "date_time": Chunk.time,
        "extra": _person_extra,
    },
    "auction": {
        "id": lambda c: _FIRST_ID + c.last_auction(),
        "item_name": lambda c: c.text("item_name", 20, _WORDS),
        "description": lambda c: c.text("description", 100, _WORDS),
        "initial_bid": lambda c: _price(c.word("initial_bid")),
        "reserve": lambda c: _price(c.word("initial_bid")) + _price(c.word("reserve")),
        "date_time": Chunk.time,
        "expires": Chunk.expires,
        "seller": lambda c: c.person("seller", 0),
        "category": lambda c: _FIRST_CATEGORY + c.below("category", _CATEGORIES),
        "extra": _auction_extra,
    },
    "bid": {
        "auction": Chunk.auction,
        "bidder": lambda c: c.person("bidder", 1),
        "price": lambda c: _price(c.word("price")),
        "channel": lambda c: c.channel(0),
        "url": lambda c: c.channel(1),
        "date_time": Chunk.time,
        "extra": lambda c: c.filler(100, 4 * 8),
    },
}
