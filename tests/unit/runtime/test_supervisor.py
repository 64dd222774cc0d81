"""A flow that fails is started again with growing waits; what cannot be mended, and a crash loop, ends it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import (
    DefinitionError,
    DiskFull,
    EngineFailed,
    EngineLost,
    EngineMissing,
    HomeDamaged,
    IncompatibleChange,
    LeaseLost,
    MillstreamError,
    RecoveryFailed,
    RunError,
    SchemaError,
    SourceMissing,
    UserCodeFailed,
)
from millstream.runtime.epoch.loop import EpochReport
from millstream.runtime.supervision.run import ENDED, STATES, Run
from millstream.runtime.supervision.supervisor import GOOD_EPOCHS, SAME, Restarts, Supervisor, Then, failure

LOST = EngineLost("Spark's Java process has ended")


def supervisor(limit: int = 5, poison: str = "set apart") -> Supervisor:
    made = Supervisor(Restarts(limit=limit), poison, chance=lambda: 0.5)
    made.came_up()
    return made


def test_waits_double_up_to_the_longest() -> None:
    restarts = Restarts(limit=20)
    assert [restarts.seconds(n, 0.5) for n in range(1, 9)] == [0.5, 1, 2, 4, 8, 16, 30, 30]


@given(st.integers(1, 1000), st.floats(0, 1))
def test_a_wait_is_spread_by_a_quarter_and_never_longer_than_the_longest(failures: int, chance: float) -> None:
    restarts = Restarts(first="0.5 seconds", most="30 seconds")
    plain = min(0.5 * 2 ** min(failures - 1, 30), 40)
    assert 0.75 * min(plain, 30) <= restarts.seconds(failures, chance) <= min(1.25 * plain, 30)


def test_a_crash_loop_ends_after_the_limit_of_failures_without_an_epoch() -> None:
    watched = supervisor()
    verdicts = [watched.failed(LOST, 1) for _ in range(5)]
    assert [v.then for v in verdicts] == [Then.AGAIN] * 4 + [Then.CRASH_LOOP]
    assert [v.number for v in verdicts] == [1, 2, 3, 4, 5]


def test_an_epoch_between_failures_keeps_a_flow_out_of_the_crash_loop_but_not_out_of_the_waits() -> None:
    watched = supervisor()
    waits = []
    for _ in range(9):
        verdict = watched.failed(LOST, 1)
        assert (verdict.then, verdict.number) == (Then.AGAIN, 1)
        waits.append(verdict.wait)
        watched.good()
    assert waits == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    for _ in range(GOOD_EPOCHS):
        watched.good()
    assert watched.failed(LOST, 1).wait == 0.5


@pytest.mark.parametrize(
    "kind",
    [
        *(DefinitionError, SchemaError, IncompatibleChange, HomeDamaged),
        *(RecoveryFailed, LeaseLost, EngineMissing),
    ],
)
def test_what_a_restart_cannot_mend_ends_the_flow_at_once(kind: type[MillstreamError]) -> None:
    assert supervisor().failed(kind("no"), 1).then is Then.FAIL


@pytest.mark.parametrize("kind", [EngineFailed, EngineLost, DiskFull, SourceMissing, UserCodeFailed, RunError])
def test_what_may_pass_is_tried_again(kind: type[MillstreamError]) -> None:
    assert supervisor().failed(kind("perhaps"), 1).then is Then.AGAIN


def test_a_flow_that_never_came_up_is_not_started_again() -> None:
    assert Supervisor(Restarts()).failed(SourceMissing("no folder"), 0).then is Then.FAIL


@pytest.mark.parametrize("restarts", [None, Restarts(limit=0)])
def test_without_restarts_the_first_failure_is_the_last(restarts: Restarts | None) -> None:
    watched = Supervisor(restarts)
    watched.came_up()
    assert watched.failed(LOST, 1).then is Then.FAIL


def test_an_epoch_that_fails_the_same_way_three_times_is_searched() -> None:
    watched = supervisor()
    verdicts = [watched.failed(UserCodeFailed("f failed on a batch\nmore"), 7) for _ in range(SAME)]
    assert [v.then for v in verdicts] == [Then.AGAIN, Then.AGAIN, Then.SEARCH]
    assert verdicts[-1].wait == 0


def test_numbers_in_a_message_do_not_make_another_failure_of_it() -> None:
    watched = supervisor()
    errors = [UserCodeFailed(f"f failed on a batch of {n} rows: ValueError: unlucky {n}") for n in (13, 113, 7)]
    assert [watched.failed(e, 7).then for e in errors] == [Then.AGAIN, Then.AGAIN, Then.SEARCH]


def test_before_a_flow_ends_an_epoch_that_fails_in_changing_ways_is_searched_too() -> None:
    watched = supervisor()
    verdicts = [watched.failed(UserCodeFailed(word), 7).then for word in ("a", "b", "c", "d", "e", "f")]
    assert verdicts == [Then.AGAIN] * 4 + [Then.SEARCH, Then.CRASH_LOOP]


def test_a_flow_that_refuses_it_ends_instead_of_being_searched() -> None:
    watched = supervisor(poison="stop")
    verdicts = [watched.failed(UserCodeFailed("no"), 7).then for _ in range(SAME)]
    assert verdicts == [Then.AGAIN, Then.AGAIN, Then.FAIL]


@pytest.mark.parametrize(
    "failures",
    [
        [(UserCodeFailed("a"), 1), (UserCodeFailed("b"), 1), (UserCodeFailed("a"), 1)],
        [(UserCodeFailed("a"), 1), (UserCodeFailed("a"), 2), (UserCodeFailed("a"), 3)],
        [(UserCodeFailed("a"), 1), (EngineFailed("a"), 1), (UserCodeFailed("a"), 1)],
        [(LOST, 1)] * 3,
        [(DiskFull("a"), 1)] * 3,
    ],
)
def test_other_failures_are_not_searched(failures: list[tuple[MillstreamError, int]]) -> None:
    watched = supervisor()
    assert {watched.failed(*f).then for f in failures} == {Then.AGAIN}


def test_bad_arguments_are_told() -> None:
    with pytest.raises(DefinitionError, match="negative"):
        Restarts(limit=-1)
    with pytest.raises(DefinitionError, match="is not a duration"):
        Restarts(first="soon")
    with pytest.raises(DefinitionError, match="poison"):
        Supervisor(None, "ignore")


def test_a_full_disk_and_unforeseen_errors_get_words_of_their_own() -> None:
    full = failure("f", OSError(28, "No space left on device"))
    assert isinstance(full, DiskFull) and full.__cause__ is not None
    other = failure("f", ZeroDivisionError("oops"))
    assert type(other) is RunError and other.message == "the flow `f` stopped: oops"
    assert failure("f", LOST) is LOST


class Story:
    """Loops one after the other: each performs some epochs and then fails, or ends."""

    def __init__(self, *lives: tuple[int, Exception | None]) -> None:
        self.lives = list(lives)
        self.number = 0
        self.made = 0
        self.finished = False

    def make(self) -> Story:
        self.made += 1
        self.left, self.error = self.lives.pop(0)
        return self

    def step(self) -> EpochReport | None:
        if self.left:
            self.left -= 1
            self.number += 1
            return EpochReport(self.number, 1, 0.1, {}, 0, 0, 0, 0, output=None)
        if self.error is not None:
            raise self.error
        self.finished = True
        return None

    def close(self) -> None:
        pass


class Waits:
    """Waiting that takes no time, and shows what a person would have seen meanwhile."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.seen: list[str] = []
        self.run: Run | None = None
        self.ready = threading.Event()
        self.then: Callable[[], None] = lambda: None

    def __call__(self, stopping: threading.Event, seconds: float) -> None:
        assert self.ready.wait(30)
        assert self.run is not None
        self.seconds.append(seconds)
        self.seen.append(self.run.status)
        self.then()


