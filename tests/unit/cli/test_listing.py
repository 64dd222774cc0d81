"""`views` and `flows` of a home where no flow has run yet."""

import json
from pathlib import Path

import pytest

from millstream.home import Home

from .conftest import Cli


@pytest.fixture
def quiet_home(tmp_path: Path) -> Path:
    path = tmp_path / "quiet"
    with Home(path) as opened:
        opened.put_table("cities", [{"id": 1}])
    return path


@pytest.mark.parametrize(
    ("command", "said"), [("views", "no views yet: run a flow"), ("flows", "no flows yet: run one")]
)
def test_nothing_to_list_is_said_to_people_and_empty_to_programs(
    millstream: Cli, quiet_home: Path, command: str, said: str
) -> None:
    shown = millstream(command, "--home", quiet_home)
    assert shown.exit_code == 0
    assert shown.stdout.startswith(said)
    assert json.loads(millstream(command, "--home", quiet_home, "--format", "json").stdout) == []
    header = millstream(command, "--home", quiet_home, "--format", "csv").stdout
    assert header.count("\n") == 1
    assert "watermark" in header.split(",")
