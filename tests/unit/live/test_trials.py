"""A definition is tried next to the others of its flow, which are not bound again for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.errors import MillstreamError
from millstream.sql.bind.binder import Binder
from millstream.sql.parse.statement_values import Create
from tests.unit.live.world import Spoken, opened

VIEW = "CREATE VIEW {} WITH (flow = 'f', tables = 'live') AS SELECT {} FROM {}"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Spoken]:
    with opened(tmp_path / "home") as found:
        found.say("CREATE TABLE t (a INT, b INT)")
        yield found


def test_views_of_a_flow_are_bound_once_each(home: Spoken, monkeypatch: pytest.MonkeyPatch) -> None:
    bound: list[str] = []
    definition = Binder.definition

    def noted(self: Binder, entry: Create) -> object:
        bound.append(entry.name)
        return definition(self, entry)

    monkeypatch.setattr(Binder, "definition", noted)
    for i in range(10):
        home.say(VIEW.format(f"v{i}", f"a + {i} AS x", "t"))
    assert bound == [f"v{i}" for i in range(10)]


def test_what_was_bound_is_not_used_when_it_has_changed(home: Spoken) -> None:
    home.say(VIEW.format("v1", "a AS x", "t"), VIEW.format("v2", "x + 1 AS y", "v1"))
    with pytest.raises(MillstreamError, match="z"):
        home.say(VIEW.format("v3", "z", "v1"))
    with pytest.raises(MillstreamError, match="already"):
        home.say(VIEW.format("v2", "x AS other", "v1"))
    home.say("DROP VIEW v2", "DROP VIEW v1", VIEW.format("v1", "b AS z", "t"), VIEW.format("v3", "z", "v1"))
    planned = home.live.planned("f")
    shown = {v.name: v.columns for v in planned.views if not v.inner}
    assert shown == {"v1": ("z",), "v3": ("z",)}
    home.say("INSERT INTO t VALUES (1, 2)")
    home.perform("f")
    assert home.rows("SELECT z FROM v3") == [{"z": 2}]
