"""Files that tasks write: the same rows as without tasks, each once, whatever crashes; and nothing is left over."""

from __future__ import annotations

import csv
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import millstream as ms
from millstream import paths
from millstream.connect import file_parts
from millstream.connect.file_parts import STAGING, FileParts
from millstream.connect.port import SinkPart, SinkWithParts
from millstream.connect.sinks import FilesSink, TopicSink, newest_generation
from millstream.errors import HomeDamaged, SinkError
from millstream.model.connectors import Files
from millstream.runtime.epoch.parts_manifest import PartsManifest
from millstream.runtime.recovery import repair
from millstream.state.durable import write_durably
from millstream.testing import Crash
from millstream.testing.script import STEPS
from tests.local import LocalScript

PARTS = 4
"""Of an epoch: the two partitions of the scan, and two of three shards that have keys."""
SCHEMA = "k BIGINT, s STRING, d INTERVAL DAY TO SECOND, at TIMESTAMP"


class Died(BaseException):
    """The process, as far as the flow is concerned."""


def flow(folder: Path, form: str = "json", guarantee: str = "exactly_once") -> ms.Flow:
    made = ms.Flow("f", guarantee=guarantee)
    rows = made.source("rows", ms.memory(), schema=SCHEMA)
    rows.where("k >= 0").sink("plain", ms.files(str(folder), format=form))
    rows.key_by("k").aggregate(n=ms.count()).sink("counts", ms.files(str(folder), format=form))
    return made


def send(script: LocalScript, epoch: int, count: int = 9) -> None:
    first = epoch * count
    script.send(
        "rows",
        *(
            {
                "k": i % 5 - 1,
                "s": None if i % 4 == 0 else f"row {i}",
                "d": None,
                "at": f"2026-01-01T00:00:{i % 60:02d}Z",
            }
            for i in range(first, first + count)
        ),
    )


def files(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.glob("*.*") if p.is_file())


def staged(folder: Path) -> list[str]:
    return sorted(os.listdir(folder / STAGING)) if (folder / STAGING).exists() else []


def content(folder: Path, sink: str, form: str = "json") -> list[list[str]]:
    """The rows of a sink by epoch, sorted: the order of different keys is that of shards."""
    epochs: dict[str, list[str]] = {}
    for path in sorted(folder.glob(f"{sink}-*.{form}")):
        rows: list[Any]
        if form == "json":
            rows = [json.loads(line) for line in path.read_text().splitlines()]
        elif form == "csv":
            with path.open(newline="") as file:
                rows = list(csv.DictReader(file))
        else:
            table = pq.read_table(path)
            rows = [*table.to_pylist(), str(table.schema)]
        epochs.setdefault(path.name.split("-")[2].partition(".")[0], []).extend(sorted(set(map(repr, rows))))
        assert len(set(map(repr, rows))) == len(rows) or sink == "counts"
    return [sorted(set(rows)) for _, rows in sorted(epochs.items())]


def run(home: Path, folder: Path, form: str, shards: int, epochs: int = 3) -> list[dict[str, int]]:
    with LocalScript(flow(folder, form), home, shards=shards) as script:
        for epoch in range(epochs):
            send(script, epoch)
            script.tick()
        return [dict(r.changes) for r in script.reports]


# ---------------------------------------------------------------- contents


@pytest.mark.parametrize("form", ["json", "csv", "parquet"])
def test_the_files_of_tasks_hold_the_rows_that_one_file_holds(tmp_path: Path, form: str) -> None:
    one = run(tmp_path / "one", tmp_path / "a", form, 1)
    many = run(tmp_path / "many", tmp_path / "b", form, 3)
    assert many == one
    for sink in ("plain", "counts"):
        assert content(tmp_path / "b", sink, form) == content(tmp_path / "a", sink, form)
    assert f"plain-000-000000000001.{form}" in files(tmp_path / "a")
    assert f"plain-000-000000000001-00000.{form}" in files(tmp_path / "b")
    assert f"plain-000-000000000001-00001.{form}" in files(tmp_path / "b")
    assert staged(tmp_path / "b") == []


