"""Hostile files of every format, and what a plain Python parser makes of them."""

from __future__ import annotations

import csv
import gzip
import json
import random
import re
from dataclasses import dataclass, field
from pathlib import Path

SCHEMA = "a BIGINT, s STRING, ts TIMESTAMP"
TIME = "2026-01-01T00:00:00Z"

JSON_LINES = [
    b'{"a":1,"s":"b\xffd","ts":"%t"}',
    b'{"a":2,"s":"x","ts":"%t","unknown":"\xff"}',
    b"\xff\xfe",
    b'{"a":3,"s":"\\ud800","ts":"%t"}',
    b'{"a":4,"s":"\\udc00\\ud800","ts":"%t"}',
    b'{"a":5,"s":"\\ud83d\\ude00","ts":"%t"}',
    b'{"a":6,"s":"\\\\ud800","ts":"%t"}',
    b'{"a":7,"s":"n\x00l","ts":"%t"}',
    b'{"a":8,"s":"\\u0000","ts":"%t"}',
    b'{"a":9,"s":"\xc0\x80","ts":"%t"}',
    b'{"a":10,"s":"\xed\xa0\x80","ts":"%t"}',
    b"",
    b"   \t",
    b"[" * 5000,
    b'{"a":' + b"9" * 2000 + b',"ts":"%t"}',
    b'{"a":99999999999999999999,"s":"x","ts":"%t"}',
    b'{"a":9223372036854775807,"s":"max","ts":"%t"}',
    b'{"a":-9223372036854775808,"s":"min","ts":"%t"}',
    b'{"a":1.5,"s":"x","ts":"%t"}',
    b'{"a":1,"a":2,"s":"twice","ts":"%t"}',
    b'{"a":11,"s":"x","ts":"%t"} trailing',
    b'{"a":12,"s":"x","ts":"%t"}{"a":13,"s":"y","ts":"%t"}',
    b'{"a":14,"s":"x","ts":"%t"},{"a":15,"s":"y","ts":"%t"}',
    b'[{"a":16,"s":"x","ts":"%t"}]',
    b"null",
    b"{}",
    b'"text"',
    b'{"a":"17","s":"x","ts":"%t"}',
    b'{"a":18,"s":{"q":1},"ts":"%t"}',
    b'{"a":NaN,"s":"x","ts":"%t"}',
    b"{'a':19,'s':'x','ts':'%t'}",
    b'{"a":20,"s":"cut',
    b'{"a":21,"s":"cr","ts":"%t"}\r{"a":22,"s":"cr","ts":"%t"}',
    b'{"a":23,"s":"brace } in text","ts":"%t"}',
    b'{"a":24,"s":"' + b"long" * 50_000 + b'","ts":"%t"}',
    b'{"a":25,"s":"year","ts":"0000-12-31T23:59:59Z"}',
    b'{"a":26,"s":"year","ts":"0001-01-01T00:00:00Z"}',
    b'{"a":27,"s":"no time"}',
    b'{"a":28,"s":"when","ts":"yesterday"}',
    b'{"A":29,"s":"case","ts":"%t"}',
]
CSV_LINES = [
    b"1,b\xffd,%t",
    b"\xff\xfe\x00",
    b"2,n\x00l,%t",
    b"3,\xc0\x80,%t",
    b"",
    b"   ",
    b'4,"a, b",%t',
    b'5,"never closed,%t',
    b'6,"it""s",%t',
    b"7,too,%t,many",
    b"8,few",
    b"nine,x,%t",
    b"99999999999999999999,x,%t",
    b"10,cr,%t\r11,cr,%t",
    b"12," + b"long" * 50_000 + b",%t",
    b"13,x,0001-01-01T00:00:00Z",
    b"14,x,yesterday",
    b"15,x,",
    b"a,s,ts",
    "16,ü€😀,%t".encode(),
]


@dataclass
class Expected:
    """What must come of a folder: good values of `a`, and bad lines by file and number."""

    good: list[tuple[int | None, str | None]] = field(default_factory=list)
    bad: set[tuple[str, int]] = field(default_factory=set)
    lines: int = 0


def split(data: bytes) -> list[bytes]:
    """Lines end with LF, CR or both."""
    found = re.split(rb"\r\n|\n|\r", data.removeprefix(b"\xef\xbb\xbf"))
    return found[:-1] if found and not found[-1] else found


