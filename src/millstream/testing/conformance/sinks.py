"""What every sink must do, as tests.

    class TestMine(SinkConformance):
        def open(self, folder, generation):
            return MySink(...)

        def read(self, folder):
            ...  # the rows that are in the target now, as dicts with `item` and `n`

The suite writes rows with the columns ``op``, ``item`` and ``n``, each item once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

from millstream.connect.port import SinkPort
from millstream.errors import DefinitionError
from millstream.model import connector_declarations
from millstream.model.change_op import ChangeOp
from millstream.model.connector import External
from millstream.model.guarantees import SinkGuarantee

SCHEMA = pa.schema([("op", pa.string()), ("item", pa.string()), ("n", pa.int64())])
IDENTITY = ("item",)


def changes(first: int, count: int) -> pa.Table:
    """Inserts of the items first, first + 1, ..."""
    numbers = range(first, first + count)
    return pa.table(
        [[ChangeOp.INSERT.value] * count, [f"item {n}" for n in numbers], pa.array(numbers, pa.int64())], schema=SCHEMA
    )


class SinkConformance:
    """Subclass it, and override `open` and `read`."""

    flow: str = "f"
    name: str = "s"
    """What the sink is called; it writes as ``flow/name/generation``."""
    large: int = 20_000
    exact: bool = True
    """Whether a transactional sink knows its last epoch exactly; a lower bound is right where writing again is safe."""
    system: str = ""
    """The name it is registered under."""
    options: Mapping[str, Any] = {}
    """Options that it accepts."""
    bad_options: Sequence[Mapping[str, Any]] = ()
    """Options that must be refused, each with a message that names it."""

    def open(self, folder: Path, generation: int) -> SinkPort:
        """Make the sink as a new process would; the suite calls its `open`."""
        raise NotImplementedError

    def read(self, folder: Path) -> list[dict[str, Any]]:
        """What is in the target now."""
        raise NotImplementedError

    def writer(self, generation: int = 0) -> str:
        """The name that the sink writes under."""
        return f"{self.flow}/{self.name}/{generation}"

    # ------------------------------------------------------------ writing

    def test_what_is_written_is_there(self, tmp_path: Path) -> None:
        """Epochs may leave numbers out."""
        sink = self._opened(tmp_path)
        sink.write(1, changes(0, 2), digest="a")
        sink.write(4, changes(2, 1), digest="b")
        assert self._numbers(tmp_path) == [0, 1, 2]
        sink.close()

    def test_an_epoch_without_rows_adds_none(self, tmp_path: Path) -> None:
        """It is not given one by a flow, but may be."""
        sink = self._opened(tmp_path)
        sink.write(1, changes(0, 0), digest="a")
        sink.write(2, changes(0, 1), digest="b")
        assert self._numbers(tmp_path) == [0]

    def test_a_large_epoch_is_written_whole(self, tmp_path: Path) -> None:
        """All rows, once."""
        self._opened(tmp_path).write(1, changes(0, self.large), digest="a")
        assert self._numbers(tmp_path) == list(range(self.large))

    def test_an_epoch_that_is_written_again_is_there_as_the_guarantee_says(self, tmp_path: Path) -> None:
        """Once; or at least once."""
        sink = self._opened(tmp_path)
        for _ in range(2):
            sink.write(1, changes(0, 2), digest="a")
        self._expect(tmp_path, sink, [0, 1])
        sink.write(2, changes(2, 1), digest="b")
        for epoch, rows, digest in ((1, changes(0, 2), "a"), (2, changes(2, 1), "b")):  # the older one first
            sink.write(epoch, rows, digest=digest)
        self._expect(tmp_path, sink, [0, 1, 2])

    # ------------------------------------------------------------ crashes

    @pytest.mark.parametrize("dies", ["before write", "after write", "after last_epoch", "after close"])
    def test_a_crash_at_any_point_leaves_each_epoch_as_the_guarantee_says(self, tmp_path: Path, dies: str) -> None:
        """A later process asks for the last epoch, and writes what is missing."""
        sink = self._opened(tmp_path)
        sink.write(1, changes(0, 2), digest="a")
        if dies != "before write":
            sink.write(2, changes(2, 2), digest="b")
        if dies == "after last_epoch":
            sink.last_epoch(self.writer())
        if dies == "after close":
            sink.close()
        del sink
        again = self._opened(tmp_path)
        self._deliver(again, 2, changes(2, 2), "b")
        self._deliver(again, 3, changes(4, 1), "c")
        self._expect(tmp_path, again, list(range(5)))

    def test_the_last_epoch_is_never_one_that_is_not_there(self, tmp_path: Path) -> None:
        """It may be lower than the truth where writing again does no harm, and grows."""
        sink = self._opened(tmp_path)
        assert sink.last_epoch(self.writer()) in (None, -1)
        seen = -1
        for epoch in (1, 2, 5):
            sink.write(epoch, changes(epoch, 1), digest=str(epoch))
            last = self._opened(tmp_path).last_epoch(self.writer())
            if last is not None:
                assert seen <= last <= epoch
                seen = last
        if sink.guarantee is SinkGuarantee.TRANSACTIONAL and self.exact:
            assert seen == 5, "a transactional sink knows what it has"

    def test_writers_are_told_apart(self, tmp_path: Path) -> None:
        """A flow that was set back writes the same epochs with other content, under another name."""
        sink = self._opened(tmp_path)
        sink.write(1, changes(0, 2), digest="a")
        other = self._opened(tmp_path, 1)
        assert other.last_epoch(self.writer(1)) in (None, -1)
        other.write(1, changes(5, 1), digest="z")
        assert sorted(set(self._numbers(tmp_path))) == [0, 1, 5]

    def test_confirming_an_epoch_that_is_there_adds_nothing(self, tmp_path: Path) -> None:
        """A start makes sure that the target has the last epoch."""
        sink = self._opened(tmp_path)
        sink.write(1, changes(0, 2), digest="a")
        self._opened(tmp_path).confirm(1, changes(0, 2), digest="a")
        assert self._numbers(tmp_path) == [0, 1]

    def test_a_position_is_plain_data_that_a_later_process_takes(self, tmp_path: Path) -> None:
        """It is committed with the next epoch."""
        sink = self._opened(tmp_path)
        sink.write(1, changes(0, 2), digest="a")
        position = sink.position()
        if position is not None:
            again = self._opened(tmp_path)
            again.resume(orjson.loads(orjson.dumps(position, option=orjson.OPT_NON_STR_KEYS)))
            again.write(2, changes(2, 1), digest="b")
            assert self._numbers(tmp_path) == [0, 1, 2]

    # ------------------------------------------------------------ declarations

    def test_the_guarantee_is_the_declared_one(self, tmp_path: Path) -> None:
        """EXPLAIN shows the declared one."""
        sink = self._opened(tmp_path)
        assert isinstance(sink.guarantee, SinkGuarantee)
        if self.system:
            assert connector_declarations.named(self.system, connector_declarations.SINK).guarantee is sink.guarantee

    def test_options_that_it_does_not_have_are_refused(self) -> None:
        """With a message that names the option."""
        if not self.system or not connector_declarations.named(self.system, connector_declarations.SINK).in_sql:
            pytest.skip("it is not registered under a name")
        for bad in ({"no_such_option": 1}, *self.bad_options):
            with pytest.raises(DefinitionError) as error:
                External(self.system, {**self.options, **bad}).as_sink()
            assert next(iter(bad)) in error.value.message

    # ------------------------------------------------------------ parts

    def _opened(self, folder: Path, generation: int = 0) -> SinkPort:
        sink = self.open(folder, generation)
        sink.open(SCHEMA, IDENTITY)
        return sink

    def _deliver(self, sink: SinkPort, epoch: int, rows: pa.Table, digest: str) -> None:
        """What the outbox does at a start."""
        last = sink.last_epoch(self.writer())
        if last is not None and epoch <= last:
            sink.confirm(epoch, rows, digest=digest)
        else:
            sink.write(epoch, rows, digest=digest)

    def _numbers(self, folder: Path) -> list[int]:
        return sorted(row["n"] for row in self.read(folder))

    def _expect(self, folder: Path, sink: SinkPort, numbers: list[int]) -> None:
        there = self._numbers(folder)
        if sink.guarantee is SinkGuarantee.AT_LEAST_ONCE:
            assert sorted(set(there)) == numbers
        else:
            assert there == numbers
