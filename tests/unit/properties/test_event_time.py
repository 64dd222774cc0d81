"""The kernels against the reference of windows, triggers, lateness, panes and accumulation, epoch by epoch."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.errors import UserCodeFailed
from millstream.kernels.windows.firing import LAST_INSTANT
from tests.reference import triggers as tr
from tests.reference import windows as win
from tests.reference.model import DISCARDING, RETRACTING, Row, bag
from tests.reference.strategies import (
    AGGREGATES,
    SECOND,
    Case,
    Epoch,
    cases,
    join_neighbours,
    join_oldest,
    join_overlapping,
    next_four,
    sevens_or_threes,
    threes_and_sevens,
    twos,
)
from tests.reference.windows import ALL_READ, BEGINNING
from tests.unit.properties.harness import Stage, applied, directory, name_of, net_applied, stage_of

EXAMPLES = settings().max_examples
"""120, and 2,000 in the thorough profile."""

SEEDS = st.integers(0, 2**16)


def agree(case: Case, seed: int, *, panes: bool, collide: bool = False) -> None:
    """Play a case to the product and to the reference; all they give must be the same."""
    spec = stage_of(case, panes=panes)
    stepwise: dict[tuple[Any, ...], Row] = {}
    view: dict[tuple[Any, ...], Row] = {}
    with directory() as root:
        stage = Stage(spec, root, random.Random(seed), collide=collide)
        for epoch, expected, reference in case.play():
            found = stage.epoch(epoch)
            assert bag(found.changes) == bag(expected.changes)
            applied(stepwise, found.changes, replaces=case.accumulation != RETRACTING)
            net_applied(view, found.net)
            assert bag(stepwise.values()) == bag(view.values()) == bag(reference.view.values())
            if panes:
                assert bag(found.panes) == bag(map(as_shown, expected.panes))
            if not collide:  # records that a kernel refused are found by the hash of their key
                assert bag(found.late) == bag((name_of(r), why) for r, why in expected.late)
                assert found.set_apart == len(expected.late)


def as_shown(pane: Row) -> Row:
    """A pane with its watermark as the product shows it: none before there is one, at the latest the year 9999."""
    watermark = pane["watermark"]
    return pane | {"watermark": None if watermark == BEGINNING else min(watermark, LAST_INSTANT)}


@settings(max_examples=EXAMPLES)
@given(cases(), SEEDS)
def test_the_pane_kernel_gives_what_the_reference_gives(case: Case, seed: int) -> None:
    agree(case, seed, panes=True, collide=seed % 5 == 4)


ALIGNED = ("tumbling", "hopping", "everything")
SLICED = st.one_of(cases(ALIGNED, tr.on_change()), cases(("tumbling", "hopping"), tr.on_close())).filter(
    lambda case: case.accumulation != DISCARDING
)


@settings(max_examples=EXAMPLES // 3)
@given(SLICED, SEEDS)
def test_both_kernels_give_what_the_reference_gives_where_slices_would_do(case: Case, seed: int) -> None:
    assert stage_of(case, panes=False).windowing.by_slices
    agree(case, seed, panes=False, collide=seed % 5 == 4)
    if seed % 2:
        assert not stage_of(case, panes=True).windowing.by_slices
        agree(case, seed, panes=True)


# ---------------------------------------------------------------- examples that once were not the same

Times = Sequence[float | tuple[float, dict[str, Any]]]


def example(
    window: win.Window,
    trigger: tr.Trigger,
    *epochs: tuple[int, int | None, Times],
    accumulation: str = RETRACTING,
    lateness: int = 0,
    aggregates: Mapping[str, Any] = AGGREGATES,
    fractions: Sequence[Mapping[float, int]] = (),
) -> Case:
    """A case with one key. An epoch is the processing time, the watermark (None: the beginning) and the times of its
    records, all in seconds.
    """
    made, sent = [], 0
    for number, (now, w, times) in enumerate(epochs):
        records = []
        for entry in times:
            t, more = entry if isinstance(entry, tuple) else (entry, {})
            row = {"key": "a", "t": round(t * SECOND), "part": 0, "pos": sent, "v": sent % 3, "gap": SECOND}
            records.append({**row, **more})
            sent += 1
        watermark = BEGINNING if w is None else w if w == ALL_READ else w * SECOND
        ahead = {f: at * SECOND for f, at in fractions[number].items()} if fractions else {}
        made.append(Epoch(now * SECOND, watermark, ahead, records))
    return Case(window, trigger, accumulation, lateness * SECOND, dict(aggregates), made)


TEN = win.Tumbling(10 * SECOND)
EXAMPLE_CASES = {
    "records after a firing by the clock find the trigger as that left it": example(
        TEN, tr.every(SECOND), (0, None, [1]), (1, None, [2]), (1, None, []), (2, None, [])
    ),
    "a finished trigger over everything refuses records before 1970 too": example(
        win.Everything(), tr.after_count(1), (0, None, [0]), (0, None, [0, -1])
    ),
    "records refused by a session are counted, not its partials": example(
        win.Session(SECOND), tr.after_count(1), (0, None, [0, 1, 2]), (0, None, [0, 2])
    ),
    "two fractions": example(
        TEN,
        tr.all_of(tr.after_fraction(0.5), tr.after_fraction(0.9)),
        (0, 0, [1]),
        (0, 0, []),
        (0, 0, []),
        fractions=[{0.5: 0, 0.9: 0}, {0.5: 10, 0.9: 5}, {0.5: 12, 0.9: 10}],
    ),
    "a count window whose first record was pushed on": example(
        win.Count(1), tr.on_change(), (0, None, [0, 1]), (0, None, [0, 0])
    ),
    "records pushed on to a count window count as come": example(
        win.Count(3),
        tr.repeatedly(tr.after_count(2)),
        (0, None, [1, 2, 3, 4, 5, 6]),
        (0, None, [0]),
        (0, None, [0]),
        (0, None, [0, 0]),
    ),
    "a count window that expires twice in an epoch": example(
        win.Count(1), tr.on_change(), (0, None, [1, 0]), (0, 1, [0, 0]), (0, 3, [2, 2, 2])
    ),
    "an answer with a list that does not change": example(
        TEN, tr.on_change(), (0, None, [1]), (0, None, [(2, {"v": None})]), aggregates={"c": ("collect", "v")}
    ),
    "a record that one of its custom windows took": example(
        win.Custom(threes_and_sevens), tr.after_count(2), (0, None, [0, 1]), (0, None, [2, 3]), (0, None, [4, 5, 2])
    ),
    "a custom window elsewhere than its records": example(
        win.Custom(next_four), tr.after_count(1), (0, None, [1, 5]), (0, None, [2, 6]), (0, 9, [1, 5, 2])
    ),
    "a merging window elsewhere than its records": example(
        win.Custom(next_four, join_neighbours), tr.after_count(1), (0, None, [1]), (0, None, [2]), (0, 30, [1])
    ),
    "a custom function that gives a window twice": example(
        win.Custom(lambda t: twos(t) * 2), tr.on_change(), (0, None, [1])
    ),
    "two windows that merge without a record between them": example(
        win.Custom(twos, join_oldest), tr.on_change(), (0, None, [0]), (0, None, [4]), (0, None, [8]), (0, None, [0])
    ),
    "an empty pane of a user's aggregate": example(
        TEN,
        tr.after_watermark(early=tr.on_change()),
        (0, None, [1, 2]),
        (0, 10, []),
        accumulation=DISCARDING,
        aggregates={"u": ("squares", "v")},
    ),
    "two shown windows that merge, discarding": example(
        win.Custom(twos, join_oldest),
        tr.after_watermark(early=tr.on_change()),
        (0, None, [0]),
        (0, None, [4]),
        (0, None, [8]),
        (0, 6, []),
        accumulation=DISCARDING,
        lateness=5,
    ),
    "two shown windows that merge after their end do not fire": example(
        win.Custom(twos, join_oldest),
        tr.after_watermark(late=None),
        (0, None, [0, 4]),
        (0, 7, [8]),
        (0, 7, [1]),
        lateness=20,
    ),
    "two windows that become one of them": example(
        win.Custom(sevens_or_threes, join_oldest),
        tr.after_count(1),
        (0, None, [21]),
        (0, None, [22]),
        (0, None, [28, 22]),
    ),
    "a record in the hour after the first of two midnights": example(
        win.Calendar("day", "America/St_Johns"), tr.on_change(), (0, 1_289_097_600, [1_289_097_900])
    ),
}


@pytest.mark.parametrize("name", EXAMPLE_CASES)
def test_examples_that_once_were_not_the_same(name: str) -> None:
    case = EXAMPLE_CASES[name]
    for seed in range(2):
        agree(case, seed, panes=True)
        if stage_of(case, panes=False).windowing.by_slices:
            agree(case, seed, panes=False)


def test_a_record_without_a_window_is_set_apart_once() -> None:
    case = example(win.Session(), tr.after_count(1), (0, None, [0]), (0, None, [0, (0.5, {"gap": None})]))
    with directory() as root:
        stage = Stage(stage_of(case, panes=True), root, random.Random(0))
        found = [stage.epoch(epoch).late for epoch in case.epochs]
    assert sorted(name for name, _ in found[1]) == ["0-1", "0-2"]


def test_a_merging_window_may_not_give_two_windows_for_a_record() -> None:
    case = example(win.Custom(threes_and_sevens, join_overlapping), tr.on_change(), (0, None, [0]))
    with directory() as root, pytest.raises(UserCodeFailed, match="2 windows for one record"):
        Stage(stage_of(case, panes=True), root, random.Random(0)).epoch(case.epochs[0])
