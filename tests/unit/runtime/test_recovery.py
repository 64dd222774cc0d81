"""Records with a checksum, sources that are looked at before a start, and files that stay for older versions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

import millstream as ms
from millstream.connect.memory import MemorySource
from millstream.connect.port import SourceSlice
from millstream.errors import HomeDamaged, HomeTooNew, RecoveryFailed
from millstream.plan.planner import plan
from millstream.runtime.epoch.kept_versions import SWEEP_EVERY, Upkeep, remove_left_overs
from millstream.runtime.epoch.records import EpochRecord, RecordBook
from millstream.runtime.recovery import reconcile
from millstream.state.local_storage import LocalStorage
from millstream.state.run import Batch, StateRun
from millstream.state.version import Version
from millstream.store.port import EpochRow
from millstream.testing import Crash
from tests.local import LocalScript

RECORD = EpochRecord(3, "p", 1, {"s": SourceSlice({0: (2, 5)})}, 5, {"s": 1}, {"s": 0}, {"t": 2})


def test_every_changed_byte_of_a_record_is_noticed(tmp_path: Path) -> None:
    book = RecordBook(tmp_path)
    book.open(RECORD)
    whole = book.path(3).read_bytes()
    for position in range(len(whole)):
        for bit in (1, 16):
            changed = bytearray(whole)
            changed[position] ^= bit
            book.path(3).write_bytes(changed)
            with pytest.raises((HomeDamaged, HomeTooNew), match=r"000000000003\.json"):
                book.read(3)


def test_records_without_a_checksum_are_still_read(tmp_path: Path) -> None:
    book = RecordBook(tmp_path)
    book.path(3).write_bytes(orjson.dumps({**RECORD.to_json(), "format": 1}))
    assert book.read(3) == RECORD
    book.path(3).write_bytes(orjson.dumps(RECORD.to_json()))  # format 2 has one
    with pytest.raises(HomeDamaged):
        book.read(3)


def test_an_open_record_must_begin_where_the_store_ends(tmp_path: Path) -> None:
    book = RecordBook(tmp_path)
    book.open(RECORD)

    def kinds(offset: int | None) -> list[str]:
        offsets = {} if offset is None else {"s": {"0": offset}}
        row = EpochRow(2, "p", {}, {"now": 0}, {}, {"offsets": offsets})
        return [p.kind for p in reconcile.of_records("f", row, book)]

    assert kinds(2) == [] and kinds(None) == []  # a source that is new to the flow begins anywhere
    assert kinds(1) == kinds(3) == [reconcile.ELSEWHERE]


def test_a_record_that_a_newer_plan_has_run_again_is_explained_by_a_crash(tmp_path: Path) -> None:
    book = RecordBook(tmp_path)
    row = EpochRow(3, "new", RECORD.slices_json(), {"now": 0}, {}, {"offsets": {}})
    book.open(RECORD)
    assert list(reconcile.of_records("f", row, book)) == []
    book.close(RECORD)
    (problem,) = reconcile.of_records("f", row, book)
    assert problem.kind == reconcile.DIFFERS and "one plan in the store and another" in problem.error.message


def memory_flow() -> tuple[ms.Flow, Any]:
    made, memory = ms.Flow("f"), ms.memory()
    made.source("s", memory, schema="x BIGINT").aggregate(n=ms.count()).view("v")
    return made, memory


def test_rows_in_memory_must_be_there_for_the_epoch_that_died(tmp_path: Path) -> None:
    made, _ = memory_flow()
    with LocalScript(made, tmp_path) as script:
        script.send("s", {"x": 1}, {"x": 2})
        script.crash(at="before commit")
        with pytest.raises(Crash):
            script.tick()
    again, memory = memory_flow()
    with pytest.raises(RecoveryFailed, match="ends at offset 0, but `f` has read it up to 2") as caught:
        LocalScript(again, tmp_path)
    assert caught.value.hint is not None and "send the rows again" in caught.value.hint
    memory.send({"x": 1}, {"x": 2})
    with LocalScript(again, tmp_path) as script:
        script.tick()
        script.expect_rows("v", {"n": 2})


class Keeping(MemorySource):
    """Rows that say from where on they are kept, as a log does."""

    first = 0

    def start(self) -> dict[int, int]:
        return {0: self.first}


@pytest.mark.parametrize(
    ("first", "sent", "said"),
    [(0, 2, None), (2, 5, None), (0, 1, "ends at offset 1, but `f` has read it up to 2"), (3, 5, "begins at offset 3")],
)
def test_a_source_must_have_what_comes_next(tmp_path: Path, first: int, sent: int, said: str | None) -> None:
    made, memory = memory_flow()
    memory.send(*({"x": i} for i in range(sent)))
    port = Keeping(memory, plan(made).source("s").schema)
    port.first = first
    row = EpochRow(2, "p", {}, {"now": 0}, {}, {"offsets": {"s": {"0": 2}}})
    found = list(reconcile.of_sources("f", row, RecordBook(tmp_path), {"s": port}))
    assert [p.kind for p in found] == ([] if said is None else [reconcile.SOURCE])
    assert said is None or said in found[0].error.message


def run(name: str) -> StateRun:
    return StateRun(f"v/{name}", 1, 1, (Batch(1, 0, 1),))


def version(*names: str) -> Version:
    return Version({"v": tuple(run(n) for n in names)})


@pytest.mark.parametrize("keep", [1, 5])
def test_a_file_goes_when_the_last_version_that_names_it_is_old_enough(tmp_path: Path, keep: int) -> None:
    (tmp_path / "v").mkdir()
    upkeep, present = Upkeep(LocalStorage(tmp_path), keep=keep), version("1")
    (tmp_path / "v" / "1").touch()
    for epoch in range(2, 12):
        (tmp_path / "v" / str(epoch)).touch()
        before, present = present, version(str(epoch))
        gone = upkeep.after(epoch, (before, present), present)
        left = sorted(int(p.name) for p in (tmp_path / "v").iterdir())
        assert left == list(range(max(1, epoch - keep - 1), epoch + 1)), epoch
        assert gone == ([f"v/{epoch - keep - 2}"] if epoch - keep - 2 >= 1 else [])


def test_what_a_lost_task_wrote_goes_while_the_flow_runs(tmp_path: Path) -> None:
    (tmp_path / "v").mkdir()
    left, named, merging = "000000000012-1-0-7.arrow", "000000000012-1-0-8.arrow", "000000000012-c.arrow"
    for name in (left, f".{left}.tmp", named, merging):
        (tmp_path / "v" / name).touch()
    upkeep, present = Upkeep(LocalStorage(tmp_path), keep=2), version(named)
    gone = [upkeep.after(epoch, (present,), present) for epoch in (19, SWEEP_EVERY)]
    assert [sorted(g) for g in gone] == [[], [f"v/.{left}.tmp", f"v/{left}"]]
    assert sorted(p.name for p in (tmp_path / "v").iterdir()) == [named, merging]


def test_files_of_older_versions_outlive_a_restart_and_go_later(tmp_path: Path) -> None:
    (tmp_path / "v").mkdir()
    for name in ("1", "2", "3", "9", ".4.tmp"):
        (tmp_path / "v" / name).touch()
    remove_left_overs(LocalStorage(tmp_path), [version("2", "3"), version("1", "2")])
    assert sorted(p.name for p in (tmp_path / "v").iterdir()) == ["1", "2", "3"]
    upkeep, present = Upkeep(LocalStorage(tmp_path), keep=2), version("2", "3")
    upkeep.tidy(present)
    seen = [upkeep.after(epoch, (present,), present) for epoch in range(4, 8)]
    assert seen == [[], [], [], ["v/1"]]
    assert sorted(p.name for p in (tmp_path / "v").iterdir()) == ["2", "3"]


def test_a_view_that_was_left_out_does_not_stop_the_next_start(tmp_path: Path) -> None:
    def grown(*views: str) -> ms.Flow:
        made = ms.Flow("f")
        rows = made.source("s", ms.memory(), schema="x BIGINT")
        for view in views:
            rows.aggregate(n=ms.count()).view(view)
        return made

    with LocalScript(grown("v", "w"), tmp_path) as script:
        script.send("s", {"x": 1})
        script.tick()
    for _ in range(2):
        with LocalScript(grown("v"), tmp_path) as script:
            script.expect_rows("v", {"n": 1})


def test_a_record_is_closed_with_the_plan_that_the_store_has(tmp_path: Path) -> None:
    def counted() -> ms.Flow:
        flow = ms.Flow("f")
        flow.source("s", ms.memory(), schema="x BIGINT").aggregate(n=ms.count()).view("v")
        return flow

    with LocalScript(counted(), tmp_path) as script:
        script.send("s", {"x": 1})
        script.tick()
    (folder,) = tmp_path.rglob("epochs")
    book = RecordBook(folder)
    record = book.read(1)
    assert record is not None and record.state == "closed"
    book.open(replace(record, plan="the plan before", state="open"))  # its rerun was committed, but not closed
    for _ in range(2):
        with LocalScript(counted(), tmp_path) as script:
            script.expect_rows("v", {"n": 1})
        assert book.read(1) == replace(record, seconds={})


def test_a_record_of_the_future_is_no_damage(tmp_path: Path) -> None:
    book = RecordBook(tmp_path)
    book.path(3).write_bytes(orjson.dumps({**replace(RECORD, state="closed").to_json(), "format": 4}))
    with pytest.raises(HomeTooNew, match="has format 4"):
        list(reconcile.of_records("f", None, book))
