"""A home with a file of every kind, ways to harm one of them, and what a person then does with the home.

It is built once: topics with segments, a trimmed one, holds, sinks into a topic and into files, a stored table with
versions, state, a checkpoint, a repair, a flow that died between commit and delivery, one that died in an epoch, and
one that may lose records and ended well. `older` is a copy from some epochs before.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow as pa

import millstream as ms
from millstream.clock import ManualClock, SystemClock
from millstream.errors import MillstreamError
from millstream.home import Home
from millstream.live.session import Session
from millstream.log import Log
from millstream.model.types.schema import TIMESTAMP
from millstream.plan.planner import plan
from millstream.runtime.recovery import repair
from millstream.runtime.recovery.repair_actions import NOTHING
from millstream.testing import Crash
from tests.local import LocalEngine
from tests.sql.engine import QueryEngine

from .recovery_homes import flip

SCHEMA = pa.schema([("auction", pa.int64()), ("price", pa.int64()), ("ts", TIMESTAMP)])
BASE = 1_767_225_600_000_000
NOBODY = 65534
STATEMENTS = (
    """CREATE SOURCE bids (auction BIGINT, price BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '4' SECOND)
       FROM LOG('bids')""",
    "CREATE VIEW hot AS SELECT auction, count(*) AS n, sum(price) AS s FROM bids GROUP BY auction",
    "CREATE SINK told FROM hot INTO LOG('told')",
    "CREATE SINK kept FROM hot INTO FILES('kept', format = 'json')",
    """CREATE SOURCE old (auction BIGINT, price BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '4' SECOND)
       FROM LOG('old')""",
    "CREATE VIEW dear WITH (flow = 'second') AS SELECT auction, max(price) AS most FROM old GROUP BY auction",
    "CREATE TABLE items (id BIGINT PRIMARY KEY, name STRING)",
    "INSERT INTO items VALUES (1, 'one')",
    "INSERT INTO items VALUES (2, 'two')",
    "CREATE TABLE things (id BIGINT PRIMARY KEY, name STRING)",
    "INSERT INTO things VALUES (1, 'a thing')",
    "INSERT INTO things VALUES (2, 'another')",
    "INSERT INTO things VALUES (3, 'a third')",
)
QUESTIONS = {
    "hot": "SELECT auction, n, s FROM hot",
    "dear": "SELECT auction, most FROM dear",
    "loose": "SELECT auction, n FROM loosely",
    "items": "SELECT id, name FROM items",
    "things": "SELECT id, name FROM things",
}


def rows(batch: int) -> pa.Table:
    """Some bids."""
    times = pa.array([BASE + (batch * 4 + i) * 1_000_000 for i in range(6)], pa.int64()).cast(TIMESTAMP)
    prices = [(batch * 7 + i) % 11 for i in range(6)]
    return pa.table({"auction": [i % 3 for i in range(6)], "price": prices, "ts": times}, schema=SCHEMA)


def loose() -> ms.Flow:
    """A flow that may lose records."""
    flow = ms.Flow("loose", guarantee="at_most_once")
    bids = flow.source("bids", ms.log("loose"), schema="auction BIGINT, price BIGINT, ts TIMESTAMP", event_time="ts")
    bids.key_by("auction").aggregate(n=ms.count()).view("loosely")
    return flow


@dataclass
class Opened:
    """A home that is open, and a session of SQL in it."""

    home: Home
    session: Session

    def say(self, sql: str) -> Any:
        return [a for a in self.session.execute(sql)][-1]

    def perform(self, flow: str, die: str | None = None) -> None:
        """Perform all epochs of a flow of SQL, or die at a step of the first."""

        def failpoint(step: str) -> None:
            if step == die:
                raise Crash

        loop = self.home.loop(self.session.deployment.planned(flow), engine=QueryEngine, failpoint=failpoint)
        with suppress(Crash):
            while loop.step() is not None:
                pass
        loop.abandon()

    def perform_loose(self, *, well: bool) -> None:
        loop = self.home.loop(plan(loose()), engine=LocalEngine)
        while loop.step() is not None:
            pass
        (loop.close if well else loop.abandon)()


@contextmanager
def opened(path: Path) -> Iterator[Opened]:
    home = Home(path, clock=ManualClock(BASE))
    home.open_home.on_store_open = lambda: None
    try:
        yield Opened(home, home.session(start=False))
    finally:
        home.close()


def build(root: Path) -> None:
    """``root/now`` and ``root/older`` are the homes, with the files of a sink beside each."""
    place = root / "work"
    place.mkdir()
    before = Path.cwd()
    os.chdir(place)
    try:
        _build(root, place)
    finally:
        os.chdir(before)
    shutil.rmtree(place)


def _build(root: Path, place: Path) -> None:
    with opened(place / "home") as one:
        log = one.home.log
        bids = log.create("bids", SCHEMA, partitions=2, key="auction", segment_rows=8)
        old = log.create("old", SCHEMA, segment_rows=4)
        log.create("loose", SCHEMA)
        for statement in STATEMENTS:
            one.say(statement)
        for batch in range(3):
            old.append(rows(batch))
        old.hold("somebody", {0: 6})
        old.trim({0: 6})
        for batch in range(4):
            for name in ("bids", "old", "loose"):
                log.topic(name).append(rows(batch + 3))
            one.perform("bids")
            one.perform("second")
            one.perform_loose(well=True)
            if batch == 1:
                one.home.checkpoint("one")
                _copy(place, root / "older")
                one.say("INSERT INTO items VALUES (3, 'three')")
                one.say("CREATE TABLE later (id BIGINT PRIMARY KEY)")
        assert bids.start() == {0: 0, 1: 0}
        assert old.start() == {0: 6}
    _repaired(place / "home")
    with opened(place / "home") as one:
        one.home.log.topic("bids").append(rows(8))
        one.home.log.topic("old").append(rows(8))
        one.perform("second", die="before commit")
        one.perform("bids", die="after commit")
        _copy(place, root / "now")


def _repaired(home: Path) -> None:
    """Leave what a repair leaves."""
    record = sorted((home / "flows/second/epochs").glob("*.json"))[-1]
    flip(record, 60)
    assert repair.mend(home, repair.look(home)) is not None


def _copy(place: Path, to: Path) -> None:
    """As it would be found after a kill: the store is open, and has a file beside it."""
    shutil.copytree(place, to, symlinks=True, ignore=shutil.ignore_patterns("query.sock"))


def attempt(place: Path) -> dict[str, Any]:
    """Open the home, append, run all flows and ask; what comes out, without times and numbers of offsets."""
    before = Path.cwd()
    os.chdir(place)
    try:
        with opened(place / "home") as one:
            for name in ("bids", "old", "loose"):
                one.home.log.topic(name).append(rows(20))
            one.perform("bids")
            one.perform("second")
            one.perform_loose(well=True)
            found = {name: _sorted(one.say(sql).result.to_dicts()) for name, sql in QUESTIONS.items()}
            found["defined"] = sorted(one.session.deployment.definitions.entries)
            for name in one.home.topics():
                topic = one.home.log.topic(name)
                parts = [topic.read(p, s, topic.end()[p]) for p, s in topic.start().items()]
                found[f"log {name}"] = _sorted(pa.concat_tables(parts).drop(["$part", "$offset", "$time"]).to_pylist())
            found["kept"] = {p.name: sorted(p.read_bytes().splitlines()) for p in sorted(Path("kept").glob("*"))}
            return found
    finally:
        os.chdir(before)


def _sorted(found: list[dict[str, Any]]) -> list[str]:
    return sorted(str(r) for r in found)


# ---------------------------------------------------------------- harm

Harm = Callable[[Path, Path], None]
"""Harms a file; the second path is where it lies in the older home."""


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def _folder(path: Path, _: Path) -> None:
    path.unlink()
    path.mkdir()


def _dangling(path: Path, _: Path) -> None:
    path.unlink()
    path.symlink_to(path.parent / "nowhere")


def _linked(path: Path, _: Path) -> None:
    away = path.parents[len(path.parts) - 1 - path.parts.index("home")] / f"away-{path.name}"
    path.rename(away)
    path.symlink_to(away)


def _old(path: Path, older: Path) -> None:
    shutil.copyfile(older, path)


HARMS: dict[str, Harm] = {
    "deleted": lambda path, _: path.unlink(),
    "emptied": lambda path, _: _write(path, b""),
    "halved": lambda path, _: _write(path, path.read_bytes()[: path.stat().st_size // 2]),
    "first byte": lambda path, _: flip(path, 0),
    "early byte": lambda path, _: flip(path, path.stat().st_size // 5),
    "middle byte": lambda path, _: flip(path, path.stat().st_size // 2),
    "late byte": lambda path, _: flip(path, path.stat().st_size * 4 // 5),
    "last byte": lambda path, _: flip(path, path.stat().st_size - 1),
    "older": _old,
    "folder": _folder,
    "dangling link": _dangling,
    "link": _linked,
    "unreadable": lambda path, _: path.chmod(0),
}


BLOCK = 256 * 1024
"""The size of a block of the store's file; three small headers come before the first."""


