"""Whatever the order in which records arrive, the view is the same in the end, if none comes later than is allowed.

Every key of a stage gets the same records in an order of its own, so a run plays as many orders as it has keys.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import settings

from tests.reference import triggers as tr
from tests.reference import windows as win
from tests.reference.model import ACCUMULATING, RETRACTING, Row
from tests.reference.strategies import AGGREGATES, SECOND, Case, Epoch, near_even
from tests.reference.windows import ALL_READ, BEGINNING
from tests.unit.properties.harness import Stage, applied, directory, net_applied, stage_of

ORDERS = 100
ROUNDS = 1 if settings().max_examples <= 50 else 10
"""More in the thorough profile."""

EARLY_AND_LATE = tr.after_watermark(early=tr.every(2 * SECOND), late=tr.after_count(3))
FLOWS = {
    "tumbling on change": (win.Tumbling(5 * SECOND), tr.on_change(), RETRACTING, 4),
    "tumbling on close": (win.Tumbling(5 * SECOND), tr.on_close(), ACCUMULATING, 4),
    "hopping on change": (win.Hopping(7 * SECOND, 3 * SECOND), tr.on_change(), ACCUMULATING, 3),
    "hopping, early and late": (win.Hopping(7 * SECOND, 3 * SECOND), EARLY_AND_LATE, RETRACTING, 3),
    "cumulating on close": (win.Cumulating(2 * SECOND, 8 * SECOND), tr.on_close(), RETRACTING, 0),
    "sessions on change": (win.Session(2 * SECOND), tr.on_change(), RETRACTING, 5),
    "sessions, early and late": (win.Session(2 * SECOND), EARLY_AND_LATE, ACCUMULATING, 2),
    "sessions by record on close": (win.Session(), tr.on_close(), RETRACTING, 8),
    "counted": (win.Count(3, 2), tr.on_change(), RETRACTING, 3),
    "counted in fives": (win.Count(5), tr.repeatedly(tr.after_count(2)), ACCUMULATING, 0),
    "custom": (win.Custom(near_even), EARLY_AND_LATE, RETRACTING, 1),
    "everything": (win.Everything(), tr.every(3 * SECOND), ACCUMULATING, 0),
}
"""Windows, trigger, accumulation, and allowed lateness in seconds."""


def test_there_are_a_thousand_orders() -> None:
    assert len(FLOWS) * ORDERS >= 1000


def records_of(dice: random.Random) -> list[Row]:
    """Fourteen records within twenty seconds."""
    return [
        {
            "t": dice.randint(0, 40) * SECOND // 2,
            "part": pos % 2,
            "pos": pos,
            "v": dice.choice([None, *range(-3, 4)]),
            "gap": dice.randint(1, 4) * SECOND,
        }
        for pos in range(14)
    ]


def epochs_of(records: list[Row], lateness: int, dice: random.Random) -> list[Epoch]:
    """The records to every key, each in an epoch whose watermark has not let go of any window it belongs to; then the
    end of time.
    """
    steps = sorted(dice.sample(range(-2, 24), 6))
    watermarks = [BEGINNING, *(at * SECOND for at in steps)]
    arrivals: list[list[Row]] = [[] for _ in watermarks]
    for key in map(str, range(ORDERS)):
        for record in records:
            in_time = sum(w < record["t"] + lateness for w in watermarks)
            arrivals[dice.randrange(max(in_time, 1))].append({"key": key, **record})
    now, epochs = 1000 * SECOND, []
    for watermark, came in zip(watermarks, arrivals, strict=True):
        dice.shuffle(came)
        epochs.append(Epoch(now, watermark, {}, came))
        now += dice.randint(0, 3) * SECOND
    return [*epochs, Epoch(now, ALL_READ, {}, [])]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(ROUNDS))
@pytest.mark.parametrize("flow", FLOWS)
def test_the_order_of_arrival_does_not_change_the_final_view(flow: str, seed: int) -> None:
    window, trigger, accumulation, late = FLOWS[flow]
    dice = random.Random(f"{flow} {seed}")
    records = records_of(dice)
    aggregates: dict[str, Any] = AGGREGATES
    at_once = [Epoch(0, BEGINNING, {}, [{"key": "0", **r} for r in records]), Epoch(0, ALL_READ, {}, [])]
    case = Case(window, trigger, accumulation, late * SECOND, aggregates, at_once)
    *_, (_, _, reference) = case.play()
    expected = sorted(({**row, "key": None} for row in reference.view.values()), key=str)

    view: dict[tuple[Any, ...], Row] = {}
    stepwise: dict[tuple[Any, ...], Row] = {}
    with directory() as root:
        stage = Stage(stage_of(case, panes=False), root, dice)
        for epoch in epochs_of(records, late * SECOND, dice):
            given = stage.epoch(epoch)
            assert not given.late
            applied(stepwise, given.changes, replaces=accumulation != RETRACTING)
            net_applied(view, given.net)
    assert view == stepwise
    by_key: dict[str, list[Row]] = {}
    for row in view.values():
        by_key.setdefault(row["key"], []).append({**row, "key": None})
    assert len(by_key) == ORDERS
    for key, rows in by_key.items():
        assert sorted(rows, key=str) == expected, f"key {key}"
