"""The reference against examples worked out by hand from docs/decisions/0008-panes.md."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.reference.model import (
    ACCUMULATING,
    BEHIND,
    DISCARDING,
    EARLY,
    FINISHED,
    LATE,
    NOWHERE,
    ON_TIME,
    RETRACTING,
    Reference,
    Step,
)
from tests.reference.triggers import (
    Trigger,
    after_count,
    after_delay,
    after_fraction,
    after_watermark,
    all_of,
    any_of,
    every,
    in_order,
    on_change,
    on_close,
    once,
    repeatedly,
    until,
)
from tests.reference.windows import (
    ALL_READ,
    BEGINNING,
    Calendar,
    Count,
    Cumulating,
    Custom,
    Everything,
    Hopping,
    Session,
    Tumbling,
    Window,
)

TEN = Tumbling(10)


class Play:
    """A reference with one key, counting and collecting; a record is (time, value), its offset its place of arrival."""

    def __init__(
        self, window: Window, trigger: Trigger, accumulation: str = RETRACTING, lateness: int = 0, **more: Any
    ) -> None:
        self.reference = Reference(
            window, trigger, accumulation, lateness, {"n": "count", "c": ("collect", "v"), **more}
        )
        self.sent = 0
        self.now = 0
        self.watermark = BEGINNING

    def __call__(
        self,
        *records: tuple[int, Any] | dict[str, Any],
        w: int | None = None,
        now: int | None = None,
        fractions: dict[float, int] | None = None,
    ) -> Step:
        rows = []
        for r in records:
            row = {"key": "a", "part": 0, "pos": self.sent}
            rows.append({**row, **r} if isinstance(r, dict) else {**row, "t": r[0], "v": r[1]})
            self.sent += 1
        before = self.watermark
        self.now = self.now if now is None else now
        self.watermark = self.watermark if w is None else w
        return self.reference.epoch(
            now=self.now, before=before, watermark=self.watermark, records=rows, fractions=fractions
        )


def changes(step: Step) -> list[tuple[Any, ...]]:
    """(op, start, end, what was collected)."""
    return [(op, r["window_start"], r["window_end"], "".join(r["c"])) for op, r in step.changes]


def panes(step: Step) -> list[tuple[Any, ...]]:
    """(start, end, pane, timing, is_last, what was collected)."""
    for p in step.panes:
        assert p["is_first"] == (p["pane"] == 0)
    return [
        (p["window_start"], p["window_end"], p["pane"], p["timing"], p["is_last"], "".join(p["c"])) for p in step.panes
    ]


def fired(step: Step) -> list[tuple[Any, ...]]:
    """(timing, what was collected) where there is one window only."""
    return [(timing, collected) for _, _, _, timing, _, collected in panes(step)]


def late(step: Step) -> list[tuple[int, str]]:
    return [(r["t"], why) for r, why in step.late]


# ---------------------------------------------------------------- windows


@pytest.mark.parametrize(
    ("window", "t", "spans"),
    [
        (Tumbling(10), 0, [(0, 10)]),
        (Tumbling(10), 9, [(0, 10)]),
        (Tumbling(10), 10, [(10, 20)]),
        (Tumbling(10), -1, [(-10, 0)]),
        (Tumbling(10, offset=3), 2, [(-7, 3)]),
        (Tumbling(10, offset=-1), 9, [(9, 19)]),
        (Hopping(10, 5), 7, [(0, 10), (5, 15)]),
        (Hopping(10, 4), 7, [(0, 10), (4, 14)]),
        (Hopping(10, 4), 8, [(0, 10), (4, 14), (8, 18)]),
        (Hopping(10, 4), 10, [(4, 14), (8, 18)]),
        (Hopping(10, 10, offset=1), 0, [(-9, 1)]),
        (Cumulating(2, 6), 0, [(0, 2), (0, 4), (0, 6)]),
        (Cumulating(2, 6), 2, [(0, 4), (0, 6)]),
        (Cumulating(2, 6), 5, [(0, 6)]),
        (Cumulating(2, 6), 6, [(6, 8), (6, 10), (6, 12)]),
        (Cumulating(2, 6, offset=1), 0, [(-5, 1)]),
        (Session(10), 3, [(3, 13)]),
        (Custom(lambda t: [(t // 4 * 4, t // 4 * 4 + 4), (0, 100), (0, 100)]), 5, [(0, 100), (4, 8)]),
        (Everything(), 5, [(BEGINNING, ALL_READ)]),
    ],
)
def test_the_windows_of_a_record(window: Window, t: int, spans: list[tuple[int, int]]) -> None:
    assert window.of({"t": t}) == spans


def instant(text: str, zone: str = "UTC") -> int:
    local = datetime.fromisoformat(text)
    aware = local if local.tzinfo else local.replace(tzinfo=ZoneInfo(zone))
    return round(aware.timestamp()) * 1_000_000


@pytest.mark.parametrize(
    ("unit", "zone", "at", "start", "end", "hours"),
    [
        ("day", "UTC", "2026-03-01T00:00:00Z", "2026-03-01T00:00:00Z", "2026-03-02T00:00:00Z", 24),
        ("day", "Europe/Berlin", "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z", 23),
        ("day", "Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z", 25),
        ("week", "UTC", "2026-01-04T23:59:59Z", "2025-12-29T00:00:00Z", "2026-01-05T00:00:00Z", 168),
        ("week", "UTC", "2026-01-05T00:00:00Z", "2026-01-05T00:00:00Z", "2026-01-12T00:00:00Z", 168),
        ("month", "UTC", "2024-02-29T00:00:00Z", "2024-02-01T00:00:00Z", "2024-03-01T00:00:00Z", 29 * 24),
        ("month", "UTC", "2025-12-31T00:00:00Z", "2025-12-01T00:00:00Z", "2026-01-01T00:00:00Z", 31 * 24),
        ("quarter", "UTC", "2026-05-05T00:00:00Z", "2026-04-01T00:00:00Z", "2026-07-01T00:00:00Z", 91 * 24),
        ("quarter", "UTC", "2025-12-05T00:00:00Z", "2025-10-01T00:00:00Z", "2026-01-01T00:00:00Z", 92 * 24),
        ("year", "UTC", "2024-12-31T23:00:00Z", "2024-01-01T00:00:00Z", "2025-01-01T00:00:00Z", 366 * 24),
        ("year", "Asia/Tokyo", "2025-12-31T15:00:00Z", "2025-12-31T15:00:00Z", "2026-12-31T15:00:00Z", 365 * 24),
        # Beirut jumps from 00:00 to 01:00: that day has no midnight, and begins at its first instant
        ("day", "Asia/Beirut", "2021-03-28T10:00:00Z", "2021-03-27T22:00:00Z", "2021-03-28T21:00:00Z", 23),
        ("day", "Asia/Beirut", "2021-03-27T21:59:59Z", "2021-03-26T22:00:00Z", "2021-03-27T22:00:00Z", 24),
        # Havana goes back from 01:00 to 00:00: two midnights, the day begins with the first
        ("day", "America/Havana", "2021-11-07T05:30:00Z", "2021-11-07T04:00:00Z", "2021-11-08T05:00:00Z", 25),
        # Samoa left out the 30th of December 2011
        ("day", "Pacific/Apia", "2011-12-30T09:00:00Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z", 24),
        ("day", "Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z", 24),
        # St. John's went back from 00:01 to 23:01: the day is cut at the first of two midnights
        ("day", "America/St_Johns", "2010-11-07T02:45:00Z", "2010-11-07T02:30:00Z", "2010-11-08T03:30:00Z", 25),
    ],
)
def test_calendar_windows_are_local(unit: str, zone: str, at: str, start: str, end: str, hours: int) -> None:
    assert Calendar(unit, zone).of({"t": instant(at)}) == [(instant(start), instant(end))]
    assert instant(end) - instant(start) == hours * 3600 * 1_000_000


def test_windows_that_overlap_or_touch_become_one_session() -> None:
    assert Session(10).merged([(0, 10), (10, 20), (21, 31)]) == [(0, 20), (21, 31)]
    assert Session().merged([(0, 30), (1, 2), (5, 31), (40, 41)]) == [(0, 31), (40, 41)]


# ---------------------------------------------------------------- firing and timing


def test_on_change_answers_each_epoch_once_and_takes_the_old_answer_back() -> None:
    play = Play(TEN, on_change())
    assert changes(play((1, "x"), (0, "y"))) == [("+I", 0, 10, "yx")]
    step = play((5, "z"))
    assert changes(step) == [("-U", 0, 10, "yx"), ("+U", 0, 10, "yxz")]
    assert panes(step) == [(0, 10, 1, EARLY, False, "yxz")]
    assert play(w=9).changes == []
    assert play(w=10).panes == []  # expires, but a pane has shown all


def test_on_close_answers_when_the_watermark_reaches_the_end() -> None:
    play = Play(TEN, on_close())
    assert play((1, "x")).panes == []
    assert play((9, "y"), w=9).panes == []
    step = play((9, "z"), w=10)
    assert changes(step) == [("+I", 0, 10, "xy")]
    assert panes(step) == [(0, 10, 0, ON_TIME, True, "xy")]
    assert late(step) == [(9, BEHIND)]


def test_late_panes_come_until_the_window_expires() -> None:
    play = Play(TEN, on_close(), lateness=5)
    play((1, "x"))
    step = play((2, "y"), w=10)  # the clock first, then the records: two panes
    assert panes(step) == [(0, 10, 0, ON_TIME, False, "x"), (0, 10, 1, LATE, False, "xy")]
    assert changes(step) == [("+I", 0, 10, "x"), ("-U", 0, 10, "x"), ("+U", 0, 10, "xy")]
    step = play((3, "z"), w=14)
    assert panes(step) == [(0, 10, 2, LATE, False, "xyz")]
    step = play((3, "z"), w=15)
    assert (step.panes, late(step)) == ([], [(3, BEHIND)])


def test_a_window_that_begins_after_its_end_has_no_pane_on_time() -> None:
    play = Play(TEN, on_close(), lateness=5)
    play(w=12)
    assert panes(play((1, "x"))) == [(0, 10, 0, LATE, False, "x")]
    assert panes(play((1, "y"), w=13)) == [(0, 10, 1, LATE, False, "xy")]


def test_early_on_time_and_late_panes() -> None:
    play = Play(TEN, after_watermark(early=after_count(2), late=after_count(2)), lateness=10)
    assert fired(play((1, "a"))) == []
    assert fired(play((1, "b"))) == [(EARLY, "ab")]
    assert fired(play((1, "c"))) == []
    assert fired(play((2, "d"), w=10)) == [(ON_TIME, "abc")]  # d waits for another late one
    assert fired(play((2, "e"))) == [(LATE, "abcde")]
    assert fired(play((2, "f"))) == []
    assert panes(play(w=20)) == [(0, 10, 3, LATE, True, "abcdef")]  # expires with what no pane has shown


def test_an_on_time_pane_without_news_is_listed_and_changes_nothing() -> None:
    play = Play(TEN, after_watermark(early=on_change()), lateness=1)
    play((1, "x"))
    step = play(w=10)
    assert panes(step) == [(0, 10, 1, ON_TIME, False, "x")]
    assert step.changes == []
    assert play(w=11).panes == []


def test_an_empty_discarding_pane_answers_over_nothing() -> None:
    play = Play(TEN, after_watermark(early=on_change()), DISCARDING, s=("sum", "v"), d=("count_distinct", "v"))
    play((1, None))
    (pane,) = play(w=10).panes
    assert (pane["n"], pane["c"], pane["s"], pane["d"]) == (0, [], None, 0)
    assert pane["is_last"]
    assert [r["n"] for r in play.reference.view.values()] == [1]


def test_a_window_that_expires_before_its_trigger_is_ready_answers_on_time() -> None:
    play = Play(TEN, after_count(5))
    play((1, "x"))
    assert panes(play(w=10)) == [(0, 10, 0, ON_TIME, True, "x")]


def test_the_first_pane_after_the_end_is_on_time_if_the_clock_gives_it() -> None:
    play = Play(TEN, every(5), lateness=100)
    play((1, "x"), now=0)
    assert play(w=11, now=4).panes == []
    assert fired(play(w=12, now=5)) == [(ON_TIME, "x")]
    play((1, "y"))
    assert fired(play(now=10)) == [(LATE, "xy")]


# ---------------------------------------------------------------- triggers


def test_after_count_counts_when_the_epoch_ends_and_is_then_finished() -> None:
    play = Play(TEN, after_count(2))
    step = play(*((1, c) for c in "abcde"))
    assert panes(step) == [(0, 10, 0, EARLY, True, "abcde")]
    step = play((1, "f"), (11, "g"))
    assert late(step) == [(1, FINISHED)]
    assert late(play((2, "h"), w=10)) == [(2, BEHIND)]


def test_a_record_is_not_late_if_one_of_its_windows_takes_it() -> None:
    play = Play(Hopping(10, 5), after_count(1), lateness=3)
    step = play((7, "a"))
    assert changes(step) == [("+I", 0, 10, "a"), ("+I", 5, 15, "a")]
    step = play((4, "b"), (12, "c"), (9, "d"))  # b: in (-5, 5); c: in (10, 20); d: both finished
    assert changes(step) == [("+I", -5, 5, "b"), ("+I", 10, 20, "c")]
    assert late(step) == [(9, FINISHED)]
    step = play((9, "e"), (4, "f"), w=13)  # e: one window expired, one finished; f: both of its windows expired
    assert late(step) == [(4, BEHIND), (9, FINISHED)]


def test_after_delay_runs_from_the_first_record() -> None:
    play = Play(TEN, every(10))
    play(now=95)
    assert play((1, "a"), now=103).panes == []
    assert play((1, "b"), now=112).panes == []
    assert fired(play((1, "c"), now=113)) == [(EARLY, "ab")]  # c came after the clock
    assert play(now=122).panes == []
    assert fired(play(now=123)) == [(EARLY, "abc")]
    assert play(now=1000).panes == []  # nothing new


def test_an_aligned_delay_ends_at_a_multiple() -> None:
    play = Play(TEN, every(10, aligned=True))
    play((1, "a"), now=103)
    assert play(now=109).panes == []
    assert fired(play(now=110)) == [(EARLY, "a")]
    play((1, "b"), now=120)  # on a multiple: the next one counts
    assert play(now=129).panes == []
    assert fired(play(now=131)) == [(EARLY, "ab")]


def test_after_fraction_looks_at_its_own_watermark() -> None:
    play = Play(TEN, after_fraction(0.9))
    play((1, "a"), w=2)
    assert play(w=2, fractions={0.9: 9, 0.5: 20}).panes == []
    assert panes(play(w=2, fractions={0.9: 10})) == [(0, 10, 0, EARLY, True, "a")]
    assert late(play((2, "b"))) == [(2, FINISHED)]


def test_any_of_is_finished_by_the_first_part_that_is_ready() -> None:
    play = Play(TEN, repeatedly(any_of(after_count(2), after_delay(10))))
    play((1, "a"), now=0)
    assert fired(play((1, "b"), now=9)) == [(EARLY, "ab")]
    play((1, "c"), now=12)  # the delay began anew
    assert play(now=21).panes == []
    assert fired(play(now=22)) == [(EARLY, "abc")]


def test_all_of_waits_for_every_part() -> None:
    play = Play(TEN, all_of(after_count(2), after_delay(10)))
    play((1, "a"), now=0)
    assert play(now=15).panes == []
    assert panes(play((1, "b"), now=16)) == [(0, 10, 0, EARLY, True, "ab")]
    play = Play(TEN, all_of(on_close(), after_delay(10)), lateness=50)
    play((1, "a"), now=0)
    assert play(w=10, now=5).panes == []
    assert panes(play(w=11, now=10)) == [(0, 10, 0, ON_TIME, True, "a")]


def test_in_order_shows_records_to_the_present_part_only() -> None:
    play = Play(TEN, in_order(after_count(1), after_count(3), on_change()))
    assert fired(play((1, "a"), (1, "b"))) == [(EARLY, "ab")]
    assert play((1, "c"), (1, "d")).panes == []
    assert fired(play((1, "e"))) == [(EARLY, "abcde")]
    assert fired(play((1, "f"))) == [(EARLY, "abcdef")]


def test_in_order_is_finished_with_its_last_part() -> None:
    play = Play(TEN, in_order(after_count(1), after_count(1)))
    assert [p["is_last"] for p in play((1, "a")).panes] == [False]
    assert [p["is_last"] for p in play((1, "b")).panes] == [True]
    assert late(play((1, "c"))) == [(1, FINISHED)]


def test_repeatedly_begins_anew_only_what_is_finished() -> None:
    play = Play(TEN, repeatedly(in_order(after_count(1), after_count(2))))
    assert fired(play((1, "a"))) == [(EARLY, "a")]
    assert play((1, "b")).panes == []
    assert fired(play((1, "c"))) == [(EARLY, "abc")]
    assert fired(play((1, "d"))) == [(EARLY, "abcd")]


def test_once_finishes_what_would_go_on() -> None:
    play = Play(TEN, once(after_watermark(early=after_count(2))))
    play((1, "a"))
    assert panes(play((1, "b"))) == [(0, 10, 0, EARLY, True, "ab")]
    assert play(w=10).panes == []


def test_until_fires_a_last_time_when_stop_is_ready() -> None:
    play = Play(TEN, until(on_change(), after_count(3)))
    assert panes(play((1, "a"))) == [(0, 10, 0, EARLY, False, "a")]
    assert panes(play((1, "b"), (1, "c"))) == [(0, 10, 1, EARLY, True, "abc")]
    assert late(play((1, "d"))) == [(1, FINISHED)]


def test_a_trigger_that_is_ready_waits_for_something_to_show() -> None:
    play = Play(TEN, until(on_change(), after_delay(10)))
    play((1, "a"), now=0)
    assert play(now=10).panes == []  # ready to stop, but all is shown
    assert panes(play((1, "b"))) == [(0, 10, 1, EARLY, True, "ab")]
    assert late(play((1, "c"))) == [(1, FINISHED)]


def test_an_on_time_pane_is_given_by_any_trigger_that_is_ready() -> None:
    play = Play(TEN, until(on_change(), after_delay(10)), lateness=5)
    play((1, "a"), now=0)
    assert play(now=10).panes == []
    assert panes(play((1, "b"), w=10)) == [(0, 10, 1, ON_TIME, True, "a")]


def test_until_is_finished_with_its_part() -> None:
    play = Play(TEN, until(after_count(2), after_delay(1000)))
    play((1, "a"))
    assert panes(play((1, "b"))) == [(0, 10, 0, EARLY, True, "ab")]


def test_without_late_the_on_time_pane_is_the_last() -> None:
    play = Play(TEN, after_watermark(late=None), lateness=100)
    play((1, "a"))
    step = play((2, "b"), w=10)
    assert panes(step) == [(0, 10, 0, ON_TIME, True, "a")]
    assert late(step) == [(2, FINISHED)]


# ---------------------------------------------------------------- accumulation


def test_accumulating_replaces_and_leaves_out_what_changes_nothing() -> None:
    play = Play(TEN, on_change(), ACCUMULATING)
    del play.reference.aggregates["n"]
    assert changes(play((1, "x"))) == [("+I", 0, 10, "x")]
    assert changes(play((2, "y"))) == [("+U", 0, 10, "xy")]
    step = play((3, None))
    assert (changes(step), len(step.panes)) == ([], 1)


def test_discarding_answers_over_what_came_since_the_last_pane() -> None:
    play = Play(TEN, on_change(), DISCARDING, mn=("min", "v"))
    del play.reference.aggregates["n"]
    assert changes(play((1, "x"))) == [("+I", 0, 10, "x")]
    assert changes(play((2, "y"))) == [("+U", 0, 10, "y")]
    step = play((3, "y"))
    assert changes(step) == [("+U", 0, 10, "y")]  # also when it changes nothing
    assert step.changes[0][1]["mn"] == "y"


def test_keys_do_not_meet() -> None:
    play = Play(Session(10), on_change())
    step = play({"key": None, "t": 1, "v": "x"}, {"key": "b", "t": 5, "v": "y"})
    assert sorted((r["key"] or "", r["window_start"], r["window_end"]) for _, r in step.changes) == [
        ("", 1, 11),
        ("b", 5, 15),
    ]


def test_aggregates() -> None:
    kinds = ("count", "sum", "min", "max", "avg", "first", "last", "count_distinct", "collect")
    reference = Reference(TEN, on_change(), RETRACTING, 0, {"all": "count", **{k: (k, "v") for k in kinds}})
    rows = [(5, 0, 0, None), (3, 1, 0, 4), (3, 0, 9, 6), (4, 0, 1, 6), (4, 0, 2, None)]
    step = reference.epoch(
        now=0,
        watermark=BEGINNING,
        records=[{"key": 1, "t": t, "part": part, "pos": pos, "v": v} for t, part, pos, v in rows],
    )
    ((op, row),) = step.changes
    assert op == "+I"
    assert {k: v for k, v in row.items() if k not in ("key", "window_start", "window_end")} == {
        "all": 5,
        "count": 3,
        "sum": 16,
        "min": 4,
        "max": 6,
        "avg": 16 / 3,
        "first": 6,
        "last": None,
        "count_distinct": 2,
        "collect": [6, 4, 6],
    }


# ---------------------------------------------------------------- sessions


def test_a_session_that_grows_is_a_new_window() -> None:
    play = Play(Session(10), on_change())
    assert changes(play((0, "a"))) == [("+I", 0, 10, "a")]
    step = play((10, "b"))  # touches
    assert changes(step) == [("-D", 0, 10, "a"), ("+I", 0, 20, "ab")]
    assert panes(step) == [(0, 20, 0, EARLY, False, "ab")]
    step = play((9, "c"))  # inside: the same window
    assert changes(step) == [("-U", 0, 20, "ab"), ("+U", 0, 20, "acb")]
    assert panes(step) == [(0, 20, 1, EARLY, False, "acb")]
    assert changes(play((31, "d"))) == [("+I", 31, 41, "d")]
    assert list(play.reference.view) == [("a", 0, 20), ("a", 31, 41)]


def test_sessions_merge_in_a_chain() -> None:
    play = Play(Session(10), on_change())
    play((0, "a"), (22, "b"), (40, "c"))
    step = play((12, "x"), (31, "y"))
    assert changes(step) == [
        ("-D", 22, 32, "b"),
        ("-D", 40, 50, "c"),
        ("+I", 12, 50, "xbyc"),
    ]
    assert changes(play((10, "z"))) == [
        ("-D", 0, 10, "a"),
        ("-D", 12, 50, "xbyc"),
        ("+I", 0, 50, "azxbyc"),
    ]


def test_a_merged_session_begins_its_trigger_with_what_no_pane_has_shown() -> None:
    play = Play(Session(10), repeatedly(after_count(3)))
    play((0, "a"), (0, "b"), (0, "c"))
    play((15, "d"), (15, "e"))
    step = play((8, "f"))  # d, e and f have not been shown
    assert changes(step) == [("-D", 0, 10, "abc"), ("+I", 0, 25, "abcfde")]
    play = Play(Session(10), repeatedly(after_count(3)))
    play((0, "a"), (0, "b"), (0, "c"))
    step = play((5, "d"))  # gone from the view until it fires again
    assert (changes(step), play.reference.view) == ([("-D", 0, 10, "abc")], {})


def test_a_delay_in_a_merged_session_runs_from_the_first_record_not_shown() -> None:
    play = Play(Session(10), every(10))
    play((0, "a"), now=0)
    play((5, "b"), now=5)
    play((9, "c"), now=8)
    step = play((12, "d"), now=10)  # the clock fires the old window, then d makes a new one
    assert changes(step) == [("+I", 0, 19, "abc"), ("-D", 0, 19, "abc")]
    assert changes(play(now=19)) == []
    assert changes(play(now=20)) == [("+I", 0, 22, "abcd")]


def test_merged_sessions_discard_what_was_shown() -> None:
    play = Play(Session(10), repeatedly(after_count(2)), DISCARDING)
    play((0, "a"), (0, "b"))
    play((15, "c"))
    assert changes(play((8, "d"))) == [("-D", 0, 10, "ab"), ("+I", 0, 25, "dc")]


def test_lateness_of_sessions_is_decided_after_merging() -> None:
    play = Play(Session(10), on_change())
    play((20, "a"), w=15)
    step = play((10, "b"), (1, "c"), (-20, "d"), w=21)  # b joins a, c joins b; d is alone
    assert changes(step) == [("-D", 20, 30, "a"), ("+I", 1, 30, "cba")]
    assert late(step) == [(-20, BEHIND)]
    step = play((15, "e"), (25, "f"), w=30)  # the session has expired: e and f begin another
    assert changes(step) == [("+I", 15, 35, "ef")]
    assert late(play((20, "g"), w=35)) == [(20, BEHIND)]


def test_records_of_one_epoch_carry_each_other_past_the_watermark() -> None:
    play = Play(Session(10), on_close())
    step = play((0, "a"), (9, "b"), (18, "c"), w=20)
    assert (step.late, step.panes) == ([], [])
    step = play(w=28)
    assert panes(step) == [(0, 28, 0, ON_TIME, True, "abc")]


def test_a_session_that_grows_is_early_again() -> None:
    play = Play(Session(10), on_close(), lateness=5)
    play((0, "a"))
    assert fired(play(w=10)) == [(ON_TIME, "a")]
    step = play((9, "b"), w=12)
    assert (changes(step), step.panes) == ([("-D", 0, 10, "a")], [])
    assert panes(play(w=19)) == [(0, 19, 0, ON_TIME, False, "ab")]


def test_a_finished_session_takes_nothing_until_it_grows() -> None:
    play = Play(Session(10), after_count(2))
    play((0, "a"), (5, "b"))
    step = play((4, "c"))
    assert (late(step), step.changes) == ([(4, FINISHED)], [])
    step = play((4, "d"), (6, "e"))
    assert (late(step), changes(step)) == ([], [("-D", 0, 15, "ab"), ("+I", 0, 16, "adbe")])


def test_each_record_may_bring_its_own_gap() -> None:
    play = Play(Session(), on_change())
    step = play({"t": 0, "gap": 100, "v": "a"}, {"t": 50, "gap": 1, "v": "b"}, {"t": 101, "gap": 5, "v": "c"})
    assert changes(step) == [("+I", 0, 100, "ab"), ("+I", 101, 106, "c")]
    step = play({"t": 50, "gap": None, "v": "d"}, {"t": 101, "gap": 0, "v": "e"}, {"t": 102, "gap": -1, "v": "f"})
    assert (step.changes, late(step)) == ([], [(50, NOWHERE), (101, NOWHERE), (102, NOWHERE)])
    assert changes(play({"t": 95, "gap": 6, "v": "d"})) == [
        ("-D", 0, 100, "ab"),
        ("-D", 101, 106, "c"),
        ("+I", 0, 106, "abdc"),
    ]


# ---------------------------------------------------------------- count windows


def numbered(step: Step) -> list[tuple[Any, ...]]:
    """(op, index, start, end, what was collected)."""
    return [(op, r["window_index"], r["window_start"], r["window_end"], "".join(r["c"])) for op, r in step.changes]


def test_count_windows_hold_records_by_their_number() -> None:
    play = Play(Count(2), on_change())
    assert numbered(play((1, "a"), (5, "c"), (3, "b"))) == [("+I", 0, 1, 3, "ab"), ("+I", 1, 5, 5, "c")]
    assert numbered(play((2, "x"))) == [  # moves b to the next window
        ("-U", 0, 1, 3, "ab"),
        ("+U", 0, 1, 2, "ax"),
        ("-U", 1, 5, 5, "c"),
        ("+U", 1, 3, 5, "bc"),
    ]


def test_records_of_one_time_are_numbered_by_partition_and_offset() -> None:
    play = Play(Count(2), on_change())
    play({"t": 1, "part": 1, "v": "d"}, {"t": 1, "part": 0, "pos": 8, "v": "b"})
    step = play({"t": 1, "part": 0, "pos": 7, "v": "a"}, {"t": 1, "part": 1, "pos": -1, "v": "c"})
    assert [r[-1] for r in numbered(step)] == ["bd", "ab", "cd"]


def test_count_windows_refuse_triggers_that_finish() -> None:
    with pytest.raises(AssertionError, match="refused"):
        Play(Count(2), after_count(1))


def test_sliding_count_windows() -> None:
    play = Play(Count(3, 2), on_change())
    assert numbered(play(*((n, c) for n, c in enumerate("abcde")))) == [
        ("+I", 0, 0, 1, "ab"),
        ("+I", 1, 1, 3, "bcd"),
        ("+I", 2, 3, 4, "de"),
    ]
    play = Play(Count(3, 1), on_change())
    assert [r[-1] for r in numbered(play((0, "a"), (1, "b")))] == ["a", "ab", "ab", "b"]


def test_a_count_window_ends_when_it_is_complete_and_the_watermark_is_behind_its_last_record() -> None:
    play = Play(Count(2), on_close())
    play((1, "a"), (4, "c"))
    assert play(w=4).panes == []
    step = play((4, "d"), (2, "b"), w=5)  # the clock closes window 0; b is before its last record, d after it
    assert panes(step) == [(1, 4, 0, ON_TIME, True, "ac")]
    assert late(step) == [(2, BEHIND)]
    assert play(w=100).panes == []  # window 1 is not complete
    step = play((9, "e"))  # complete, and behind the watermark: it has expired at once
    assert panes(step) == [(4, 9, 0, LATE, True, "de")]


def test_an_incomplete_count_window_is_given_at_the_end_of_time() -> None:
    play = Play(Count(3), on_close())
    play((1, "a"), (2, "b"))
    step = play(w=ALL_READ)
    assert panes(step) == [(1, 2, 0, ON_TIME, True, "ab")]


def test_lateness_keeps_count_windows() -> None:
    play = Play(Count(2), on_close(), lateness=5)
    play((1, "a"), (4, "b"), (6, "c"))
    assert fired(play(w=5)) == [(ON_TIME, "ab")]
    step = play((3, "x"), w=9)  # b moves on to c
    assert numbered(step) == [("-U", 0, 1, 4, "ab"), ("+U", 0, 1, 3, "ax"), ("+I", 1, 4, 6, "bc")]
    assert fired(step) == [(LATE, "ax"), (LATE, "bc")]  # window 1 was completed by records behind W


# ---------------------------------------------------------------- custom windows, everything


def test_custom_windows() -> None:
    play = Play(Custom(lambda t: [(0, 50), (t, t + 1)] if t >= 0 else []), on_change())
    step = play((3, "a"), (3, "b"), (-1, "c"))
    assert changes(step) == [("+I", 0, 50, "ab"), ("+I", 3, 4, "ab")]
    assert late(step) == [(-1, NOWHERE)]
    assert changes(play((3, "d"), w=10)) == [("-U", 0, 50, "ab"), ("+U", 0, 50, "abd")]


def test_custom_windows_that_merge() -> None:
    def up_to_three(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Three windows or more become one."""
        return spans if len(spans) < 3 else [(spans[0][0], max(e for _, e in spans))]

    play = Play(Custom(lambda t: [(t, t + 2)], up_to_three), on_change())
    assert changes(play((0, "a"), (10, "b"))) == [("+I", 0, 2, "a"), ("+I", 10, 12, "b")]
    assert changes(play((10, "c"))) == [("-U", 10, 12, "b"), ("+U", 10, 12, "bc")]
    step = play((20, "d"))
    assert changes(step) == [("-D", 0, 2, "a"), ("-D", 10, 12, "bc"), ("+I", 0, 22, "abcd")]


def test_everything_ends_when_all_is_read() -> None:
    play = Play(Everything(), repeatedly(after_count(2)))
    step = play((5, "a"), (-5, "b"), (7, "c"), w=6)
    assert step.changes == [("+I", {"key": "a", "n": 3, "c": ["b", "a", "c"]})]
    assert play((0, "d"), w=10**9).panes == []
    (pane,) = play(w=ALL_READ).panes
    assert (pane["timing"], pane["is_last"], pane["n"]) == (ON_TIME, True, 4)
    play = Play(Everything(), on_change())
    play((5, "a"))
    assert play(w=ALL_READ).panes == []
