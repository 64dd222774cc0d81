"""The conformance suite of stores: tests that every store must pass.

class TestMine(StoreConformance):
    def open(self, folder):
        return MyStore(...)
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlglot

from millstream.clock import BEGINNING
from millstream.errors import IncompatibleChange, LeaseLost, MillstreamError, RecoveryFailed
from millstream.model.change_op import ChangeOp
from millstream.model.dead_letters import ERRORS, LATE
from millstream.sql.query.store_query import DIALECTS
from millstream.store.port import EpochCommit, EpochRow, Store, ViewSpec, WriterState

FLOW = "f"
TOTALS = ViewSpec("totals", pa.schema([("k", pa.string()), ("n", pa.int64())]), ("k", "n"), ("k",), None, None, "v1")
SEEN = ViewSpec("seen", pa.schema([("x", pa.int64())]), ("x",), None, None, None, "v2")
_MOMENT = 1_767_225_600_000_000


def changes(view: ViewSpec, *rows: tuple[Any, ...]) -> pa.Table:
    """Build the changes of a view: the kind of each change, then its values."""
    schema = pa.schema([pa.field("$op", pa.string()), *view.schema])
    return pa.Table.from_pylist([dict(zip(schema.names, r, strict=True)) for r in rows], schema=schema)


def epoch(number: int, token: int, **parts: Any) -> EpochCommit:
    """Build a commit of the flow of this suite."""
    row = EpochRow(number, "plan", {"s": {"0": [0, number]}}, {"now": _MOMENT + number}, {}, {"offsets": {}})
    return EpochCommit(FLOW, token, row, watermark=BEGINNING, **parts)


class StoreConformance:
    """Subclass it, and override `open`."""

    def open(self, folder: Path) -> Store:
        """Open the store in a directory as a new process would."""
        raise NotImplementedError

    # ------------------------------------------------------------ epochs

    def test_an_epoch_changes_all_views_and_is_the_last_one(self, tmp_path: Path) -> None:
        """Inserts, retractions and updated rows."""
        store, token = self._begun(tmp_path)
        assert store.last(FLOW) is None
        store.commit(
            epoch(1, token, changes={"totals": changes(TOTALS, (ChangeOp.INSERT, "a", 1), (ChangeOp.INSERT, "b", 1))})
        )
        second = {
            "totals": changes(TOTALS, (ChangeOp.RETRACT, "a", 1), (ChangeOp.UPDATE, "a", 2), (ChangeOp.DELETE, "b", 1)),
            "seen": changes(SEEN, (ChangeOp.INSERT, 7)),
        }
        store.commit(epoch(2, token, changes=second))
        assert self._rows(store, "totals") == [{"k": "a", "n": 2}] and self._rows(store, "seen") == [{"x": 7}]
        last = store.last(FLOW)
        assert last is not None and last == epoch(2, token).row
        assert [e.number for e in store.epochs(FLOW, 5)] == [2, 1]
        store.close()

    def test_an_epoch_is_there_after_a_restart(self, tmp_path: Path) -> None:
        """A commit is durable when `commit` returns."""
        store, token = self._begun(tmp_path)
        store.commit(epoch(1, token, changes={"totals": changes(TOTALS, (ChangeOp.INSERT, "a", 1))}))
        store.close()
        again = self.open(tmp_path)
        last = again.last(FLOW)
        assert last is not None and last.number == 1 and self._rows(again, "totals") == [{"k": "a", "n": 1}]
        again.prepare(FLOW, [TOTALS, SEEN], ["s"])
        again.commit(epoch(2, again.take_lease(FLOW, "again"), changes={"seen": changes(SEEN, (ChangeOp.INSERT, 1))}))
        assert self._rows(again, "seen") == [{"x": 1}]
        again.close()

    def test_an_epoch_that_fails_changes_nothing(self, tmp_path: Path) -> None:
        """Regardless of where in the transaction it fails."""
        store, token = self._begun(tmp_path)
        good = {"totals": changes(TOTALS, (ChangeOp.INSERT, "a", 1)), "seen": changes(SEEN, (ChangeOp.INSERT, 1))}
        with pytest.raises(Exception):  # noqa: B017 - a store may refuse it in its own words
            store.commit(epoch(1, token, changes=good, errors={"no such source": ERRORS.empty_table()}))
        assert store.last(FLOW) is None and self._rows(store, "totals") == [] and self._rows(store, "seen") == []
        store.commit(epoch(1, token, changes=good))
        assert self._rows(store, "seen") == [{"x": 1}]
        store.close()

    @pytest.mark.parametrize("number", [1, 2, 4])
    def test_an_epoch_that_does_not_follow_the_last_is_refused(self, tmp_path: Path, number: int) -> None:
        """A repeated epoch, and one that leaves a gap."""
        store, token = self._begun(tmp_path)
        for n in (1, 2):
            store.commit(epoch(n, token))
        with pytest.raises(RecoveryFailed):
            store.commit(epoch(number, token, changes={"seen": changes(SEEN, (ChangeOp.INSERT, 9))}))
        assert self._rows(store, "seen") == []
        store.close()

    def test_a_lease_that_was_taken_over_can_commit_nothing(self, tmp_path: Path) -> None:
        """Tokens increase, also across restarts. The older one is refused inside the transaction."""
        store, first = self._begun(tmp_path)
        store.commit(epoch(1, first))
        second = store.take_lease(FLOW, "another")
        assert second > first
        with pytest.raises(LeaseLost):
            store.commit(epoch(2, first, changes={"seen": changes(SEEN, (ChangeOp.INSERT, 1))}))
        assert self._rows(store, "seen") == []
        last = store.last(FLOW)
        assert last is not None and last.number == 1
        store.commit(epoch(2, second, changes={"seen": changes(SEEN, (ChangeOp.INSERT, 2))}))
        store.close()
        again = self.open(tmp_path)
        assert again.take_lease(FLOW, "a third") > second
        again.close()

    def test_a_view_whose_meaning_has_changed_is_refused(self, tmp_path: Path) -> None:
        """The existing rows belong to another query."""
        store, _ = self._begun(tmp_path)
        changed = ViewSpec("totals", TOTALS.schema, TOTALS.columns, TOTALS.identity, None, None, "another")
        with pytest.raises(IncompatibleChange):
            store.prepare(FLOW, [changed, SEEN], ["s"])
        store.close()

    def test_errors_and_late_records_are_kept_with_the_epoch(self, tmp_path: Path) -> None:
        """Late records are kept until they are replayed."""
        store, token = self._begun(tmp_path)
        bad = {"epoch": 1, "reason": "unparsable", "raw": "{", "partition": "0", "offset": 3, "seen_at": _MOMENT}
        wrong = pa.Table.from_pylist([bad], ERRORS)
        record = {"epoch": 1, "event_time": _MOMENT, "reason": "late", "record": "{}", "seen_at": _MOMENT}
        late = pa.Table.from_pylist([record], LATE)
        store.commit(epoch(1, token, errors={"s": wrong}, late={"totals": late}))
        assert [r["raw"] for r in self._rows(store, "s$errors")] == ["{"]
        assert store.late_times("totals") == [_MOMENT]
        store.commit(epoch(2, token, replayed="totals"))
        assert store.late_times("totals") == [] and len(self._rows(store, "totals$late")) == 1
        store.close()

    def test_generations_grow(self, tmp_path: Path) -> None:
        """Generations of a flow and of its sinks."""
        store, _ = self._begun(tmp_path)
        assert store.generation(FLOW, "out") == 0 and store.members(FLOW) == {"totals", "seen"}
        store.raise_generation(FLOW, "out", 3)
        store.raise_generation(FLOW, "out", 2)
        assert store.generation(FLOW, "out") == 3 and store.generation(FLOW) == 0
        store.close()

    # ------------------------------------------------------------ queries

    def test_a_reader_sees_whole_epochs(self, tmp_path: Path) -> None:
        """A reader sees both views of an epoch, or neither."""
        store, token = self._begun(tmp_path)
        pairs: list[tuple[int, int]] = []
        failures: list[BaseException] = []
        done = threading.Event()
        sql = "SELECT (SELECT count(*) FROM totals) AS a, (SELECT count(*) FROM seen) AS b"

        def look() -> None:
            try:
                while not done.is_set():
                    row = store.query(sql).to_pylist()[0]
                    pairs.append((row["a"], row["b"]))
            except BaseException as error:  # noqa: BLE001 - reported by the test
                failures.append(error)

        threads = [threading.Thread(target=look) for _ in range(2)]
        for thread in threads:
            thread.start()
        for n in range(1, 16):
            both = {
                "totals": changes(TOTALS, (ChangeOp.INSERT, str(n), n)),
                "seen": changes(SEEN, (ChangeOp.INSERT, n)),
            }
            store.commit(epoch(n, token, changes=both))
        done.set()
        for thread in threads:
            thread.join()
        assert not failures, failures[0]
        assert all(a == b for a, b in pairs), "a reader saw half an epoch"
        store.close()

    def test_a_query_may_bring_tables_of_its_own(self, tmp_path: Path) -> None:
        """The tables exist for this query only."""
        store, token = self._begun(tmp_path)
        store.commit(epoch(1, token, changes={"seen": changes(SEEN, (ChangeOp.INSERT, 1), (ChangeOp.INSERT, 2))}))
        given = {"wanted": pa.table({"x": pa.array([2], pa.int64())})}
        assert store.query("SELECT s.x FROM seen s JOIN wanted w ON s.x = w.x", given).to_pylist() == [{"x": 2}]
        assert "wanted" not in store.tables() and list(store.tables()["totals"]) == ["k", "n"]
        with pytest.raises(MillstreamError):
            store.query("SELECT * FROM wanted")
        store.close()

    def test_the_dialect_is_one_that_queries_are_written_in(self, tmp_path: Path) -> None:
        """`sql/query/` generates it."""
        store = self.open(tmp_path)
        assert store.dialect in DIALECTS and sqlglot.Dialect.get_or_raise(store.dialect) is not None
        store.close()

    # ------------------------------------------------------------ tables and files

    def test_a_stored_table_and_the_epoch_of_its_sink_change_together(self, tmp_path: Path) -> None:
        """Rows, version, and the last epoch of each sink in the table."""
        store, _ = self._begun(tmp_path)
        rows = pa.table({"id": pa.array([1, 2], pa.int32()), "name": ["a", None]})
        store.put_table("items", rows, 1)
        assert store.table_rows("items").equals(rows)
        assert store.writer_state("items", "w").epoch == -1
        store.put_table("items", rows.slice(0, 1), 2, WriterState("w", 7, b"keys"))
        store.close()
        again = self.open(tmp_path)
        assert again.table_rows("items").equals(rows.slice(0, 1)) and dict(again.table_versions()) == {"items": 2}
        assert again.writer_state("items", "w") == WriterState("w", 7, b"keys")
        again.forget_table("items")
        assert not again.table_versions() and again.writer_state("items", "w").epoch == -1
        again.close()

    # ------------------------------------------------------------ flows, views and the catalog

    def test_flows_and_views_are_listed_and_forgotten(self, tmp_path: Path) -> None:
        """Also after a restart. A forgotten flow leaves a generation behind."""
        store, token = self._begun(tmp_path)
        rows = changes(SEEN, (ChangeOp.INSERT, 1), (ChangeOp.INSERT, 2))
        store.commit(epoch(1, token, changes={"seen": rows}))
        store.close()
        again = self.open(tmp_path)
        assert again.flows() == [FLOW] and again.fingerprints(FLOW) == {"totals": "v1", "seen": "v2"}
        listed = {v["view"]: (v["flow"], v["rows"], v["late"]) for v in again.views()}
        assert listed == {"totals": (FLOW, 0, 0), "seen": (FLOW, 2, 0)}
        assert again.flow_of_view("SEEN") == again.flow_of_view("totals$late") == FLOW
        assert again.flow_of_view("nothing") is None
        again.forget_view("Seen", FLOW)
        assert set(again.tables()) & {"seen", "totals"} == {"totals"} and again.members(FLOW) == {"totals"}
        before = again.generation(FLOW)
        again.forget_flow(FLOW)
        assert again.flows() == [] and again.views() == [] and again.last(FLOW) is None
        assert again.generation(FLOW) > before
        again.close()

    def test_failures_are_kept_until_the_flow_runs_again(self, tmp_path: Path) -> None:
        """Also after a restart."""
        store, _ = self._begun(tmp_path)
        assert store.failures() == {}
        store.note_failure(FLOW, "failed: no such file")
        store.close()
        again = self.open(tmp_path)
        assert again.failures() == {FLOW: "failed: no such file"}
        again.note_failure(FLOW, None)
        assert again.failures() == {}
        again.close()

    def test_the_last_catalog_is_kept(self, tmp_path: Path) -> None:
        """Also after a restart."""
        store = self.open(tmp_path)
        assert store.kept_catalog() is None
        for content in (b"one", b"two \xff"):
            store.keep_catalog(content)
        store.close()
        again = self.open(tmp_path)
        assert again.kept_catalog() == b"two \xff"
        again.close()

    def test_a_copy_is_as_of_one_epoch(self, tmp_path: Path) -> None:
        """Nothing is committed during the copy."""
        (tmp_path / "store").mkdir()
        store, token = self._begun(tmp_path / "store")
        store.commit(epoch(1, token, changes={"seen": changes(SEEN, (ChangeOp.INSERT, 1))}))
        copies = tmp_path / "copy"
        copies.mkdir()
        entered: list[int] = []

        def meanwhile() -> None:
            last = store.last(FLOW)
            entered.append(-1 if last is None else last.number)

        store.copied(self.file(copies), meanwhile)
        store.commit(epoch(2, token, changes={"seen": changes(SEEN, (ChangeOp.INSERT, 2))}))
        store.close()
        copy = self.open(copies)
        last = copy.last(FLOW)
        assert entered == [1] and last is not None and last.number == 1 and self._rows(copy, "seen") == [{"x": 1}]
        copy.close()

    def file(self, folder: Path) -> Path:
        """Return the file that `open` opens in a directory."""
        raise NotImplementedError

    # ------------------------------------------------------------ parts

    def _begun(self, folder: Path) -> tuple[Store, int]:
        store = self.open(folder)
        store.prepare(FLOW, [TOTALS, SEEN], ["s"])
        return store, store.take_lease(FLOW, "test")

    def _rows(self, store: Store, table: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = store.query(f'SELECT * FROM "{table}" ORDER BY 1').to_pylist()
        return rows
