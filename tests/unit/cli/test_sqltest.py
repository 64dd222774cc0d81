"""SQL tests: files that are read, plays on the engine without Spark, and failures that show what differs."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from millstream.cli.commands.project import test as command
from millstream.errors import DefinitionError, MillstreamError
from millstream.testing.sql_test import CaseOutcome, play_all
from millstream.testing.sql_test_file import find_files, read_tests
from millstream.testing.sql_test_rows import Expected, cells_of, difference, same, written
from tests.local import LocalScript

from .conftest import Cli

FLOW = """\
CREATE SOURCE bids (auction BIGINT, price BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '4' SECOND)
FROM FILES('nowhere', format = 'json');
CREATE VIEW hot AS
SELECT window_start, window_end, auction, count(*) AS n
FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)
GROUP BY window_start, window_end, auction;
"""
BID = "INSERT INTO bids VALUES (1, 150, '2026-01-01 00:00:01');\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "flow.sql").write_text(FLOW, encoding="utf-8")
    return tmp_path


def play(folder: Path, text: str, **options: Any) -> list[CaseOutcome]:
    path = folder / "a.test.sql"
    path.write_text(text, encoding="utf-8")
    return list(play_all([read_tests(path)], folder / "homes", script=LocalScript, **options))


def failure(folder: Path, text: str) -> str:
    (outcome,) = play(folder, f"-- test: it\n{text}")
    return outcome.failure


# ---------------------------------------------------------------- what a test can say


def test_rows_are_sent_and_looked_at_step_by_step(folder: Path) -> None:
    outcomes = play(
        folder,
        """
-- test: bids are counted
INSERT INTO bids (ts, auction) VALUES ('2026-01-01 00:00:01', 1), (TIMESTAMP '2026-01-01 00:00:02', 1 + 1);
INSERT INTO bids VALUES (1, NULL, '2026-01-01 00:00:03');
SELECT auction, n FROM hot;
-- | auction | n |
-- | 2 | 1 |
-- | 1 | 2 |
SELECT n, auction FROM hot ORDER BY n DESC;
-- | auction |
-- | 1 |
-- | 2 |

-- test: each test begins anew
SELECT * FROM hot;
-- no rows
""",
    )
    assert [(o.case.name, o.failure) for o in outcomes] == [("bids are counted", ""), ("each test begins anew", "")]


def test_changes_are_those_since_the_last_look(folder: Path) -> None:
    text = f"""{BID}
-- changes: hot
-- | op | auction | n |
-- | +I | 1       | 1 |
{BID}
-- changes: hot
-- | op | n |
-- | -U | 1 |
-- | +U | 2 |
-- changes: hot
-- no rows
"""
    assert failure(folder, text) == ""


def test_late_records_can_be_looked_at(folder: Path) -> None:
    text = """
INSERT INTO bids VALUES (1, 150, '2026-01-01 00:00:30');
INSERT INTO bids VALUES (7, 150, '2026-01-01 00:00:01'), ('seven', 150, '2026-01-01 00:00:31');
SELECT event_time FROM hot$late;
-- | event_time          |
-- | 2026-01-01 00:00:01 |
SELECT auction FROM hot;
-- | auction |
-- | 1       |
"""
    assert failure(folder, text) == ""


def test_the_clock_moves_when_it_is_told_to(folder: Path) -> None:
    ahead = "INSERT INTO bids VALUES (1, 1, '2026-01-01 00:15:00');"
    text = f"""{ahead}
SELECT n FROM hot;
-- no rows
-- advance: 10 minutes
{ahead}
SELECT n FROM hot;
-- | n |
-- | 1 |
-- end: bids
{ahead}
-- error: has ended
"""
    assert failure(folder, text) == ""


def test_a_source_that_has_ended_closes_its_windows(folder: Path) -> None:
    text = f"""CREATE VIEW closed AS SELECT window_start, window_end, count(*) AS n
FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end EMIT ON CLOSE;
{BID}SELECT n FROM closed;
-- no rows
-- end:
SELECT n FROM closed;
-- | n |
-- | 1 |
"""
    assert failure(folder, text) == ""


def test_what_stands_before_the_first_test_is_done_in_each(folder: Path) -> None:
    outcomes = play(
        folder,
        f"-- start: 2026-01-01T00:00:05Z\n{BID}\n"
        "-- test: one\nSELECT n FROM hot;\n-- | n |\n-- | 1 |\n"
        f"-- test: two\n{BID}SELECT n FROM hot;\n-- | n |\n-- | 2 |\n",
    )
    assert [o.failure for o in outcomes] == ["", ""]


def test_stored_tables_are_filled_and_read(folder: Path) -> None:
    (folder / "flow.sql").write_text(
        FLOW
        + "CREATE TABLE cities (id BIGINT, name STRING, area DECIMAL(8,2)); INSERT INTO cities VALUES (1, 'a', 2);",
        encoding="utf-8",
    )
    text = f"""{BID}INSERT INTO cities VALUES (2, 'Ghent', 1.5);
