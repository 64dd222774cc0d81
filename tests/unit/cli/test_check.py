"""`millstream check`: every mistake of a file at once, with its place, and nothing runs."""

from __future__ import annotations

from pathlib import Path

import click
import orjson
import pytest

from .conftest import Cli

SOURCE = """\
CREATE SOURCE bids (auction BIGINT, price BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '4' SECOND)
FROM LOG('bids');
"""
WINDOWED = """\
CREATE VIEW hot AS
SELECT window_start, window_end, auction, count(*) AS n
FROM TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)
GROUP BY window_start, window_end, auction;
"""


def check(millstream: Cli, sql: str, *, code: int) -> str:
    Path("flow.sql").write_text(sql, encoding="utf-8")
    done = millstream("check", "flow.sql")
    assert done.exit_code == code, done.output
    return click.unstyle(done.stdout)


def test_a_right_file_has_no_errors(millstream: Cli, tmp_path: Path) -> None:
    assert check(millstream, SOURCE + WINDOWED, code=0) == "2 statements, no errors\n"
    assert [p.name for p in tmp_path.iterdir()] == ["flow.sql"]


def test_all_mistakes_are_found_and_each_with_its_place(millstream: Cli) -> None:
    said = check(
        millstream,
        SOURCE
        + "CREATE VIEW a AS SELECT pric FROM bids;\n"
        + "CREAT VIEW b AS SELECT 1;\n"
        + "CREATE VIEW c AS SELECT * FROM bid;\n"
        + WINDOWED,
        code=2,
    )
    assert "error: there is no column `pric`\n  at flow.sql:3:25\n" in said
    assert "    3 | CREATE VIEW a AS SELECT pric FROM bids;\n      |                         ^^^^\n" in said
    assert "at flow.sql:4:1" in said
    assert "hint: did you mean CREATE?" in said
    assert "error: there is no source, table or view `bid`\n  at flow.sql:5:32" in said
    assert said.endswith("5 statements, 3 errors\n")


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        (SOURCE + SOURCE, "`bids` is defined already\n  at flow.sql:3:1"),
        (SOURCE + "CREATE VIEW bids AS SELECT 1 AS n;", "is already the name of a source"),
        (SOURCE + "SELECT * FROM hott;", "there is no source, table or view `hott`\n  at flow.sql:3:15"),
        (SOURCE + "DROP VIEW hot;", "there is no source, table or view `hot`"),
        (SOURCE + "INSERT INTO bid VALUES (1);", "there is no source, table or view `bid`"),
        (SOURCE + "SUBSCRIBE TO hot;", "`hot`"),
        (SOURCE + "DROP SOURCE bids; CREATE VIEW v AS SELECT auction FROM bids;", "`bids`"),
        ("SELECT 'open;", "the text cannot be parsed\n  at flow.sql:1"),
        ("CREATE SOURCE s FROM GENERATOR('nexmark', kind = 'bids');", "unknown kind of event"),
    ],
)
def test_one_mistake_is_one_error(millstream: Cli, sql: str, said: str) -> None:
    found = check(millstream, sql, code=2)
    assert said in found
    assert ", 1 error\n" in found


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE t (id BIGINT); INSERT INTO t VALUES (1); SELECT * FROM t; DROP TABLE t; DROP TABLE IF EXISTS t;",
        SOURCE + "SELECT * FROM bids$errors; DESCRIBE bids; INSERT INTO bids VALUES (1, 2, '2026-01-01');",
        SOURCE + "CREATE OR REPLACE " + SOURCE.removeprefix("CREATE "),
        SOURCE + WINDOWED + "DROP SOURCE bids CASCADE; " + SOURCE,
        SOURCE + WINDOWED + "CREATE SINK s FROM hot INTO LOG('out'); SHOW VIEWS; EXPLAIN VIEW hot; PAUSE bids;",
    ],
)
def test_definitions_count_from_where_they_stand(millstream: Cli, sql: str) -> None:
    assert check(millstream, sql, code=0).endswith(", no errors\n")


def test_what_depends_on_a_mistake_is_not_blamed(millstream: Cli) -> None:
    said = check(
        millstream,
        SOURCE + "CREATE VIEW a AS SELECT FROM WHERE;\nCREATE VIEW b AS SELECT * FROM a;\nSELECT * FROM b;",
        code=2,
    )
    assert "flow.sql:3:" in said
    assert said.endswith("4 statements, 1 error\n")