def test_the_parts_of_an_epoch_read_in_order_keep_the_order_of_each_key(tmp_path: Path) -> None:
    run(tmp_path / "home", tmp_path / "out", "json", 3)
    state: dict[int, int] = {}
    for name in files(tmp_path / "out"):
        for line in (tmp_path / "out" / name).read_text().splitlines() if name.startswith("counts") else ():
            row = json.loads(line)
            if row["op"] in ("-U", "-D"):
                assert state.pop(row["k"]) == row["n"]
            else:
                assert row["k"] not in state
                state[row["k"]] = row["n"]
    assert state == Counter(i % 5 - 1 for i in range(27))


def test_rows_are_counted_and_do_not_reach_the_driver(tmp_path: Path) -> None:
    with LocalScript(flow(tmp_path / "out"), tmp_path / "home", shards=3) as script:
        send(script, 0)
        (report,) = script.tick()
        assert report.changes == {"plain": 7, "counts": 5}
        assert report.output.changes == {}
        assert sum(p.rows for p in report.output.parts["plain"]) == 7
        assert script.home.store.last("f").progress["changed"] == {"plain": 1, "counts": 1}  # type: ignore[union-attr]


def test_a_view_that_is_kept_and_other_sinks_stay_as_they_are(tmp_path: Path) -> None:
    made = ms.Flow("f")
    rows = made.source("rows", ms.memory(), schema="k BIGINT")
    rows.key_by("k").aggregate(n=ms.count()).view("kept", changes_to=ms.files(str(tmp_path / "out"), format="json"))
    rows.sink("logged", ms.log("topic"))
    with LocalScript(made, tmp_path / "home", shards=3) as script:
        script.send("rows", {"k": 1}, {"k": 2}, {"k": 3})
        (report,) = script.tick()
        assert set(report.output.changes) == {"kept", "logged"}
        assert sorted(r["k"] for r in script.written("topic")) == [1, 2, 3]
        assert len(script.rows("kept")) == 3
    assert files(tmp_path / "out") == ["kept-000-000000000001.json"]


def test_placements_may_alternate(tmp_path: Path) -> None:
    run(tmp_path / "one", tmp_path / "a", "json", 1, epochs=4)
    with LocalScript(flow(tmp_path / "b"), tmp_path / "two", shards=3) as script:
        for epoch, shards in enumerate((3, 1, 2, 1)):
            script.stop()
            script.resume(shards=shards)
            send(script, epoch)
            script.tick()
    for sink in ("plain", "counts"):
        assert content(tmp_path / "b", sink) == content(tmp_path / "a", sink)


# ---------------------------------------------------------------- crashes


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[list[str]]]:
    folder = tmp_path_factory.mktemp("calm")
    run(folder / "home", folder / "out", "json", 1, epochs=3)
    return {sink: content(folder / "out", sink) for sink in ("plain", "counts")}


def lines(folder: Path, sink: str) -> int:
    return sum(len(p.read_text().splitlines()) for p in folder.glob(f"{sink}-*.json"))


def check(folder: Path, expected: dict[str, list[list[str]]]) -> None:
    for sink, rows in expected.items():
        assert content(folder, sink) == rows
        assert lines(folder, sink) == sum(map(len, rows)), "no row twice"
    assert staged(folder) == []


@pytest.mark.sampled(len(STEPS))
@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
@pytest.mark.parametrize("step", STEPS)
def test_a_crash_at_any_step_of_an_epoch_loses_and_repeats_nothing(
    tmp_path: Path, expected: dict[str, list[list[str]]], step: str, guarantee: str
) -> None:
    """Files are named after their epoch, so also a flow that may deliver twice replaces what it wrote."""
    with LocalScript(flow(tmp_path / "out", guarantee=guarantee), tmp_path / "home", shards=3) as script:
        for epoch, shards in enumerate((2, 3, 1)):
            send(script, epoch)
            script.crash(at=step)
            with pytest.raises(Crash):
                script.tick()
            script.resume(shards=shards)
            script.tick()
    check(tmp_path / "out", expected)


