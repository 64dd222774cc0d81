"""Repair: says what it found, would do and would lose; does it whole or not at all; keeps what it replaces."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

import millstream as ms
from millstream import paths
from millstream.connect.files.source import FileSource
from millstream.connect.port import SourceSlice
from millstream.errors import HomeDamaged, RecoveryFailed, UnknownName
from millstream.plan.planner import plan
from millstream.runtime.epoch.records import EpochRecord, RecordBook
from millstream.runtime.recovery import reconcile, repair
from millstream.runtime.recovery.repair_actions import NOTHING
from millstream.runtime.recovery.source_checks import cannot_begin, wrong_offsets
from millstream.runtime.recovery.swap import Swap, finish
from millstream.runtime.supervision.lease import HomeLock
from millstream.state.version import Version
from millstream.store.duckdb import DuckStore
from millstream.store.repair import drop_flow, following
from tests.local import LocalScript

from .recovery_homes import EPOCHS, ROWS, SCHEMA, flip, flow, go_on, harm, hashes, last, prepare, said_by


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare(tmp_path_factory.mktemp("homes"))


@pytest.fixture
def home(homes: Path, tmp_path: Path) -> Iterator[Path]:
    shutil.copytree(homes / str(EPOCHS), tmp_path / "home")
    return tmp_path / "home"


def mended(path: Path, **more: Any) -> list[repair.Finding]:
    lock = HomeLock(path / "lock")
    try:
        findings = repair.look(path, **more)
        repair.mend(path, findings)
        return findings
    finally:
        lock.release()


def newest_run(path: Path) -> Path:
    row = last(path)
    assert row is not None
    return path / "flows/counting/state" / Version.from_json(row.version).of("totals")[-1].file


def test_a_sound_home_needs_nothing(home: Path) -> None:
    assert said_by("repair", "--home", home) == (0, "there is nothing to repair\n")
    code, said = said_by("repair", "--home", home.parent / "nowhere")
    assert code == 4 and "there is no Millstream home" in said
    with ms.open(home):
        code, said = said_by("repair", "--home", home)
    assert code == 4 and "in use by process" in said


def test_nothing_is_changed_without_yes(home: Path) -> None:
    newest_run(home).unlink()
    before = hashes(home)
    code, said = said_by("repair", "--home", home)
    assert code == HomeDamaged.exit_code and hashes(home) == before
    assert f"counting: the state file {newest_run(home)} is missing" in said
    assert "its views are emptied and recomputed from the beginning of its sources" in said
    assert said.endswith("nothing was changed; to do it, add --yes\n")
    code, said = said_by("repair", "--home", home, "--yes")
    assert code == 0 and f"done; what was replaced is in {home / 'repair'}" in said and "still" not in said
    go_on(home)


def test_a_lost_state_file_is_taken_from_a_checkpoint_that_has_it(home: Path) -> None:
    with ms.open(home) as opened:
        opened.checkpoint("now")
    run = newest_run(home)
    flip(run, 700)
    (finding,) = mended(home)
    assert finding.lost == NOTHING and "is taken from" in finding.would
    row = last(home)
    assert row is not None and row.number == EPOCHS
    go_on(home)


def test_a_store_that_was_put_back_goes_on_from_where_it_is(homes: Path, tmp_path: Path) -> None:
    harm(homes, tmp_path / "home", "older", "closed", "whole", "equal", checkpoint=False)
    findings = mended(tmp_path / "home")
    assert any(f"epochs 7 to {EPOCHS}" in f.lost for f in findings)
    store = DuckStore(tmp_path / "home" / "store.duckdb")
    assert store.generation("counting") > 1_700_000_000  # the copy may not know how often it was put back
    store.close()
    go_on(tmp_path / "home")


def test_the_record_of_the_last_epoch_is_written_anew_from_the_store(home: Path) -> None:
    book = RecordBook(home / "flows/counting/epochs")
    right = book.read(EPOCHS)
    assert right is not None
    book.path(EPOCHS).write_bytes(b"{")
    (finding,) = mended(home)
    assert finding.lost == NOTHING
    again = book.read(EPOCHS)
    assert again == replace(right, token=0, seconds={})
    kept = next((home / "repair").glob("*")) / "flows/counting/epochs" / book.path(EPOCHS).name
    assert kept.read_bytes() == b"{"


def test_a_flow_whose_folder_is_gone_is_computed_again_from_the_topic_that_knows_it(home: Path) -> None:
    shutil.rmtree(home / "flows" / "counting")
    (finding,) = mended(home)
    assert "recomputed from the beginning of its sources" in finding.would
    go_on(home)


def test_a_flow_can_be_computed_again_from_its_sources(home: Path) -> None:
    with pytest.raises(UnknownName, match="there is no flow `other`"):
        repair.look(home, rebuild=["other"])
    code, said = said_by("repair", "--home", home, "--rebuild", "counting", "--yes")
    assert code == 0, said
    assert last(home) is None
    go_on(home)


class Dies(BaseException):
    """The process ends here."""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["rebuild", "older", "record"])
def test_a_repair_that_dies_anywhere_is_finished_or_forgotten(homes: Path, tmp_path: Path, how: str) -> None:
    store, record = ("older" if how == "older" else "same"), ("open damaged" if how == "record" else "closed")
    harm(homes, tmp_path / "harmed", store, record, "whole", "equal", checkpoint=False)
    rebuild = ["counting"] if how == "rebuild" else []

    def run(path: Path, fail: Any) -> None:
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(tmp_path / "harmed", path)
        lock = HomeLock(path / "lock")
        try:
            repair.mend(path, repair.look(path, rebuild=rebuild), failpoint=fail)
        finally:
            lock.release()

    steps: list[str] = []
    run(tmp_path / "seen", steps.append)
    assert len(steps) > 2
    for die in steps:
        path = tmp_path / "dies"

        def at(step: str, die: str = die) -> None:
            if step == die:
                raise Dies

        with pytest.raises(Dies):
            run(path, at)
        if die != "prepared":
            (found,) = repair.look(path)
            assert "was interrupted" in found.problem
        with ms.open(path):  # finishes it
            pass
        again = repair.look(path)
        assert bool(again) == (die == "prepared" and how != "rebuild"), die
    go_on(path)


def test_what_cannot_be_repaired_says_why(tmp_path: Path) -> None:
    made = ms.Flow("f")
    made.source("s", ms.memory(), schema="x BIGINT").aggregate(n=ms.count()).view("v")
    with LocalScript(made, tmp_path) as script:
        script.send("s", {"x": 1})
        script.tick()
    (run,) = (tmp_path / "flows/f/state/v").iterdir()
    run.unlink()
    before = hashes(tmp_path)
    code, said = said_by("repair", "--home", tmp_path, "--yes")
    assert code == 5 and hashes(tmp_path) == before
    assert "nothing can be done: there is no intact checkpoint, and the rows of `s` were in memory and are gone" in said
    with pytest.raises(RecoveryFailed, match=r"is missing"):
        repair.mend(tmp_path, repair.look(tmp_path))
    with pytest.raises(HomeDamaged):
        LocalScript(made, tmp_path)


def test_left_overs_and_damaged_changes_for_a_sink_are_taken_away(home: Path) -> None:
    stray = home / "flows/counting/state/totals" / f"{EPOCHS + 1:012d}-7.arrow"
    stray.write_bytes(b"half")
    out = home / "flows/counting/out"
    out.mkdir()
    right, wrong = out / f"000000000008-v.{zlib.crc32(b'all'):08x}.arrow", out / "000000000008-w.00000000.arrow"
    right.write_bytes(b"all")
    wrong.write_bytes(b"all")
    findings = mended(home)
    assert [f.lost for f in findings] == [NOTHING, "these changes never reach the sink"]
    assert right.exists() and not wrong.exists() and not stray.exists()
    (kept,) = (home / "repair").glob("*")
    assert (kept / stray.relative_to(home)).read_bytes() == b"half"


def test_a_lost_store_without_a_checkpoint_is_computed_again(home: Path) -> None:
    (home / "store.duckdb").unlink()
    with pytest.raises(HomeDamaged, match=r"store\.duckdb is missing"):
        LocalScript(flow(), home)
    findings = mended(home)
    assert all("recomputed" in f.would for f in findings)
    go_on(home)


# ---------------------------------------------------------------- sources, as far as a repair can see them


def test_files_can_be_read_again_while_they_are_there(tmp_path: Path) -> None:
    root = tmp_path / "flows/f"
    (tmp_path / "in").mkdir()
    for name in ("a", "b"):
        (tmp_path / "in" / f"{name}.json").write_text('{"x": 1}\n')
    made = ms.Flow("f")
    made.source("s", ms.files(str(tmp_path / "in"), format="json"), schema="x BIGINT").view("v")
    stage = plan(made).source("s")
    port = FileSource(stage.connector, stage.schema, root / "sources/s.jsonl")  # type: ignore[arg-type]
    port.head(0)
    reconcile.note_kinds(root, {"s": port})
    assert wrong_offsets(tmp_path, root, {"s": {"0": 2}}) == [] and cannot_begin(tmp_path, "f", None) is None
    assert "has 2 files, but 3 were read" in wrong_offsets(tmp_path, root, {"s": {"0": 3}})[0]
    (tmp_path / "in" / "a.json").unlink()
    assert cannot_begin(tmp_path, "f", None) == f"the file {tmp_path / 'in/a.json'} of `s` is gone"
    (root / "sources/s.jsonl").write_bytes(b"[]\n")
    assert "cannot be read" in wrong_offsets(tmp_path, root, {"s": {"0": 1}})[0]


def test_a_lost_ledger_is_refused_by_name(tmp_path: Path) -> None:
    made = ms.Flow("f")
    (tmp_path / "in").mkdir()
    made.source("s", ms.files(str(tmp_path / "in"), format="json"), schema="x BIGINT").view("v")
    stage = plan(made).source("s")
    port = FileSource(stage.connector, stage.schema, tmp_path / "s.jsonl")  # type: ignore[arg-type]
    row = replace(epoch_row(), progress={"offsets": {"s": {"0": 2}}})
    (problem,) = reconcile.of_sources("f", row, RecordBook(tmp_path / "epochs"), {"s": port})
    assert problem.kind == reconcile.SOURCE and "ends at offset 0, but `f` has read it up to 2" in problem.error.message


def epoch_row() -> Any:
    from millstream.store.port import EpochRow

    return EpochRow(3, "p", {}, {"now": 0}, {}, {})


def test_a_topic_that_was_lost_or_trimmed_is_named(tmp_path: Path) -> None:
    root = tmp_path / "flows/f"
    (root / "sources").mkdir(parents=True)
    (root / "sources/kinds.json").write_bytes(orjson.dumps({"s": "log bids"}))
    assert cannot_begin(tmp_path, "f", None) == "the topic `bids` cannot be read"
    assert "cannot be read" in wrong_offsets(tmp_path, root, {"s": {"0": 1}})[0]
    with ms.open(tmp_path / "home") as home:
        home.log.create("bids", SCHEMA, segment_rows=2)
        for _ in range(3):
            home.topic("bids").append(pa.table({n: [1] * ROWS for n in SCHEMA.names}).cast(SCHEMA))
    shutil.copytree(tmp_path / "home/log", tmp_path / "log")
    assert cannot_begin(tmp_path, "f", None) is None
    assert wrong_offsets(tmp_path, root, {"s": {"0": 3 * ROWS}}) == []
    assert "ends at 18, but it was read up to 19" in wrong_offsets(tmp_path, root, {"s": {"0": 19}})[0]


def test_a_source_that_only_a_closed_record_names_is_not_read_again(tmp_path: Path) -> None:
    book = RecordBook(paths.flow_folder(tmp_path, "f") / "epochs")
    record = EpochRecord(3, "p", 1, {"s": SourceSlice({0: (2, 5)})}, 5, {"s": 1}, {"s": 0}, {})
    book.open(record)
    book.close(record)
    assert cannot_begin(tmp_path, "f", None) == "nothing is known about the source `s`"


def test_a_source_that_nobody_knows_is_not_read_again(tmp_path: Path) -> None:
    row = replace(epoch_row(), progress={"offsets": {"s": {"0": 2}}})
    assert cannot_begin(tmp_path, "f", row) == "nothing is known about the source `s`"


# ---------------------------------------------------------------- the parts


def test_a_generation_is_never_used_twice() -> None:
    assert following({"f": 2, "g": 0}, {"f": 5}) == {"f": 6, "g": 1}
    assert following(None, {"f": 5})["f"] > 1_700_000_000


def test_a_dropped_flow_leaves_the_others_alone(tmp_path: Path) -> None:
    def small(name: str, source: str) -> ms.Flow:
        made = ms.Flow(name)
        rows = made.source(source, ms.memory(), schema="x BIGINT")
        rows.aggregate(n=ms.count()).view(f"{name}_n")
        return made

    for name, source in (("one", "s"), ("two", "s"), ("three", "t")):
        with LocalScript(small(name, source), tmp_path) as script:
            script.send(source, {"x": 1}, {"x": "no"})
            script.tick()
    drop_flow(tmp_path / "store.duckdb", "one", ["s"])
    drop_flow(tmp_path / "store.duckdb", "three", ["t"])
    store = DuckStore(tmp_path / "store.duckdb")
    assert sorted(store.tables()) == ["s$errors", "two_n", "two_n$errors", "two_n$late"]
    assert store.last("one") is None and store.last("two") is not None and store.flows() == ["one", "three", "two"]
    store.close()


def test_a_swap_with_a_damaged_note_is_named_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "part").write_text("old")

    def dies(step: str) -> None:
        if step == "noted":
            raise Dies

    swap = Swap(tmp_path, "a test", failpoint=dies)
    swap.put("part").write_text("new")
    with pytest.raises(Dies):
        swap.commit()
    note = swap.folder / "swap.json"
    whole = note.read_bytes()
    flip(note, 20)
    with pytest.raises(HomeDamaged, match=r"swap\.json cannot be read"):
        finish(tmp_path)
    assert (tmp_path / "part").read_text() == "old"
    note.write_bytes(whole)
    assert finish(tmp_path) == [swap.folder] and finish(tmp_path) == []
    assert (tmp_path / "part").read_text() == "new" and (swap.folder / "part").read_text() == "old"


def test_a_preparation_that_died_is_removed(tmp_path: Path) -> None:
    swap = Swap(tmp_path, "a test")
    swap.put("part").write_text("new")
    assert finish(tmp_path) == [] and not swap.folder.exists() and not (tmp_path / "part").exists()
