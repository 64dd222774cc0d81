"""The store: an epoch is one transaction, fenced by a lease, and readers see whole epochs only."""

import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millstream.clock import BEGINNING
from millstream.errors import (
    HomeDamaged,
    HomeInUse,
    IncompatibleChange,
    LeaseLost,
    MillstreamError,
    QueryError,
    RecoveryFailed,
)
from millstream.model.types.schema import TIMESTAMP
from millstream.store.duckdb import DuckStore
from millstream.store.epoch_commit import KEPT_EPOCHS
from millstream.store.names import sql_type
from millstream.store.port import EpochCommit, EpochRow, ViewSpec

SECOND = 1_000_000
KEYED = ViewSpec("hot", pa.schema([("k", pa.string()), ("n", pa.int64())]), ("k", "n"), ("k",), None, None, "f1")
APPEND = ViewSpec("log", pa.schema([("x", pa.int64())]), ("x",), None, None, None, "f2")
WINDOWED = ViewSpec(
    "wins",
    pa.schema([("n", pa.int64()), ("$window_end", TIMESTAMP)]),
    ("n",),
    ("$window_end",),
    10 * SECOND,
    "$window_end",
    "f3",
)
ERRORS = pa.schema(
    [
        ("epoch", pa.int64()),
        ("reason", pa.string()),
        ("raw", pa.string()),
        ("partition", pa.string()),
        ("offset", pa.int64()),
        ("seen_at", TIMESTAMP),
    ]
)
LATE = pa.schema(
    [
        ("epoch", pa.int64()),
        ("event_time", TIMESTAMP),
        ("window_end", TIMESTAMP),
        ("watermark", TIMESTAMP),
        ("reason", pa.string()),
        ("record", pa.string()),
        ("seen_at", TIMESTAMP),
    ]
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DuckStore]:
    made = DuckStore(tmp_path / "store.duckdb")
    yield made
    made.close()


def changes(spec: ViewSpec, *rows: tuple[Any, ...]) -> pa.Table:
    schema = pa.schema([pa.field("$op", pa.string()), *spec.schema])
    return pa.Table.from_pylist([dict(zip(schema.names, r, strict=True)) for r in rows], schema=schema)


def epoch(number: int, token: int = 1, *, watermark: int = BEGINNING, flow: str = "f", **parts: Any) -> EpochCommit:
    row = EpochRow(
        number,
        "plan",
        {"s": {"0": [number - 1, number]}},
        {"now": number * SECOND, "watermarks": {}},
        {"v": []},
        {"rows": {"s": number}},
    )
    return EpochCommit(flow, token, row, watermark=watermark, **parts)


def rows(store: DuckStore, sql: str) -> list[tuple[Any, ...]]:
    return [tuple(r.values()) for r in store.query(sql).to_pylist()]


def begun(store: DuckStore, *views: ViewSpec, sources: tuple[str, ...] = ("bids",)) -> int:
    store.prepare("f", views or (KEYED, APPEND), sources)
    return store.take_lease("f", "me")


def test_the_changes_of_an_epoch_are_applied_by_identity(store: DuckStore) -> None:
    begun(store)
    store.commit(
        epoch(
            1,
            changes={
                "hot": changes(KEYED, ("+I", "a", 1), ("+I", None, 5)),
                "log": changes(APPEND, ("+I", 1), ("+I", 1)),
            },
        )
    )
    store.commit(
        epoch(
            2,
            changes={
                "hot": changes(KEYED, ("+U", "a", 2), ("-U", None, 5), ("+U", None, 6), ("+I", "b", 0)),
                "log": changes(APPEND, ("+I", 2)),
            },
        )
    )
    store.commit(epoch(3, changes={"hot": changes(KEYED, ("-D", "b", 0), ("-U", "a", 2), ("+U", "a", 3))}))
    assert sorted(rows(store, "SELECT k, n FROM hot"), key=str) == [("a", 3), (None, 6)]
    assert sorted(rows(store, "SELECT x FROM log")) == [(1,), (1,), (2,)]


