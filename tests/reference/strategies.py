"""Hypothesis strategies for windowed steps and their input, as plain data (see model.py for what they mean).

Times are few small ticks, so that records, watermarks and clocks often fall on a border. A tick is a second, for
calendar windows an hour. Only combinations that the page does not refuse are made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from hypothesis import strategies as st

from tests.reference import triggers as tr
from tests.reference import windows as win
from tests.reference.model import ACCUMULATING, DISCARDING, RETRACTING, Reference, Row, Step
from tests.reference.windows import ALL_READ, BEGINNING, Span

SECOND = 1_000_000
HOUR = 3600 * SECOND

CLOCK_START = 1_000 * SECOND
"""Processing time of a case's first epoch, unless its event times lie elsewhere."""


@dataclass(frozen=True)
class Epoch:
    now: int
    watermark: int
    fractions: dict[float, int]
    records: list[Row]


@dataclass(frozen=True)
class Case:
    """A windowed step and what it is given."""

    window: win.Window
    trigger: tr.Trigger
    accumulation: str
    lateness: int
    aggregates: dict[str, str | tuple[str, str]]
    epochs: list[Epoch]

    def reference(self) -> Reference:
        return Reference(self.window, self.trigger, self.accumulation, self.lateness, self.aggregates)

    def play(self) -> Iterator[tuple[Epoch, Step, Reference]]:
        """Each epoch, what the reference gives for it, and the reference after it."""
        reference, before = self.reference(), BEGINNING
        for e in self.epochs:
            step = reference.epoch(
                now=e.now, before=before, watermark=e.watermark, records=e.records, fractions=e.fractions
            )
            before = e.watermark
            yield e, step, reference


@dataclass(frozen=True)
class Scale:
    """What a tick of event time is, and where tick 0 lies."""

    origin: int = 0
    tick: int = SECOND

    def at(self, ticks: int) -> int:
        return self.origin + ticks * self.tick


# ---------------------------------------------------------------- windows

TICKS = st.sampled_from([5, 10, 7, 3, 12, 20, 2, 1])
OFFSETS = st.integers(-3, 3)


def seconds(ticks: st.SearchStrategy[int]) -> st.SearchStrategy[int]:
    return ticks.map(lambda n: n * SECOND)


@st.composite
def hoppings(draw: st.DrawFn) -> win.Window:
    size = draw(TICKS)
    slide = draw(st.integers(1, size))
    return win.Hopping(size * SECOND, slide * SECOND, draw(OFFSETS) * SECOND)


@st.composite
def cumulatings(draw: st.DrawFn) -> win.Window:
    step = draw(st.integers(1, 4))
    return win.Cumulating(step * SECOND, step * draw(st.integers(1, 5)) * SECOND, draw(OFFSETS) * SECOND)


@st.composite
def counts(draw: st.DrawFn) -> win.Window:
    size = draw(st.integers(1, 4))
    return win.Count(size, draw(st.one_of(st.none(), st.integers(1, size))))