SELECT id, name, area FROM cities;
-- | id | name  | area |
-- | 1  | a     | 2.00 |
-- | 2  | Ghent | 1.5  |
"""
    assert failure(folder, text) == ""


def test_what_a_sink_writes_stays_in_the_home_of_the_test(folder: Path) -> None:
    text = f"""CREATE SINK answers FROM hot INTO FILES('{folder}/out', format = 'json');
CREATE SINK copies FROM hot INTO LOG('copied');
{BID}-- records: answers
-- | op | auction | n |
-- | +I | 1       | 1 |
-- records: copied
-- | auction |
-- | 1       |
"""
    assert failure(folder, text) == ""
    assert not (folder / "out").exists()


def test_an_error_is_expected_by_its_text_and_runs_nothing(folder: Path) -> None:
    text = "CREATE VIEW bad AS SELECT pric FROM bids;\n-- error: there is no column `pric`\n"
    assert failure(folder, text) == ""
    assert not (folder / "homes").exists()


def test_only_the_tests_that_are_wanted_are_played(folder: Path) -> None:
    text = "".join(f"-- test: {name}\nSELECT n FROM hot;\n-- no rows\n" for name in ("late bids", "early bids"))
    assert [o.case.name for o in play(folder, text, wanted="LATE")] == ["late bids"]


# ---------------------------------------------------------------- what a failure shows


def test_a_failure_shows_which_rows_differ(folder: Path) -> None:
    text = f"{BID}SELECT auction, n FROM hot;\n-- | auction | n |\n-- | 1 | 3 |\n"
    assert failure(folder, text) == (
        "line 3: SELECT auction, n FROM hot: not as expected\n"
        "  | auction | n |\n"
        "- | 1       | 3 |\n"
        "+ | 1       | 1 |\n"
        "(- expected, and not there; + there, and not expected)"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT n FROM hot;\n-- | m |\n", "there is no column `m`; there are: n"),
        ("SELECT n FROM hott;\n-- no rows\n", "not expected: there is no view or table `hott`"),
        ("CREATE VIEW v AS SELECT pric FROM bids;\n-- error: something else\n", "the error is another one"),
        ("CREATE VIEW v AS SELECT auction FROM bids;\n-- error: zzz\n", "there was no error\nexpected: zzz"),
        ("CREATE VIEW hot AS SELECT auction FROM bids;\n-- error: zzz\n", "`hot` is defined already"),
    ],
)
def test_a_failure_says_why(folder: Path, text: str, said: str) -> None:
    assert said in failure(folder, text)


def test_what_has_no_place_in_a_test_is_told(folder: Path) -> None:
    text = """
