"""query, views and flows against a stopped home: formats, times, and questions that cannot be answered."""

import csv
import io
import json
from pathlib import Path

import pytest

from .conftest import Cli


def test_json_is_an_array_of_row_objects_with_utc_times(millstream: Cli, home: Path) -> None:
    done = millstream("query", "SELECT * FROM hot ORDER BY auction", "--home", home, "--format", "json")
    assert done.exit_code == 0
    assert json.loads(done.stdout) == [
        {"window_end": "2026-01-01T00:00:10Z", "auction": 1007, "bids": 3, "mean": 2.5},
        {"window_end": "2026-01-01T00:00:10Z", "auction": 1008, "bids": 1, "mean": None},
    ]


def test_no_rows_are_an_empty_array(millstream: Cli, home: Path) -> None:
    done = millstream("query", "SELECT * FROM hot WHERE auction = 0", "--home", home, "--format", "json")
    assert (done.exit_code, done.stdout) == (0, "[]\n")


def test_csv_has_a_header_and_empty_cells_for_null(millstream: Cli, home: Path) -> None:
    done = millstream("query", "SELECT auction, mean FROM hot ORDER BY 1", "--home", home, "--format", "csv")
    assert list(csv.reader(io.StringIO(done.stdout))) == [["auction", "mean"], ["1007", "2.5"], ["1008", ""]]


def test_the_table_is_plain_text_without_a_terminal(millstream: Cli, home: Path) -> None:
    done = millstream("query", "SELECT auction, bids FROM hot ORDER BY bids DESC", "--home", home)
    assert done.stdout.splitlines()[0].split() == ["auction", "bids"]
    assert "(2 rows)" in done.stdout


def test_two_columns_of_one_name_are_both_shown(millstream: Cli, home: Path) -> None:
    sql = "SELECT auction, bids AS auction FROM hot WHERE auction = 1007"
    done = millstream("query", sql, "--home", home, "--format", "csv")
    assert done.stdout.splitlines()[1] == "1007,3"


def test_a_question_can_come_from_standard_input(millstream: Cli, home: Path) -> None:
    done = millstream("query", "-", "--home", home, "--format", "csv", stdin="SELECT name FROM cities")
    assert done.stdout.split() == ["name", "Ghent"]


def test_the_home_can_be_named_by_the_environment(millstream: Cli, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_HOME", str(home))
    assert millstream("query", "SELECT 1 AS one FROM cities").exit_code == 0


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT * FROM hott", "did you mean `hot`?"),
        ("SELECT nothing FROM hot", "nothing"),
        ("SELEC * FROM hot", "the query cannot be parsed"),
        ("DROP TABLE hot", "only SELECT can be run here"),
        ("SELECT * FROM read_csv('/etc/passwd')", "is not allowed in a query"),
        ("SELECT 1 FROM hot; SELECT 2 FROM hot", "only one statement is allowed"),
    ],
)
def test_a_question_that_cannot_be_answered_is_one_message(millstream: Cli, home: Path, sql: str, said: str) -> None:
    done = millstream("query", sql, "--home", home)
    assert done.exit_code == 6, done.output
    assert done.stderr.startswith("error: ")
    assert said in done.stderr
    assert "Traceback" not in done.output
    assert done.stdout == ""


def test_views_say_all_columns(millstream: Cli, home: Path) -> None:
    (row,) = json.loads(millstream("views", "--home", home, "--format", "json").stdout)
    assert row["freshness_seconds"] > 0
    assert {k: v for k, v in row.items() if k != "freshness_seconds"} == {
        "view": "hot",
        "flow": "auctions",
        "rows": 2,
        "epoch": 1,
        "changed_in_epoch": 1,
        "watermark": "2026-01-01T00:01:39Z",
        "applied": 4,
        "late": 0,
        "errors": 1,
        "offered": None,
        "filtered": None,
        "pending": None,
        "state": "stopped",
    }


def test_views_are_told_in_a_person_s_words(millstream: Cli, home: Path) -> None:
    shown = millstream("views", "--home", home).stdout
    assert "freshness" in shown
    assert "2026-01-01 00:01:39" in shown


def test_flows_say_how_far_they_have_come(millstream: Cli, home: Path) -> None:
    (row,) = json.loads(millstream("flows", "--home", home, "--format", "json").stdout)
    assert (row["flow"], row["state"], row["epoch"], row["rows"]) == ("auctions", "stopped", 1, 5)
    assert "last epoch at" in millstream("flows", "--home", home).stdout


def test_a_wrong_format_names_the_right_ones(millstream: Cli, home: Path) -> None:
    done = millstream("views", "--home", home, "--format", "xml")
    assert done.exit_code == 2
    assert "'table', 'csv', 'json'" in done.stderr
    assert "hint: see `cli views --help`" in done.stderr


@pytest.mark.parametrize("command", [("query", "SELECT 1"), ("views",), ("flows",)])
def test_a_home_that_is_not_there_is_said(millstream: Cli, command: tuple[str, ...]) -> None:
    done = millstream(*command)
    assert done.exit_code == 4
    assert "there is no Millstream home at" in done.stderr
    assert "hint: " in done.stderr