def threes_and_sevens(t: int) -> list[Span]:
    """The tumbling windows of 3 and of 7 seconds."""
    return [(t // n * n, t // n * n + n) for n in (3 * SECOND, 7 * SECOND)]


def near_even(t: int) -> list[Span]:
    """Two seconds from the even second before, and the one second of odd ones."""
    start = t // (2 * SECOND) * 2 * SECOND
    odd = [] if t < start + SECOND else [(start + SECOND, start + 2 * SECOND)]
    return [(start, start + 2 * SECOND), *odd]


def join_overlapping(spans: list[Span]) -> list[Span]:
    """Windows that overlap become one; windows that only touch do not."""
    become: list[Span] = []
    for start, end in sorted(spans):
        if become and start < become[-1][1]:
            become[-1] = (become[-1][0], max(become[-1][1], end))
        else:
            become.append((start, end))
    return become


def join_neighbours(spans: list[Span]) -> list[Span]:
    """Windows that touch or overlap become one, but none longer than 12 seconds."""
    become: list[Span] = []
    for start, end in sorted(spans):
        if become and start <= become[-1][1] and max(end, become[-1][1]) - become[-1][0] <= 12 * SECOND:
            become[-1] = (become[-1][0], max(become[-1][1], end))
        else:
            become.append((start, end))
    return become


def join_oldest(spans: list[Span]) -> list[Span]:
    """Of three windows or more the two oldest become one, wherever the records are that came."""
    if len(spans) < 3:
        return spans
    (start, end), (_, other) = sorted(spans)[:2]
    return [(start, max(end, other)), *sorted(spans)[2:]]


def sevens_or_threes(t: int) -> list[Span]:
    """The tumbling window of 7 seconds in even seconds, that of 3 in odd ones."""
    n = 7 * SECOND if t // SECOND % 2 == 0 else 3 * SECOND
    return [(t // n * n, t // n * n + n)]


def twos(t: int) -> list[Span]:
    return [(t // (2 * SECOND) * 2 * SECOND, t // (2 * SECOND) * 2 * SECOND + 2 * SECOND)]


def next_four(t: int) -> list[Span]:
    """The four seconds after those of the record; every fifth second has no window."""
    start = t // (4 * SECOND) * 4 * SECOND
    return [] if t // SECOND % 5 == 0 else [(start + 4 * SECOND, start + 8 * SECOND)]


CUSTOM = [
    win.Custom(threes_and_sevens),
    win.Custom(near_even),
    win.Custom(next_four),
    win.Custom(sevens_or_threes, join_overlapping),
    win.Custom(twos, join_neighbours),
    win.Custom(twos, join_oldest),
    win.Custom(sevens_or_threes, join_oldest),
    win.Custom(next_four, join_neighbours),
]
"""Functions of micros; for the product they are to be wrapped into functions of datetimes."""

WINDOWS: dict[str, st.SearchStrategy[win.Window]] = {
    "tumbling": st.builds(win.Tumbling, seconds(TICKS), seconds(OFFSETS)),
    "hopping": hoppings(),
    "cumulating": cumulatings(),
    "session": st.builds(win.Session, seconds(st.integers(1, 6))),
    "session by record": st.just(win.Session()),
    "count": counts(),
    "custom": st.sampled_from(CUSTOM),
    "everything": st.just(win.Everything()),
}
"""By kind; "calendar" is apart, because its times lie elsewhere."""

CALENDARS = [
    (win.Calendar("day"), "2026-01-01T00:00:00Z"),
    (win.Calendar("day", "Europe/Berlin"), "2026-03-29T00:00:00Z"),  # 23 hours
    (win.Calendar("day", "Europe/Berlin"), "2026-10-25T00:00:00Z"),  # 25 hours
    (win.Calendar("day", "Asia/Beirut"), "2021-03-27T22:00:00Z"),  # no midnight
    (win.Calendar("day", "America/Havana"), "2021-11-07T04:00:00Z"),  # two midnights
    (win.Calendar("day", "Pacific/Apia"), "2011-12-30T10:00:00Z"),  # a day left out
    (win.Calendar("day", "America/St_Johns"), "2010-11-07T02:45:00Z"),  # set back across midnight
    (win.Calendar("day", "America/Argentina/Cordoba"), "1991-10-20T04:00:00Z"),  # from 00:00 to 02:00
    (win.Calendar("day", "Pacific/Kiritimati"), "1979-10-01T10:40:00Z"),  # from 00:00 to 00:40
    (win.Calendar("day", "Asia/Kathmandu"), "2026-01-01T18:00:00Z"),  # a quarter off the hour
    (win.Calendar("day", "America/New_York"), "1969-12-31T12:00:00Z"),  # before 1970
    (win.Calendar("week"), "2026-01-05T00:00:00Z"),
    (win.Calendar("week", "Europe/Berlin"), "2026-03-29T22:00:00Z"),
    (win.Calendar("month", "America/New_York"), "2024-03-01T05:00:00Z"),
    (win.Calendar("quarter", "Asia/Tokyo"), "2025-12-31T15:00:00Z"),
    (win.Calendar("year", "Australia/Lord_Howe"), "2025-12-31T13:00:00Z"),
]
"""Windows, and an instant near a border of theirs to which tick 10 is put."""

KINDS = (*WINDOWS, "calendar")


@st.composite
def windows(draw: st.DrawFn, kinds: tuple[str, ...] = KINDS) -> tuple[win.Window, Scale]:
    kind = draw(st.sampled_from(kinds))
    if kind != "calendar":
        return draw(WINDOWS[kind]), Scale()
    window, border = draw(st.sampled_from(CALENDARS))
    at = round(datetime.fromisoformat(border).timestamp()) * SECOND
    return window, Scale(at - 10 * HOUR, HOUR)


# ---------------------------------------------------------------- triggers

FRACTIONS = (0.5, 0.9)


def can_fire(trigger: tr.Trigger) -> bool:
    """Whether it can ever fire over a window without an end."""
    match trigger:
        case tr.AfterFraction():
            return False
        case tr.AfterWatermark():
            return trigger.early is not None and can_fire(trigger.early)
        case tr.AllOf():
            return all(map(can_fire, trigger.parts))
        case tr.AnyOf():
            return any(map(can_fire, trigger.parts))
        case tr.InOrder():
            return can_fire(trigger.parts[0])
        case tr.Repeatedly() | tr.Once():
            return can_fire(trigger.part)
        case tr.Until():
            return can_fire(trigger.part) or can_fire(trigger.stop)
        case _:
            return True


def fractions_of(trigger: tr.Trigger) -> set[float]:
    match trigger:
        case tr.AfterFraction():
            return {trigger.fraction}
        case tr.AfterWatermark():
            return {f for t in (trigger.early, trigger.late) if t is not None for f in fractions_of(t)}
        case tr.AnyOf() | tr.AllOf() | tr.InOrder():
            return {f for t in trigger.parts for f in fractions_of(t)}
        case tr.Repeatedly() | tr.Once():
            return fractions_of(trigger.part)
        case tr.Until():
            return fractions_of(trigger.part) | fractions_of(trigger.stop)
        case _:
            return set()


def _finishing(trigger: tr.Trigger) -> tr.Trigger:
    return trigger if tr.finishes(trigger) else tr.Once(trigger)


def _in_order(parts: list[tr.Trigger]) -> tr.Trigger:
    return tr.InOrder((*map(_finishing, parts[:-1]), parts[-1]))


LEAVES: st.SearchStrategy[tr.Trigger] = st.one_of(
    st.just(tr.on_change()),
    st.just(tr.on_close()),
    st.builds(tr.AfterCount, st.integers(1, 4)),
    st.builds(tr.AfterDelay, seconds(st.integers(1, 6)), st.booleans()),
    st.builds(tr.AfterFraction, st.sampled_from(FRACTIONS)),
    st.just(tr.AfterWatermark(None, None)),
)


def nested(inner: st.SearchStrategy[tr.Trigger]) -> st.SearchStrategy[tr.Trigger]:
    """Triggers made of these."""
    some = st.lists(inner, min_size=1, max_size=3)
    maybe = st.one_of(st.none(), inner)
    return st.one_of(
        st.builds(tr.AfterWatermark, maybe, maybe),
        st.builds(tr.Repeatedly, inner),
        some.map(_in_order),
        st.builds(tr.Until, inner, inner),
        st.builds(tr.Once, inner),
        some.map(lambda parts: tr.AnyOf(tuple(parts))),
        some.map(lambda parts: tr.AllOf(tuple(parts))),
    )


_TWO = st.one_of(LEAVES, nested(LEAVES))
TRIGGERS: st.SearchStrategy[tr.Trigger] = st.one_of(
    LEAVES, nested(LEAVES), nested(_TWO), st.builds(tr.AfterWatermark, _TWO, _TWO), st.builds(tr.Repeatedly, _TWO)
)
"""Nested to a depth of three; those that go on are made more often than those that finish."""


@st.composite
def triggers_for(draw: st.DrawFn, window: win.Window) -> tr.Trigger:
    """A trigger that is not refused for this kind of window."""
    trigger = draw(TRIGGERS)
    if isinstance(window, win.Everything) and not can_fire(trigger):
        trigger = tr.AnyOf((trigger, tr.AfterCount(draw(st.integers(1, 3)))))
    if isinstance(window, win.Count) and tr.finishes(trigger):
        trigger = tr.Repeatedly(trigger)
    return trigger


# ---------------------------------------------------------------- aggregates

AGGREGATES: dict[str, str | tuple[str, str]] = {
    "n": "count",
    "nv": ("count", "v"),
    "s": ("sum", "v"),
    "mn": ("min", "v"),
    "mx": ("max", "v"),
    "a": ("avg", "v"),
    "f": ("first", "v"),
    "l": ("last", "v"),
    "c": ("collect", "v"),
    "d": ("count_distinct", "v"),
    "u": ("squares", "v"),
}


def aggregates() -> st.SearchStrategy[dict[str, str | tuple[str, str]]]:
    few = st.lists(st.sampled_from(list(AGGREGATES)), min_size=1, max_size=4, unique=True)
    return st.one_of(few, few, st.just([n for n in AGGREGATES if n != "u"])).map(
        lambda names: {n: AGGREGATES[n] for n in names}
    )


# ---------------------------------------------------------------- input

KEYS = ["a", "a", "a", "b", None]
GAPS = st.sampled_from([n * SECOND for n in (1, 2, 3, 4, 5, 6)] * 4 + [None, 0, -SECOND])
"""Now and then one that makes no session."""
JITTER = [0] * 12 + [-1, 1]
"""Now and then a record is one microsecond off its tick."""


@st.composite
def inputs(draw: st.DrawFn, scale: Scale, fractions: set[float]) -> list[Epoch]:
    """Epochs whose records move on in event time, disordered by a few ticks."""
    length = draw(st.sampled_from([6, 9, 4, 3, 12, 2, 1]))
    delay = draw(st.one_of(st.none(), st.integers(0, 6)))  # None: the watermark jumps
    now = max(CLOCK_START, scale.at(20))
    front, jumping, newest = 0, draw(st.sampled_from([BEGINNING, scale.at(-4), scale.at(2)])), BEGINNING
    ahead = dict.fromkeys(fractions, BEGINNING)
    offsets = [0, 0]
    epochs = []
    for number in range(length):
        if number:
            now += draw(st.integers(0, 5)) * SECOND
        if delay is not None:
            watermark = BEGINNING if newest == BEGINNING else newest - delay * scale.tick
        else:
            step = draw(st.sampled_from([0, 0, 1, 1, 2, 3, 6]))
            if step:
                jumping = max(jumping, scale.at(-4)) + step * scale.tick
            watermark = jumping
        if number and number == length - 1 and draw(st.booleans()):
            epochs.append(Epoch(now, ALL_READ, dict.fromkeys(fractions, ALL_READ), []))
            break
        for fraction in sorted(fractions, reverse=True):  # the less of the data, the further ahead
            least = max([watermark, ahead[fraction], *(a for f, a in ahead.items() if f > fraction)])
            step = draw(st.sampled_from([0, 0, 1, 2, 4]))
            ahead[fraction] = max(least, scale.at(-4)) + step * scale.tick if step else least
        records = []
        for _ in range(draw(st.sampled_from([2, 3, 1, 0, 4, 6]))):
            part = draw(st.integers(0, 1))
            t = scale.at(front + draw(st.integers(-5, 3))) + draw(st.sampled_from(JITTER))
            records.append(
                {
                    "key": draw(st.sampled_from(KEYS)),
                    "t": t,
                    "part": part,
                    "pos": offsets[part],
                    "v": draw(st.one_of(st.none(), st.integers(-3, 3))),
                    "gap": draw(GAPS),
                }
            )
            offsets[part] += 1
            newest = max(newest, t)
        epochs.append(Epoch(now, watermark, dict(ahead), records))
        front += draw(st.sampled_from([0, 1, 1, 2, 3, 7]))
    return epochs


@st.composite
def cases(draw: st.DrawFn, kinds: tuple[str, ...] = KINDS, trigger: tr.Trigger | None = None) -> Case:
    """A windowed step of one of these kinds, with its input; with this trigger if one is given."""
    window, scale = draw(windows(kinds))
    chosen = draw(triggers_for(window)) if trigger is None else trigger
    modes = [RETRACTING, ACCUMULATING] + [DISCARDING] * (not isinstance(window, win.Count))
    lateness = 0 if isinstance(window, win.Everything) else draw(st.sampled_from([0, 0, 1, 3, 8, 20])) * scale.tick
    return Case(
        window,
        chosen,
        draw(st.sampled_from(modes)),
        lateness,
        draw(aggregates()),
        draw(inputs(scale, fractions_of(chosen))),
    )
