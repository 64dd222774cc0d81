"""The log driven by Hypothesis: any operations in any order, with crashes, faults and a moving clock."""

from __future__ import annotations

import errno

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from millstream.errors import DiskFull, LogFailed

from .disk import Fault
from .world import World, moments, run


class LogMachine(RuleBasedStateMachine):
    """What was acknowledged is always there; what is under way is there whole or not at all."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    @rule(count=st.integers(1, 4))
    def append(self, count: int) -> None:
        self.world.append(count)

    @rule(name=st.sampled_from(["roll", "trim", "hold", "reopen", "kill", "retry", "full", "fail"]))
    def operation(self, name: str) -> None:
        run(self.world, (name,))

    @rule(micros=st.integers(0, 1000))
    def time_passes(self, micros: int) -> None:
        self.world.clock.advance(micros)

    @rule(data=st.data(), name=st.sampled_from(["small", "large", "roll", "trim", "hold"]))
    def crash(self, data: st.DataObject, name: str) -> None:
        found = list(moments(self.world, lambda: run(self.world, (name,))))
        moment = found[data.draw(st.integers(0, len(found) - 1), "moment")]
        images = list(moment.disk.crashes())
        _, disk = images[data.draw(st.integers(0, len(images) - 1), "image")]
        self.world = World(disk, moment.promise)
        self.world.promise = self.world.settled()

    @precondition(lambda self: self.world.promise.acked)
    @rule(times=st.integers(1, 3))
    def no_space_for_a_new_file(self, times: int) -> None:
        """The file that is full goes on growing, and a new one is begun when there is space."""
        self.world._opened()
        self.world.disk.fault = Fault(1, errno.ENOSPC, once=False, only=frozenset({"create"}))
        for _ in range(times):
            try:
                self.world.topic.roll()
                self.world.append(1)
            except (DiskFull, LogFailed) as error:
                raise AssertionError(f"a record was refused: {error}") from error
        self.world.disk.fault = None

    @invariant()
    def all_is_there(self) -> None:
        self.world._look(self.world.promise.acked, self.world.promise.acked)

    def teardown(self) -> None:
        World(self.world.disk.killed(), self.world.promise).check()


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(max_examples=settings().max_examples // 2, stateful_step_count=20, deadline=None)
"""500 steps in the quick profile."""