def renames(monkeypatch: pytest.MonkeyPatch, dies: Callable[[int, Path, Path], None]) -> None:
    real, count = paths.rename, iter(range(10_000))

    def rename(old: Path, new: Path, **options: Any) -> None:
        if (old.parent.name == STAGING and not old.name.startswith(".")) or new.suffix == ".done":
            dies(next(count), old, new)
        real(old, new, **options)

    monkeypatch.setattr(paths, "rename", rename)


@pytest.mark.parametrize("at", range(6))
def test_a_crash_before_any_rename_of_a_publication_is_finished_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected: dict[str, list[list[str]]], at: int
) -> None:
    """Two parts of each sink, and a note for each that they are delivered."""
    seen: list[Path] = []

    def dies(count: int, old: Path, new: Path) -> None:
        seen.append(new)
        if count == at:
            raise Died

    with LocalScript(flow(tmp_path / "out"), tmp_path / "home", shards=3) as script:
        send(script, 0)
        with monkeypatch.context() as patch:
            renames(patch, dies)
            with pytest.raises(Died):
                script.tick()
        script.crash()
        assert len(seen) == at + 1
        script.resume()
        for sink, rows in expected.items():
            assert content(tmp_path / "out", sink) == rows[:1]
        for epoch in (1, 2):
            send(script, epoch)
            script.tick()
    check(tmp_path / "out", expected)


def test_a_crash_of_a_start_is_finished_by_the_one_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected: dict[str, list[list[str]]]
) -> None:
    def dies(count: int, old: Path, new: Path) -> None:
        if count == 1:
            raise Died

    with LocalScript(flow(tmp_path / "out"), tmp_path / "home", shards=3) as script:
        send(script, 0)
        script.crash(at="after commit")
        with pytest.raises(Crash):
            script.tick()
        for _ in range(4):
            with monkeypatch.context() as patch, pytest.raises(Died):
                renames(patch, dies)
                script.resume()
        script.resume()
        for epoch in (1, 2):
            send(script, epoch)
            script.tick()
    check(tmp_path / "out", expected)


def test_a_reader_may_take_parts_away_as_soon_as_they_are_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(count: int, old: Path, new: Path) -> None:
        if count == 1:
            raise Died

    with LocalScript(flow(tmp_path / "out"), tmp_path / "home", shards=3) as script:
        send(script, 0)
        with monkeypatch.context() as patch, pytest.raises(Died):
            renames(patch, dies)
            script.tick()
        script.crash()
        (first,) = (tmp_path / "out").glob("*.json")
        first.unlink()
        script.resume()
    assert first.name not in files(tmp_path / "out")
    assert len(files(tmp_path / "out")) == PARTS - 1


def test_a_flow_that_may_lose_records_publishes_after_the_commit(tmp_path: Path) -> None:
    with LocalScript(flow(tmp_path / "out", guarantee="at_most_once"), tmp_path / "home", shards=3) as script:
        send(script, 0)
        script.tick()
        send(script, 1)
        script.crash(at="after commit")
        with pytest.raises(Crash):
            script.tick()
        assert len(staged(tmp_path / "out")) == PARTS
        script.resume()
        assert staged(tmp_path / "out") == []
    assert {n.split("-")[2] for n in files(tmp_path / "out")} == {"000000000001"}


# ---------------------------------------------------------------- what no crash explains


def unpublished(tmp_path: Path) -> LocalScript:
    """A flow that has crashed after a commit, with all parts staged."""
    script = LocalScript(flow(tmp_path / "out"), tmp_path / "home", shards=3)
    send(script, 0)
    script.crash(at="after commit")
    with pytest.raises(Crash):
        script.tick()
    return script


