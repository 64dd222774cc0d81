"""A sink whose process dies after it has written an epoch, and before anybody has noted that, is not given it again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millstream as ms
from millstream.connect.port import SinkBase
from millstream.connect.registry import SinkContext
from millstream.model import connector_declarations
from millstream.model.guarantees import SinkGuarantee
from millstream.runtime.recovery import repair
from tests.local import LocalScript


class Died(Exception):
    """The process, as far as the flow is concerned."""


class Ledger(SinkBase):
    """Records epochs with their rows, and appends whatever it is given: asking first is all that keeps rows single."""

    guarantee = SinkGuarantee.TRANSACTIONAL
    written: dict[str, list[tuple[int, list[Any]]]] = {}  # noqa: RUF012 - it outlives every process
    resumed: list[dict[str, Any]] = []  # noqa: RUF012
    dies_after: int | None = None
    closed = 0

    def __init__(self, context: SinkContext) -> None:
        self.writer = context.writer

    def last_epoch(self, writer: str) -> int | None:
        return max((epoch for epoch, _ in Ledger.written.get(writer, [])), default=-1)

    def write(self, epoch: int, changes: pa.Table, *, digest: str | None = None) -> None:
        assert digest is not None
        Ledger.written.setdefault(self.writer, []).append((epoch, changes["n"].to_pylist()))
        if epoch == Ledger.dies_after:
            Ledger.dies_after = None
            raise Died

    def position(self) -> Mapping[str, Any] | None:
        return {"epochs": len(Ledger.written.get(self.writer, []))}

    def resume(self, position: Mapping[str, Any]) -> None:
        Ledger.resumed.append(dict(position))

    def close(self) -> None:
        Ledger.closed += 1


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    Ledger.written, Ledger.resumed, Ledger.dies_after, Ledger.closed = {}, [], None, 0
    ms.register_connector("ledger", sink=Ledger)
    yield
    connector_declarations.forget("ledger")


def test_an_epoch_that_the_sink_has_is_not_written_again_after_a_crash(tmp_path: Path) -> None:
    memory = ms.memory()
    flow = ms.Flow("f")
    flow.source("s", memory, schema="n BIGINT").sink("out", ms.connector("ledger"))
    with LocalScript(flow, tmp_path) as script:
        script.send("s", {"n": 1})
        script.tick()
        Ledger.dies_after = 2
        script.send("s", {"n": 2})
        with pytest.raises(Died):
            script.tick()
    with LocalScript(flow, tmp_path) as script:
        script.send("s", {"n": 3})
        script.tick()
    assert Ledger.written == {"f/out/0": [(1, [1]), (2, [2]), (3, [3])]}
    assert Ledger.closed == 2
    assert Ledger.resumed == [{"epochs": 1}]  # what was written before the last committed epoch
    assert repair.look(tmp_path) == []  # a position that is none of a topic is nothing to repair


def test_an_epoch_that_the_sink_has_lost_is_written_again_at_the_next_start(tmp_path: Path) -> None:
    memory = ms.memory()
    flow = ms.Flow("f")
    flow.source("s", memory, schema="n BIGINT").sink("out", ms.connector("ledger"))
    with LocalScript(flow, tmp_path) as script:
        for n in (1, 2):
            script.send("s", {"n": n})
            script.tick()
    Ledger.written["f/out/0"].pop()
    with LocalScript(flow, tmp_path) as script:
        script.tick()
    assert Ledger.written == {"f/out/0": [(1, [1]), (2, [2])]}
