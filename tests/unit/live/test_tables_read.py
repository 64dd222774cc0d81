"""A stored table that a running flow reads is not dropped under it."""

from __future__ import annotations

from pathlib import Path

import pytest

import millstream as ms
from millstream.errors import DefinitionError

from .test_failures import Fragile, speak

READ = "the running flow `sales` reads the table `(?i:cities)`"


def sales() -> ms.Flow:
    """A flow that waits for rows and enriches them from `cities`."""
    flow = ms.Flow("sales")
    stream = flow.source("bids", ms.memory(), schema="id BIGINT")
    stream.enrich("cities", on="id", columns="name STRING").view("named")
    return flow


def test_a_table_is_dropped_only_after_the_flow_that_reads_it_has_stopped(tmp_path: Path) -> None:
    with Fragile(tmp_path / "home") as home:
        home.put_table("cities", [{"id": 1, "name": "Ulm"}])
        with home.start(sales()):
            with pytest.raises(DefinitionError, match=READ) as caught:
                home.drop_table("Cities")
            assert caught.value.hint == "stop the flow first: run.stop()"
            assert home.tables.newest() == {"cities": 1}
        home.drop_table("cities")
        assert home.tables.newest() == {}


def test_drop_table_in_sql_is_refused_before_it_changes_the_catalog(tmp_path: Path) -> None:
    with Fragile(tmp_path / "home") as home:
        say = speak(home)
        say("CREATE TABLE cities (id BIGINT, name STRING); INSERT INTO cities VALUES (1, 'Ulm')")
        with home.start(sales()):
            with pytest.raises(DefinitionError, match=READ):
                say("DROP TABLE cities")
            assert say("SELECT name FROM cities") == [{"name": "Ulm"}]
        say("DROP TABLE cities")
        assert home.tables.newest() == {}


def test_drop_table_cascade_stops_the_flows_of_the_views_that_go_with_it(tmp_path: Path) -> None:
    with Fragile(tmp_path / "home") as home:
        say = speak(home)
        say("CREATE TABLE cities (id BIGINT, name STRING); CREATE SOURCE bids (id BIGINT) FROM LOG('bids')")
        say("CREATE VIEW named AS SELECT b.id, c.name FROM bids b JOIN cities c ON b.id = c.id")
        say("DROP TABLE cities CASCADE")
        assert home.tables.newest() == {}