@pytest.mark.parametrize("damage", ["one", "all", "bytes", "size"])
def test_a_part_that_is_lost_or_damaged_is_refused_and_can_be_given_up(tmp_path: Path, damage: str) -> None:
    script = unpublished(tmp_path)
    parts = sorted((tmp_path / "out" / STAGING).glob("plain-*"))
    assert len(parts) == 2
    for path in parts if damage == "all" else parts[1:]:
        data = path.read_bytes()
        if damage in ("one", "all"):
            path.unlink()
        else:
            path.write_bytes(data[:-2] + b"?\n" if damage == "bytes" else data[:-1])
    with pytest.raises(HomeDamaged, match=r"incomplete.*(is missing|does not match its checksum)") as error:
        script.resume()
    assert "epoch 1 was committed" in (error.value.detail or "")
    (found,) = repair.look(tmp_path / "home")
    assert "are incomplete" in found.problem
    repair.mend(tmp_path / "home", [found])
    script.resume()
    send(script, 1)
    script.tick()
    script.close()
    assert lines(tmp_path / "out", "counts") == 5 + len(content(tmp_path / "out", "counts")[1])
    assert staged(tmp_path / "out") == []


def test_a_manifest_that_is_lost_is_refused(tmp_path: Path) -> None:
    script = unpublished(tmp_path)
    for path in (tmp_path / "home").rglob("out/*plain*.arrow"):
        path.unlink()
    with pytest.raises(HomeDamaged, match="are missing"):
        script.resume()


def test_what_a_process_without_the_lease_has_staged_is_not_published(tmp_path: Path) -> None:
    """Two attempts at an epoch have the same rows in other parts: only those that the commit names count."""
    with LocalScript(flow(tmp_path / "out"), tmp_path / "home", shards=3) as script:
        for epoch in (0, 1):
            send(script, epoch)
            script.tick()
            loop = script._loop
            assert loop is not None
            before = files(tmp_path / "out")
            writer = loop.outbox.parts_writers()["plain"]
            part = writer.write(pa.table({"k": [7]}), f"{epoch + 1:012d}-0-9-9-9")
            loop.outbox._put(epoch + 1, "plain", PartsManifest(0, [part]).to_table(), "x")
            loop.outbox._put(epoch + 1, "counts", pa.table({"op": ["+I"], "k": [7], "n": [7]}), "x")
            if epoch == 0:
                loop.outbox.deliver(1)
            else:
                script.stop()
                script.resume()
            assert files(tmp_path / "out") == before


def test_parts_of_before_a_reset_are_not_expected(tmp_path: Path) -> None:
    script = unpublished(tmp_path)
    shutil.rmtree(tmp_path / "out")
    with ms.open(tmp_path / "home") as home:
        for name in ("plain", "counts"):
            home.store.raise_generation("f", name, 1)
    script.resume()
    send(script, 1)
    script.tick()
    script.close()
    assert {n.split("-")[1] for n in files(tmp_path / "out")} == {"001"}


# ---------------------------------------------------------------- left over


def test_parts_of_attempts_that_were_lost_are_removed_while_the_flow_runs_and_on_start(tmp_path: Path) -> None:
    with LocalScript(flow(tmp_path / "out"), tmp_path / "home", shards=3) as script:
        send(script, 0)
        script.tick()
        names = [
            "plain-000-000000000001-1-0-17-1.json",
            ".plain-000-000000000002-1-0-18-1.json.tmp",
            "plain-000-000000000009-1-0-19-1.json",
            "plain-001-000000000001-1-0-17-1.json",
            "another-000-000000000001-1-0-17-1.json",
        ]
        (tmp_path / "out" / STAGING).mkdir()
        for name in names:
            (tmp_path / "out" / STAGING / name).write_text("half")
        send(script, 1)
        script.tick()
        assert staged(tmp_path / "out") == sorted(names[2:])
        script.stop()
        script.resume()
        assert staged(tmp_path / "out") == sorted(names[3:]), "those of others stay"
        for name in names[3:]:
            (tmp_path / "out" / STAGING / name).unlink()
    assert not (tmp_path / "out" / STAGING).exists()


def test_parts_of_an_epoch_that_was_not_committed_are_removed_on_start(tmp_path: Path) -> None:
    with LocalScript(flow(tmp_path / "out"), tmp_path / "home", shards=3) as script:
        send(script, 0)
        script.crash(at="before commit")
        with pytest.raises(Crash):
            script.tick()
        assert len(staged(tmp_path / "out")) == PARTS
        script.resume()
        assert staged(tmp_path / "out") == []
        assert files(tmp_path / "out") == []


