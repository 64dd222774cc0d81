"""Two processes share the selected tests: ``pytest --lane front:FOLDER`` and ``pytest --lane back:FOLDER``.

Both collect the same tests. One goes through their modules from the front, the other from the back, and each runs the
modules that it is the first to claim, by a file in the folder. They meet in the middle and end at about the same time,
whatever tests there are. A module is never divided, because its fixtures are made once.

Tests with Spark are not shared: the process that has them selected runs them first and ends its session, so that it
collects once and then helps with the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

FRONT, BACK = "front", "back"


class Lane:
    """The plugin: runs the tests of the modules that this process claims."""

    def __init__(self, lane: str) -> None:
        side, _, folder = lane.partition(":")
        if side not in (FRONT, BACK) or not folder:
            raise pytest.UsageError(f"--lane is front:FOLDER or back:FOLDER, not {lane}")
        self.side, self.folder = side, Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """In place of pytest's own loop over all tests."""
        if session.config.option.collectonly or session.testsfailed:  # pytest's own loop says so
            return None
        with_spark = [item for item in session.items if item.get_closest_marker("spark") is not None]
        others = [item for item in session.items if item.get_closest_marker("spark") is None]
        self.run(session, iter(with_spark))
        self.run(session, self.claimed(others))
        return True

    def run(self, session: pytest.Session, items: Iterator[pytest.Item]) -> None:
        """Run tests, and end all fixtures behind the last."""
        item = next(items, None)
        while item is not None:
            following = next(items, None)  # fixtures that it does not use end with this test
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)
            item = following

    def claimed(self, items: list[pytest.Item]) -> Iterator[pytest.Item]:
        """The tests of this process. A module is claimed when its first test is about to be the next."""
        modules = [(path, list(tests)) for path, tests in groupby(items, lambda item: item.nodeid.split("::")[0])]
        for path, tests in modules if self.side == FRONT else reversed(modules):
            try:
                (self.folder / path.replace("/", "+")).touch(exist_ok=False)
            except FileExistsError:
                continue
            yield from tests
