"""JSON lines with Arrow: which lines are doubtful, and that cuts of a file change nothing.

`tests/spark/test_native_json.py` compares the rows with Spark's.
"""

from __future__ import annotations

import json
import random
from datetime import UTC, date, datetime
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from millstream.connect.forms import ByteRange
from millstream.engine.input.readers import json_parser
from millstream.engine.input.readers.json_parser import JsonParser, is_native
from millstream.engine.input.readers.json_task import DoubtfulLine, JsonRanges, line_numbers, shares
from millstream.engine.input.readers.json_texts import with_exact_texts
from millstream.engine.input.readers.json_times import converted
from millstream.errors import SourceMissing

INSTANT = pa.timestamp("us", "UTC")
SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string()), ("d", pa.float64()), ("t", INSTANT)])


def parsed(*lines: str | bytes) -> tuple[list[int | None], list[bytes]]:
    """The numbers of the rows, and the doubtful lines."""
    data = b"".join((line if isinstance(line, bytes) else line.encode()) + b"\n" for line in lines)
    found = JsonParser(SCHEMA, ["n"]).parse(data)
    return found.rows["n"].to_pylist(), [line for _, line in found.doubtful]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "   ",
        '{"n": null}',
        "{}",
        '{"n": 5, "other": [{"deep": NaN}]}',
        '{"s": "brace } and { inside"}',
        '{"t": "2026-01-01T00:00:01Z"}',
        '{"t": "2026-01-01 00:00:01.123+01:00", "d": -0.5}',
        '{"s": "\\ud83d\\ude00 ü"}',
    ],
)
def test_an_ordinary_line_is_not_doubtful(line: str) -> None:
    rows, doubtful = parsed('{"n": 1}', line, '{"n": 2}')
    assert rows[0] == 1 and rows[-1] == 2 and len(rows) == 2 + bool(line.strip())
    assert [d for d in doubtful if d.strip()] == []


@pytest.mark.parametrize(
    "line",
    [
        '{"n": 1.0}',
        '{"n": "1"}',
        '{"n": 99999999999999999999}',
        '{"s": 1}',
        '{"n": 1, "n": 2}',
        '{"n": 1}{"n": 2}',
        '{"n": 1} {"n": 2}',
        '{"n": 1} trailing',
        '{"n": 1} }',
        '{"n": 1',
        '{"d": -0}',
        '{"d": Inf}',
        '{"x": Inf}',
        '{"t": "yesterday"}',
        '{"t": "2026-02-30T00:00:00Z"}',
        '{"t": "2026-01-01"}',
        '{"t": 1700000000}',
        '{"s": "\\ud800"}',
        "[1]",
        "garbage",
        ' {"n": 1}',
        b'{"s": "\xff"}',
        b'{"n": 1}\r{"n": 2}',
        '{"d": ' + "1" * 1200 + "}",
        '{"x": ' + "[" * 1000 + "]" * 1000 + "}",
        '{"s": "' + "long" * 20_000 + '"}',
    ],
)
def test_a_line_that_spark_might_read_differently_is_doubtful_and_no_other_is(line: str | bytes) -> None:
    before, after = [f'{{"n": {i}}}' for i in range(600)], [f'{{"n": {i}}}' for i in range(600, 1200)]
    rows, doubtful = parsed(*before, line, *after)
    assert doubtful == [line if isinstance(line, bytes) else line.encode()]
    assert rows == list(range(1200))


def test_many_lines_that_arrow_refuses_are_left_to_spark() -> None:
    lines = [f'{{"n": "{i}"}}' for i in range(5_000)]
    rows, doubtful = parsed('{"n": 1}', *lines)
    assert len(rows) + len(doubtful) == 5_001 and set(doubtful) >= {line.encode() for line in lines}


def test_a_line_without_a_required_value_is_doubtful() -> None:
    found = JsonParser(SCHEMA, ["n"], "t").parse(b'{"n": 1, "t": "2026-01-01T00:00:00Z"}\n{"n": 2}\n')
    assert found.rows["n"].to_pylist() == [1]
    assert found.doubtful == [(38, b'{"n": 2}')]


def test_decimals_beyond_their_digits_are_doubtful() -> None:
    parser = JsonParser(pa.schema([("m", pa.decimal128(4, 2))]), ["m"])
    found = parser.parse(b'{"m": 99.99}\n{"m": 100}\n{"m": -100.5}\n{"m": null}\n{"m": 0.125}\n')
    assert [str(m) for m in found.rows["m"].to_pylist()] == ["99.99", "None"]
    assert len(found.doubtful) == 3


def test_types_that_arrow_reads_otherwise_are_not_native() -> None:
    assert is_native(pa.list_(pa.struct([("x", pa.float64())])))
    for kind in (None, pa.binary(), pa.map_(pa.string(), pa.int64()), pa.list_(INSTANT), pa.list_(pa.decimal128(4, 2))):
        assert not is_native(kind)


def test_times_of_common_spellings_are_converted_and_others_are_not() -> None:
    texts = [
        "2026-01-01T00:00:01Z",
        "2026-01-01 00:00:01.5",
        None,
        "2026-01-01T01:00:00+01:00",
        "2026-13-01T00:00:00Z",
        "x",
    ]
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    wanted = [moment.replace(second=1), moment.replace(second=1, microsecond=500_000), None, moment, None, None]
    assert converted(pa.array(texts), INSTANT).to_pylist() == wanted
    assert converted(pa.array(texts).slice(1, 1), INSTANT).to_pylist() == wanted[1:2]
    assert converted(pa.array([None], pa.string()), INSTANT).to_pylist() == [None]
    days = ["2024-02-29", "2023-02-29", "2024-2-9", None]
    assert converted(pa.array(days), pa.date32()).to_pylist() == [date(2024, 2, 29), None, None, None]
    local = converted(pa.array(["2026-01-01T00:00:01", "2026-01-01T00:00:01Z"]), pa.timestamp("us"))
    assert local.to_pylist() == [datetime(2026, 1, 1, 0, 0, 1), None]  # noqa: DTZ001 - it has no zone