def test_a_view_of_one_row_is_replaced_whole(store: DuckStore) -> None:
    single = ViewSpec("total", pa.schema([("n", pa.int64())]), ("n",), (), None, None, "t")
    begun(store, single)
    for n, op in enumerate(["+I", "+U", "+U"], start=1):
        store.commit(epoch(n, changes={"total": changes(single, (op, n * 10))}))
        assert rows(store, "SELECT n FROM total") == [(n * 10,)]


@pytest.mark.parametrize("broken", ["second view", "errors", "late", "unknown view"])
def test_an_epoch_that_fails_anywhere_leaves_everything_unchanged(store: DuckStore, broken: str) -> None:
    begun(store)
    store.commit(epoch(1, changes={"hot": changes(KEYED, ("+I", "a", 1))}))
    text = pa.table({"$op": ["+I"], "x": ["no number"]})
    parts: dict[str, Any] = {"changes": {"hot": changes(KEYED, ("+U", "a", 2), ("+I", "b", 1))}}
    if broken == "second view":
        parts["changes"]["log"] = text
    elif broken == "unknown view":
        parts["changes"]["nope"] = text
    else:
        parts[broken] = {"bids" if broken == "errors" else "hot": text}
    with pytest.raises((MillstreamError, KeyError)):
        store.commit(epoch(2, **parts))
    assert rows(store, "SELECT k, n FROM hot") == [("a", 1)]
    last = store.last("f")
    assert last is not None and last.number == 1
    store.commit(epoch(2, changes={"hot": changes(KEYED, ("+U", "a", 7))}))
    assert rows(store, "SELECT k, n FROM hot") == [("a", 7)]


def test_a_lost_lease_writes_nothing(store: DuckStore) -> None:
    first = begun(store)
    second = store.take_lease("f", "another")
    assert second == first + 1
    with pytest.raises(LeaseLost, match="taken over") as caught:
        store.commit(epoch(1, first, changes={"hot": changes(KEYED, ("+I", "a", 1))}))
    assert f"token {first}" in (caught.value.detail or "") and f"at {second}" in (caught.value.detail or "")
    assert rows(store, "SELECT * FROM hot") == [] and store.last("f") is None
    store.commit(epoch(1, second))
    assert store.take_lease("other", "me") == 1


@pytest.mark.parametrize("number", [1, 3, 7])
def test_epoch_numbers_follow_one_another(store: DuckStore, number: int) -> None:
    token = begun(store)
    store.commit(epoch(1, token))
    with pytest.raises(RecoveryFailed, match=f"epoch {number} .* does not follow epoch 1"):
        store.commit(epoch(number, token, changes={"hot": changes(KEYED, ("+I", "a", 1))}))
    assert rows(store, "SELECT * FROM hot") == []


def test_an_epoch_row_comes_back_as_it_was(store: DuckStore) -> None:
    token = begun(store)
    commit = epoch(1, token)
    store.commit(commit)
    assert store.last("f") == commit.row
    assert store.last("nobody") is None
    assert store.flows() == ["f"]


def test_old_epochs_are_forgotten_but_never_the_last_ones(store: DuckStore) -> None:
    token = begun(store)
    for number in range(1, KEPT_EPOCHS * 2 + 2):
        store.commit(epoch(number, token))
    kept = [r.number for r in store.epochs("f", 10_000)]
    assert kept[0] == KEPT_EPOCHS * 2 + 1 and KEPT_EPOCHS <= len(kept) <= KEPT_EPOCHS * 2
    assert kept == sorted(kept, reverse=True)


