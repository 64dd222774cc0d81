"""`millstream run FLOW.sql`: what is refused at once, and one run on Spark from definition to answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Cli

FLOW = """\
CREATE SOURCE bids (auction BIGINT, price BIGINT) FROM FILES('data', format = 'json', bounded = true);
CREATE VIEW totals AS SELECT auction, sum(price) AS total FROM bids GROUP BY auction;
"""


def written(text: str) -> Path:
    path = Path("flow.sql")
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (("--flow", "bids"), "--flow is for Python files"),
        (("--standby", "passive"), "a standby for flows made by SQL is not supported yet"),
    ],
)
def test_options_of_python_flows_are_refused(millstream: Cli, option: tuple[str, str], said: str) -> None:
    done = millstream("run", written(FLOW), *option)
    assert done.exit_code == 2
    assert said in done.stderr
    assert not Path("millstream-home").exists()


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("CREATE TABLE t (id BIGINT);", 2, "there is nothing to run in millstream-home"),
        ("CREATE TABLE t (id BIGINT);\nCREATE VIEW v AS SELECT x FROM nowhere;", 2, "at flow.sql:2:"),
        ("CREATE SOURCE s (id BIGINT) FROM LOG('s'); SUBSCRIBE TO s;", 6, "SUBSCRIBE has no end"),
    ],
)
def test_a_file_that_cannot_be_run_says_why(millstream: Cli, text: str, code: int, said: str) -> None:
    done = millstream("run", written(text))
    assert done.exit_code == code
    assert said in done.stderr


def test_a_file_that_is_not_there_is_said(millstream: Cli) -> None:
    done = millstream("run", "nowhere.sql")
    assert done.exit_code == 2
    assert "the file nowhere.sql cannot be read" in done.stderr


@pytest.mark.spark
def test_a_file_is_run_until_it_has_caught_up_and_run_again_as_it_is(
    millstream: Cli, tmp_path: Path, spark: object
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.json").write_text('{"auction": 1, "price": 5}\n{"auction": 1, "price": 7}\n')
    done = millstream("run", written(FLOW), "--until-caught-up")
    assert done.exit_code == 0, done.output
    assert "created the view totals" in done.stderr
    assert "2 rows in 1 epoch" in done.stdout
    assert "view totals: 1 row" in done.stdout
    again = millstream("run", "flow.sql", "--until-caught-up")
    assert again.exit_code == 0, again.output
    assert "created" not in again.stderr
    asked = millstream("sql", "-c", "SELECT total FROM totals", "--format", "csv")
    assert asked.stdout == "total\n12\n", asked.output
    changed = millstream("run", written(FLOW.replace("sum(price)", "max(price)")), "--until-caught-up")
    assert changed.exit_code == 2
    assert "CREATE OR REPLACE VIEW totals" in changed.stderr
