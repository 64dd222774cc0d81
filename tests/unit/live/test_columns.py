"""The clauses of a column: each is carried out, or refused by its name. Kept definitions still load."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.errors import MillstreamError, RecordRefused, Unsupported
from millstream.sql.parse import statement_parser
from millstream.sql.parse.script import as_script, split
from millstream.sql.parse.statement_values import CreateTable
from millstream.sql.parse.text import Text
from tests.unit.live.world import Spoken, opened


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Spoken]:
    with opened(tmp_path / "home") as spoken:
        yield spoken


def test_not_null_of_a_table_is_enforced_by_every_statement(one: Spoken) -> None:
    one.say("CREATE TABLE t (a BIGINT NOT NULL COMMENT 'why' PRIMARY KEY, b STRING NULL, c DATE NOT NULL)")
    one.say("INSERT INTO t VALUES (1, NULL, DATE '2026-01-01'), (2, 'x', DATE '2026-01-02')")
    for refused in (
        "INSERT INTO t VALUES (3, 'x', NULL)",
        "INSERT INTO t (a, b) VALUES (3, 'x')",
        "INSERT INTO t SELECT a + 5, b, NULL FROM t",
        "UPDATE t SET c = NULL WHERE a = 1",
        "UPDATE t SET c = CASE WHEN a = 1 THEN NULL ELSE c END",
    ):
        with pytest.raises(RecordRefused, match="`c` of `t`, which is NOT NULL"):
            one.say(refused)
    assert one.said("UPDATE t SET b = NULL") == "updated 2 rows"
    assert [r["note"] for r in one.rows("DESCRIBE t")] == ["key, not null", "", "not null"]
    assert len(one.rows("SELECT * FROM t")) == 2


@pytest.mark.parametrize(
    ("sql", "named"),
    [
        ("CREATE TABLE t (a BIGINT DEFAULT 5)", "DEFAULT"),
        ("CREATE TABLE t (a BIGINT NOT NULL DEFAULT 5)", "DEFAULT"),
        ("CREATE TABLE t (a BIGINT COMMENT 'x' CHECK (a > 0))", "CHECK"),
        ("CREATE TABLE t (a BIGINT PRIMARY KEY GENERATED ALWAYS AS IDENTITY)", "GENERATED"),
        ("CREATE TABLE t (a VARCHAR(3))", "VARCHAR(3)"),
        ("CREATE TABLE t (a STRUCT<x: CHAR(3)>)", "CHAR(3)"),
        ("CREATE TABLE t (a BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts)", "WATERMARK"),
        ("CREATE SOURCE t (a VARCHAR(3)) FROM LOG('t')", "VARCHAR(3)"),
        ("CREATE SOURCE t (a BIGINT NOT NULL, ts TIMESTAMP, WATERMARK FOR ts AS ts) FROM LOG('t')", "NOT NULL"),
    ],
)
def test_what_is_not_carried_out_is_refused_by_its_name(one: Spoken, sql: str, named: str) -> None:
    with pytest.raises(Unsupported) as refused:
        one.say(sql)
    assert named in refused.value.message
    assert refused.value.hint
    assert refused.value.origin is not None


@pytest.mark.parametrize(
    "columns", ["a BIGINT PRIMARY KEY, b INT, PRIMARY KEY (b)", "a INT PRIMARY KEY, b INT PRIMARY KEY", "a INT COMMENT"]
)
def test_clauses_that_contradict_each_other_are_refused(one: Spoken, columns: str) -> None:
    with pytest.raises(MillstreamError):
        one.say(f"CREATE TABLE t ({columns})")


def test_the_event_time_of_a_source_may_be_not_null(one: Spoken) -> None:
    one.say("CREATE SOURCE s (a BIGINT, ts TIMESTAMP NOT NULL, WATERMARK FOR ts AS ts) FROM LOG('s')")
    one.say("INSERT INTO s VALUES (NULL, TIMESTAMP '2026-01-01 00:00:00')")


@pytest.mark.parametrize(
    "columns",
    [
        "a VARCHAR(3), b DECIMAL(5, 2)",
        "a ARRAY<CHAR(3)>, b INT NOT NULL DEFAULT 3",
        "a INT PRIMARY KEY, b INT PRIMARY KEY",
    ],
)
def test_definitions_that_older_versions_kept_still_load(columns: str) -> None:
    (piece,) = split(Text(f"CREATE TABLE t ({columns}, ts TIMESTAMP, WATERMARK FOR ts AS ts)"))
    with pytest.raises(MillstreamError):
        statement_parser.statement(piece)
    kept = statement_parser.statement(piece, kept=True)
    assert isinstance(kept, CreateTable)
    assert [c.name for c in kept.columns] == ["a", "b", "ts"]
    assert not any("(3)" in c.type for c in kept.columns)


def test_bytes_do_not_take_the_text_of_a_far_date(one: Spoken) -> None:
    one.say("CREATE TABLE b (a BINARY, s STRUCT<x: BINARY>)")
    for value in ("date_add(DATE '9999-12-31', 5)", "date_add(DATE '2026-01-01', 5)"):
        with pytest.raises(RecordRefused, match="neither bytes nor text"):
            one.say(f"INSERT INTO b (a) VALUES ({value})")
        with pytest.raises(RecordRefused, match="neither bytes nor text"):
            one.say(f"INSERT INTO b (s) VALUES (named_struct('x', {value}))")
        with pytest.raises(RecordRefused, match="neither bytes nor text"):
            one.say(f"INSERT INTO b (a) SELECT {value}")


def test_a_text_that_is_split_is_passed_on_as_it_is() -> None:
    text = ";" * 1000 + "SELECT 1;" * 10
    script = as_script(text)
    assert len(script) == 10 and script.is_complete
    assert as_script(script) is script
    assert as_script(script, "another") is script
    assert as_script(text, "another") != script
