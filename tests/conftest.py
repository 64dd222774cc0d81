"""Shared by all tests: one Spark session per process, few hypothesis examples unless asked for more.

The quick examples are the same in every run, so that a change is red for its own sake alone; the thorough ones are new
in every run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "quick",
    max_examples=50,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.register_profile("thorough", settings.get_profile("quick"), max_examples=1000, derandomize=False)
settings.load_profile(os.environ.get("MILLSTREAM_HYPOTHESIS", "quick"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """The session of this process; flows started by a test use the same one."""
    from millstream.engine import session

    log: Path = tmp_path_factory.mktemp("spark") / "spark.log"
    yield session.start(log, memory="1g")
    session.stop()
