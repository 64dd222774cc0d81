"""Store assignment: one table of what a column takes, and every way into a table or topic goes by it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from millstream.cli.commands.log.log import append
from millstream.errors import MillstreamError, RecordRefused
from millstream.model.types.assignment import Unfit, assigned, from_values
from millstream.model.types.schema import Schema
from tests.unit.live.world import Spoken, opened

REFUSED = object()
TYPES = ("TINYINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(5, 2)", "BOOLEAN", "STRING", "TIMESTAMP", "DATE")
NOON, MIDNIGHT = datetime(2026, 1, 1, 12, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)

# SQL of the value, the value in Python, then what each type of TYPES keeps of it ("!" is refused)
TABLE: list[tuple[str, Any, list[Any]]] = [
    ("1", 1, [1, 1, 1, 1.0, 1.0, Decimal("1.00"), "!", "1", "!", "!"]),
    ("-128", -128, [-128, -128, -128, -128.0, -128.0, Decimal("-128.00"), "!", "-128", "!", "!"]),
    ("300", 300, ["!", 300, 300, 300.0, 300.0, Decimal("300.00"), "!", "300", "!", "!"]),
    ("3000000000", 3_000_000_000, ["!", "!", 3_000_000_000, 3e9, 3e9, "!", "!", "3000000000", "!", "!"]),
    ("9007199254740993", 2**53 + 1, ["!", "!", 2**53 + 1, "!", "!", "!", "!", "9007199254740993", "!", "!"]),
    ("9223372036854775808", 2**63, ["!", "!", "!", 2.0**63, 2.0**63, "!", "!", "9223372036854775808", "!", "!"]),
    ("1.7", Decimal("1.7"), ["!", "!", "!", "~1.7", 1.7, Decimal("1.70"), "!", "1.7", "!", "!"]),
    ("2.0", Decimal("2.0"), [2, 2, 2, 2.0, 2.0, Decimal("2.00"), "!", "2.0", "!", "!"]),
    ("1.777", Decimal("1.777"), ["!", "!", "!", "~1.777", 1.777, "!", "!", "1.777", "!", "!"]),
    ("1234.5", Decimal("1234.5"), ["!", "!", "!", 1234.5, 1234.5, "!", "!", "1234.5", "!", "!"]),
    ("1.7e0", 1.7, ["!", "!", "!", "~1.7", 1.7, Decimal("1.70"), "!", "1.7", "!", "!"]),
    ("1e300", 1e300, ["!", "!", "!", "!", 1e300, "!", "!", "1e+300", "!", "!"]),
    ("true", True, ["!", "!", "!", "!", "!", "!", True, "true", "!", "!"]),
    ("'abc'", "abc", ["!", "!", "!", "!", "!", "!", "!", "abc", "!", "!"]),
    ("'1'", "1", ["!", "!", "!", "!", "!", "!", "!", "1", "!", "!"]),
    ("''", "", ["!", "!", "!", "!", "!", "!", "!", "", "!", "!"]),
    ("'2026-01-01'", "2026-01-01", ["!"] * 7 + ["2026-01-01", MIDNIGHT, date(2026, 1, 1)]),
    ("'2026-01-01 12:00:00'", "2026-01-01 12:00:00", ["!"] * 7 + ["2026-01-01 12:00:00", NOON, "!"]),
    ("'2026-01-01T14:00:00+02:00'", "2026-01-01T14:00:00+02:00", ["!"] * 7 + ["2026-01-01T14:00:00+02:00", NOON, "!"]),
    ("'10000-01-01'", "10000-01-01", ["!"] * 7 + ["10000-01-01", "!", "!"]),
    ("'2026-02-30'", "2026-02-30", ["!"] * 7 + ["2026-02-30", "!", "!"]),
    ("TIMESTAMP '2026-01-01 12:00:00'", NOON, ["!"] * 7 + ["2026-01-01 12:00:00", NOON, "!"]),
    ("TIMESTAMP '2026-01-01 00:00:00'", MIDNIGHT, ["!"] * 7 + ["2026-01-01 00:00:00", MIDNIGHT, date(2026, 1, 1)]),
    ("DATE '2026-01-01'", date(2026, 1, 1), ["!"] * 7 + ["2026-01-01", MIDNIGHT, date(2026, 1, 1)]),
    ("NULL", None, [None] * 10),
]
PAIRS = [(sql, value, kind, kept) for sql, value, row in TABLE for kind, kept in zip(TYPES, row, strict=True)]
CASES = [
    pytest.param(*pair, id=f"{pair[0]} into {pair[2]}", marks=() if number % 7 == 0 else pytest.mark.slow)
    for number, pair in enumerate(PAIRS)
]
"""All pairs, of which the normal suite takes every seventh through every way in."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spoken]:
    with opened(tmp_path_factory.mktemp("assign") / "home") as one:
        for i, kind in enumerate(TYPES):
            one.say(f"CREATE TABLE t{i} (x {kind})", f"CREATE TABLE u{i} (x {kind})")
            one.say(f"INSERT INTO u{i} VALUES (NULL)")
            one.home.topic(f"p{i}", schema=f"x {kind}")
        yield one