def test_state_that_grows_for_good_is_a_warning_with_the_clause_that_bounds_it(millstream: Cli) -> None:
    said = check(
        millstream, SOURCE + "CREATE VIEW t AS SELECT auction, sum(price) AS s FROM bids GROUP BY auction;", code=0
    )
    assert "warning: the state of the view `t` grows without bound\n  at flow.sql:3:" in said
    assert "hint: a window in GROUP BY bounds it: GROUP BY TUMBLE(ts, INTERVAL '1' HOUR), ..." in said
    assert said.endswith("2 statements, no errors, 1 warning\n")


def test_with_that_clause_there_is_no_warning(millstream: Cli) -> None:
    sql = "CREATE VIEW t AS SELECT auction, sum(price) AS s FROM bids GROUP BY TUMBLE(ts, INTERVAL '1' HOUR), auction;"
    assert "warning" not in check(millstream, SOURCE + sql, code=0)


def test_one_row_in_all_is_no_warning(millstream: Cli) -> None:
    assert "warning" not in check(millstream, SOURCE + "CREATE VIEW t AS SELECT count(*) AS n FROM bids;", code=0)


def test_a_source_without_columns_is_looked_up_or_left_open(millstream: Cli, tmp_path: Path) -> None:
    sql = (
        "CREATE SOURCE bids FROM FILES('data', format = 'json');\n"
        "CREATE VIEW v AS SELECT pric FROM bids WHERE auction > 1;"
    )
    assert "the columns of `bids` are not declared" in check(millstream, sql, code=0)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.json").write_text('{"auction": 1, "price": 2}\n', encoding="utf-8")
    assert "there is no column `pric`" in check(millstream, sql, code=2)


def test_several_files_are_one(millstream: Cli) -> None:
    Path("a.sql").write_text(SOURCE, encoding="utf-8")
    Path("b.sql").write_text(WINDOWED, encoding="utf-8")
    assert millstream("check", "a.sql", "b.sql").exit_code == 0
    assert millstream("check", "b.sql").exit_code == 2


def test_a_program_gets_everything_as_data(millstream: Cli) -> None:
    Path("flow.sql").write_text(SOURCE + "CREATE VIEW a AS SELECT pric FROM bids;", encoding="utf-8")
    done = millstream("check", "flow.sql", "--format", "json")
    assert done.exit_code == 2
    found = orjson.loads(done.stdout)
    assert found["statements"] == 2
    (error,) = found["errors"]
    assert (error["code"], error["file"], error["line"], error["column"]) == ("schema_error", "flow.sql", 3, 25)
    assert error["hint"] == "did you mean `price`?"


def test_functions_of_python_are_known_once_they_are_named(millstream: Cli, tmp_path: Path) -> None:
    (tmp_path / "checked_functions.py").write_text("def twice(n: int) -> int:\n    return 2 * n\n", encoding="utf-8")
    used = "CREATE VIEW v AS SELECT twice(price) AS p FROM bids;"
    named = "CREATE FUNCTION twice AS 'checked_functions:twice';\n"
    assert check(millstream, SOURCE + named + used, code=0).endswith("3 statements, no errors\n")
    assert "the function `twice` cannot be used" in check(millstream, SOURCE + used, code=2)
    assert "cannot be loaded" in check(millstream, named.replace("_functions:", "_nothing:"), code=2)


def test_python_flows_can_be_checked_too(millstream: Cli) -> None:
    text = "import millstream as ms\nflow = ms.Flow('f')\ns = flow.source('s', ms.memory(), schema='x BIGINT')\n"
    Path("good.py").write_text(text + "s.aggregate(n=ms.count()).view('v')\n", encoding="utf-8")
    Path("bad.py").write_text(text + "s.where('y > 1').view('v')\n", encoding="utf-8")
    assert millstream("check", "good.py").stdout == "1 flow, no errors\n"
    done = millstream("check", "good.py", "bad.py")
    assert done.exit_code == 2
    assert "at bad.py:4" in done.stdout


def test_a_file_that_is_not_there_is_an_error(millstream: Cli) -> None:
    done = millstream("check", "nowhere.sql")
    assert done.exit_code == 2
    assert "nowhere.sql cannot be read" in done.stdout