def test_retention_removes_rows_the_watermark_has_passed_by_that_long(store: DuckStore) -> None:
    token = begun(store, WINDOWED)
    store.commit(epoch(1, token, changes={"wins": changes(WINDOWED, *(("+I", n, n * SECOND) for n in (5, 10, 15)))}))
    assert rows(store, "SELECT n FROM wins ORDER BY n") == [(5,), (10,), (15,)]
    store.commit(epoch(2, token, watermark=19_999_999))
    assert rows(store, "SELECT n FROM wins ORDER BY n") == [(10,), (15,)]
    store.commit(epoch(3, token, watermark=20 * SECOND))
    assert rows(store, "SELECT n FROM wins ORDER BY n") == [(15,)]
    store.commit(epoch(4, token, watermark=2**62 - 1))  # the end of time: a bounded run keeps what it has
    assert rows(store, "SELECT n FROM wins") == [(15,)]


def test_hidden_columns_tell_rows_apart_and_are_not_shown(store: DuckStore) -> None:
    token = begun(store, WINDOWED)
    store.commit(epoch(1, token, changes={"wins": changes(WINDOWED, ("+I", 1, 5 * SECOND), ("+I", 1, 6 * SECOND))}))
    store.commit(epoch(2, token, changes={"wins": changes(WINDOWED, ("+U", 2, 6 * SECOND))}))
    assert sorted(rows(store, "SELECT * FROM wins")) == [(1,), (2,)]
    assert store.tables()["wins"] == ["n"] and "wins$rows" not in store.tables()


def test_errors_and_late_rows_are_kept_beside_the_view_and_counted(store: DuckStore) -> None:
    token = begun(store)
    bad = pa.Table.from_pylist(
        [{"epoch": 1, "reason": "unparsable", "raw": "{", "partition": "0", "offset": 3, "seen_at": 5}], schema=ERRORS
    )
    late = pa.Table.from_pylist(
        [
            {
                "epoch": 1,
                "reason": "behind",
                "record": "{}",
                "event_time": 1,
                "window_end": 2,
                "watermark": 3,
                "seen_at": 4,
            }
        ],
        schema=LATE,
    )
    store.commit(epoch(1, token, errors={"bids": bad}, late={"hot": late}))
    assert rows(store, 'SELECT reason, raw, "offset" FROM "bids$errors"') == [("unparsable", "{", 3)]
    assert rows(store, 'SELECT record FROM "hot$late"') == [("{}",)]
    assert store.views() == [
        {"view": "hot", "flow": "f", "rows": 0, "late": 1},
        {"view": "log", "flow": "f", "rows": 0, "late": 0},
    ]
    assert set(store.tables()) == {"hot", "hot$late", "log", "bids$errors"}


def test_a_view_keeps_its_rows_over_a_restart(tmp_path: Path) -> None:
    first = DuckStore(tmp_path / "s")
    token = begun(first)
    first.commit(epoch(1, token, changes={"hot": changes(KEYED, ("+I", "a", 1))}))
    first.close()
    second = DuckStore(tmp_path / "s")
    assert begun(second) == token + 1
    assert rows(second, "SELECT k, n FROM hot") == [("a", 1)]
    second.close()


def test_a_view_whose_meaning_changed_is_refused(store: DuckStore) -> None:
    begun(store)
    changed = ViewSpec(**{**vars(KEYED), "fingerprint": "other"})
    with pytest.raises(IncompatibleChange, match="`hot` was changed") as caught:
        store.prepare("f", [changed], [])
    assert "new name" in (caught.value.hint or "")


def test_a_view_belongs_to_one_flow(store: DuckStore) -> None:
    begun(store)
    with pytest.raises(IncompatibleChange, match="`hot` belongs to the flow `f`"):
        store.prepare("g", [KEYED], [])


def test_a_view_with_other_columns_under_the_same_fingerprint_is_refused(store: DuckStore) -> None:
    begun(store)
    wider = ViewSpec("hot", pa.schema([("k", pa.string()), ("m", pa.float64())]), ("k", "m"), ("k",), None, None, "f1")
    with pytest.raises(IncompatibleChange):
        store.prepare("f", [wider], [])


