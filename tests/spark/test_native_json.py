"""JSON lines that Arrow parses are what Spark's own reader gives: rows, errors and places."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from millstream.connect.forms import ByteRange
from millstream.connect.port import MISTYPED, UNPARSABLE
from millstream.connect.text_lines import is_json_for_spark
from millstream.engine.input.readers import json_parser, json_reader
from millstream.engine.input.readers.columns import CORRUPT, TEXT_OPTIONS, Wanted, ddl
from millstream.model.source_options import SourceOptions
from millstream.model.types.duration import Duration
from millstream.model.types.schema import Schema
from millstream.plan.plan import PlannedSource

pytestmark = pytest.mark.spark

OPTIONS = SourceOptions(None, Duration(0), Duration(1), None, None)
SCHEMA = Schema.parse(
    "i INT, l BIGINT, d DOUBLE, f FLOAT, s STRING, b BOOLEAN, t TIMESTAMP, n TIMESTAMP_NTZ, y DATE, m DECIMAL(12, 3), "
    "k TINYINT, o STRUCT<x: BIGINT, z: STRING>, a ARRAY<BIGINT>"
)
OTHER = (
    '"text"',
    '"7"',
    "7",
    "-0",
    "1.5",
    "1e3",
    "true",
    "null",
    "{}",
    '{"x":1}',
    "[]",
    "[1]",
    '"2026-01-01"',
    '"NaN"',
)
NUMBERS = ("0", "-1", "2147483648", "9223372036854775807", "9223372036854775808", "1.0", "01", "+1", "1e2", "1E400",
           "0.1", "-1.5e-7", "123456789.125", "1.7976931348623157e308", "4.9e-324", "16777217", "0.30000001192092896",
           "NaN", "Infinity", "-Infinity", "INF", "Inf", "-Inf", "nan", "99999999999.9995", "1.0005", ".5", "5.",
           "9007199254740993", "33554433.5", "7.038531e-26", "1" * 40, "0." + "3" * 60)  # fmt: skip
TIMES = ("2026-01-01T00:00:01Z", "2026-01-01T00:00:01.25Z", "2026-02-31T00:00:00Z", "2026-01-01 10:11:12.123456Z",
         "2026-01-01T00:00:01.1234567Z", "2026-01-01T00:00:01+01:00", "2026-01-01T00:00:01+0100",
         "2026-01-01T00:00:01+01", "2026-01-01T00:00:01", "2026-01-01 00:00:01.5", "2026-01-01T00:00", "2026-01-01T00",
         "2026-01-01", "2026-1-1",
         "2026-01-01T24:00:00Z", "2026-01-01T23:59:60Z", "0000-01-01T00:00:00Z", "0001-01-01T00:00:00Z",
         "9999-12-31T23:59:59.999999Z", "10000-01-01T00:00:00Z", "2026-01-01T00:00:01z", "2026-01-01T00:00:01 Z",
         "2026-01-01t00:00:01Z", "20260101T000001Z", "2026-01-01T00:00:01-24:00", "2026-01-01T00:00:01+14:00",
         "2026-01-01T00:00+01:00", "2026-01-01T00:00:01UTC", "2026-01-01T00:00:01Europe/Paris", "", " 2026-01-01 ",
         "2026-01-01T-1:00:00Z", "-001-01-01T00:00:00Z", "2026-01-01T00:00:01.Z", "1700000000", "+026-01-01",
         "2024-02-29", "2023-02-29", "1969-12-31T23:59:59.999Z", "1500-02-29T00:00:00Z", "2026-01-0\u0661")  # fmt: skip
TEXTS = ("", "a", "ü€😀", "a b", "brace }", "{", "quote \\\" end", "\\u00e9", "\\ud83d\\ude00", "\\ud800", "\\/", "\\n",
         "\\x", "NaN", "Infinity", "Inf", "\\u0000", "tab\tin")  # fmt: skip


def _value(dice: random.Random, kind: str) -> str:
    def number() -> str:
        return dice.choice((str(dice.randrange(-99, 99)), dice.choice(NUMBERS), repr(dice.gauss(0, 1e5))))

    of: dict[str, Callable[[], str]] = {
        "s": lambda: '"' + dice.choice(TEXTS) + '"',
        "b": lambda: dice.choice(("true", "false")),
        "o": lambda: '{"x":' + number() + ',"z":"' + dice.choice(TEXTS) + '","w":[{}]}',
        "a": lambda: "[" + ",".join(number() for _ in range(dice.randrange(3))) + "]",
        **dict.fromkeys("tny", lambda: f'"{dice.choice(TIMES)}"'),
    }
    chance = dice.random()
    if chance < 0.12:
        return "null"
    return dice.choice(OTHER) if chance < 0.15 else of.get(kind, number)()


def _line(dice: random.Random) -> bytes:
    names = [n for n in SCHEMA.names if dice.random() < 0.6]
    if dice.random() < 0.15:
        names += dice.choices((*SCHEMA.names, "unknown", "S", "\\u0073"), k=dice.randrange(1, 3))
    easy = dice.random() < 0.7
    values = {n: str(dice.randrange(100)) for n in "ildfmk"} | {"s": '"x"', "b": "true", "y": '"2026-01-01"'}
    values |= {n: f'"2026-01-01T00:00:{dice.randrange(10, 60)}{"Z" if n == "t" else ""}"' for n in "tn"}
    values |= {"o": '{"x":1,"z":"q"}', "a": "[1,2]"}
    hard = dice.choice(names) if names else ""
    space = " " if dice.random() < 0.2 else ""
    shown = [(n, values[n] if n in values and (easy or n != hard) else _value(dice, n)) for n in names]
    line = "{" + ",".join(f'"{n}"{space}:{space}{v}' for n, v in shown) + "}"
    chance = dice.random()
    if chance < 0.02:
        line = line[: dice.randrange(len(line) + 1)]
    elif chance < 0.04:
        at = dice.randrange(len(line))
        line = line[:at] + dice.choice('{}[],:"\\x 0-eN') + line[at + 1 :]
    return line.encode()


def _read(spark: SparkSession, path: Path, cuts: list[int] | None = None) -> dict[int, tuple[Any, ...]]:
    """By position: the columns of a row, and why it is an error."""
    size = path.stat().st_size
    ends = sorted({*(cuts or ()), size})
    ranges = [ByteRange(str(path), a, b) for a, b in zip([0, *ends], ends, strict=False)]
    stage = PlannedSource("s", None, SCHEMA, OPTIONS, positions=True)  # type: ignore[arg-type]
    wanted = Wanted(stage, 0)
    frame = json_reader.read(spark, wanted, ranges, by_line=True).selected(wanted, by_line=True)
    rows = frame.selectExpr("`$pos`", *(f"`{n}`" for n in _shown()), "`$bad`", *_as_text()).toArrow().to_pylist()
    return {r["$pos"]: tuple(r.values())[1:] for r in rows}


def _shown() -> list[str]:
    return [n for n in SCHEMA.names if n not in "dftny"]


def _as_text() -> list[str]:
    """Values that cannot be compared or shown in Python: not a number, and years beyond its range."""
    return [
        "CAST(d AS STRING) AS d",
        "CAST(f AS STRING) AS f",
        "unix_micros(t) AS t",
        "CAST(n AS STRING) AS n",
        "unix_date(y) AS y",
    ]


def _reference(spark: SparkSession, path: Path) -> list[tuple[Any, ...]]:
    """The rows of Spark's own reader, in order."""
    frame = spark.read.schema(ddl(SCHEMA, CORRUPT)).options(**TEXT_OPTIONS).json(str(path))
    nothing = " AND ".join(f"`{n}` IS NULL" for n in SCHEMA.names)
    bad = f"IF(`$corrupt` IS NULL, 0, IF({nothing}, {UNPARSABLE}, {MISTYPED})) AS `$bad`"
    rows = frame.selectExpr("*", bad).selectExpr(*(f"`{n}`" for n in _shown()), "`$bad`", *_as_text())
    return [tuple(r.values()) for r in rows.coalesce(1).toArrow().to_pylist()]


