"""Lines that are decoded by place are what Arrow parses; whatever differs is left to it."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json as pj
import pytest

from millstream.engine.input.readers.json_parser import JsonParser, _lines
from millstream.engine.input.readers.json_places import decoded
from tests.seeds import run_seed

TYPES = {"id": pa.int64(), "n": pa.int32(), "name": pa.string(), "at": pa.string()}
SCHEMA = pa.schema(list(TYPES.items()))
FIRST = b'{"id":1,"n":2,"name":"x","at":"2026-01-01"}'


def decode(*lines: bytes) -> tuple[list[bool], list[dict[str, Any]]]:
    """Which lines were decoded, and their values."""
    data = b"\n".join(lines) + b"\n"
    mask, columns = decoded(data, _lines(data), TYPES)
    return mask.tolist(), pa.table(columns).to_pylist() if columns else []


def test_numbers_and_texts_of_all_lengths() -> None:
    ids = [0, 1, -1, 9, 10, 12345678, 123456789, 9_999_999_999_999_999, -9_999_999_999_999_999, -10, 100_000_000]
    names = ["", "a", "abcd", "abcde", "abcdefgh", "twelve bytes", "thirteen byte", "ü€😀", "x" * 300, "{}", ',"id":7']
    names[-1] = ",:}{"
    lines = [
        f'{{"id":{i},"n":{k},"name":"{name}","at":"2026-01-0{k % 9 + 1}"}}'.encode()
        for k, (i, name) in enumerate(zip(ids, names, strict=True))
    ]
    mask, rows = decode(*lines)
    assert all(mask)
    assert [r["id"] for r in rows] == ids
    assert [r["name"] for r in rows] == names
    assert [r["n"] for r in rows] == list(range(len(ids)))


@pytest.mark.parametrize(
    "line",
    [
        b'{"id":01,"n":2,"name":"x","at":"2026-01-01"}',
        b'{"id":-0,"n":2,"name":"x","at":"2026-01-01"}',
        b'{"id":-,"n":2,"name":"x","at":"2026-01-01"}',
        b'{"id":,"n":2,"name":"x","at":"2026-01-01"}',
        b'{"id":+1,"n":2,"name":"x","at":"2026-01-01"}',
        b'{"id":1.5,"n":2,"name":"x","at":"2026-01-01"}',
        b'{"id":1e3,"n":2,"name":"x","at":"2026-01-01"}',
        b'{"id":0x1,"n":2,"name":"x","at":"2026-01-01"}',
        b'{"id":null,"n":2,"name":"x","at":"2026-01-01"}',
        b'{"id":true,"n":2,"name":"x","at":"2026-01-01"}',
        b'{"id":"1","n":2,"name":"x","at":"2026-01-01"}',
        b'{"id":1 ,"n":2,"name":"x","at":"2026-01-01"}',
        b'{"id": 1,"n":2,"name":"x","at":"2026-01-01"}',
        b'{ "id":1,"n":2,"name":"x","at":"2026-01-01"}',
        b'{"id":1,"n":2,"name":"x","at":"2026-01-01" }',
        b'{"id":1,"n":2,"name":"x","at":"2026-01-01",}',
        b'{"id":1,"n":2,"name":"x","at":"2026-01-01"}}',
        b'{"id":1,"n":2,"name":"x" "at":"2026-01-01"}',
        b'{"id":1,"n":2,"name":"x";"at":"2026-01-01"}',
        b'{"id":1;"n":2,"name":"x","at":"2026-01-01"}',
        b'{"id";1,"n":2,"name":"x","at":"2026-01-01"}',
        b'{"ie":1,"n":2,"name":"x","at":"2026-01-01"}',
        b'{"id":1,"n":2,"name":null,"at":"2026-01-01"}',
        b'{"id":1,"n":2,"name":7,"at":"2026-01-01"}',
        b'{"n":2,"id":1,"name":"x","at":"2026-01-01"}',
        b'{"id":1,"n":2,"at":"2026-01-01","name":"x"}',
        b'{"id":1,"id":2,"name":"x","at":"2026-01-01"}',
        b'{"id":1,"n":2147483648,"name":"x","at":"2026-01-01"}',
        b'{"id":1,"n":-2147483649,"name":"x","at":"2026-01-01"}',
        b'{"id":12345678901234567,"n":2,"name":"x","at":"2026-01-01"}',
        b'{"id":99999999999999999999,"n":2,"name":"x","at":"2026-01-01"}',
        b'{"id":1,"n":2,"name":"x","at":"2026-01-01","more":"y"}',
        b'{"id":1,"n":2,"name":"x"}',
        b'{"id":{"a":1},"n":2,"name":"x","at":"2026-01-01"}',
        b'{"id":[1],"n":2,"name":"x","at":"2026-01-01"}',
        b"{}",
        b"",
    ],
)
def test_a_line_that_differs_is_left_to_arrow(line: bytes) -> None:
    mask, rows = decode(FIRST, line, FIRST)
    expected = [True, False, True] if line else [True, True]
    assert mask == expected
    assert rows == [{"id": 1, "n": 2, "name": "x", "at": "2026-01-01"}] * 2


@pytest.mark.parametrize("text", [b'"a\\"b"', b'"a\\nb"', b'"a\tb"', b'"a\x00b"'])
def test_a_block_with_escapes_or_control_characters_is_left_to_arrow(text: bytes) -> None:
    mask, _ = decode(FIRST, b'{"id":1,"n":2,"name":' + text + b',"at":"2026-01-01"}')
    assert not any(mask)


def test_columns_that_lines_lack_and_keys_that_nobody_reads() -> None:
    data = b'{"name":"a","other":17,"more":"text","id":5}\n{"name":"b","other":-3,"more":"","id":6}\n'
    rows = JsonParser(SCHEMA, list(TYPES)).parse(data).rows.to_pylist()
    assert rows == [
        {"id": 5, "n": None, "name": "a", "at": None},
        {"id": 6, "n": None, "name": "b", "at": None},
    ]


def _random_line(dice: random.Random, changed: float = 0.2) -> bytes:
    """A line like the others, with one character changed now and then."""
    number = dice.choice([dice.randrange(10), dice.randrange(-(10**6), 10**6), dice.randrange(10**15)])
    name = "".join(dice.choice("abc ,:{}üx") for _ in range(dice.randrange(20)))
    line = f'{{"id":{number},"n":{dice.randrange(100)},"name":"{name}","at":"2026-01-{dice.randrange(10, 32)}"}}'
    if dice.random() < changed:
        at = dice.randrange(len(line))
        line = line[:at] + dice.choice('{}[],:" 0-eN1tn.') + line[at + dice.randrange(2) :]
    return line.encode()


def test_random_lines_are_what_arrow_parses() -> None:
    dice = random.Random(run_seed() + 7)
    options = pj.ParseOptions(explicit_schema=SCHEMA, unexpected_field_behavior="ignore")
    found = 0
    for _ in range(60):
        lines = [FIRST, *(_random_line(dice) for _ in range(40))]
        mask, rows = decode(*lines)
        kept = [line for line, good in zip(lines, mask, strict=True) if good]
        assert pj.read_json(pa.BufferReader(b"\n".join(kept)), parse_options=options).to_pylist() == rows
        found += len(kept)
    assert found > 60 * 30


def test_decoded_and_parsed_lines_keep_their_order() -> None:
    dice = random.Random(run_seed() + 8)
    lines = [FIRST, *(_random_line(dice, 0.008) for _ in range(2_000))]
    parser = JsonParser(SCHEMA, list(TYPES))
    whole = parser.parse(b"\n".join(lines))
    assert (np.diff(whole.places) > 0).all()
    single = [parser.parse(line) for line in lines]
    assert whole.rows.to_pylist() == [row for each in single for row in each.rows.to_pylist()]
    assert [text for _, text in whole.doubtful] == [text for each in single for _, text in each.doubtful]