def mutated(rng: random.Random, form: str, line: bytes) -> bytes:
    """A line with some bytes changed, dropped or put in, but not in its time; it stays one line."""
    data = bytearray(line)
    for _ in range(rng.randint(0, 3)):
        at = rng.randrange(len(data) + 1)
        time = data.find(TIME.encode())
        if time <= at <= time + len(TIME):
            continue
        kind = rng.randrange(3)
        if kind == 0 and at < len(data):
            data[at] = rng.randrange(256)
        elif kind == 1 and at < len(data):
            del data[at]
        else:
            data.insert(at, rng.choice(b'{}[]",:\\\x00\xff\xed\xe2\x80 0'))
    if form == "csv" and b'"' in data:  # what a quote in the middle of a cell means, parsers do not agree on
        return line
    return bytes(data).replace(b"\n", b" ")


def valid(rng: random.Random, form: str) -> bytes:
    a, s = rng.randrange(10**6), rng.choice(["plain", "ümlaut", "😀", "x y"])
    if form == "json":
        return json.dumps({"a": a, "s": s, "ts": TIME}, ensure_ascii=rng.random() < 0.5).encode()
    return f"{a},{s},{TIME}".encode()


def folder(rng: random.Random, form: str, path: Path, fuzzed: int) -> Expected:
    """Write a folder of hostile files, and say what must come of it."""
    path.mkdir(parents=True)
    corpus = [line.replace(b"%t", TIME.encode()) for line in (JSON_LINES if form == "json" else CSV_LINES)]
    header = b"a,s,ts\n" if form == "csv" else b""
    plain = [valid(rng, form) for _ in range(50)]
    some = [mutated(rng, form, valid(rng, form)) if rng.random() < 0.5 else valid(rng, form) for _ in range(fuzzed)]
    mixed = [x for pair in zip(corpus, (valid(rng, form) for _ in corpus), strict=True) for x in pair]
    files = {
        "plain": header + b"\n".join(plain) + b"\n",
        "corpus": header + b"\n".join(mixed) + b"\n",
        "fuzzed": header + b"\n".join(some),
        "crlf": header.replace(b"\n", b"\r\n") + b"\r\n".join(plain) + b"\r\n",
        "bom": b"\xef\xbb\xbf" + header + b"\n".join(plain),
        "empty": b"",
        "blank": header + b"\n\n\n" + plain[0] + b"\n\n",
        "pattern[1]{x}*": header + b"\n".join(plain[:3]),
        "wide": (header + b"\n".join(plain[:4])).decode().encode("utf-16"),
        "garbage": rng.randbytes(2000),
    }
    expected = Expected()
    for name, data in files.items():
        file = path / f"{name}.{form}"
        file.write_bytes(data)
        _expect(expected, form, str(file), data)
    packed = header + b"\n".join(plain)
    (path / f"packed.{form}.gz").write_bytes(gzip.compress(packed))
    _expect(expected, form, str(path / f"packed.{form}.gz"), packed)
    return expected


def _expect(expected: Expected, form: str, name: str, data: bytes) -> None:
    lines = list(enumerate(split(data)))
    if form == "csv":
        first = next((i for i, line in lines if line.strip()), None)
        if first is None:
            return
        if lines[first][1] != b"a,s,ts":  # the whole file is one error
            expected.bad.add((name, 0))
            expected.lines += 1
            return
        lines = lines[first + 1 :]
    for number, line in lines:
        if not line.strip():
            continue
        expected.lines += 1
        record = _json(line) if form == "json" else _csv(line)
        if record is None:
            expected.bad.add((name, number))
        else:
            expected.good.append(record)


def _json(line: bytes) -> tuple[int | None, str | None] | None:
    """An object with a time, and nothing of a wrong type; as Python's own parser has it."""
    try:
        record = json.loads(line.decode("utf-8"), parse_constant=_never)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or (record.get("ts") != TIME and record.get("ts") != "0001-01-01T00:00:00Z"):
        return None
    a, s = record.get("a"), record.get("s")
    if a is not None and (type(a) is not int or not -(2**63) <= a < 2**63):
        return None
    if isinstance(s, dict | list):
        s = json.dumps(s, separators=(",", ":"))
    elif isinstance(s, bool):
        s = str(s).lower()
    elif s is not None:
        s = str(s)
    if any(0xD800 <= ord(c) < 0xE000 for c in json.dumps(record, ensure_ascii=False)):
        return None
    return a, s


def _never(name: str) -> None:
    raise ValueError(name)


def _csv(line: bytes) -> tuple[int | None, str | None] | None:
    try:
        text = line.decode("utf-8")
    except ValueError:
        return None
    if "\x00" in text or text.count('"') % 2:
        return None
    csv.field_size_limit(10**7)
    (cells,) = csv.reader([text])
    if len(cells) != 3 or cells[2] not in (TIME, "0001-01-01T00:00:00Z"):
        return None
    a = cells[0]
    if a and not re.fullmatch(r"[+-]?\d{1,18}", a, re.ASCII):
        return None
    return (int(a) if a else None), cells[1] or None