def test_a_value_of_a_text_column_keeps_its_spelling() -> None:
    schema = pa.schema([("s", pa.string()), ("o", pa.struct([("z", pa.string())])), ("a", pa.list_(pa.string()))])
    line = '{"n": 1.50, "s": 1.50, "o": {"z": {"q": [ 1 ]}}, "a": ["x", 2e3, null], "s": null}'
    assert json.loads(with_exact_texts(line, schema)) == {
        "n": 1.5,
        "s": None,
        "o": {"z": '{"q": [ 1 ]}'},
        "a": ["x", "2e3", None],
    }
    for broken in ('{"s": 1.50', '{"s" 1}', '{"s": 1,}', "{s: 1}", ""):
        assert with_exact_texts(broken, schema) == broken


def _file(path: Path, seed: int) -> bytes:
    dice = random.Random(seed)
    lines = [
        dice.choice((f'{{"n": {i}}}', f'{{"n": {i}, "s": "{"x" * dice.randrange(40)}"}}', f'{{"n": "{i}"}}', "", "bad"))
        for i in range(300)
    ]
    ends = [dice.choice(("\n", "\n", "\n", "\r\n", "\r")) for _ in lines]
    data = "".join(a + b for a, b in zip(lines, ends, strict=True)).encode()
    path.write_bytes(b"\xef\xbb\xbf" + data[: -dice.randrange(1, 3)])
    return data


@pytest.mark.parametrize("seed", range(4))
def test_any_cut_of_a_file_gives_the_same_rows_places_and_lines(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_parser, "_MOST_REFUSALS", 1.0)
    path = tmp_path / "lines.json"
    _file(path, seed)
    size = path.stat().st_size
    whole = JsonRanges(SCHEMA, ("n",), [ByteRange(str(path), 0, size, 3, 1000)], details=True)
    expected = pa.Table.from_batches(whole.batches(), whole.schema)
    assert expected.num_rows > 200
    dice = random.Random(seed)
    for count in (1, 2, 7, 50):
        cuts = sorted({0, size, *(dice.randrange(size) for _ in range(count))})
        ranges = [ByteRange(str(path), a, b, 3, 1000) for a, b in pairwise(cuts)]
        found = JsonRanges(SCHEMA, ("n",), ranges, details=True)
        assert pa.Table.from_batches(found.batches(), found.schema).equals(expected)
    lines = path.read_bytes().replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    for row in expected.to_pylist():
        shown = row["$raw"] or f'{{"n": {row["n"]}'
        assert lines[row["$line"]].removeprefix(b"\xef\xbb\xbf").startswith(shown.encode())


def test_doubtful_lines_are_recorded_and_can_be_read_alone(tmp_path: Path) -> None:
    path = tmp_path / "lines.json"
    path.write_bytes(b'{"n": 1}\nbad\n\n{"n": "x"}\n')
    ranges = JsonRanges(SCHEMA, ("n",), [ByteRange(str(path), 0, 27)], details=True)
    seen: list[DoubtfulLine] = []
    rows = pa.Table.from_batches(ranges.batches(seen.append), ranges.schema).to_pylist()
    assert [(d.at, d.text, d.raw) for d in seen] == [(9, None, "bad"), (14, '{"n":"x"}', '{"n": "x"}')]
    assert ranges.of_doubtful(seen).to_pylist() == rows[1:]
    assert [(r["$pos"], r["$line"]) for r in rows] == [(0, 0), (9, 1), (14, 3)]


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    ranges = JsonRanges(SCHEMA, ("n",), [ByteRange(str(tmp_path / "gone.json"), 0, 5)])
    with pytest.raises(SourceMissing, match=r"gone\.json"):
        list(ranges.batches())


def test_tasks_read_equal_shares() -> None:
    ranges = [ByteRange("a", 0, 50 << 20), ByteRange("b", 0, 90 << 20, 1), ByteRange("c", 10, 1 << 20)]
    for tasks in (1, 2, 3):
        dealt = shares(ranges, tasks)
        sizes = [sum(r.end - r.start for r in share) for share in dealt]
        assert len(dealt) % tasks == 0 and max(sizes) - min(sizes) <= len(dealt) and sum(sizes) == (141 << 20) - 10
    assert len(shares([ByteRange("a", 0, 100)], 8)) == 1


def test_line_numbers_count_all_kinds_of_breaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"a\nb\r\nc\rd\r\n\r\ne")
    monkeypatch.setattr("millstream.engine.input.readers.json_task.BLOCK", 2)
    assert line_numbers(str(path), np.array([0, 2, 5, 7, 12])).tolist() == [0, 1, 2, 3, 5]


def test_a_block_may_be_shorter_than_its_longest_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_parser, "_PIECE", 16)
    long = '{"n": 7, "s": "' + "y" * 300 + '"}'
    assert parsed('{"n": 1}', long, '{"n": "z"}', '{"n": 2}') == ([1, 7, 2], [b'{"n": "z"}'])