def flipped(block: int) -> Harm:
    """One byte of a block of the store is another one."""
    return lambda path, _: flip(path, 3 * 4096 + block * BLOCK + BLOCK // 3)


def together(now: Path, older: Path) -> dict[str, Callable[[Path], None]]:
    """Harm to several files of a home at once: a file and its copy, or a whole folder; and folders that are swapped."""
    found: dict[str, Callable[[Path], None]] = {}
    names = sorted(str(p.relative_to(now)) for p in now.rglob("*.copy") if "repair/" not in str(p))
    for copy in names:
        both = (copy.removesuffix(".copy"), copy)
        found[f"deleted {both[0]} and its copy"] = lambda home, both=both: [(home / n).unlink() for n in both] and None
        if all((older / n).is_file() and (older / n).read_bytes() != (now / n).read_bytes() for n in both):
            found[f"older {both[0]} and its copy"] = lambda home, both=both: (
                [_old(home / n, older / n) for n in both] and None
            )
    for parent in ("log", "tables", "flows", *(str(t.relative_to(now)) for t in sorted((now / "log").glob("*/")))):
        folders = sorted(str(f.relative_to(now)) for f in (now / parent).glob("*/"))
        for name in folders:
            found[f"deleted {name}"] = lambda home, name=name: shutil.rmtree(home / name)
            if (older / name).is_dir():
                found[f"older {name}"] = lambda home, name=name: _older_folder(home / name, older / name)
        for one, other in combinations(folders, 2):
            found[f"swapped {one} and {other}"] = lambda home, one=one, other=other: _swap(home / one, home / other)
    return found


def _older_folder(path: Path, older: Path) -> None:
    shutil.rmtree(path)
    shutil.copytree(older, path, symlinks=True)


def _swap(one: Path, other: Path) -> None:
    one.rename(one.with_name("between"))
    other.rename(one)
    one.with_name("between").rename(other)


def applies(harm: str, path: Path, older: Path) -> bool:
    """Whether a harm would change a file."""
    if harm == "older":
        return older.is_file() and older.read_bytes() != path.read_bytes()
    if harm == "unreadable":
        return os.geteuid() == 0
    return path.stat().st_size > 0 or harm in ("deleted", "folder", "dangling link", "link")


@contextmanager
def as_nobody(place: Path, harm: str) -> Iterator[None]:
    """For an unreadable file: without the rights of root, which reads everything."""
    if harm != "unreadable":
        yield
        return
    for folder, _, files in os.walk(place):
        os.chown(folder, NOBODY, NOBODY)
        for name in files:
            os.chown(Path(folder) / name, NOBODY, NOBODY, follow_symlinks=False)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


# ---------------------------------------------------------------- what must come of it


def run(place: Path) -> dict[str, Any] | MillstreamError:
    """What comes of a run, or the named error that it ends with."""
    try:
        return attempt(place)
    except MillstreamError as error:
        assert error.message, error
        assert error.hint, f"{error!r} says nothing of what to do"
        return error


def mended(home: Path) -> tuple[str, list[str]]:
    """All that a repair does: whether it found nothing, mended all or is stuck; and what it says is lost."""
    lost: list[str] = []
    for number in range(9):
        try:
            lock = repair.locked(home)
        except MillstreamError as error:
            return "stuck", [str(error)]
        try:
            found = repair.look(home)
            if not found:
                return ("mended" if number else "nothing"), lost
            if any(f.do is None for f in found):
                return "stuck", [f.problem for f in found]
            lost += [f.lost for f in found if f.lost != NOTHING]
            repair.mend(home, found)
        except MillstreamError as error:
            return "stuck", [str(error)]
        finally:
            lock.release()
    raise AssertionError(f"it finds more and more: {found}")


def checked(home: Path) -> list[str]:
    """What a check of the log says."""
    log, found = Log(home / "log", SystemClock()), []
    for name in log.topics():
        try:
            found += [str(e) for e in log.topic(name).verify()]
        except MillstreamError as error:
            found.append(str(error))
    log.close()
    return found