def _compared(spark: SparkSession, path: Path, seed: int, count: int) -> None:
    dice = random.Random(seed)
    lines = [line for line in (_line(dice) for _ in range(count)) if _is_one_record(line)]
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    found = _read(spark, path, [dice.randrange(path.stat().st_size) for _ in range(5)])
    expected, at = {}, 0
    for line, row in zip(lines, _reference(spark, path), strict=True):
        expected[at] = row
        at += len(line) + 1
    assert sorted(found) == sorted(expected)
    bad = len(_shown())
    for line, (place, row) in zip(lines, sorted(expected.items()), strict=True):
        got = found[place]
        if is_json_for_spark(line):  # of an error, the columns that could be read are of no use
            assert (got == row or got[bad]) and bool(got[bad]) == bool(row[bad]), (line, got, row)
        else:  # Spark could lose something of it
            assert got[bad] == UNPARSABLE or got == row, (line, got, row)


def _is_one_record(line: bytes) -> bool:
    """Whether Spark's reader makes one row of a line: not of an empty line, and not of an array."""
    return bool(line.strip()) and not line.strip().startswith(b"[")


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow judges every line that it may, and does it in this process."""
    monkeypatch.setattr(json_parser, "_MOST_REFUSALS", 1.0)
    monkeypatch.setattr(json_reader, "LOCAL_BYTES", 1 << 40)


@pytest.mark.usefixtures("patient")
def test_random_lines_are_what_spark_reads(spark: SparkSession, tmp_path: Path) -> None:
    _compared(spark, tmp_path / "lines.json", 0, 4_000)


def test_random_lines_on_the_executors_are_what_spark_reads(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_reader, "LOCAL_BYTES", 0)
    _compared(spark, tmp_path / "lines.json", 1, 2_000)


@pytest.mark.slow
@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("seed", range(100, 110))
def test_a_million_random_lines_are_what_spark_reads(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    _compared(spark, tmp_path / "lines.json", seed, 100_000)
