"""When the start of a flow fails, whatever was opened for it is closed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millstream as ms
from millstream.connect.forms import ArrowRows, Form
from millstream.connect.port import Offsets, SinkBase, SourceBase, SourceFacts, SourceSlice
from millstream.connect.registry import SinkContext, SourceContext
from millstream.errors import MillstreamError, RunError, SinkError, SourceError
from millstream.home import Home
from millstream.model import connector_declarations
from millstream.model.connector_declarations import Option
from millstream.model.guarantees import SinkGuarantee
from millstream.plan.planner import plan
from millstream.runtime.epoch import loop as epoch_loop
from tests.local import LocalEngine

OPTIONS = [Option("name", str, ""), Option("fails", bool, False)]
OPEN: set[str] = set()
EVER: set[str] = set()


def _opened(name: str) -> None:
    OPEN.add(name)
    EVER.add(name)


class Numbers(SourceBase):
    """A source that has to be closed."""

    def __init__(self, context: SourceContext) -> None:
        self.name = context.options["name"]
        if context.options["fails"]:
            raise SourceError(f"cannot open the source {self.name}")
        _opened(self.name)

    def head(self, now: int) -> Offsets:
        return {0: 3}

    def slice(self, part: SourceSlice) -> Sequence[Form]:
        start, end = part.ranges[0]
        numbers = pa.array(range(start, end), pa.int64())
        return [ArrowRows(pa.table({"n": numbers, "$part": pa.array([0] * len(numbers), pa.int32()), "$pos": numbers}))]

    def describe(self) -> SourceFacts:
        return SourceFacts("numbers")

    def close(self) -> None:
        OPEN.remove(self.name)


class Written(SinkBase):
    """A sink that has to be closed."""

    guarantee = SinkGuarantee.IDEMPOTENT

    def __init__(self, context: SinkContext) -> None:
        self.name, self.fails = context.options["name"], context.options["fails"]
        _opened(self.name)

    def open(self, schema: Any, identity: Any) -> None:
        if self.fails:
            raise SinkError(f"cannot open the sink {self.name}")

    def write(self, epoch: int, changes: pa.Table, *, digest: str | None = None) -> None: ...

    def close(self) -> None:
        OPEN.remove(self.name)


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    OPEN.clear()
    EVER.clear()
    ms.register_connector("numbers", source=Numbers, sink=Written, options=OPTIONS)
    yield
    connector_declarations.forget("numbers")


def _flow(*, source_fails: bool = False, sink_fails: bool = False) -> ms.Flow:
    flow = ms.Flow("f")
    for name, fails in (("first", False), ("second", True)):
        source = ms.connector("numbers", name=name, fails=fails and source_fails)
        sink = ms.connector("numbers", name=f"{name} sink", fails=fails and sink_fails)
        flow.source(name, source, schema="n BIGINT").sink(f"{name}_out", sink)
    return flow


def _no_engine(*_: Any) -> Any:
    raise RunError("no engine")


SOURCES, SINKS = {"first", "second"}, {"first sink", "second sink"}


@pytest.mark.parametrize(
    ("flow", "engine", "fails", "opened"),
    [
        ({"source_fails": True}, LocalEngine, "cannot open the source second", {"first"}),
        ({}, _no_engine, "no engine", SOURCES),
        ({"sink_fails": True}, LocalEngine, "cannot open the sink second sink", SOURCES | SINKS),
    ],
    ids=["source", "engine", "sink"],
)
def test_what_was_opened_is_closed(
    flow: dict[str, bool], engine: Any, fails: str, opened: set[str], tmp_path: Path
) -> None:
    with Home(tmp_path / "home") as home:
        with pytest.raises(MillstreamError, match=fails):
            home.loop(plan(_flow(**flow)), engine=engine)
        assert EVER == opened and not OPEN
        loop = home.loop(plan(_flow()), engine=LocalEngine)  # nothing is in its way
        assert OPEN == SOURCES | SINKS
        loop.close()
        assert not OPEN


def test_what_was_opened_is_closed_when_the_flow_cannot_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise RunError("it cannot resume")

    monkeypatch.setattr(epoch_loop, "reconcile", fails)
    with Home(tmp_path / "home") as home, pytest.raises(RunError, match="it cannot resume"):
        home.loop(plan(_flow()), engine=LocalEngine)
    assert EVER == SOURCES | SINKS and not OPEN
