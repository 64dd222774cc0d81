"""Random statements, valid, refused and killed, against a plain model: after each of them the home is as the model
says; after a kill it is as before the statement or as after it, never between.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millstream import paths
from millstream.errors import MillstreamError
from millstream.home import Home
from millstream.live.definitions import Definitions
from millstream.log.storage.disk import RealDisk
from millstream.runtime.epoch.stored_tables import Tables
from millstream.runtime.recovery import repair
from millstream.store.transaction import Transaction
from tests.unit.live.statements_model import Model, Speaker, Step
from tests.unit.live.world import Spoken

TOP = {
    ".catalog.json.tmp",
    ".catalog.json.copy.tmp",
    "millstream.json",
    "lock",
    "catalog.json",
    "catalog.json.copy",
    "store.duckdb",
    "store.duckdb.wal",
    "flows",
    "tables",
    "log",
    "tmp",
}
HOOKED = [
    (paths, "rename"), (paths, "delete_file"), (paths, "delete_folder"), (paths, "delete_tree"), (paths, "open_file"),
    (RealDisk, "mkdir"), (RealDisk, "append"), (RealDisk, "fsync"), (Transaction, "__exit__"),
]  # fmt: skip
"""Before and after each of these a process may die."""


class Killed(BaseException):
    """The process has died."""


class World:
    """A home, its model, and deaths at chosen moments."""

    def __init__(self, root: Path, seed: int, patch: pytest.MonkeyPatch) -> None:
        self.path, self.image = root / "parent" / "home", root / "image"
        for canary in (root / "canary", root / "parent" / "canary"):
            canary.mkdir(parents=True)
            (canary / "file").write_text("as it was")
        self.root, self.model = root, Model()
        self.speaker = Speaker(seed, str(root / "canary"))
        self.opened, self.look = 0, 10
        """How often it was opened again, and after how many times a repair looks at it first."""
        self.left: int | None = None
        """How many moments are left until the death that is due."""
        for owner, name in HOOKED:
            patch.setattr(owner, name, self._hooked(getattr(owner, name), name))
        patch.setattr(RealDisk, "background", False)
        for name in ("fsync", "fdatasync"):  # a process dies here, not the machine
            patch.setattr(os, name, lambda _: None)
        self.spoken = self._open()

    def _hooked(self, call: Callable[..., Any], name: str) -> Callable[..., Any]:
        def hooked(*given: Any, **options: Any) -> Any:
            self._moment()
            if name == "delete_tree" and self.left == 0:  # dies in the middle of it
                for file in sorted(p for p in Path(given[0]).rglob("*") if p.is_file())[:1]:
                    file.unlink()
                self._moment()
            done = call(*given, **options)
            self._moment()
            return done

        return hooked

    def _moment(self) -> None:
        if self.left is None:
            return
        self.left -= 1
        if self.left < 0:
            self.left = None
            shutil.copytree(self.path, self.image)
            raise Killed

    def _open(self) -> Spoken:
        home = Home(self.path)
        home.open_home.on_store_open = lambda: None
        return Spoken(home)

    def reopen(self) -> None:
        """The home is closed, or has died: what was there at that moment is opened."""
        self.spoken.home.close()
        self.opened += 1
        if self.opened % self.look == 0:
            self._repaired(self.image if self.image.exists() else self.path)
        if self.image.exists():
            shutil.rmtree(self.path)
            self.image.rename(self.path)
        self.spoken = self._open()

    @staticmethod
    def _repaired(path: Path) -> None:
        """A repair finds no damage, also after a death."""
        assert [f.found for f in repair.look(path) if not f.harmless] == []

    def step(self, death: int | None) -> str:
        """One statement, cut off after so many moments (or not); what became of it."""
        step = self.speaker.next(self.model)
        after = self.model.copy()
        if step.effect is not None:
            step.effect(after)
        self.left, said = death, ""
        try:
            self.spoken.say(step.sql)
            ended = "done"
        except MillstreamError as error:
            ended, said = "refused", str(error)
        except Killed:
            ended = "killed"
        self.left = None
        if ended == "killed":
            self.reopen()
            seen = self.seen()
            choices = [self.model, after]
            assert seen in [self.told(m) for m in choices], f"{step.sql}: between before and after"
            self.model = choices[seen != self.told(self.model)]
        else:
            assert ended == ("refused" if step.effect is None else "done"), (step.sql, said)
            self.model = after
        self._chosen(step)
        return ended

    def _chosen(self, step: Step) -> None:
        """Take the flow that the home has chosen into the model, and give it a folder, as if it had run."""
        kept = self.spoken.live.definitions
        for name in self.model.entries:
            flow = kept.entries[name].flow
            if name == step.new and flow:
                self.model.flow_of[name] = flow
            assert self.model.flow_of.get(name, "") == flow, name
            if flow:
                (self.path / "flows" / flow / "state").mkdir(parents=True, exist_ok=True)
                (self.path / "flows" / flow / "state" / "run").touch()
        assert {f for f, n in kept.flows.items() if n.paused} == self.model.paused, step.sql

    def seen(self) -> dict[str, Any]:
        """What is in the home, in memory and on disk."""
        live, home = self.spoken.live, self.spoken.home
        kept = Definitions.load(self.path)
        written = [p.read_bytes() for p in sorted(self.path.glob("catalog.json*"))]
        assert len(written) in (0, 2) and len(set(written)) < 2  # the file, and its copy
        entries = [(n, e.kind, e.sql) for n, e in kept.entries.items()]
        assert (kept.dropped, kept.pending, live.broken) == ([], [], {})
        assert [(n, live.definitions.entries[n].kind, e.piece.sql) for n, e in live.catalog.entries.items()] == entries
        folders = {p.name for p in (self.path / "flows").glob("*")}
        assert folders <= set(kept.used_flows()) == set(kept.flows)
        assert {p.name for p in self.path.iterdir()} <= TOP
        paused = {f for f, n in kept.flows.items() if n.paused}
        return {"entries": entries, "tables": self._tables(home), "topics": self._topics(home), "paused": paused}

    def _tables(self, home: Home) -> dict[str, list[tuple[int, int]]]:
        versions = home.store.table_versions()  # opens the store, which makes the files agree with it
        found, newest = {}, home.tables.newest()
        for name in versions:
            rows = sorted((r["k"], r["v"]) for r in home.store.table_rows(name).to_pylist())
            path = home.tables.path(name, newest[name])
            with pa.memory_map(str(path)) as file:
                assert sorted((r["k"], r["v"]) for r in pa.ipc.open_file(file).read_all().to_pylist()) == rows
            assert not [p for p in path.parent.iterdir() if p.name.startswith(".")]
            found[name.lower()] = rows
            assert path.name in home.tables.known(name)
        Tables(self.path / "tables").check(newest)
        assert {p.name for p in (self.path / "tables").glob("*")} == set(versions)
        return dict(sorted(found.items()))

    def _topics(self, home: Home) -> dict[str, list[tuple[int, int]]]:
        found = {}
        for name in home.topics():
            topic = home.log.topic(name)
            rows = topic.read(0, 0, topic.end()[0]).to_pylist()
            found[name] = [(r["k"], r["v"]) for r in rows]
        assert {p.name for p in (self.path / "log").glob("*")} <= {*found, "topics.lock"}
        return found

    def told(self, model: Model) -> dict[str, Any]:
        """What the model says is in the home."""
        return {
            "entries": [(n, e.kind, e.sql) for n, e in model.entries.items()],
            "tables": {n: sorted(rows.items()) for n, rows in sorted(model.tables.items())},
            "topics": dict(sorted(model.topics.items())),
            "paused": model.paused,
        }

    def shown(self) -> None:
        """What SHOW says is what the model says."""
        for kind in ("source", "table", "view", "sink", "function"):
            rows = self.spoken.rows(f"SHOW {kind.upper()}S")
            assert [r[kind].lower() for r in rows] == [n for n, e in self.model.entries.items() if e.kind == kind]
        assert [r["topic"] for r in self.spoken.rows("SHOW TOPICS")] == sorted(self.model.topics)
        states = {r["flow"]: r["state"] for r in self.spoken.rows("SHOW FLOWS")}
        assert states.keys() == set(self.model.flow_of.values())
        assert {f for f, s in states.items() if s == "paused"} == self.model.paused

    def end(self) -> None:
        """Close; what is outside the home is as it was."""
        self.spoken.home.close()
        assert {p.name for p in self.root.iterdir()} == {"canary", "parent"}
        assert {p.name for p in (self.root / "parent").iterdir()} == {"home", "canary"}
        for canary in (self.root / "canary", self.root / "parent" / "canary"):
            assert [(p.name, p.read_text()) for p in canary.iterdir()] == [("file", "as it was")]


@contextmanager
def world(root: Path, seed: int) -> Iterator[World]:
    with pytest.MonkeyPatch.context() as patch:
        made = World(root, seed, patch)
        try:
            yield made
        finally:
            made.left = None
        made.end()


def live(root: Path, seed: int, steps: int, *, kill: float, look: int) -> None:
    """Many statements; a part of them is killed, and every so often everything is looked at."""
    ended = dict.fromkeys(("done", "refused", "killed"), 0)
    with world(root, seed) as made:
        chance = made.speaker.random
        made.look = 10 if kill < 0.1 else 1
        for number in range(1, steps + 1):
            death = chance.randrange(15) if chance.random() < kill else None
            try:
                ended[made.step(death)] += 1
                if number % look == 0:
                    assert made.seen() == made.told(made.model)
                    made.shown()
                if number % (10 * look) == 0:
                    made.reopen()
                    assert made.seen() == made.told(made.model)
            except Exception as error:
                error.add_note(f"seed {seed}, statement {number}, death at {death}")
                raise
    assert min(ended.values()) > steps * kill / 10, ended


def test_random_statements_leave_what_the_model_says(tmp_path: Path) -> None:
    live(tmp_path, 12, 700, kill=0.03, look=50)


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(50))
def test_a_hundred_thousand_statements_leave_what_the_model_says(tmp_path: Path, shard: int) -> None:
    live(tmp_path, 1_000 + shard, 2_000, kill=0.2, look=10)


STATEMENTS = [
    "CREATE SOURCE s (k BIGINT, v BIGINT) FROM LOG('t')",
    "CREATE TABLE a (k BIGINT PRIMARY KEY, v BIGINT)",
    "INSERT INTO a VALUES (1, 2)",
    "INSERT INTO a VALUES (1, 5), (2, 6) ON CONFLICT (k) DO UPDATE SET v = excluded.v",
    "MERGE INTO a USING (SELECT 2 AS k) AS n ON a.k = n.k WHEN MATCHED THEN DELETE WHEN NOT MATCHED BY SOURCE THEN "
    "UPDATE SET v = 9",
    "CREATE VIEW w AS SELECT k, v FROM s",
    "CREATE VIEW x AS SELECT k, v FROM w",
    "CREATE SINK y INTO LOG('out')",
    "INSERT INTO y SELECT k, v FROM x",
    "CREATE OR REPLACE TABLE a (k BIGINT PRIMARY KEY, v STRING)",
    "PAUSE w",
    "INSERT INTO t VALUES (1, 2)",
    "DROP VIEW w CASCADE",
    "DROP TABLE a",
    "DROP SOURCE s",
    "DROP TOPIC t",
]


@pytest.mark.slow
def test_a_statement_killed_at_any_moment_is_done_or_was_not_said(tmp_path: Path) -> None:
    moments = 0
    with world(tmp_path, 0) as made:
        for sql in STATEMENTS:
            for moment in itertools.count():
                before, made.left = _everything(made), moment
                try:
                    made.spoken.say(sql)
                except Killed:
                    made.reopen()
                else:
                    break
                moments += 1
                if _everything(made) != before:  # done: the same once more changes nothing, or is refused
                    break
            made.left = None
            if _everything(made) == before:
                made.spoken.say(sql)
            assert _everything(made) != before, sql
    assert moments > 50


def _everything(made: World) -> tuple[Any, ...]:
    made.left = None
    home, kept = made.spoken.home, Definitions.load(made.path)
    assert (kept.dropped, kept.pending, made.spoken.live.broken) == ([], [], {})
    tables = {n: home.store.table_rows(n).to_pylist() for n in home.store.table_versions()}
    assert home.tables.newest().keys() == tables.keys()
    topics = {n: home.log.topic(n).end() for n in home.topics()}
    assert {p.name for p in (made.path / "log").glob("*")} <= {*topics, "topics.lock"}
    return kept.entries, kept.flows, tables, {n: d.columns for n, d in _schemas(home).items()}, topics


def _schemas(home: Home) -> dict[str, Any]:
    class Columns:
        def __init__(self, columns: list[str]) -> None:
            self.columns = columns

    return {n: Columns(c) for n, c in home.store.tables().items()}