def test_a_view_that_was_left_out_cannot_come_back_but_can_still_be_read(store: DuckStore) -> None:
    token = begun(store)
    store.commit(epoch(1, token, changes={"hot": changes(KEYED, ("+I", "a", 1))}))
    store.prepare("f", [], [])
    with pytest.raises(IncompatibleChange, match="`hot` was left out"):
        store.prepare("f", [KEYED], [])
    assert rows(store, "SELECT k, n FROM hot") == [("a", 1)]


def test_a_stored_table_cannot_take_the_place_of_a_view(store: DuckStore) -> None:
    token = begun(store)
    store.commit(epoch(1, token, changes={"hot": changes(KEYED, ("+I", "a", 1))}))
    with pytest.raises(MillstreamError, match="hot"):
        store.put_table("hot", pa.table({"x": [1]}))
    assert rows(store, "SELECT k, n FROM hot") == [("a", 1)]


def test_a_view_cannot_take_the_place_of_a_stored_table(store: DuckStore) -> None:
    store.put_table("hot", pa.table({"x": [1]}))
    with pytest.raises(IncompatibleChange, match="`hot`"):
        store.prepare("f", [KEYED], [])


@pytest.mark.parametrize(
    "name", ["changes", "given", "select", "order", "views", "flows", "millstream", "main", "t", "c", "duckdb_tables"]
)
def test_a_view_or_table_may_have_any_good_name(store: DuckStore, tmp_path: Path, name: str) -> None:
    spec = ViewSpec(name, KEYED.schema, KEYED.columns, KEYED.identity, None, None, "x")
    token = begun(store, spec)
    store.commit(epoch(1, token, changes={name: changes(spec, ("+I", "a", 1))}))
    store.commit(epoch(2, token, changes={name: changes(spec, ("+U", "a", 2))}))
    assert rows(store, f'SELECT k, n FROM "{name}"') == [("a", 2)]
    other = DuckStore(tmp_path / "other.duckdb")
    other.put_table(name, pa.table({"x": [1]}))
    assert rows(other, f'SELECT x FROM "{name}"') == [(1,)]
    other.close()


@pytest.mark.parametrize("sql", ["SELECT corrupt FROM t", "SELECT * FROM checksum", "SELECT CAST('corrupt' AS BIGINT)"])
def test_an_error_of_a_question_is_not_damage_whatever_words_it_has(store: DuckStore, sql: str) -> None:
    store.put_table("t", pa.table({"a": [1]}))
    with pytest.raises(QueryError):
        store.query(sql)


def test_a_stored_table_is_replaced_whole(store: DuckStore) -> None:
    store.put_table("names", pa.table({"id": [1, 2]}))
    store.put_table("names", pa.table({"other": ["x"]}))
    assert rows(store, "SELECT other FROM names") == [("x",)]


VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.bool_(), [True, False, None]),
    (pa.int8(), [-128, 127, None]),
    (pa.int16(), [-(2**15), None]),
    (pa.int32(), [2**31 - 1, None]),
    (pa.int64(), [-(2**63), 2**63 - 1, None]),
    (pa.float32(), [1.5, None]),
    (pa.float64(), [0.1, float("inf"), None]),
    (pa.decimal128(10, 2), [Decimal("-1.25"), None]),
    (pa.decimal128(38, 10), [Decimal("1234567890123456789012345678.0123456789"), None]),
    (pa.string(), ["", "é☃\U0001f600", "it's", None]),
    (pa.binary(), [b"", b"\0\xff", None]),
    (pa.date32(), [date(1969, 12, 31), None]),
    (TIMESTAMP, [datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), datetime(2026, 1, 1, tzinfo=UTC), None]),
    (pa.timestamp("us"), [datetime(2026, 1, 1, 5), None]),  # noqa: DTZ001
    (pa.list_(pa.int64()), [[1, None, 2], [], None]),
    (pa.list_(pa.list_(pa.string())), [[["a"], None, []], None]),
    (pa.struct([("a b", pa.int32()), ("c", pa.list_(pa.string()))]), [{"a b": 1, "c": ["x"]}, None]),
    (pa.map_(pa.string(), pa.int64()), [[("k", 1), ("l", None)], [], None]),
]


