"""What `millstream log`, `repair` and `doctor` say of a log that is damaged, and how far behind readers are."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from millstream.cli.commands.machine.doctor import BROKEN, OK, check_home
from millstream.errors import HomeDamaged
from tests.local import LocalScript
from tests.unit.runtime import recovery_homes as homes
from tests.unit.runtime.recovery_homes import said_by


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home whose flow has taken all that is in its topic."""
    path = homes._with_topic(tmp_path / "home")
    with LocalScript(homes.flow(), path, shards=1) as script:
        for batch in range(3):
            script.home.topic("bids").append(homes.rows(batch))
            script.tick()
    return path


def lag(home: Path) -> dict[str, int]:
    code, said = said_by("log", "list", "--format", "json", "--home", home)
    assert code == 0, said
    (row,) = orjson.loads(said)
    found: dict[str, int] = row["holds"]
    return found


def test_a_flow_that_has_caught_up_is_not_behind(home: Path) -> None:
    assert lag(home) == {"counting.bids": 0}
    with LocalScript(homes.flow(), home, shards=1) as script:
        assert lag(home) == {"counting.bids": 0}
        script.home.topic("bids").append(homes.rows(4))
        assert lag(home) == {"counting.bids": homes.ROWS}
        script.tick()
        assert lag(home) == {"counting.bids": 0}
        script.home.checkpoint("one")
    _, said = said_by("log", "list", "--home", home)
    assert "counting.bids: 0 behind" in said
    assert "checkpoint.one: keeps 0" in said


def test_a_lost_topic_note_is_said_everywhere_and_repaired(home: Path, tmp_path: Path) -> None:
    note = home / "log/bids/topic.json"
    note.unlink()
    lines = tmp_path / "lines"
    lines.write_text('{"auction": 1, "price": 2, "ts": "2026-01-01T00:00:00Z"}\n')
    for call in (["append", "bids", lines], ["read", "bids"], ["list"], ["check"], ["check", "bids"]):
        code, said = said_by("log", *call, "--home", home)
        assert code == HomeDamaged.exit_code, (call, said)
        assert "log/bids/topic.json" in said, call
    assert check_home(home).state == BROKEN
    assert "bids/topic.json" in check_home(home).text
    with pytest.raises(HomeDamaged, match=r"topic\.json"):
        LocalScript(homes.flow(), home, shards=1)
    code, said = said_by("repair", "--home", home)
    assert (code, note.exists()) == (HomeDamaged.exit_code, False)
    assert "it is restored from its copy" in said
    code, said = said_by("repair", "--yes", "--home", home)
    assert code == 0, said
    assert said_by("repair", "--home", home) == (0, "there is nothing to repair\n")
    assert check_home(home).state == OK
    homes.go_on(home)


def test_a_repair_says_what_is_wrong_with_a_write_ahead_file(home: Path) -> None:
    wal = sorted((home / "log/bids/p00000").glob("*.wal"))[-1]
    if wal.stat().st_size < 500:
        with LocalScript(homes.flow(), home, shards=1) as script:
            script.home.topic("bids").append(homes.rows(5).slice(0, 1))
    homes.flip(wal, wal.stat().st_size - 60)
    with pytest.raises(HomeDamaged, match=r"\.wal is damaged"):
        homes.go_on(home)
    code, said = said_by("repair", "--yes", "--home", home)
    assert code != 0
    assert wal.name in said
    assert "these records are in no other file" in said
    code, said = said_by("log", "check", "--home", home)
    assert code == HomeDamaged.exit_code
    assert check_home(home).state == BROKEN
