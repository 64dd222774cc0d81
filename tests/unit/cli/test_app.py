"""The command itself: help that teaches, one message per error, exit codes, reports in a named file."""

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from millstream import __version__
from millstream.cli.app import COMMANDS, cli, guarded
from millstream.cli.options import Settings
from millstream.errors import HomeInUse, Origin, RunError

from .conftest import Cli


def test_the_version_is_said(millstream: Cli) -> None:
    assert millstream("--version").stdout == f"millstream {__version__}\n"


def test_help_names_every_command(millstream: Cli) -> None:
    shown = millstream("--help").stdout
    assert all(re.search(rf"^  {name} ", shown, re.MULTILINE) for name in COMMANDS)
    assert "..." not in shown.split("Commands:")[1]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_has_examples(millstream: Cli, name: str) -> None:
    done = millstream(name, "--help")
    assert done.exit_code == 0
    assert "Examples:" in done.stdout
    assert f"\n    millstream {name}" in done.stdout  # a line of its own: the examples are not wrapped
    assert "\\b" not in done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_fits_on_a_page(millstream: Cli, name: str) -> None:
    assert max(len(line) for line in millstream(name, "--help").stdout.splitlines()) <= 110


def test_an_unknown_command_is_a_usage_error(millstream: Cli) -> None:
    done = millstream("frobnicate")
    assert done.exit_code == 2
    assert "no such command 'frobnicate'" in done.stderr


def test_loading_all_commands_loads_neither_spark_nor_duckdb_nor_rich() -> None:
    script = (
        "import sys, click\nfrom millstream.cli.app import cli\n"
        "c = click.Context(cli)\n[cli.get_command(c, n) for n in cli.list_commands(c)]\n"
        "print([m for m in ('pyspark', 'duckdb', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def raising(error: BaseException) -> object:
    raise error


def test_an_error_is_told_with_place_detail_and_hint(capsys: pytest.CaptureFixture[str]) -> None:
    error = HomeInUse("the home is in use", detail="by process 7", hint="stop it", origin=Origin("f.py", 3))
    assert guarded(Settings(), lambda: raising(error)) == 4
    expected = "error: the home is in use\n  at f.py:3\n  by process 7\n  hint: stop it\n"
    assert click.unstyle(capsys.readouterr().err) == expected


def test_an_unexpected_error_is_one_line_and_a_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(Settings(), lambda: raising(KeyError("lost"))) == 70
    said = capsys.readouterr().err
    assert "unexpected KeyError: 'lost'" in said
    assert "Traceback" not in said
    found = re.search(r"the full report is in (\S+)", said)
    assert found
    report = Path(found[1])
    assert "Traceback" in report.read_text(encoding="utf-8")
    report.unlink()


def test_the_report_goes_to_the_home_if_there_is_one(home: Path) -> None:
    guarded(Settings(home=home), lambda: raising(KeyError("lost")))
    assert "KeyError" in (home / "logs" / "millstream.log").read_text(encoding="utf-8")


def test_a_fault_in_a_flow_s_thread_is_reported_too(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error = RunError("the flow `f` stopped with TypeError: no")
    error.__cause__ = TypeError("no")
    assert guarded(Settings(home=home), lambda: raising(error)) == 5
    assert "the full report is in" in capsys.readouterr().err
    assert "TypeError: no" in (home / "logs" / "millstream.log").read_text(encoding="utf-8")


def test_debug_lets_the_traceback_through() -> None:
    with pytest.raises(KeyError):
        guarded(Settings(debug=True), lambda: raising(KeyError("lost")))


@pytest.mark.parametrize("given", ["0s", "soon", "-3s", ""])
def test_a_wrong_duration_says_how_to_write_one(millstream: Cli, given: str) -> None:
    done = millstream("demo", "--for", given)
    assert done.exit_code == 2
    assert "write it like 20s, 500ms or 2min" in done.stderr


# ---------------------------------------------------------------- homes that cannot be used

FLOW = """
import millstream as ms
flow = ms.Flow("f")
flow.source("s", ms.memory(), schema="x BIGINT").aggregate(n=ms.count()).view("v")
"""


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    path = tmp_path / "flow.py"
    path.write_text(FLOW, encoding="utf-8")
    return path


def test_a_home_of_a_newer_version_is_left_alone(millstream: Cli, tmp_path: Path, flow: Path) -> None:
    newer = tmp_path / "newer"
    newer.mkdir()
    (newer / "millstream.json").write_text('{"format": 99}', encoding="utf-8")
    done = millstream("run", flow, "--home", newer)
    assert done.exit_code == 4
    assert "has format 99" in done.stderr
    assert "hint: upgrade" in done.stderr


def test_a_directory_that_is_no_home_is_not_touched(millstream: Cli, tmp_path: Path, flow: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "letters.txt").write_text("dear", encoding="utf-8")
    done = millstream("run", flow, "--home", other)
    assert done.exit_code == 4
    assert "is not a Millstream home" in done.stderr
    assert os.listdir(other) == ["letters.txt"]


def test_a_home_in_use_names_the_process(millstream: Cli, tmp_path: Path, flow: Path) -> None:
    from millstream.home import Home

    with Home(tmp_path / "used"):
        done = millstream("run", flow, "--home", tmp_path / "used")
    assert done.exit_code == 4
    assert f"in use by process {os.getpid()}" in done.stderr
    assert "hint: read it with `millstream query`" in done.stderr


def test_the_group_can_be_called_without_ending_the_process() -> None:
    assert cli.main(["--version"], standalone_mode=False) == 0


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "millstream", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"millstream {__version__}\n"
