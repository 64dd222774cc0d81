"""COPY: files into stored tables, whole or not at all; what is wrong with a file is named by file and line."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millstream.errors import (
    DefinitionError,
    MillstreamError,
    RecordRefused,
    SourceMissing,
    SourceUnreadable,
    Unsupported,
)
from millstream.model.types.assignment import Unfit
from millstream.model.types.schema import Schema
from millstream.model.types.text_values import _read, fit, from_texts
from tests.unit.live.world import Spoken, opened

TABLE = "CREATE TABLE t (k INT PRIMARY KEY, v STRING, n DECIMAL(5, 2) NOT NULL)"


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spoken]:
    with opened(tmp_path_factory.mktemp("copy") / "home") as spoken:
        spoken.say(TABLE)
        yield spoken


def copied(one: Spoken, path: Path, options: str = "", columns: str = "") -> list[tuple[Any, ...]]:
    """The rows that a COPY adds to an empty table."""
    one.say("DELETE FROM t", f"COPY t {columns} FROM '{path}' {options}")
    return [tuple(r.values()) for r in one.rows("SELECT * FROM t ORDER BY k")]


def test_csv(one: Spoken, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('\ufeffN,k,v\n1.5,1,a\n\n 2 ,2,"b\n""c"", d"\r\n3,3,\n4,4,""\n5,5,NULL\n', encoding="utf-8")
    expected = [(1, "a", 1.5), (2, 'b\n"c", d', 2), (3, None, 3), (4, "", 4), (5, "NULL", 5)]
    assert copied(one, path) == expected
    assert (
        copied(one, path, "(FORMAT csv, HEADER)") == copied(one, path, "WITH (FORMAT 'csv', HEADER true)") == expected
    )
    assert copied(one, path, "CSV HEADER") == expected
    assert copied(one, path, "(NULL 'NULL')")[4] == (5, None, 5)
    path.write_text("1.25;10\n")
    assert copied(one, path, "(HEADER false, DELIMITER ';')", "(n, k)") == [(10, None, Decimal("1.25"))]
    path.write_text("")
    assert copied(one, path) == []
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(b"k,n\n7,1\n"))
    assert copied(one, tmp_path / "b.csv.gz", "(FORMAT csv)") == [(7, None, 1)]


def test_json_parquet_folders_and_patterns(one: Spoken, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"k": 1, "N": 0.1}\n\n{"n": 2, "k": 2, "v": "x"}\n')
    assert copied(one, tmp_path / "a.json") == [(1, None, Decimal("0.10")), (2, "x", 2)]
    pq.write_table(pa.table({"n": [1.5], "K": [7]}), tmp_path / "a.parquet")
    assert copied(one, tmp_path / "a.parquet") == [(7, None, 1.5)]
    (tmp_path / "many").mkdir()
    for name, text in (("1.csv", "k,n\n1,1\n"), ("2.csv", "n,k\n2,2\n"), (".hidden", "x"), ("_part", "x")):
        (tmp_path / "many" / name).write_text(text)
    assert copied(one, tmp_path / "many", "(FORMAT csv)") == copied(one, tmp_path / "many" / "*.csv")
    assert copied(one, tmp_path / "many", "(FORMAT csv)") == [(1, None, 1), (2, None, 2)]


BAD: list[tuple[str, str | bytes, str]] = [
    ("a.csv", 'k,v,n\n1,a,1\n2,"b\nc",2\n\n3,d,abc\n', "a.csv, line 6: the value of `n` cannot become DECIMAL"),
    ("a.csv", "k,v,n\n1,a,1.005\n", "a.csv, line 2: the value of `n`"),
    ("a.csv", "k,v,n\n99999999999,a,1\n", "a.csv, line 2: the value of `k`"),
    ("a.csv", "k,v,n\n1,a,1\n2,b\n", "a.csv, line 3: 2 values for 3 columns"),
    ("a.csv", b"k,v,n\n1,a,1\n2,b\xff,3\n", "a.csv, line 3: it is not text in UTF-8"),
    ("a.csv", "k,v,z\n1,a,1\n", "names a column `z` that is not in the table"),
    ("a.csv", "k,v,K\n1,a,1\n", "names the column `k` twice"),
    ("a.csv", "k,v,n\n1,a,1\n2,b,\n", "a.csv, line 3: NULL in `n` of `t`, which is NOT NULL"),
    ("a.csv", "k,v,n\n,a,1\n", "a.csv, line 2: NULL in the key `k`"),
    ("a.csv", 'k,v,n\n1,a,1\n2,"b\nq",1\n1,z,1\n', "a.csv, line 5: `t` would have two rows with k = 1"),
    ("a.csv", "k,v,n\n8,a,1\n0,b,1\n", "a.csv, line 3: `t` would have two rows with k = 0"),
    ("a.json", '{"k": 1, "n": 1}\n[1]\n', "a.json, line 2: it is not an object"),
    ("a.json", '{"k": 1, "n": 1}\n{"k": \n', "a.json, line 2: it is not JSON"),
    ("a.json", '{"k": 1, "q": 1}\n', "a.json, line 1: there is no column `q`"),
    ("a.json", '\n{"k": 1, "n": "x"}\n', "a.json, line 2: the value of `n`"),
    ("a.json", '{"k": 1, "n": 1.005}\n', "a.json, line 1: the value of `n`"),
    ("a.json", '{"k": 1}\n', "a.json, line 1: NULL in `n`"),
    ("a.parquet", "nothing", "a.parquet cannot be read as Parquet"),
]


@pytest.mark.parametrize(("name", "content", "match"), BAD)
def test_a_bad_file_is_named_with_its_line_and_nothing_is_stored(
    one: Spoken, tmp_path: Path, name: str, content: str | bytes, match: str
) -> None:
    one.say("DELETE FROM t", "INSERT INTO t VALUES (0, 'there', 1)")
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises((RecordRefused, SourceUnreadable), match=match):
        one.say(f"COPY t FROM '{tmp_path / name}'")
    assert one.rows("SELECT v FROM t") == [{"v": "there"}]


def test_what_copy_does_not_do_is_refused(one: Spoken, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("k,v,n\n1,a,1\n")
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(b"k,v,n\n1,a,1\n")[:-4])
    at = f"COPY t FROM '{tmp_path}"
    refusals: list[tuple[str, type[MillstreamError], str]] = [
        (f"{at}/none.csv'", SourceMissing, "there is no file"),
        (f"{at}/none'", DefinitionError, "COPY needs a format"),
        (f"{at}/a.csv' (FORMAT xml)", Unsupported, "the format xml"),
        (f"{at}/a.csv' (FORMAT json, HEADER)", DefinitionError, "HEADER is an option of csv"),
        (f"{at}/a.csv' (QUOTE 'x')", DefinitionError, "no option `quote`"),
        (f"{at}/a.csv' (HEADER, HEADER)", DefinitionError, "specified twice"),
        (f"{at}/a.csv' (DELIMITER 'ab')", DefinitionError, "one character"),
        (f"{at}/cut.csv.gz' (FORMAT csv)", SourceUnreadable, "cannot be read"),
        (f"COPY t TO '{tmp_path}/b.csv'", Unsupported, "COPY ... TO"),
        (f"COPY (SELECT 1) TO '{tmp_path}/b.csv'", Unsupported, "TO is not supported"),
        ("COPY t FROM 's3://bucket/a.csv'", Unsupported, "only files of this machine"),
        ("COPY t FROM STDIN", DefinitionError, "in quotes is expected"),
        (f"COPY nothing FROM '{tmp_path}/a.csv'", DefinitionError, "no table `nothing`"),
        (f"COPY t (k, k) FROM '{tmp_path}/a.csv'", MillstreamError, "named twice"),
    ]
    for sql, error, match in refusals:
        with pytest.raises(error, match=match):
            one.say(sql)


TEXTS = [
    ("TINYINT", ["1", "-128", "127", " 7 ", "+5", None], ["128", "1.0", "", "0x1", "1_0", "a"]),
    ("BIGINT", ["9223372036854775807", "-9223372036854775808", "007"], ["9223372036854775808"]),
    ("DOUBLE", ["1.5", "-2", "1e5", ".5", "5.", "NaN", "-Infinity", "+1"], ["1e999", "abc", "1,5", "1_0"]),
    ("FLOAT", ["1.5", "0.1"], ["1e39"]),
    ("DECIMAL(5, 2)", ["1.5", "-999.99", "1.50", "1e2", "+1", "1.500"], ["1000", "1.005", "NaN", "x"]),
    ("BOOLEAN", ["true", "FALSE", "True"], ["1", "t", "yes"]),
    ("DATE", ["2026-01-31", "0001-01-01"], ["2026-02-30", "31.01.2026", "2026-01-31T01:00:00"]),
    (
        "TIMESTAMP",
        ["2026-01-31 12:00:00", "2026-01-31T12:00:00.123456", "2026-01-31T12:00:00Z", "2026-01-31", "2026-01-31 12:00"],
        ["noon", "2026-02-30 00:00:00", "2026-01-31T12:00:00.1234567"],
    ),
    ("BINARY", ["a", "ü"], []),
    ("ARRAY<INT>", ["[1, 2, null]", "[]"], ["1", "[1.5]", "["]),
]


@pytest.mark.parametrize(("kind", "good", "bad"), TEXTS)
def test_texts_of_a_file_become_values(kind: str, good: list[str | None], bad: list[str]) -> None:
    wanted = Schema.parse(f"x {kind}").to_arrow().field(0).type
    one_by_one = pa.array([None if t is None else fit(_read(t.strip(), wanted), wanted) for t in good], wanted)
    assert str(from_texts(pa.array(good, pa.string()), wanted).to_pylist()) == str(one_by_one.to_pylist())
    for i, text in enumerate(good):  # a column of one form takes the short way
        found = from_texts(pa.array([text], pa.string()), wanted)
        assert str(found.to_pylist()) == str(one_by_one.slice(i, 1).to_pylist())
    for text in bad:
        with pytest.raises(Unfit) as told:
            from_texts(pa.array([good[0], text], pa.string()), wanted)
        assert told.value.row == 1
        with pytest.raises(Unfit):
            from_texts(pa.array([text], pa.string()), wanted)


def test_a_file_of_all_types(one: Spoken, tmp_path: Path) -> None:
    one.say("CREATE TABLE types (a DOUBLE, b BOOLEAN, c DATE, d TIMESTAMP, e ARRAY<INT>, f STRUCT<x: INT>)")
    (tmp_path / "a.csv").write_text(
        'a,b,c,d,e,f\n1.5,true,2026-01-01,2026-01-01 12:00:00,"[1,2]","{""x"": 1}"\n,,,,,\n'
    )
    (tmp_path / "a.json").write_text(
        '{"a": 1.5, "b": true, "c": "2026-01-01", "d": 1767268800, "e": [1, 2], "f": {"x": 1}}\n{}\n'
    )
    for name in ("a.csv", "a.json"):
        one.say("DELETE FROM types", f"COPY types FROM '{tmp_path / name}'")
        first, second = (tuple(r.values()) for r in one.rows("SELECT * FROM types ORDER BY a NULLS LAST"))
        assert first == (1.5, True, date(2026, 1, 1), datetime(2026, 1, 1, 12, tzinfo=UTC), [1, 2], {"x": 1})
        assert second == (None,) * 6


def test_rows_of_files_can_be_computed_with_on_their_way(one: Spoken, tmp_path: Path) -> None:
    one.say("DELETE FROM t", "INSERT INTO t VALUES (1, 'old', 1)")
    path = tmp_path / "a.csv"
    path.write_text("id,name,price\n1,tea,1.5\n2,cake,2\n3,,3\n")
    insert = f"INSERT INTO t SELECT id, upper(name), price FROM FILES('{path}') AS f WHERE f.price < 3 ON CONFLICT "
    assert one.said(f"{insert}(k) DO UPDATE SET v = concat(t.v, excluded.v)") == "inserted 1 row, updated 1 row"
    merge = f"MERGE INTO t USING FILES('{tmp_path}', format = 'csv', header => true) AS f ON t.k = f.id "
    one.say(
        f"{merge} WHEN MATCHED THEN UPDATE SET n = t.n + f.price WHEN NOT MATCHED THEN INSERT VALUES (f.id, 'm', 0)"
    )
    assert [tuple(r.values()) for r in one.rows("SELECT * FROM t ORDER BY k")] == [
        (1, "oldTEA", 2.5),
        (2, "CAKE", 4),
        (3, "m", 0),
    ]
    refusals: list[tuple[str, type[MillstreamError], str]] = [
        (f"SELECT * FROM FILES('{path}')", MillstreamError, "files"),
        (f"CREATE VIEW w AS SELECT * FROM FILES('{path}')", MillstreamError, "files"),
        (f"INSERT INTO t SELECT files('{path}'), 'x', 1", MillstreamError, "can only be used in FROM"),
        (f"INSERT INTO t SELECT * FROM FILES('{path}', 5)", DefinitionError, "takes 1 value"),
        (f"INSERT INTO t SELECT * FROM FILES('{path}', color = 'red')", DefinitionError, "no option `color`"),
        ("INSERT INTO t SELECT * FROM FILES('s3://bucket/a.csv')", Unsupported, "files of this machine"),
        ("INSERT INTO t SELECT * FROM FILES('none.csv')", SourceMissing, "no file"),
        ("INSERT INTO t SELECT * FROM FILES(t.k)", DefinitionError, "literals"),
    ]
    for sql, error, match in refusals:
        with pytest.raises(error, match=match):
            one.say(sql)
    path.write_text("id\n" + "1000000\n" * 150_000 + "x\n")  # behind the part in which types are looked for
    with pytest.raises(RecordRefused, match=r"a.csv, line 150002: the value of `id` cannot become BIGINT"):
        one.say(f"INSERT INTO t SELECT id, 'x', 1 FROM FILES('{path}')")


def test_blank_lines_of_csv(one: Spoken, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    for before in ("\n", "\r\n\r\n", "  \n\n"):
        path.write_text(f"{before}k,v,n\n1,a,1\n\n2,b,2\n", newline="")
        assert [r[0] for r in copied(one, path)] == [1, 2], before
        path.write_text(f"{before}k,v,n\n1,a,1\n\n2,b,x\n", newline="")
        line = before.count("\n") + 4
        with pytest.raises(RecordRefused, match=f"line {line}: the value of `n`"):
            one.say(f"COPY t FROM '{path}'")
    path.write_text("k,v,n\n\n  \n")
    with pytest.raises(RecordRefused, match="line 3: 1 values for 3 columns"):
        one.say(f"COPY t FROM '{path}'")
    one.say("CREATE TABLE single (n INT)")
    path.write_text("\nn\n1\n\n3\n")
    assert one.said(f"COPY single FROM '{path}'") == "inserted 3 rows"
    assert [r["n"] for r in one.rows("SELECT n FROM single")] == [1, None, 3]
    path.write_text("\nn\n1\n\nx\n")
    with pytest.raises(RecordRefused, match="line 5: the value of `n`"):
        one.say(f"COPY single FROM '{path}'")
    path.write_text("n\n")
    assert one.said(f"COPY single FROM '{path}'") == "inserted 0 rows"
    path.write_text("\n7\n")
    assert one.said(f"COPY single FROM '{path}' (HEADER false)") == "inserted 2 rows"


@pytest.mark.parametrize("beside", ["BIGINT", "DECIMAL(5, 2)", "ARRAY<INT>"])
def test_numbers_of_json_keep_their_digits_as_texts(tmp_path: Path, beside: str) -> None:
    numbers = ["1.10", "0.1234567890123456789", "123456789012345678901234567890", "1e5", "-0", "true"]
    path = tmp_path / "a.json"
    path.write_text("".join(f'{{"S": {n}, "x": null}}\n' for n in numbers))
    with opened(tmp_path / "home") as one:
        one.say(f"CREATE TABLE digits (s STRING, x {beside})", f"COPY digits FROM '{path}'")
        assert [r["s"] for r in one.rows("SELECT s FROM digits")] == numbers
