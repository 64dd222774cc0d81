"""`millstream init`: a folder that is right from the start."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from .conftest import Cli

BAD_RECORDS = """
-- test: a wish behind bad records
INSERT INTO bids VALUES ('one', 7, 150, '2026-01-01 00:00:01'), (1, 7, 150, '2027-01-01 00:00:01');
SELECT count(*) AS n FROM bids$errors;
-- | n |
-- | 2 |
"""


def test_the_folder_is_made_and_checks(millstream: Cli, tmp_path: Path) -> None:
    done = millstream("init", "auctions")
    assert done.exit_code == 0, done.output
    made = sorted(str(p.relative_to(tmp_path)) for p in (tmp_path / "auctions").rglob("*") if p.is_file())
    assert made == [
        "auctions/.gitignore",
        "auctions/README.md",
        "auctions/flow.sql",
        "auctions/tests/flow.test.sql",
    ]
    assert all(f"made {path}" in done.stdout for path in made)
    assert "cd auctions\n" in done.stdout
    assert "millstream run flow.sql" in done.stdout
    assert (tmp_path / "auctions" / "README.md").read_text(encoding="utf-8").startswith("# auctions\n")
    assert millstream("check", "auctions/flow.sql").stdout == "3 statements, no errors\n"


def test_an_empty_folder_is_taken(millstream: Cli, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert millstream("init", "empty").exit_code == 0


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_what_is_not_empty_is_left_alone(millstream: Cli, tmp_path: Path, kind: str) -> None:
    there = tmp_path / "there"
    if kind == "folder":
        there.mkdir()
        (there / "letter.txt").write_text("dear", encoding="utf-8")
    else:
        there.write_text("dear", encoding="utf-8")
    done = millstream("init", "there")
    assert done.exit_code == 2
    assert "nothing was changed" in done.stderr
    assert [p.name for p in there.iterdir()] == ["letter.txt"] if kind == "folder" else there.read_text() == "dear"


@pytest.mark.spark
def test_its_tests_pass_on_spark_and_say_what_is_wrong_when_they_do_not(
    millstream: Cli, tmp_path: Path, spark: object
) -> None:
    millstream("init", "auctions")
    tests = tmp_path / "auctions" / "tests" / "flow.test.sql"
    tests.write_text(
        tests.read_text(encoding="utf-8") + BAD_RECORDS + "SELECT bids FROM hot_auctions;\n-- | bids |\n-- | 7 |\n",
        encoding="utf-8",
    )
    done = millstream("test", "auctions", "--junit", "results.xml")
    assert done.exit_code == 1, done.output
    assert "3 passed, 1 failed" in done.stdout
    assert "FAIL  a wish behind bad records" in done.stdout
    assert "- | 7    |" in done.stdout
    assert 'failures="1"' in (tmp_path / "results.xml").read_text(encoding="utf-8")
    shutil.rmtree(tmp_path / "auctions")
