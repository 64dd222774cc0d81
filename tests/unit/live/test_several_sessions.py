"""Statements of several sessions at once: each sees whole definitions, and none is lost."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from millstream.errors import MillstreamError, ViewNotFound
from millstream.live.definitions import Definitions
from millstream.store import duckdb as stores
from tests.unit.live.test_failures import Fragile, speak
from tests.unit.live.world import BIDS, HOT, opened


def test_a_view_that_is_dropped_while_views_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path) as spoken:
        spoken.say(BIDS, HOT)
        spoken.perform("bids")
        store, count = spoken.home.store, stores._count

        def counted(cursor: stores.duckdb.DuckDBPyConnection, name: str) -> int:
            if store.tables().get("hot"):
                store.forget_view("hot", "bids")
            return count(cursor, name)

        monkeypatch.setattr(stores, "_count", counted)
        assert [v["view"] for v in store.views()] == ["hot"]
        assert store.views() == []


def test_a_view_that_is_dropped_while_a_question_is_asked(tmp_path: Path) -> None:
    with opened(tmp_path) as spoken, pytest.raises(ViewNotFound, match="no view or table `hot`"):
        spoken.home.store.query("SELECT n FROM hot")  # (the check of the question found it)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_storm_of_statements(tmp_path: Path, seed: int) -> None:
    wrong: list[BaseException] = []
    with Fragile(tmp_path) as home:
        speak(home)(f"{BIDS}; {HOT}")

        def statement(chance: random.Random, kind: int) -> str:
            view = f"v{chance.randrange(3)}"
            if kind == 0:
                where = f"WHERE price > {chance.randrange(3)} GROUP BY auction"
                create = f"CREATE VIEW {view} AS SELECT auction, count(*) AS n FROM bids {where}"
                return chance.choice([create, create, f"DROP VIEW {view}", f"DROP VIEW {view}", f"PAUSE {view}"])
            if kind == 1:
                return "SET wait = 0; INSERT INTO bids VALUES (8, 1, TIMESTAMP '2026-01-01 00:00:00')"
            ask = f"SELECT * FROM {view}"
            return chance.choice(["SHOW VIEWS", "SHOW FLOWS", ask, f"DESCRIBE {view}", f"EXPLAIN VIEW {view}"])

        def storm(number: int) -> None:
            chance, say = random.Random(f"{seed} {number}"), speak(home)
            for _ in range(60):
                try:
                    say(statement(chance, number % 3))
                except MillstreamError:
                    pass
                except BaseException as error:  # noqa: BLE001 - that is what is looked for
                    wrong.append(error)

        threads = [threading.Thread(target=storm, args=(n,)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        live = home.session().deployment
        assert wrong == []
        assert set(Definitions.load(home.path).entries) == set(live.catalog.entries) == set(live.definitions.entries)
        assert {v["view"].lower() for v in home.store.views()} <= set(live.catalog.entries)
        assert set(home.store.flows()) <= set(live.flows())
