"""Small files of a topic that are lost, damaged or old: nothing is made over records, and what is known is put back."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millstream.clock import SystemClock
from millstream.errors import HomeDamaged, MillstreamError, UnknownName
from millstream.log import Log, repair
from millstream.log.storage.disk import RealDisk

from .world import SCHEMA

ROWS = [{"n": n, "text": "x"} for n in range(3)]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    log = Log(tmp_path / "log", SystemClock())
    topic = log.create("t", SCHEMA, segment_rows=3)
    for _ in range(3):
        topic.append(ROWS)
    topic.hold("r", {0: 3})
    topic.trim({0: 3})
    log.close()
    return tmp_path / "log"


def opened(root: Path) -> Log:
    return Log(root, SystemClock())


def numbers(root: Path) -> list[int]:
    topic = opened(root).topic("t")
    found: list[int] = topic.read(0, topic.start()[0], topic.end()[0])["n"].to_pylist()
    return found


def mend(root: Path) -> list[str]:
    """Do what is found until nothing is."""
    said = []
    for _ in range(5):
        found = list(repair.look(root, SystemClock()))
        if not found:
            return said
        for wrong in found:
            said.append(wrong.problem)
            assert wrong.path is not None, wrong
            if wrong.data is None:
                wrong.path.unlink()
            else:
                wrong.path.write_bytes(wrong.data)
    raise AssertionError(said)


def everything(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file() and "lock" not in p.name
    }


USES: dict[str, Callable[[Log], Any]] = {
    "append": lambda log: log.topic("t").append(ROWS),
    "read": lambda log: log.topic("t").read(0, 3, 9),
    "create": lambda log: log.create("t", SCHEMA),
    "drop": lambda log: log.drop("t"),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("harm", ["deleted", "damaged"])
def test_a_topic_without_its_note_is_damage_and_nothing_is_made_over_it(root: Path, use: str, harm: str) -> None:
    note = root / "t" / "topic.json"
    note.unlink() if harm == "deleted" else note.write_bytes(b"{}")
    before = everything(root)
    log = opened(root)
    assert log.exists("t") and log.topics() == ["t"]
    with pytest.raises(HomeDamaged, match=r"t/topic\.json") as told:
        USES[use](log)
    assert told.value.hint is not None and "repair" in told.value.hint
    assert everything(root) == before
    assert mend(root) and numbers(root) == [0, 1, 2] * 2
    assert opened(root).topic("t").verify() == []


def test_without_a_copy_the_note_cannot_be_put_back(root: Path) -> None:
    (root / "t/topic.json").unlink()
    (root / "t/topic.json.copy").unlink()
    with pytest.raises(HomeDamaged):
        opened(root).topic("t")
    (wrong,) = repair.look(root, SystemClock())
    assert wrong.path is None and "no copy" in wrong.would


def test_a_writer_gives_a_topic_of_an_older_version_its_copy(root: Path) -> None:
    (root / "t/topic.json.copy").unlink()
    log = opened(root)
    log.topic("t").append(ROWS)
    log.close()
    assert (root / "t/topic.json.copy").read_bytes() == (root / "t/topic.json").read_bytes()


def test_a_topic_that_was_half_made_or_half_dropped_is_no_damage(root: Path) -> None:
    (root / "t/topic.json").rename(root / "t/topic.dropped")
    log = opened(root)
    assert log.topics() == []
    with pytest.raises(UnknownName):
        log.topic("t")
    assert log.create("t", SCHEMA).end() == {0: 0}
    (root / "u/p00000").mkdir(parents=True)
    assert log.create("u", SCHEMA).end() == {0: 0}


@pytest.mark.parametrize("name", ["p00000/start.json", "holds/r.json"])
@pytest.mark.parametrize("harm", ["deleted", "damaged"])
def test_a_start_and_a_hold_are_put_back_from_their_copy(root: Path, name: str, harm: str) -> None:
    path = root / "t" / name
    path.unlink() if harm == "deleted" else path.write_bytes(b"")
    topic = opened(root).topic("t")
    assert topic.verify()
    with pytest.raises(HomeDamaged):
        topic.trim({0: 3})
        topic.read(0, 3, 6)
    mend(root)
    assert opened(root).topic("t").start() == {0: 3}
    assert opened(root).topic("t").holds() == {"r": {0: 3}}
    assert numbers(root) == [0, 1, 2] * 2


def test_an_older_note_of_what_is_durable_costs_no_record(root: Path) -> None:
    """The next writer keeps all whole frames; and until there is one, a check says that the note is old."""
    durable = root / "t/p00000/durable"
    log = opened(root)
    log.topic("t").append(ROWS)
    log.close()
    old = durable.read_bytes()
    for _ in range(2):
        log.topic("t").append([{"n": 7, "text": "y"}])
        log.close()
    whole = numbers(root)
    durable.write_bytes(old)
    assert "durable" in str(opened(root).topic("t").verify()[0])
    again = Path(shutil.copytree(root, root.parent / "again"))
    assert mend(again) and numbers(again) == whole
    log = opened(root)
    log.topic("t").append([{"n": 8, "text": "z"}])
    log.close()
    assert numbers(root) == [*whole, 8]


@pytest.mark.parametrize("name", ["p00000/lock", "p00000/durable", "holds/lock"])
def test_nothing_is_written_through_a_link(root: Path, name: str, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_bytes(b"not ours")
    path = root / "t" / name
    path.unlink()
    path.symlink_to(theirs)
    topic = opened(root).topic("t")
    with pytest.raises(MillstreamError, match=name):
        topic.append(ROWS)
        topic.hold("r", {0: 3})
    assert theirs.read_bytes() == b"not ours"


class Counting(RealDisk):
    """Counts what is read."""

    reads = 0

    def read(self, path: Path, start: int = 0, size: int | None = None) -> bytes:
        self.reads += path.suffix == ".wal"
        return super().read(path, start, size)


def test_many_small_appends_are_read_in_one_go(tmp_path: Path) -> None:
    """Reading costs time for every read, and whatever follows for every chunk; not for every append."""
    disk = Counting()
    log = Log(tmp_path, SystemClock(), disk)
    topic = log.create("t", SCHEMA)
    for n in range(200):
        topic.append([{"n": n, "text": "x"}])
    disk.reads = 0
    table = log.topic("t").read(0, 3, 190)
    assert table["n"].to_pylist() == list(range(3, 190)) == table["$offset"].to_pylist()
    assert table["$time"].to_pylist() == sorted(table["$time"].to_pylist())
    assert disk.reads <= 4
    assert all(c.num_chunks == 1 for c in table.columns)
    log.close()
