"""PRIMARY KEY of stored tables: every way to write rows keeps it, and homes that broke it before still open."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millstream.errors import MillstreamError, RecordRefused, SchemaError, StatementRefused, Unsupported
from millstream.home import Home
from millstream.live.tables import copy
from tests.unit.live.world import Spoken, opened

PAIRS = "CREATE TABLE pairs (a INT, b STRING, v INT, CONSTRAINT pairs_key PRIMARY KEY (a, b))"


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Spoken]:
    with opened(tmp_path / "home") as spoken:
        yield spoken


def rows(one: Spoken, table: str) -> list[tuple[object, ...]]:
    return sorted(tuple(r.values()) for r in one.rows(f"SELECT * FROM {table}"))


@pytest.mark.parametrize(
    "columns",
    [
        "k BIGINT NOT NULL CONSTRAINT some_key PRIMARY KEY, v STRING",
        "k BIGINT, v STRING, PRIMARY KEY (K) NOT ENFORCED",
        "k BIGINT, v STRING, CONSTRAINT some_key PRIMARY KEY (k)",
    ],
)
def test_a_key_is_kept_however_it_is_declared(one: Spoken, columns: str, tmp_path: Path) -> None:
    one.say(f"CREATE TABLE t ({columns})", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    (tmp_path / "t.csv").write_text("k,v\n3,c\n2,x\n")
    for refused, match in (
        ("INSERT INTO t VALUES (3, 'c'), (2, 'x')", "row 2: `t` would have two rows with k = 2"),
        ("INSERT INTO t SELECT k, 'x' FROM t", "row 1: `t` would have two rows with k = 1"),
        ("INSERT INTO t VALUES (NULL, 'x')", "row 1: NULL in the key `k` of `t`"),
        ("INSERT INTO t (v) VALUES ('x')", "NULL in the key"),
        ("UPDATE t SET k = 2", "two rows with k = 2"),
        ("UPDATE t SET k = NULL WHERE k = 1", "NULL in the key"),
        (f"COPY t FROM '{tmp_path}/t.csv'", "t.csv, line 3: `t` would have two rows with k = 2"),
        ("MERGE INTO t USING t AS s ON t.k = s.k + 1 WHEN NOT MATCHED THEN INSERT *", "two rows with k = 2"),
    ):
        with pytest.raises(RecordRefused, match=match):
            one.say(refused)
    assert rows(one, "t") == [(1, "a"), (2, "b")]
    one.say("UPDATE t SET k = k + 1")  # keys may move through one another
    assert rows(one, "t") == [(2, "a"), (3, "b")]


def test_a_key_of_several_columns(one: Spoken) -> None:
    one.say(PAIRS, "INSERT INTO pairs VALUES (1, 'x', 1), (1, 'y', 2), (2, 'x', 3)")
    with pytest.raises(RecordRefused, match="row 2: `pairs` would have two rows with a = 2, b = x"):
        one.say("INSERT INTO pairs VALUES (2, 'z', 9), (2, 'x', 9)")
    with pytest.raises(RecordRefused, match=r"row 2.*a = 7") as told:
        one.say("INSERT INTO pairs VALUES (7, 'z', 9), (7, 'z', 9)")
    assert told.value.detail == "row 1 has the same key"
    with pytest.raises(RecordRefused, match="NULL in the key `b`"):
        one.say("INSERT INTO pairs (a, v) VALUES (5, 5)")
    assert len(rows(one, "pairs")) == 3


def test_rows_from_python_are_held_to_the_definition(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        one.say("CREATE TABLE t (k BIGINT PRIMARY KEY, v STRING NOT NULL)")
        one.home.put_table("T", [{"k": 1, "v": "a"}])
        assert one.home.store.table_versions().keys() == {"t"}
        with pytest.raises(RecordRefused, match="row 2: `t` would have two rows with k = 1"):
            one.home.put_table("t", [{"k": 1, "v": "a"}, {"k": 1, "v": "b"}])
        with pytest.raises(RecordRefused, match="row 1: NULL in `v`"):
            one.home.put_table("t", [{"k": 1}])
        with pytest.raises(SchemaError, match="there is no column `w`"):
            one.home.put_table("t", [{"k": 1, "v": "a", "w": 1}])
        with pytest.raises(RecordRefused, match="`k` cannot become BIGINT"):
            one.home.put_table("t", [{"k": 1.5, "v": "a"}])
        assert rows(one, "t") == [(1, "a")]
        one.home.put_table("other", pa.table({"k": [1, 1]}))  # not defined by SQL: as it comes
    home = Home(tmp_path / "home")  # and no session has been opened
    home.open_home.on_store_open = lambda: None
    try:
        with pytest.raises(RecordRefused, match="two rows with k = 7"):
            home.put_table("t", [{"k": 7, "v": "a"}, {"k": 7, "v": "b"}])
        home.put_table("t", pa.table({"v": ["x"], "k": pa.array([5], pa.int32())}))
        assert home.store.table_rows("t").to_pylist() == [{"k": 5, "v": "x"}]
    finally:
        home.close()


def test_a_home_with_a_key_twice_opens_and_can_be_corrected(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        one.say("CREATE TABLE t (k BIGINT PRIMARY KEY, v STRING)")
        schema = one.home.store.table_rows("t").schema
        before = [{"k": 1, "v": "a"}, {"k": 1, "v": "b"}, {"k": None, "v": "c"}, {"k": 2, "v": "d"}]
        one.home.open_home.store_table("t", pa.Table.from_pylist(before, schema))  # as an earlier version let it happen
    with opened(tmp_path / "home") as one:
        assert len(one.rows("SELECT * FROM t")) == 4
        one.say("INSERT INTO t VALUES (3, 'e')", "UPDATE t SET v = 'dd' WHERE k = 2")
        for refused in ("INSERT INTO t VALUES (1, 'x')", "UPDATE t SET v = 'x' WHERE v = 'a'"):
            with pytest.raises(RecordRefused, match="two rows with k = 1"):
                one.say(refused)
        with pytest.raises(RecordRefused, match="has several rows with k = 1 already"):
            one.say("INSERT INTO t VALUES (1, 'x') ON CONFLICT DO UPDATE SET v = excluded.v")
        assert one.said("INSERT INTO t VALUES (1, 'x') ON CONFLICT DO NOTHING") == "inserted 0 rows, left out 1 row"
        one.say("DELETE FROM t WHERE v = 'b'", "UPDATE t SET k = 9 WHERE k IS NULL", "UPDATE t SET v = 'x' WHERE k = 1")
        assert rows(one, "t") == [(1, "x"), (2, "dd"), (3, "e"), (9, "c")]


@pytest.mark.parametrize("kind", ["ARRAY<INT>", "STRUCT<a: INT>", "MAP<STRING, INT>"])
def test_a_key_is_of_plain_values(one: Spoken, kind: str) -> None:
    with pytest.raises(Unsupported, match="cannot be in the PRIMARY KEY"):
        one.say(f"CREATE TABLE t (k {kind} PRIMARY KEY)")


def test_keys_of_every_plain_type(one: Spoken) -> None:
    for i, (kind, value, same) in enumerate(
        [
            ("DOUBLE", "0.0", "-0.0"),
            ("DOUBLE", "CAST('NaN' AS DOUBLE)", "CAST('NaN' AS DOUBLE)"),
            ("DECIMAL(5, 2)", "1.5", "1.50"),
            ("STRING", "'a'", "'a'"),
            ("BINARY", "'a'", "'a'"),
            ("BOOLEAN", "true", "true"),
            ("DATE", "DATE '2026-01-01'", "'2026-01-01'"),
            ("TIMESTAMP", "TIMESTAMP '2026-01-01 00:00:00'", "'2026-01-01T01:00:00+01:00'"),
        ]
    ):
        one.say(f"CREATE TABLE t{i} (k {kind} PRIMARY KEY, v INT)", f"INSERT INTO t{i} VALUES ({value}, 1)")
        with pytest.raises(RecordRefused, match="two rows with k ="):
            one.say(f"INSERT INTO t{i} VALUES ({same}, 2)")
        one.say(f"INSERT INTO t{i} VALUES ({same}, 2) ON CONFLICT (k) DO UPDATE SET v = t{i}.v + excluded.v")
        assert one.rows(f"SELECT v FROM t{i}") == [{"v": 3}], kind


def test_sessions_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as one:
        one.say("CREATE TABLE t (k BIGINT PRIMARY KEY, n BIGINT)")
        wrong: list[BaseException] = []

        def work(number: int) -> None:
            session = one.home.session(start=False)
            for i in range(3):
                try:
                    upsert = f"INSERT INTO t VALUES ({i % 2}, 1) ON CONFLICT (k) DO UPDATE SET n = t.n + 1"
                    next_key = "INSERT INTO t SELECT coalesce(max(k), 99) + 1, 0 FROM t WHERE k >= 100"
                    for sql in (upsert, next_key):
                        list(session.execute(sql))
                except MillstreamError as error:
                    wrong.append(error)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
        assert rows(one, "t") == [(0, 6), (1, 3), *((100 + i, 0) for i in range(9))]


@pytest.mark.parametrize(
    "statement",
    [
        "COPY t FROM '{}'",
        "INSERT INTO t SELECT * FROM FILES('{}')",
        "MERGE INTO t USING FILES('{}') AS f ON t.k = f.k WHEN NOT MATCHED THEN INSERT *",
    ],
)
def test_a_table_that_is_replaced_meanwhile_keeps_its_own_constraints(
    one: Spoken, tmp_path: Path, statement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("k,v\n1,\n1,2\n")
    one.say("CREATE TABLE t (k BIGINT, v BIGINT)")
    read = copy.load

    def slow(*given: Any) -> Any:
        def replace() -> None:
            with one.home.open_home.table_lock:  # files are read before it is taken
                pass
            list(
                one.home.session(start=False).execute(
                    "DROP TABLE t; CREATE TABLE t (k INT PRIMARY KEY, v INT NOT NULL)"
                )
            )

        other = threading.Thread(target=replace, daemon=True)
        other.start()
        other.join(20)
        assert not other.is_alive()
        return read(*given)

    monkeypatch.setattr(copy, "load", slow)
    with pytest.raises(StatementRefused, match="`t` was dropped or replaced during the") as error:
        one.say(statement.format(path))
    assert error.value.hint == "run the statement again"
    assert rows(one, "t") == []
    monkeypatch.undo()
    with pytest.raises(RecordRefused, match="NULL in `v`"):
        one.say(statement.format(path))


def test_the_row_at_fault_is_named(one: Spoken) -> None:
    one.say("CREATE TABLE z (id BIGINT PRIMARY KEY, v STRING)", "INSERT INTO z VALUES (1, 'a')")
    with pytest.raises(RecordRefused, match=r"^row 3: `z` would have two rows with id = 6") as error:
        one.say("INSERT INTO z VALUES (5, 'x'), (6, 'x'), (1, 'x') ON CONFLICT (id) DO UPDATE SET id = 6")
    assert error.value.detail == "row 2 has the same key"
    with pytest.raises(RecordRefused, match=r"^row 2: `z` would have two rows with id = 7") as error:
        one.say("INSERT INTO z VALUES (1, 'x'), (7, 'x') ON CONFLICT (id) DO UPDATE SET id = 7")
    assert error.value.detail == "row 1 has the same key"
    schema = one.home.store.table_rows("z").schema
    twice = [{"id": 1, "v": "a"}, {"id": 1, "v": "b"}]
    one.home.open_home.store_table("z", pa.Table.from_pylist(twice, schema))  # as an earlier version let it happen
    with pytest.raises(RecordRefused, match=r"^row 2: `z` would have two rows with id = 1") as error:
        one.say("INSERT INTO z VALUES (2, 'x'), (1, 'x')")
    assert error.value.detail is None


def test_a_column_is_set_once(one: Spoken) -> None:
    one.say("CREATE TABLE t (k BIGINT, s STRING)", "INSERT INTO t VALUES (1, 'a')")
    with pytest.raises(SchemaError, match="the column `s` is set twice"):
        one.say("UPDATE t SET s = 'x', S = 'y'")
    assert rows(one, "t") == [(1, "a")]
