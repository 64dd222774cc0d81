"""The n-th call of the disk fails, once or from then on, for every n: nothing that was acknowledged is harmed."""

from __future__ import annotations

import errno

import pytest

from millstream.errors import MillstreamError

from .disk import Fault
from .world import World

WORK = ("small", "large", "roll", "small", "hold", "trim", "large", "reopen", "small")


def attempt(world: World, name: str) -> bool:
    """Do one thing; whether it was done. What failed is retried by the oracle, or is left as it was."""
    try:
        getattr(world, name)()
    except (MillstreamError, OSError):
        return False
    return True


@pytest.mark.parametrize("once", [True, False], ids=["once", "from then on"])
@pytest.mark.parametrize(
    ("code", "short"),
    [(errno.EIO, False), (errno.EIO, True), (errno.ENOSPC, False), (errno.ENOSPC, True)],
    ids=["EIO", "EIO after a short write", "ENOSPC", "ENOSPC after a short write"],
)
def test_any_call_may_fail(code: int, short: bool, once: bool) -> None:
    struck = 0
    while True:
        struck += 1
        world = World()
        fault = world.disk.fault = Fault(struck, code, once=once, short=short)
        refused = [name for name in WORK if not _settled(world, name)]
        if fault.seen < fault.at:
            assert not refused
            break
        world.disk.fault = None
        disk, promise = world.disk.killed(), world.promise
        World(disk, promise).check()
    assert struck > 40, "there are that many calls"


def _settled(world: World, name: str) -> bool:
    """Do one thing and, if it failed, find out what of it took place: as a caller would who opens the topic anew."""
    if attempt(world, name):
        return True
    fault, world.disk.fault = world.disk.fault, None
    if world.topic.closed or world.topic._groups.get(0) is None or world.topic._groups[0].writer.failed:
        world.kill()
    world.promise = world.settled()
    world.disk.fault = fault
    return False
