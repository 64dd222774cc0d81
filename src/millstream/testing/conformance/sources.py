"""The conformance suite of sources: tests that every source must pass.

    class TestMine(SourceConformance):
        schema = "n BIGINT"

        def feed(self, folder, first, count):
            ...  # put the records first, first + 1, ... where the source reads

        def open(self, folder, at):
            return MySource(...)

pytest collects the tests by the name of the class. Each record has its number in the column `number`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millstream.connect.forms import Form
from millstream.connect.port import Offsets, SourcePort, SourceSlice
from millstream.errors import DefinitionError
from millstream.model import connector_declarations
from millstream.model.connector import External
from millstream.model.types.schema import Schema
from millstream.testing.slice_rows import slice_rows

NOW = 1_767_225_600_000_000
CALLS = ("head", "admit", "slice", "slice", "hold", "head")
"""The calls of the loop during an epoch; a process may die after any of them."""


class SourceConformance:
    """Subclass it, and override `feed` and `open`."""

    schema: str = "n BIGINT"
    number: str = "n"
    """The column that holds the record numbers."""
    grows: bool = True
    """Whether an open source sees records that are fed later. If not, all records are fed before it is opened."""
    large: int = 20_000
    system: str = ""
    """The name that the source is registered under, if any."""
    options: Mapping[str, Any] = {}
    """Options that the source accepts."""
    bad_options: Sequence[Mapping[str, Any]] = ()
    """Options that must be refused, each with a message that names it."""

    def feed(self, folder: Path, first: int, count: int) -> None:
        """Write records durably where the source reads them."""
        raise NotImplementedError

    def open(self, folder: Path, at: Offsets) -> SourcePort:
        """Open the source as a new process would, for a flow that has read up to `at`."""
        raise NotImplementedError

    def rows(self, forms: Sequence[Form]) -> pa.Table:
        """Return the rows of a slice, with ``$part`` and ``$pos``."""
        return slice_rows(forms, Schema.parse(self.schema))

    # ------------------------------------------------------------ reading

    def test_a_source_without_records_gives_empty_slices(self, tmp_path: Path) -> None:
        """An empty source is not an error."""
        self.feed(tmp_path, 0, 0)
        source = self.open(tmp_path, {})
        part = source.admit({}, source.head(NOW), None)
        assert part.empty and source.rows(part) == 0
        assert self.rows(source.slice(part)).num_rows == 0
        source.close()

    @pytest.mark.parametrize("limit", [1, 3, None])
    def test_every_record_is_read_once(self, tmp_path: Path, limit: int | None) -> None:
        """Consecutive slices have no gaps, whatever their size."""
        self.feed(tmp_path, 0, 10)
        source = self.open(tmp_path, {})
        assert self._read(source, {}, limit) == list(range(10))
        source.close()

    def test_a_slice_keeps_to_its_limits(self, tmp_path: Path) -> None:
        """It begins where the last one ended, ends at the head at most, and is not empty while records remain."""
        self.feed(tmp_path, 0, 7)
        source = self.open(tmp_path, {})
        head = source.head(NOW)
        at: dict[int, int] = {}
        for _ in range(100):
            part = source.admit(at, head, 2)
            for partition, (start, end) in part.ranges.items():
                assert start == at.get(partition, start), "it begins elsewhere than the slice before ended"
                assert start <= end <= max(start, head[partition]), "it ends after the head"
            if part.empty:
                break
            at.update(part.end)
        assert at == dict(head), "the head was never reached"
        assert source.admit(at, head, None).empty
        source.close()

    def test_a_slice_gives_the_same_rows_every_time(self, tmp_path: Path) -> None:
        """This holds even when more records have arrived, and in a later process."""
        self.feed(tmp_path, 0, 5)
        source = self.open(tmp_path, {})
        part = source.admit({}, source.head(NOW), None)
        first = self.rows(source.slice(part))
        assert self.rows(source.slice(part)).equals(first)
        if self.grows:
            self.feed(tmp_path, 5, 5)
            source.head(NOW)
            assert self.rows(source.slice(part)).equals(first), "other rows after more have arrived"
        again = self.open(tmp_path, {})
        assert self.rows(again.slice(SourceSlice.from_json(part.to_json()))).equals(first), "other rows after a restart"

    def test_positions_are_ordered_and_unique(self, tmp_path: Path) -> None:
        """Partition and position identify a row."""
        self.feed(tmp_path, 0, 9)
        source = self.open(tmp_path, {})
        rows = self.rows(source.slice(source.admit({}, source.head(NOW), None)))
        places = list(zip(rows["$part"].to_pylist(), rows["$pos"].to_pylist(), strict=True))
        assert len(set(places)) == len(places) == 9 and None not in rows["$pos"].to_pylist()
        source.close()

    def test_a_large_slice_is_read_whole(self, tmp_path: Path) -> None:
        """In one part or in many."""
        self.feed(tmp_path, 0, self.large)
        source = self.open(tmp_path, {})
        assert self._read(source, {}, None) == list(range(self.large))
        source.close()

    # ------------------------------------------------------------ crashes

    @pytest.mark.parametrize("calls", range(len(CALLS) + 1))
    def test_a_crash_after_any_call_loses_and_repeats_nothing(self, tmp_path: Path, calls: int) -> None:
        """A slice is recorded once it is admitted; everything else is lost with the process."""
        self.feed(tmp_path, 0, 6)
        source = self.open(tmp_path, {})
        head: Offsets = {}
        part: SourceSlice | None = None
        before: pa.Table | None = None
        for call in CALLS[:calls]:
            if call == "head":
                head = source.head(NOW)
            elif call == "admit":
                part = source.admit({}, head, 3)
            elif call == "slice" and part is not None:
                before = self.rows(source.slice(part))
            elif call == "hold" and part is not None:
                source.hold({p: start for p, (start, _) in part.ranges.items()})
        if self.grows:
            self.feed(tmp_path, 6, 2)
        after = self.open(tmp_path, {})
        total = 8 if self.grows else 6
        assert _covers(after.head(NOW), head), "the head went back"
        numbers: list[int] = []
        if part is not None:
            rows = self.rows(after.slice(part))
            assert before is None or rows.equals(before), "the slice that was written down has other rows"
            numbers = rows[self.number].to_pylist()
        rest = self._read(after, {} if part is None else part.end, 2)
        assert sorted(numbers + rest) == list(range(total))

    def test_a_later_process_resumes_where_the_flow_was(self, tmp_path: Path) -> None:
        """Whatever was held or closed before."""
        self.feed(tmp_path, 0, 6)
        source = self.open(tmp_path, {})
        part = source.admit({}, source.head(NOW), 2)
        numbers = self.rows(source.slice(part))[self.number].to_pylist()
        source.hold(part.end)
        source.close()
        again = self.open(tmp_path, part.end)
        start, end = again.start(), again.end()
        assert start is None or all(start.get(p, 0) <= o for p, o in part.end.items()), "it begins after the flow"
        assert end is None or _covers(end, part.end), "it ends before the flow"
        assert sorted(numbers + self._read(again, part.end, None)) == list(range(6))

    # ------------------------------------------------------------ threads and facts

    def test_heads_of_several_threads_agree(self, tmp_path: Path) -> None:
        """`head`, `pending` and `describe` may be called from any thread, also while records arrive."""
        self.feed(tmp_path, 0, 0 if self.grows else 40)
        source = self.open(tmp_path, {})
        heads: list[list[Offsets]] = [[] for _ in range(4)]
        failures: list[BaseException] = []
        go = threading.Barrier(5)

        def look(mine: list[Offsets]) -> None:
            try:
                go.wait()
                for _ in range(20):
                    mine.append(source.head(NOW))
                    source.pending({}, NOW)
                    source.describe()
            except BaseException as error:  # noqa: BLE001 - reported by the test
                failures.append(error)

        threads = [threading.Thread(target=look, args=(mine,)) for mine in heads]
        for thread in threads:
            thread.start()
        go.wait()
        for i in range(8 if self.grows else 0):
            self.feed(tmp_path, 5 * i, 5)
        for thread in threads:
            thread.join()
        assert not failures, failures[0]
        for mine in heads:
            assert all(_covers(b, a) for a, b in pairwise(mine)), "a head went back"
        assert self._read(source, {}, None) == list(range(40))
        again = self.open(tmp_path, {})
        assert self._read(again, {}, None) == list(range(40)), "another order, or other records, after a restart"

    def test_pending_counts_without_changing_anything(self, tmp_path: Path) -> None:
        """It is never negative, and zero once all records were read."""
        self.feed(tmp_path, 0, 4)
        source = self.open(tmp_path, {})
        before = source.pending({}, NOW)
        head = source.head(NOW)
        assert source.head(NOW) == head
        assert before is None or before >= 0
        if source.describe().record_per_offset:
            assert source.pending({}, NOW) == 4
        assert source.pending(head, NOW) in (0, None)
        part = source.admit({}, head, None)
        assert not source.finished({}) or part.empty

    def test_facts_do_not_change(self, tmp_path: Path) -> None:
        """The kind begins with the name of a system: a repair looks it up."""
        self.feed(tmp_path, 0, 1)
        facts = self.open(tmp_path, {}).describe()
        assert facts == self.open(tmp_path, {}).describe()
        assert connector_declarations.find(facts.kind.partition(" ")[0]) is not None, (
            f"no system is called {facts.kind}"
        )

    # ------------------------------------------------------------ options

    def test_options_that_it_does_not_have_are_refused(self) -> None:
        """The message lists the options that the source has."""
        if not self.system:
            pytest.skip("it is not registered under a name")
        declared = connector_declarations.named(self.system, connector_declarations.SOURCE).source or ()
        External(self.system, dict(self.options)).as_source()
        for bad in ({"no_such_option": 1}, *self.bad_options):
            with pytest.raises(DefinitionError) as error:
                External(self.system, {**self.options, **bad}).as_source()
            assert next(iter(bad)) in error.value.message
        with pytest.raises(DefinitionError) as error:
            External(self.system, {**self.options, "no_such_option": 1}).as_source()
        assert all(option.name in (error.value.hint or "") for option in declared)

    # ------------------------------------------------------------ parts

    def _read(self, source: SourcePort, at: Offsets, limit: int | None) -> list[int]:
        """Read all records from `at` on and return their numbers, sorted."""
        return sorted(n for rows in self._slices(source, dict(at), limit) for n in rows[self.number].to_pylist())

    def _slices(self, source: SourcePort, at: dict[int, int], limit: int | None) -> Iterator[pa.Table]:
        for _ in range(10_000):
            part = source.admit(at, source.head(NOW), limit)
            if part.empty:
                return
            at.update(part.end)
            yield self.rows(source.slice(part))
        raise AssertionError("the source never ends")


def _covers(later: Offsets, earlier: Offsets) -> bool:
    return all(later.get(p, -1) >= offset for p, offset in earlier.items())
