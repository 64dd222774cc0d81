"""The crash suite: runs operations, crashes at every moment of the last one, and asks the oracle."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from .disk import SimDisk
from .world import Moment, Promise, Violation, World, moments, run, with_the_same_topic

KILLED = "a killed process"


@dataclass
class Crashes:
    """Crash images that were looked at, so that none is looked at twice."""

    seen: set[object] = field(default_factory=set)
    met: int = 0
    """How many images there were, equal ones too."""
    looked: int = 0
    inner: bool = True
    """Whether recovery is crashed too."""
    again: bool = True
    """Whether the log is opened once more afterwards."""
    left_out: frozenset[str] = frozenset()
    """Kinds of crashes that are not looked at."""

    def after(self, names: tuple[str, ...], disk: SimDisk | None = None) -> None:
        """Crash at every moment of the last of these operations."""
        world = World(disk or with_the_same_topic())
        run(world, names[:-1])
        for moment in moments(world, lambda: run(world, names[-1:])):
            self.at(moment, " ".join(names))

    def after_a_kill(self, world: World, names: tuple[str, ...], following: tuple[str, ...]) -> None:
        """Kill the process at every moment of the last of these operations; crash at every moment of what the next one
        does.
        """
        run(world, names[:-1])
        for killed in moments(world, lambda: run(world, names[-1:])):
            later = World(killed.disk.killed(), killed.promise)
            later.promise = later.settled()
            for moment in moments(later, partial(run, later, following)):
                self.at(moment, f"{' '.join(names)}, killed at step {killed.step}, {' '.join(following)}")

    def at(self, moment: Moment, what: str, *, inner: bool = False) -> None:
        """Look at all that a crash at this moment may leave; and at a process that was killed."""
        where = f"{what}, {'recovery ' if inner else ''}step {moment.step}"
        images = list(moment.disk.crashes(self.left_out))
        if KILLED not in self.left_out:
            images.append((KILLED, moment.disk.killed()))
        for kind, disk in images:
            self.met += 1
            key = (disk.key(), moment.promise, kind == KILLED, inner)
            if key in self.seen:
                continue
            self.seen.add(key)
            self.looked += 1
            self._look(disk, moment.promise, f"{where}: {kind}", inner=inner or not self.inner)

    def _look(self, disk: SimDisk, promise: Promise, where: str, *, inner: bool) -> None:
        try:
            if not inner:
                crashed = World(disk.killed(), promise)
                for moment in moments(crashed, crashed._opened):
                    self.at(moment, where, inner=True)
            World(disk, promise).check(again=self.again)
        except Violation as error:
            if str(error).startswith("after "):
                raise
            raise Violation(f"after {where}: {error}") from error
        except Exception as error:
            raise Violation(f"after {where}: {type(error).__name__}: {error}") from error
