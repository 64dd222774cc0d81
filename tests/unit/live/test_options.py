"""Options with values that mean nothing are refused where they are given, and long texts are read in one pass."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import millstream as ms
from millstream.errors import DefinitionError, Unsupported
from millstream.sql.parse.text import Text, tokens
from millstream.store.query_errors import explained
from tests.unit.live.world import BIDS, Spoken, opened


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spoken]:
    with opened(Path(tmp_path_factory.mktemp("options")) / "home") as spoken:
        spoken.say(BIDS)
        yield spoken


@pytest.mark.parametrize(
    "sql",
    [
        *(f"CREATE SOURCE g FROM GENERATOR('nexmark', 'bid', rate = {v})" for v in ("1e400", "-1", "0", "''", "TRUE")),
        *(f"CREATE SOURCE g FROM GENERATOR('nexmark', 'bid', events = {v})" for v in ("1e400", "-1", "'x'", "1.5")),
        *(f"CREATE SOURCE g FROM GENERATOR('nexmark', 'bid', seed = {v})" for v in ("'x'", "99999999999999999999")),
        "CREATE SOURCE g FROM GENERATOR('nexmark', 'bid', out_of_order = 0)",
        "CREATE SOURCE g FROM GENERATOR('nexmark', 'bid', base_time_us = 99999999999999999999)",
        "CREATE SOURCE g (a BIGINT) FROM LOG('g') WITH (max_rows = 99999999999999999999)",
        "CREATE SOURCE g (a BIGINT) FROM LOG('g', partitions = 1, partitions = 2)",
        "CREATE VIEW v WITH (tables = 'x') AS SELECT auction FROM bids",
        "CREATE VIEW v WITH (retain = '1 day', RETAIN = '2 days') AS SELECT auction FROM bids",
        *(f"SET wait = {v}" for v in ("-1", "1e400", "TRUE", "99999999999999999999")),
        "SET query_timeout = TRUE",
        "SELECT " + "9" * 2000,
        "SELECT 0." + "9" * 2000,
    ],
)
def test_an_option_without_a_meaning_is_refused(one: Spoken, sql: str) -> None:
    with pytest.raises(DefinitionError):
        one.say(sql)


def test_python_generators_have_the_same_checks() -> None:
    for wrong in ({"rate": float("nan")}, {"rate": float("inf")}, {"events": -1}, {"events": 1.5}, {"rate": "1"}):
        with pytest.raises(DefinitionError):
            ms.generator(lambda start, end: None, **wrong)  # type: ignore[arg-type,return-value]


def test_quotes_that_are_doubled_are_one_text_however_many() -> None:
    (_, text) = tokens(Text("SELECT " + "''" * 10_000))
    assert text.text == "'" * 9_999
    found = tokens(Text("""SELECT 'it''s', 'a' 'b', "x""y", '' FROM t"""))
    assert [t.text for t in found if t.token_type.name == "STRING"] == ["it's", "a", "b", 'x"y', ""]


def test_a_question_too_deep_for_the_store_is_refused_in_plain_words() -> None:
    said = explained('Max expression depth limit of 1000 exceeded. Use "SET max_expression_depth TO x" to increase it')
    assert "max_expression_depth" not in str(said)
    assert said.hint


def test_python_expressions_are_refused_with_a_name() -> None:
    rows = ms.Flow("f").source("s", ms.memory(), schema="n BIGINT, ts TIMESTAMP", event_time="ts")
    with pytest.raises(DefinitionError, match="nested too deeply"):
        rows.where("(" * 3000 + "n > 1" + ")" * 3000)
    with pytest.raises(DefinitionError, match="not the name of a column"):
        ms.col(5)  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="not a function"):
        rows.map_batches(5, schema="n BIGINT")  # type: ignore[arg-type]


def test_a_text_that_reads_the_clock_is_refused_in_views(one: Spoken) -> None:
    rows = ms.Flow("f").source("s", ms.memory(), schema="n BIGINT, ts TIMESTAMP", event_time="ts")
    for word in ("CAST('now' AS TIMESTAMP)", "DATE ' Today '", "try_cast('yesterday' AS DATE)"):
        with pytest.raises(Unsupported, match="cannot be used here"):
            rows.select(x=word)
        with pytest.raises(Unsupported, match="cannot be used here"):
            one.say(f"CREATE VIEW c AS SELECT {word} AS x FROM bids")
