"""Shared by all tests: one Spark session per process, few hypothesis examples unless asked for more, and samples.

`@pytest.mark.sampled(n)` leaves n cases of a test in `make test`, spread over its parameters; the others are slow.

The quick examples are the same in every run, so that a change is red for its own sake alone; the thorough ones are new
in every run.
"""

from __future__ import annotations

import gc
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.lanes import Lane
from tests.shards import Shards

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
    from millstream.engine.spark import session

    log: Path = tmp_path_factory.mktemp("spark") / "spark.log"
    yield session.start(log, memory="1g")
    session.stop()


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """The endpoint of an S3 emulator with a bucket."""
    from tests.object_storage import emulator

    with emulator() as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def objects_endpoint() -> Iterator[str]:
    """The endpoint of a small S3 server with a bucket: a request takes a tenth of what the emulator takes."""
    from tests.object_server import object_server
    from tests.object_storage import BUCKET

    with object_server(BUCKET) as endpoint:
        yield endpoint


@pytest.fixture
def object_state(objects_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """All homes of the test keep their state on the small server, under this URI."""
    from tests.object_storage import state_at

    return state_at(objects_endpoint, monkeypatch)


@pytest.fixture
def emulated_state(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """All homes of the test keep their state on the emulator, under this URI."""
    from tests.object_storage import state_at

    return state_at(s3_endpoint, monkeypatch)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--shard", help="k/n or green:k/n: the k-th of n shards of the selected tests, or of the green ones"
    )
    parser.addoption("--lane", help="front:FOLDER or back:FOLDER: share the selected tests with another process")
    parser.addoption("--record-seconds", action="store_true", help="write down what the tests took")


def pytest_configure(config: pytest.Config) -> None:
    options = config.option
    if options.shard or options.record_seconds:
        shards = Shards(options.shard, record=options.record_seconds)
        config.pluginmanager.register(shards, "shards")
    if options.lane:
        config.pluginmanager.register(Lane(options.lane), "lane")


def pytest_collection_finish() -> None:
    """Thousands of collected tests live to the end: the garbage collector need not look at them again and again."""
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


def pytest_unconfigure() -> None:
    gc.unfreeze()  # what libraries hold is found again when the process ends


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Before `-m` selects: mark the cases as slow that are not in the sample of their test."""
    families: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sampled") is not None and item.get_closest_marker("slow") is None:
            families[item.nodeid.split("[", 1)[0]].append(item)
    for family in families.values():
        marker = family[0].get_closest_marker("sampled")
        assert marker is not None
        (size,) = marker.args
        stride = max(1, len(family) // size)  # the place in a stride moves on, so that no parameter stays the same
        kept = {i * len(family) // size + i % stride for i in range(size)}
        for place, item in enumerate(family):
            if place not in kept:
                item.add_marker(pytest.mark.slow)