def begin(story: Story, waits: Waits, **options: object) -> Run:
    given = {"restarts": Restarts(), **options}
    run = Run("f", story.make, pause=waits, chance=lambda: 0.5, **given)  # type: ignore[arg-type]
    waits.run = run
    waits.ready.set()
    return run


def test_a_run_goes_on_after_failures_and_says_what_it_waits_for() -> None:
    story, waits = Story((2, LOST), (0, LOST), (3, None)), Waits()
    run = begin(story, waits).wait(timeout=30)
    assert run.state == "finished" and story.made == 3
    assert [r.number for r in run.reports] == [1, 2, 3, 4, 5]
    assert waits.seconds == [0.5, 1.0]
    assert waits.seen[1] == "restarting (2 of 5, in 1 s): Spark's Java process has ended"


def test_a_run_in_a_crash_loop_has_a_state_of_its_own_and_the_last_error() -> None:
    story, waits = Story(*[(0, SourceMissing(f"gone {i}")) for i in range(9)]), Waits()
    run = begin(story, waits)
    with pytest.raises(SourceMissing, match="gone 4") as caught:
        run.wait(timeout=30)
    assert run.state == "crash loop" and story.made == 5
    assert run.status == "crash loop (5 failures): gone 4"
    assert "it failed 5 times without an epoch in between" in str(caught.value)