SHOW VIEWS;
-- error: is not allowed in a test
INSERT INTO hot VALUES (1);
-- error: no source or table `hot`
INSERT INTO bids VALUES (1, 2);
-- error: row 1 has 2 values for 3 columns
INSERT INTO bids VALUES (1, 2, soon);
-- error: `soon` in VALUES
INSERT INTO bids (auktion) VALUES (1);
-- error: there is no column `auktion`
CREATE VIEW v AS SELECT auction FROM bids;
-- error: come before the first record
-- changes: hott
-- error: there is no view `hott`
"""
    assert failure(folder, text) == ""


def test_a_flow_that_is_wrong_fails_its_tests(folder: Path) -> None:
    (folder / "flow.sql").write_text(FLOW.replace("count(*)", "count(nope)"), encoding="utf-8")
    assert "there is no column `nope`" in failure(folder, "SELECT 1 AS n;\n-- | n |\n-- | 1 |\n")


# ---------------------------------------------------------------- files


@pytest.mark.parametrize(
    ("text", "said", "line"),
    [
        ("SELECT 1;\n-- no rows\n", "there is no test in this file", 2),
        ("-- test: a\nSELECT 1;\n-- test: b\n", "what is expected here?", 2),
        ("-- test: a\n" + BID, "expects nothing", 1),
        ("-- test: a\nSELECT 1 AS n;\n-- | n |\n-- | 1 | 2 |\n", "2 values for 1 columns", 4),
        ("-- test: a\nSELECT 1;\n-- eror: x\n", "`-- eror:` is not allowed here", 3),
        ("-- test: a\n-- advance: soon\n", "soon", 2),
        ("-- test: a\n-- error: x\n", "comes after the statement that fails", 2),
        ("-- test: a\n-- | n |\n", "rows are expected of a SELECT", 2),
        ("-- test: a\n-- flow: flow.sql\n", "comes first in the file", 2),
        ("-- flow: nowhere.sql\n", "there is no file", 1),
        ("-- test: a\nSELECT 1\n", "has no end", 2),
        ("-- test:\n", "needs a value", 1),
        ("-- test: a\nSELECT 1;\n-- no rows\n-- test: a\nSELECT 1;\n-- no rows\n", "two tests `a`", 4),
    ],
)
def test_a_file_that_is_not_right_is_refused_with_its_line(folder: Path, text: str, said: str, line: int) -> None:
    path = folder / "a.test.sql"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DefinitionError) as wrong:
        read_tests(path)
    assert said in str(wrong.value)
    assert wrong.value.origin is not None
    assert wrong.value.origin.line == line


def test_plain_comments_mean_nothing(folder: Path) -> None:
    text = "-- a note\n-- NOTE: read this\nSELECT 1 AS n; \n-- | n |\n-- | 1 |\n"
    assert failure(folder, text) == ""


def test_the_flow_is_beside_its_tests_or_above(folder: Path) -> None:
    (folder / "tests").mkdir()
    path = folder / "tests" / "x.test.sql"
    path.write_text("-- test: a\nSELECT 1;\n-- no rows\n", encoding="utf-8")
    assert [p.name for p in read_tests(path).flows] == ["flow.sql"]
    assert find_files([folder]) == [path]
    (folder / "flow.sql").unlink()
    with pytest.raises(MillstreamError, match="which flow"):
        read_tests(path)


def test_a_folder_without_tests_is_an_error(millstream: Cli) -> None:
    done = millstream("test")
    assert done.exit_code == 2
    assert "there is no test" in done.stderr


# ---------------------------------------------------------------- the command


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_scripts", lambda: LocalScript)


@pytest.mark.usefixtures("local")
def test_one_line_for_each_test_and_an_exit_code(millstream: Cli, folder: Path) -> None:
    (folder / "a.test.sql").write_text(
        f"-- test: right\n{BID}SELECT n FROM hot;\n-- | n |\n-- | 1 |\n"
        f"-- test: wrong\n{BID}SELECT n FROM hot;\n-- | n |\n-- | 2 |\n",
        encoding="utf-8",
    )
    done = millstream("test", ".", "--junit", "out/results.xml")
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert lines[0] == "a.test.sql"
    assert lines[1].startswith("  ok    right  (")
    assert lines[2].startswith("  FAIL  wrong  (")
    assert "        - | 2 |" in lines
    assert lines[-1].startswith("1 passed, 1 failed (")
    (suite,) = ElementTree.parse(folder / "out" / "results.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    assert [c.get("name") for c in suite] == ["right", "wrong"]
    assert "not as expected" in (suite[1].find("failure").text or "")  # type: ignore[union-attr]
    assert millstream("test", "-k", "right").exit_code == 0
    assert "no test name contains 'nothing'" in millstream("test", "-k", "nothing").stderr


# ---------------------------------------------------------------- values


@pytest.mark.parametrize(
    ("text", "value", "answer"),
    [
        ("NULL", None, True),
        ("", None, False),
        ("NULL", 0, False),
        ("1", 1, True),
        ("1.0", 1, True),
        ("one", 1, False),
        ("1.10", Decimal("1.1"), True),
        ("0.1", 0.1, True),
        ("0.1001", 0.1, False),
        ("nan", float("nan"), True),
        ("true", True, True),
        ("1", True, False),
        ("Ghent", "Ghent", True),
        ("'Ghent '", "Ghent ", True),
        ("Ghent", "Ghent ", False),
        ("2026-01-01", date(2026, 1, 1), True),
        ("2026-01-01 01:00:00+01:00", datetime(2026, 1, 1, tzinfo=UTC), True),
        ("noon", datetime(2026, 1, 1, tzinfo=UTC), False),
        ("[1, 2]", [1, 2], True),
        ("[1]", [1, 2], False),
        ("{", {"a": 1}, False),
    ],
)
def test_a_value_is_what_is_written_for_it(text: str, value: Any, answer: bool) -> None:
    assert same(text, value) is answer


@pytest.mark.parametrize(
    "value", [None, 1, 0.1, True, "a|b", " a", "", "NULL ", [1, None], datetime(2026, 1, 1, 0, 0, 1, 500, tzinfo=UTC)]
)
def test_a_value_as_a_failure_shows_it_can_be_put_into_the_test(value: Any) -> None:
    (cell,) = cells_of(written(value))
    assert same(cell, value)


def test_rows_come_in_any_order_unless_they_have_one() -> None:
    expected = Expected(("n",), (("1",), ("2",)))
    assert difference(expected, ["n"], [[2], [1]], ordered=False) == ""
    assert "- | 1 |" in difference(expected, ["n"], [[2], [1]], ordered=True)
    assert difference(expected, ["n"], [[1], [2], [2]], ordered=False).splitlines()[3] == "+ | 2 |"