# ---------------------------------------------------------------- errors


@pytest.fixture
def no_folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "out").write_text("a file")
    yield tmp_path / "out"
    (tmp_path / "out").unlink()


def test_a_folder_that_a_task_cannot_write_to_is_named_as_before(tmp_path: Path, no_folder: Path) -> None:
    with LocalScript(flow(no_folder), tmp_path / "home", shards=3) as script:
        send(script, 0)
        with pytest.raises(SinkError, match=r"cannot write to .*out") as error:
            script.tick()
        script.crash()
        with LocalScript(flow(no_folder), tmp_path / "inline", shards=1) as other:
            send(other, 0)
            with pytest.raises(SinkError) as inline:
                other.tick()
    found, usual = error.value, inline.value
    assert found.message == usual.message.replace("`counts`", "`plain`")
    assert (found.detail, found.hint) == (usual.detail, usual.hint)


def test_a_folder_that_parts_cannot_be_published_to_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(count: int, old: Path, new: Path) -> None:
        raise PermissionError(13, "Permission denied")

    with LocalScript(flow(tmp_path / "out"), tmp_path / "home", shards=3) as script:
        send(script, 0)
        with monkeypatch.context() as patch, pytest.raises(SinkError, match=r"cannot write to .*out"):
            renames(patch, refuses)
            script.tick()
        script.crash()
        script.resume()
    assert len(files(tmp_path / "out")) == PARTS


# ---------------------------------------------------------------- the sink


def sink(folder: Path, generation: int = 0) -> FilesSink:
    return FilesSink(folder, "json", "hot", generation, write_durably)


def test_only_sinks_of_files_take_parts(tmp_path: Path) -> None:
    assert isinstance(sink(tmp_path), SinkWithParts)
    assert not issubclass(TopicSink, SinkWithParts)
    assert isinstance(sink(tmp_path).parts_writer(), FileParts)


def parts(folder: Path, numbers: list[int], token: int = 1) -> list[SinkPart]:
    writer = sink(folder).parts_writer()
    return [writer.write(pa.table({"n": [n]}), f"{7:012d}-{token}-{n}-0-1") for n in numbers]


def test_an_epoch_that_is_written_again_without_a_digest_replaces_all_of_its_files(tmp_path: Path) -> None:
    sink(tmp_path).publish(7, parts(tmp_path, [1, 2, 3]))
    sink(tmp_path).publish(7, parts(tmp_path, [4, 5], token=2))
    assert files(tmp_path) == ["hot-000-000000000007-00000.json", "hot-000-000000000007-00001.json"]
    sink(tmp_path).write(7, pa.table({"n": [6]}))
    assert files(tmp_path) == ["hot-000-000000000007.json"]
    sink(tmp_path).publish(7, parts(tmp_path, [8], token=3))
    assert files(tmp_path) == ["hot-000-000000000007-00000.json"]


def test_the_newest_generation_is_found_in_parts(tmp_path: Path) -> None:
    target = Files(str(tmp_path), "json")
    assert newest_generation(target, "hot") is None
    (written,) = parts(tmp_path, [1])
    assert newest_generation(target, "hot") == 0
    sink(tmp_path).publish(7, [written])
    (tmp_path / "hot-003-000000000007-00000.json").write_text("")
    assert newest_generation(target, "hot") == 3
    assert newest_generation(target, "ho") is None


def test_a_part_is_lost_only_where_no_publication_explains_it(tmp_path: Path) -> None:
    three = parts(tmp_path, [1, 2, 3])
    assert file_parts.lost(three, verify=True) is None
    file_parts.publish(three[:1])
    file_parts.published(three[0], 0).unlink()
    assert file_parts.lost(three, verify=True) is None, "published, and taken by a reader"
    Path(three[2].name).unlink()
    assert "is missing" in str(file_parts.lost(three, verify=False))


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    manifest = PartsManifest(3, tuple(parts(tmp_path, [1, 2])))
    assert PartsManifest.of(manifest.to_table()) == manifest
    assert PartsManifest.of(pa.table({"name": ["x"]})) is None
