"""An append that was cut off by the death of its process is decided when the home is opened, not by the next append."""

from __future__ import annotations

from pathlib import Path

from tests.unit.live.world import opened


def test_an_append_that_was_not_published_is_there_from_the_next_opening_on(tmp_path: Path) -> None:
    durable = tmp_path / "home" / "log" / "t" / "p00000" / "durable"
    with opened(tmp_path / "home") as home:
        home.say("CREATE SOURCE t (k BIGINT) FROM LOG('t')", "INSERT INTO t VALUES (1)")
        before = durable.read_bytes()
        home.say("INSERT INTO t VALUES (2)")
    durable.write_bytes(before)  # as if the process had died between the write and the note that it is durable
    with opened(tmp_path / "home") as home:
        topic = home.home.topic("t")
        assert topic.read(0, 0, topic.end()[0])["k"].to_pylist() == [1, 2]
        home.say("INSERT INTO t VALUES (3)")
        assert topic.read(0, 0, topic.end()[0])["k"].to_pylist() == [1, 2, 3]


def test_an_append_that_was_torn_is_not_there(tmp_path: Path) -> None:
    folder = tmp_path / "home" / "log" / "t" / "p00000"
    with opened(tmp_path / "home") as home:
        home.say("CREATE SOURCE t (k BIGINT) FROM LOG('t')", "INSERT INTO t VALUES (1)")
        before = (folder / "durable").read_bytes()
        home.say("INSERT INTO t VALUES (2)")
    (folder / "durable").write_bytes(before)
    (wal,) = folder.glob("*.wal")
    wal.write_bytes(wal.read_bytes()[:-1])
    with opened(tmp_path / "home") as home:
        topic = home.home.topic("t")
        assert topic.read(0, 0, topic.end()[0])["k"].to_pylist() == [1]
        home.say("INSERT INTO t VALUES (3)")
        assert topic.read(0, 0, topic.end()[0])["k"].to_pylist() == [1, 3]