def close(found: Any, kept: Any) -> bool:
    """Whether a value is the one that is expected, and of its type; FLOAT keeps about seven digits."""
    if isinstance(kept, str) and kept.startswith("~"):
        return abs(found - float(kept[1:])) < 1e-6
    return type(found) is type(kept) and found == kept


def arrow_type(kind: str) -> pa.DataType:
    found = Schema.parse(f"x {kind}").field("x").type
    assert found is not None
    return found


def outcomes(home: Spoken, sql: str, value: Any, kind: str) -> dict[str, Any]:
    """What every way in keeps of a value."""
    i = TYPES.index(kind)

    def after(does: Any, table: str) -> Any:
        try:
            does()
        except RecordRefused as error:
            assert "`x`" in error.message and error.message.startswith("row "), error
            return REFUSED
        return home.rows(f"SELECT x FROM {table}")[-1]["x"]

    def inserted(statement: str) -> Any:
        return after(lambda: home.say(statement), f"t{i}")

    topic = home.home.log.topic(f"p{i}")

    def appended(rows: Any) -> Any:
        try:
            ack = topic.append(rows)
        except RecordRefused as error:
            assert "`x`" in error.message, error
            return REFUSED
        ((_, end),) = ack.offsets.values()
        return topic.read(0, end - 1, end)["x"][0].as_py()

    found = {
        "VALUES": inserted(f"INSERT INTO t{i} VALUES ({sql})"),
        "computed": inserted(f"INSERT INTO t{i} VALUES (coalesce(NULL, {sql}))"),
        "SELECT": inserted(f"INSERT INTO t{i} SELECT {sql}"),
        "UPDATE": after(lambda: home.say(f"UPDATE u{i} SET x = {sql}"), f"u{i}"),
    }
    if not (kind == "TIMESTAMP" and isinstance(value, int | float | Decimal) and not isinstance(value, bool)):
        found["append"] = appended([{"x": value}])  # there, a number is a time in seconds
    if value is not None and not (isinstance(value, int) and value >= 2**63):
        found["Arrow"] = appended(pa.table({"x": [value]}))
    return found


def test_the_rule_takes_and_refuses_what_the_table_says() -> None:
    for sql, value, kind, kept in PAIRS:
        huge = isinstance(value, int) and value >= 2**63
        for column in [[value]] if value is None or huge else [[value], pa.array([value])]:
            take = assigned if isinstance(column, pa.Array) else from_values
            if kept == "!":
                with pytest.raises(Unfit):
                    take(column, arrow_type(kind))
            else:
                assert close(take(column, arrow_type(kind))[0].as_py(), kept), (sql, kind)


@pytest.mark.parametrize(("sql", "value", "kind", "kept"), CASES)
def test_every_way_in_takes_and_refuses_the_same(home: Spoken, sql: str, value: Any, kind: str, kept: Any) -> None:
    for way, found in outcomes(home, sql, value, kind).items():
        if kept == "!":
            assert found is REFUSED, (way, found)
        elif sql == "1e300" and way in ("SELECT", "computed", "UPDATE") and kind == "STRING":
            assert found in ("1e+300", "1e300"), way
        else:
            assert found is not REFUSED and close(found, kept), (way, found)