@pytest.mark.parametrize(("kind", "values"), VALUES, ids=[str(k) for k, _ in VALUES])
def test_values_of_every_type_come_back_as_they_were(store: DuckStore, kind: pa.DataType, values: list[Any]) -> None:
    spec = ViewSpec("typed", pa.schema([("i", pa.int64()), ("v", kind)]), ("i", "v"), None, None, None, "x")
    token = begun(store, spec)
    store.commit(epoch(1, token, changes={"typed": changes(spec, *(("+I", i, v) for i, v in enumerate(values)))}))
    found = store.query("SELECT v FROM typed ORDER BY i")
    assert found["v"].to_pylist() == values
    assert sql_type(kind)


def test_times_are_shown_in_utc(store: DuckStore) -> None:
    token = begun(store, WINDOWED)
    store.commit(epoch(1, token, changes={"wins": changes(WINDOWED, ("+I", 1, 0))}))
    assert rows(store, 'SELECT strftime("$window_end", \'%H:%M\') FROM "wins$rows"') == [("00:00",)]


def test_a_type_the_store_cannot_keep_is_named() -> None:
    with pytest.raises(QueryError, match="time64"):
        sql_type(pa.time64("us"))


def test_a_query_that_fails_is_one_line(store: DuckStore) -> None:
    with pytest.raises(QueryError, match="no column `nope`") as caught:
        store.query("SELECT nope FROM (SELECT 1 AS a)")
    assert "\n" not in caught.value.message


def test_readers_see_whole_epochs_only(store: DuckStore) -> None:
    """Two views that every epoch moves together are never seen apart, however reads and commits fall."""
    twin = ViewSpec("twin", KEYED.schema, KEYED.columns, KEYED.identity, None, None, "tw")
    token = begun(store, KEYED, twin)
    store.commit(epoch(1, token, changes={v.name: changes(v, ("+I", "a", 1)) for v in (KEYED, twin)}))
    failed: list[Exception] = []

    def write() -> None:
        try:
            for n in range(2, 40):
                store.commit(
                    epoch(
                        n,
                        token,
                        changes={v.name: changes(v, ("-U", "a", n - 1), ("+U", "a", n)) for v in (KEYED, twin)},
                    )
                )
        except Exception as error:  # noqa: BLE001
            failed.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    seen = []
    while writer.is_alive():
        ((a, b, count),) = rows(store, "SELECT hot.n AS a, twin.n AS b, count(*) OVER () AS c FROM hot, twin")
        assert a == b and count == 1
        seen.append(a)
    writer.join()
    assert not failed and seen == sorted(seen)
    assert rows(store, "SELECT n FROM hot") == [(39,)]


def test_a_store_in_use_or_broken_is_named(tmp_path: Path) -> None:
    (tmp_path / "junk").write_bytes(b"this is no database" * 1000)
    with pytest.raises(HomeDamaged, match="cannot be opened"):
        DuckStore(tmp_path / "junk")
    with pytest.raises((HomeDamaged, HomeInUse)):
        DuckStore(tmp_path / "nowhere" / "deep")


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """As on a disk that is full: no file grows beyond this."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_store_whose_checkpoint_failed_goes_on_when_there_is_space(store: DuckStore) -> None:
    store.prepare("f", [APPEND], [])
    token = store.take_lease("f", "me")
    store.commit(epoch(1, token, changes={"log": changes(APPEND, ("+I", 1))}))
    store._cursor().execute("CHECKPOINT")
    store._cursor().execute("SET checkpoint_threshold = '1KB'")
    many = epoch(2, token, changes={"log": changes(APPEND, *(("+I", n * 7919**3) for n in range(20_000)))})
    with files_of_at_most(store.path.stat().st_size + 50_000), pytest.raises(HomeDamaged, match="the store failed"):
        store.commit(many)
    last = store.last("f")
    assert last is not None
    assert last.number == 1
    store.commit(many)
    assert rows(store, "SELECT count(*) FROM log") == [(20_001,)]