def test_a_run_goes_on_although_its_loop_cannot_be_closed() -> None:
    class Stuck(Story):
        def close(self) -> None:
            raise OSError("the connection is gone")

    run = begin(Stuck((1, LOST), (1, None)), Waits()).wait(timeout=30)
    assert run.state == "finished"


def test_a_run_that_waits_can_be_stopped() -> None:
    story, waits = Story((0, LOST), (9, None)), Waits()

    def then() -> None:
        assert waits.run is not None
        waits.run._stopping.set()

    waits.then = then
    run = begin(story, waits).wait(timeout=30)
    assert run.state == "stopped" and story.made == 1


def test_what_cannot_be_mended_stops_a_run_in_the_middle_of_its_restarts() -> None:
    story, waits = Story((1, LOST), (1, LeaseLost("taken over")), (9, None)), Waits()
    run = begin(story, waits)
    with pytest.raises(LeaseLost):
        run.wait(timeout=30)
    assert run.state == "failed" and story.made == 2


def test_whoever_waits_for_late_records_is_told_that_the_run_has_failed() -> None:
    story, waits = Story((0, LOST), (0, HomeDamaged("broken"))), Waits()
    asked: list[BaseException] = []

    def ask() -> None:
        with pytest.raises(HomeDamaged) as caught:
            run.replay_late("v")
        asked.append(caught.value)

    thread = threading.Thread(target=ask)

    def then() -> None:
        thread.start()
        while not run._replays:
            thread.join(0.001)

    waits.then = then
    waits.run = run = Run("f", story.make, restarts=Restarts(), pause=waits)  # type: ignore[arg-type]
    waits.ready.set()
    with pytest.raises(HomeDamaged):
        run.wait(timeout=30)
    thread.join(30)
    assert asked


def test_whoever_waits_for_late_records_is_told_that_the_run_was_stopped() -> None:
    story, waits = Story((0, LOST), (9, None)), Waits()
    asked: Future[int] = Future()

    def then() -> None:
        assert waits.run is not None
        waits.run._replays.append(("v", asked))
        waits.run._stopping.set()

    waits.then = then
    run = begin(story, waits).wait(timeout=30)
    assert run.state == "stopped" and asked.done()
    with pytest.raises(RunError, match="has ended"):
        asked.result(timeout=0)


def test_every_state_leads_somewhere_known_and_the_ends_are_ends() -> None:
    assert {s for to in STATES.values() for s in to} <= set(STATES)
    assert set(ENDED) == {"finished", "failed", "crash loop", "stopped"}