def test_an_error_names_row_column_value_and_reason(home: Spoken) -> None:
    before = home.rows("SELECT count(*) AS n FROM t2")
    with pytest.raises(RecordRefused) as caught:
        home.say("INSERT INTO t2 VALUES (1), (2), (1.7)")
    assert caught.value.message == "row 3: the value of `x` cannot become BIGINT"
    assert caught.value.detail == "1.7: it would lose its fraction"
    assert home.rows("SELECT count(*) AS n FROM t2") == before  # nothing of the statement was kept


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (float("nan"), "BIGINT"), (float("inf"), "BIGINT"), (float("nan"), "DECIMAL(5, 2)"), (2**200, "DECIMAL(38, 0)"),
        (Decimal("1e-39"), "DECIMAL(38, 38)"), (10**400, "DOUBLE"), ("\ud800", "STRING"), (b"\xff", "STRING"),
        ("2026-01-01T00:00:00.1234567Z", "TIMESTAMP"), (1e30, "TIMESTAMP"), (-(10**12), "TIMESTAMP"),
        ([1, 2.5], "ARRAY<INT>"), ({"a": 1, "b": 2}, "STRUCT<a: INT>"), ({"a": 1.5}, "MAP<STRING, INT>"), ([1], "INT"),
    ],
)  # fmt: skip
def test_what_would_lose_something_is_unfit(value: Any, kind: str) -> None:
    with pytest.raises(Unfit) as caught:
        from_values([None, value], arrow_type(kind), seconds=True)
    assert caught.value.row == 1


@pytest.mark.parametrize(
    ("value", "kind", "kept"),
    [
        (float("nan"), "DOUBLE", "nan"), (float("-inf"), "FLOAT", "-inf"), (-0.0, "DOUBLE", "-0.0"),
        (Decimal("9" * 38), "DECIMAL(38, 0)", "9" * 38), (2**63 - 1, "BIGINT", str(2**63 - 1)),
        (-(2**63), "BIGINT", str(-(2**63))), ("0001-01-01T00:00:00Z", "TIMESTAMP", "0001-01-01 00:00:00+00:00"),
        ("9999-12-31T23:59:59.999999Z", "TIMESTAMP", "9999-12-31 23:59:59.999999+00:00"),
        (1.5, "TIMESTAMP", "1970-01-01 00:00:01.500000+00:00"), ([1, 2.0], "ARRAY<INT>", "[1, 2]"),
        ("text", "BINARY", "b'text'"), ({"a": 1}, "MAP<STRING, INT>", "[('a', 1)]"),
    ],
)  # fmt: skip
def test_the_ends_of_every_type_are_kept(value: Any, kind: str, kept: str) -> None:
    found = from_values([value], arrow_type(kind), seconds=True)
    assert str(found[0].as_py()) == kept
    assert assigned(found, arrow_type(kind)).equals(found) or kept == "nan"


def test_the_command_line_refuses_a_lossy_value_with_its_line(tmp_path: Path) -> None:
    lines = [{"x": 1, "d": 1.25}, {"x": 1.7, "d": 1}]
    file = tmp_path / "in.json"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    arguments = ["t", str(file), "--schema", "x BIGINT, d DECIMAL(5, 2)", "--home", str(tmp_path / "home")]
    done = CliRunner().invoke(append, arguments)
    assert done.exit_code != 0
    assert "line 2: the value of `x` is not BIGINT" in str(done.exception) + done.output


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO wide VALUES (1, 1e400)",
        "INSERT INTO wide VALUES (1, -1e400)",
        "INSERT INTO wide VALUES (1, 1e400 + 1)",
        "UPDATE wide SET c = 1e400",
        "SELECT 1e400 AS c",
    ],
)
def test_a_number_beyond_double_is_refused_and_not_infinite(tmp_path: Path, sql: str) -> None:
    with opened(tmp_path / "home") as home:
        home.say("CREATE TABLE wide (id BIGINT PRIMARY KEY, c DOUBLE)", "INSERT INTO wide VALUES (7, 1e308)")
        with pytest.raises(MillstreamError, match="outside the range of DOUBLE"):
            home.say(sql)
        with pytest.raises(MillstreamError, match="outside the range of DOUBLE"):
            home.home.query("SELECT 1e400 AS c")
        assert home.rows("SELECT c FROM wide") == [{"c": 1e308}]


def test_a_statement_without_a_part_is_refused_in_plain_words(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as home:
        for ask in (home.say, home.home.query):
            with pytest.raises(MillstreamError) as caught:
                ask('SELECT "x"(1)')
            assert "<class" not in str(caught.value)
