"""A join whose key stands in every branch of an OR uses it; views whose state is from before that go on without."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.sql.bind.binder import Binder
from tests.unit.live.world import Spoken, opened

VIEW = """CREATE VIEW v WITH (tables = 'live') AS SELECT a.k, b.x FROM a, b
    WHERE (a.k = b.k AND b.x > 3) OR (b.x < 2 AND a.k = b.k AND a.y = 1)"""


def _state(spoken: Spoken) -> tuple[bool, list[tuple[int, int]]]:
    """Whether the join has a key, and the rows of the view."""
    spoken.perform("v")
    rows = sorted((r["k"], r["x"]) for r in spoken.rows("SELECT * FROM v"))
    return spoken.live.planned("v").views[-1].operator.keys != (), rows


def _filled(spoken: Spoken) -> None:
    spoken.say("CREATE TABLE a (k INT, y INT)", "CREATE TABLE b (k INT, x INT)")
    spoken.say("INSERT INTO a VALUES (1, 1), (2, 0), (3, 1)", "INSERT INTO b VALUES (1, 0), (2, 0), (3, 9), (2, 7)")
    spoken.say(VIEW)


def test_a_new_view_joins_by_the_key(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as spoken:
        _filled(spoken)
        assert _state(spoken) == (True, [(1, 0), (2, 7), (3, 9)])


def test_a_view_with_older_state_goes_on_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as older, opened(tmp_path / "home") as spoken:
        older.setattr(Binder, "takes_keys_out_of_or", lambda _: False)
        _filled(spoken)
        assert _state(spoken) == (False, [(1, 0), (2, 7), (3, 9)])
    with opened(tmp_path / "home") as spoken:
        spoken.say("DELETE FROM b WHERE k = 3", "INSERT INTO a VALUES (2, 1)")
        assert _state(spoken) == (False, [(1, 0), (2, 0), (2, 7), (2, 7)])
