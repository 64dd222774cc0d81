"""An answer names the epoch that it is as of, whoever gives it; homes, readers and their reprs."""

import threading
from pathlib import Path

import pyarrow as pa

from millstream.home import Home
from millstream.reader import Reader
from millstream.sql.query.store_query import read_query
from millstream.store.port import EpochCommit, EpochRow

from .conftest import HOT

QUERY = "SELECT auction FROM hot ORDER BY auction"
APART = "SELECT size(sequence(1, auction)) AS n FROM hot"
"""Answered in a process of its own."""


def test_an_answer_names_its_epoch(home: Path) -> None:
    with Home(home) as opened:
        for sql in (QUERY, "SELECT * FROM hot$late", "SELECT HOT.auction FROM hot JOIN cities ON true"):
            assert opened.query(sql).epochs == {"auctions": 1}
        assert opened.query("SELECT * FROM cities").epochs == {}
        assert opened.query("SELECT 1 AS one").epochs == {}
        with Reader(home) as reader:
            assert reader.query(QUERY).epochs == {"auctions": 1}
            assert "through the process that owns it" in repr(reader)
        assert repr(opened) == f"<Home {home}: no flow started>"
    with Reader(home) as reader:
        assert reader.query(QUERY).epochs == {"auctions": 1}
        assert repr(reader) == f"<Reader {home}: reads the files>"


def test_a_session_names_the_epoch_too(home: Path) -> None:
    with Home(home) as opened:
        (answer,) = opened.session(start=False).execute(QUERY)
        assert answer.result is not None and answer.result.epochs == {"auctions": 1}
        (shown,) = opened.session(start=False).execute("SHOW VIEWS")
        assert shown.result is not None and shown.result.epochs == {}
        from millstream.serve.client import LocalClient

        client = LocalClient(home)
        (answer,) = client.session().execute(QUERY)
        assert answer.result is not None and answer.result.epochs == {"auctions": 1}
        assert answer.result.to_dicts() == [{"auction": 1007}, {"auction": 1008}]
        client.close()


def test_rows_and_epoch_are_of_one_moment(home: Path) -> None:
    """While epochs are committed, the rows that an answer shows are those of the epoch that it names."""
    with Home(home) as opened:
        store = opened.store
        store.prepare("auctions", [HOT], ["bids"])
        token = store.take_lease("auctions", "a test")
        last = store.last("auctions")
        assert last is not None
        done = threading.Event()

        first = opened.query("SELECT * FROM hot").to_arrow().slice(0, 1)

        def commit() -> None:
            try:
                for number in range(2, 60):
                    new = first.set_column(1, "auction", pa.array([number + 5_000], pa.int64()))
                    rows = new.add_column(0, "$op", pa.array(["+I"]))
                    row = EpochRow(number, "plan", {}, last.clock, {}, last.progress)
                    store.commit(EpochCommit("auctions", token, row, {"hot": rows}))
            finally:
                done.set()

        thread = threading.Thread(target=commit)
        thread.start()
        looked = 0
        while not done.is_set() or not looked:
            result = opened.query("SELECT count(*) AS n FROM hot")
            assert result.to_dicts()[0]["n"] == 1 + result.epochs["auctions"]
            looked += 1
        thread.join()
        assert opened.query(QUERY).epochs == {"auctions": 59}


def test_an_answer_from_a_process_of_its_own_names_its_epoch(home: Path) -> None:
    with Home(home) as opened:
        assert read_query(APART, opened.store.tables()).apart == ("hot",)
        result = opened.query(APART)
        assert result.epochs == {"auctions": 1} and len(result) == 2
