"""What must hold of the reference whatever it is given: a check of the reference and of the strategies."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.reference import triggers as tr
from tests.reference import windows as win
from tests.reference.model import (
    ACCUMULATING,
    DISCARDING,
    EARLY,
    FINISHED,
    KINDS,
    LATE,
    ON_TIME,
    RETRACTING,
    Row,
    Step,
    bag,
    identity,
)
from tests.reference.strategies import AGGREGATES, Case, cases
from tests.reference.windows import ALL_READ


def to_the_end(case: Case) -> Case:
    """The case with the end of time after it."""
    last = case.epochs[-1]
    if last.watermark == ALL_READ:
        return case
    end = replace(last, watermark=ALL_READ, fractions=dict.fromkeys(last.fractions, ALL_READ), records=[])
    return replace(case, epochs=[*case.epochs, end])


@given(cases(), st.randoms(use_true_random=False))
def test_order_of_arrival_inside_an_epoch_means_nothing(case: Case, shuffle: Any) -> None:
    epochs = [replace(e, records=shuffle.sample(e.records, len(e.records))) for e in case.epochs]
    other = replace(case, epochs=epochs)
    for (_, one, _), (_, two, _) in zip(case.play(), other.play(), strict=True):
        assert bag(one.changes) == bag(two.changes)
        assert bag(one.panes) == bag(two.panes)
        assert bag(one.late) == bag(two.late)


@given(cases())
def test_changes_fit_the_view_and_give_the_view(case: Case) -> None:
    view: dict[tuple[Any, ...], Row] = {}
    for _, step, reference in case.play():
        for op, row in step.changes:
            where = identity(row)
            if op in ("-U", "-D"):
                assert view.pop(where) == row
                assert op == "-D" or case.accumulation == RETRACTING
            else:
                assert (where in view) == (op == "+U" and case.accumulation != RETRACTING)
                view[where] = row
        assert bag(view.values()) == bag(reference.view.values())


@given(cases())
def test_accumulating_is_retracting_without_the_old_rows(case: Case) -> None:
    pairs = zip(
        replace(case, accumulation=RETRACTING).play(), replace(case, accumulation=ACCUMULATING).play(), strict=True
    )
    for (_, one, _), (_, two, _) in pairs:
        assert [c for c in one.changes if c[0] != "-U"] == two.changes
        assert (one.panes, one.late) == (two.panes, two.late)


@given(cases())
def test_panes_are_numbered_and_timed_in_order(case: Case) -> None:
    following: dict[tuple[Any, ...], tuple[int, str]] = {}
    ended: set[tuple[Any, ...]] = set()
    for _, step, reference in case.play():
        assert max(Counter(identity(p) for p in step.panes).values(), default=0) <= 2
        # A window may answer at the watermark and then be gone, by a record of the same epoch that it merges with.
        gone = {identity(row) for op, row in step.changes if op == "-D"}
        for pane in step.panes:
            where = identity(pane)
            number, timing = following.get(where, (0, EARLY))
            if pane["pane"] == 0 and number and where not in gone and not isinstance(case.window, win.Custom):
                raise AssertionError("begins anew without being gone")
            assert pane["pane"] in (number, 0)
            assert pane["is_first"] == (pane["pane"] == 0)
            if pane["pane"]:
                assert where not in ended
                assert (timing, pane["timing"]) not in [(ON_TIME, EARLY), (LATE, EARLY), (LATE, ON_TIME)]
                assert pane["timing"] != ON_TIME or timing != ON_TIME
            following[where] = (pane["pane"] + 1, pane["timing"])
            ended.discard(where)
            if pane["is_last"]:
                ended.add(where)
        for where in gone - {identity(row) for row in reference.view.values()}:
            following.pop(where, None)
            ended.discard(where)


@given(cases(("tumbling", "calendar", "session", "session by record", "everything")))
def test_discarding_panes_show_every_record_once_that_is_not_late(case: Case) -> None:
    case = to_the_end(replace(case, accumulation=DISCARDING, aggregates={"n": "count"}))
    came = shown = late = 0
    for epoch, step, reference in case.play():
        came += len(epoch.records)
        late += len(step.late)
        shown += sum(p["n"] for p in step.panes)
        assert came == late + shown + sum(len(w.unshown) for w in reference.held)
    assert came == late + shown
    assert not reference.held


@given(cases(("tumbling", "hopping", "cumulating", "calendar", "everything"), tr.on_change()))
def test_on_change_is_the_batch_answer_over_the_records_that_were_not_late(case: Case) -> None:
    case = replace(case, accumulation=RETRACTING, aggregates=AGGREGATES)
    taken: dict[tuple[Any, ...], list[Row]] = {}
    for epoch, step, reference in case.play():
        for record in epoch.records:
            for start, end in case.window.of(record):
                if epoch.watermark < end + case.lateness:
                    plain = isinstance(case.window, win.Everything)
                    where = (record["key"], None, None) if plain else (record["key"], start, end)
                    taken.setdefault(where, []).append(record)
        rows = {identity(r): r for r in reference.view.values()}
        assert rows.keys() == taken.keys()
        for where, records in taken.items():
            values = [r["v"] for r in sorted(records, key=lambda r: (r["t"], r["part"], r["pos"]))]
            for name, how in AGGREGATES.items():
                expected = len(values) if how == "count" else KINDS[how[0]](values)
                assert rows[where][name] == expected
        assert all(reason != FINISHED for _, reason in step.late)


@given(cases(("session", "session by record")))
def test_sessions_of_a_key_never_touch(case: Case) -> None:
    for _, _, reference in case.play():
        for key in {w.key for w in reference.held}:
            spans = sorted((w.start, w.end) for w in reference.held if w.key == key)
            assert all(a[1] < b[0] for a, b in pairwise(spans))


@given(cases(("count",)))
def test_count_windows_hold_the_right_records(case: Case) -> None:
    assert isinstance(case.window, win.Count)
    kept: dict[Any, list[Row]] = {}
    for epoch, step, reference in case.play():
        late = [id(r) for r, _ in step.late]
        for record in epoch.records:
            if id(record) not in late:
                kept.setdefault(record["key"], []).append(record)
        for window in reference.held:
            assert window.index is not None
            ordered = sorted(kept[window.key], key=lambda r: (r["t"], r["part"], r["pos"]))
            first = ordered[: (window.index + 1) * case.window.every]
            if window.complete:
                assert [r.fields for r in window.records] == first[-case.window.size :]


def test_the_strategies_make_every_timing_reason_and_change() -> None:
    """Not a law: a look at what the strategies reach, with a fixed seed."""
    from hypothesis import HealthCheck, Phase, seed, settings

    met: Counter[str] = Counter()

    @seed(8)
    @settings(max_examples=150, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(cases())
    def look(case: Case) -> None:
        for _, step, _ in case.play():
            met.update(note(step))

    look()
    for what in (EARLY, ON_TIME, LATE, "last", "twice", "behind", "finished", "+I", "-U", "+U", "-D"):
        assert met[what], met


def note(step: Step) -> list[str]:
    per_window = Counter(identity(p) for p in step.panes)
    return [
        *(p["timing"] for p in step.panes),
        *("last" for p in step.panes if p["is_last"]),
        *("twice" for n in per_window.values() if n > 1),
        *("finished" if why == FINISHED else "behind" for _, why in step.late),
        *(op for op, _ in step.changes),
    ]
