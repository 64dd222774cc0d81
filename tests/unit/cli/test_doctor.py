"""The doctor's checks, without starting Spark."""

from pathlib import Path

import pytest

from millstream.cli.commands.machine import doctor
from millstream.cli.commands.machine.doctor import BROKEN, LOW, OK, CheckResult, check_home
from millstream.home import Home

from .conftest import Cli


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "check_spark", lambda *_, **__: [CheckResult("spark", OK, "not started by this test")])


@pytest.mark.usefixtures("no_spark")
def test_a_good_machine_is_ready(millstream: Cli, home: Path) -> None:
    done = millstream("doctor", "--home", home)
    assert done.exit_code == 0, done.output
    assert "1 view" in done.stdout
    assert "ready" in done.stdout


@pytest.mark.usefixtures("no_spark")
def test_without_java_it_says_how_to_get_one(millstream: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    done = millstream("doctor")
    assert done.exit_code == 1
    assert "repair: install one" in done.stdout
    assert "not tried, because it needs Java" in done.stdout


def test_a_home_is_looked_at(home: Path, tmp_path: Path) -> None:
    assert check_home(home).text.endswith("format 1, not in use, 1 view")
    assert check_home(tmp_path / "none").state == OK
    (tmp_path / "other").mkdir()
    assert check_home(tmp_path / "other").state == OK
    (tmp_path / "other" / "file").touch()
    assert check_home(tmp_path / "other").state == BROKEN


def test_a_home_of_a_newer_version_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "millstream.json").write_text('{"format": 99}', encoding="utf-8")
    found = check_home(tmp_path)
    assert found.state == BROKEN
    assert "upgrade" in found.repair


def test_a_home_in_use_names_its_process(home: Path) -> None:
    import os

    with Home(home) as opened:
        assert opened.store is not None
        assert f"in use by process {os.getpid()}" in check_home(home).text


def test_a_store_that_cannot_be_read_is_a_problem(home: Path) -> None:
    (home / "store.duckdb").write_bytes(b"this is not a database" * 1000)
    assert check_home(home).state == BROKEN


@pytest.mark.parametrize(("free", "state"), [(0.2, BROKEN), (2.0, LOW), (30.0, OK)])
def test_memory_is_judged(monkeypatch: pytest.MonkeyPatch, free: float, state: str) -> None:
    monkeypatch.setattr(doctor, "available_memory", lambda: int(free * doctor.GIB))
    assert doctor.check_memory().state == state
