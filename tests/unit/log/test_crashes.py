"""Every short sequence of operations, crashed at every moment; long random ones in the slow suite."""

from __future__ import annotations

import os
import random
from functools import partial
from itertools import product

import pytest

from .crashing import KILLED, Crashes
from .disk import SimDisk
from .world import OPERATIONS, ROOT, Promise, World, moments, run

RARE = frozenset({"older", "hole", "zeros", KILLED})
"""What is looked at after one and two operations and in the slow tests, but not after three."""


@pytest.mark.parametrize(
    ("longest", "looked", "met"), [(2, 2_000, 10_000), pytest.param(3, 3_000, 30_000, marks=pytest.mark.slow)]
)
def test_up_to_three_operations_crashed_at_every_moment_and_one_again_while_it_recovers(
    longest: int, looked: int, met: int
) -> None:
    crashes = Crashes()
    for names in product(OPERATIONS, repeat=1):
        crashes.after(names)
    crashes.inner = False
    for names in product(OPERATIONS, repeat=2):
        crashes.after(names)
    crashes.again, crashes.left_out = False, RARE
    for names in product(OPERATIONS, repeat=3) if longest == 3 else ():
        crashes.after(names)
    assert crashes.met > met
    assert crashes.looked > looked


@pytest.mark.sampled(2)
@pytest.mark.parametrize("names", [("drop", "create"), ("drop",), ("small", "drop"), ("large", "roll", "drop")])
def test_what_a_killed_process_has_made_or_dropped_by_half_survives_a_crash_whole_or_not_at_all(
    names: tuple[str, ...],
) -> None:
    crashes = Crashes(inner=False)
    for following in (("small",), ("drop",), ("create",), ("create", "small")):
        crashes.after_a_kill(World(), names, following)
    assert crashes.looked > 10


def test_the_first_topic_of_all_survives_a_crash_after_a_kill_in_the_middle() -> None:
    crashes = Crashes(inner=False)
    for following in (("small",), ("create", "small")):
        empty = SimDisk()
        empty.mkdir(ROOT.parent)
        disk = empty.restarted({folder: {} for folder in empty.names})
        crashes.after_a_kill(World(disk, Promise(there=False)), ("create",), following)
    assert crashes.looked > 10


@pytest.mark.slow
@pytest.mark.parametrize("first", OPERATIONS)
def test_three_operations_crashed_at_every_moment_and_again_while_they_recover(first: str) -> None:
    crashes = Crashes()
    for second, third in product(OPERATIONS, repeat=2):
        crashes.after((first, second, third))
    assert crashes.looked > 1_000


@pytest.mark.slow
@pytest.mark.parametrize("share", range(10))
def test_random_sequences_crashed_at_a_random_moment(share: int) -> None:
    """MILLSTREAM_SEED gives the seed of the first, MILLSTREAM_CASES how many there are in a share: 200,000 in all."""
    cases = int(os.environ.get("MILLSTREAM_CASES", "20000"))
    first = int(os.environ.get("MILLSTREAM_SEED", random.randrange(1 << 30))) + share * cases
    for seed in range(first, first + cases):
        try:
            one_random_case(seed)
        except BaseException:
            print(  # noqa: T201
                f"\nseed {seed}; to see it again: MILLSTREAM_SEED={seed} MILLSTREAM_CASES=1 "
                "python -m pytest tests/unit/log/test_crashes.py -k random_moment[0]"
            )
            raise


def one_random_case(seed: int) -> None:
    """Up to three lives of a log: each is some operations, then a crash in the middle of the next."""
    chance = random.Random(seed)
    world, told = World(), []
    for _ in range(chance.randint(1, 3)):
        names = tuple(chance.choices(list(OPERATIONS), k=chance.randint(1, 8)))
        told.append(" ".join(names))
        run(world, names[:-1])
        crashed = chance.choice(list(moments(world, partial(run, world, names[-1:]))))
        kind, disk = chance.choice([*crashed.disk.crashes(), (KILLED, crashed.disk.killed())])
        where = f"{told}, step {crashed.step}: {kind}"
        try:
            World(disk.killed(), crashed.promise).check()
        except Exception as error:
            raise AssertionError(f"seed {seed}, after {where}: {error}") from error
        world = World(disk, crashed.promise)
        world.promise = world.settled()
