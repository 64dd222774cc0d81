"""Homes for the tests of recovery: a small flow over a topic, copied after every epoch, and ways to harm a copy."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import io
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import orjson
import pyarrow as pa

import millstream as ms
from millstream.cli.app import COMMANDS, guarded
from millstream.cli.options import Settings
from millstream.connect.port import SourceSlice
from millstream.model.types.schema import TIMESTAMP
from millstream.runtime.epoch.records import RecordBook
from millstream.state.version import Version
from millstream.store.duckdb import DuckStore
from millstream.store.port import EpochRow
from millstream.testing import Crash
from tests import oracle
from tests.local import LocalScript

EPOCHS = 8
ROWS = 6
SCHEMA = pa.schema([("auction", pa.int64()), ("price", pa.int64()), ("ts", TIMESTAMP)])
_BASE = 1_767_225_600_000_000
UNHASHED = ("lock", "query.sock")
VIEWS = {
    "totals": ("auction", "n", "s"),
    "windows": ("window_start", "auction", "n"),
    "visits": ("window_start", "window_end", "n"),
    "threes": ("auction", "price"),
}
_KNOWN: dict[bytes, dict[str, list[dict[str, Any]]]] = {}
_PREPARED: list[Path] = []

TOTALS = "SELECT auction, count(*) AS n, sum(price) AS s FROM bids GROUP BY auction"
WINDOWS = "SELECT time_bucket(INTERVAL 10 seconds, ts) AS window_start, auction, count(*) AS n FROM bids GROUP BY ALL"
THREES = "SELECT auction, price FROM bids WHERE price = 3"
VISITS = """
SELECT min(ts) AS window_start, max(ts) + INTERVAL 3 seconds AS window_end, count(*) AS n FROM (
  SELECT ts, sum(CASE WHEN ts - before < INTERVAL 3 seconds THEN 0 ELSE 1 END) OVER (ORDER BY ts, nr) AS visit FROM (
    SELECT ts, nr, lag(ts) OVER (ORDER BY ts, nr) AS before FROM (SELECT ts, row_number() OVER () AS nr FROM bids)))
GROUP BY visit
"""


def flow() -> ms.Flow:
    made = ms.Flow("counting")
    bids = made.source(
        "bids",
        ms.log("bids"),
        schema="auction BIGINT, price BIGINT, ts TIMESTAMP",
        event_time="ts",
        lateness="1 minute",
        future_bound="1 day",
    )
    keyed = bids.key_by("auction")
    keyed.aggregate(n=ms.count(), s=ms.sum("price")).view("totals")
    keyed.window(ms.tumbling("10 seconds")).aggregate(n=ms.count()).view("windows")
    bids.window(ms.session("3 seconds")).aggregate(n=ms.count()).view("visits")
    bids.where("price = 3").view("threes")
    return made


def rows(batch: int) -> pa.Table:
    """The bids of one epoch; between some epochs there is a pause, so that sessions end."""
    start = _BASE + (4 * batch + 10 * (batch // 3)) * 1_000_000
    return pa.table(
        {
            "auction": [i % 3 for i in range(ROWS)],
            "price": [(batch + i) % 5 for i in range(ROWS)],
            "ts": pa.array([start + (i % 4) * 1_000_000 for i in range(ROWS)], pa.int64()).cast(TIMESTAMP),
        },
        schema=SCHEMA,
    )


def prepare(root: Path) -> Path:
    """Homes after every epoch: ``root/0`` to ``root/8``; ``root/open`` died in the ninth, ``root/more`` has more in its
    topic, ``root/checkpoint`` is one of the fifth. The first to ask has them made, others get a copy of those.
    """
    for made in _PREPARED:
        if made.is_dir():
            return Path(shutil.copytree(made, root, dirs_exist_ok=True))
    path = root / "work"
    script = LocalScript(flow(), _with_topic(path), shards=1)
    for epoch in range(EPOCHS + 1):
        if epoch:
            script.home.topic("bids").append(rows(epoch))
            script.tick(1)
        if epoch == 5:
            script.home.checkpoint("five", root / "checkpoint")
        script.crash()
        shutil.copytree(path, root / str(epoch), ignore=shutil.ignore_patterns(*UNHASHED))
        script.resume()
    script.home.topic("bids").append(rows(EPOCHS + 1))
    script.crash(at="before commit")
    try:
        script.tick()
    except Crash:
        shutil.copytree(path, root / "open", ignore=shutil.ignore_patterns(*UNHASHED))
    script.resume()
    for more in (EPOCHS + 2, EPOCHS + 3):
        script.home.topic("bids").append(rows(more))
    script.crash()
    shutil.copytree(path, root / "more", ignore=shutil.ignore_patterns(*UNHASHED))
    _PREPARED.append(root)
    return root


def _with_topic(path: Path) -> Path:
    with ms.open(path) as home:
        home.log.create("bids", SCHEMA, segment_rows=3)
    return path


def go_on(path: Path) -> None:
    """Start the flow, send a little more, and hold all views against a batch over the whole topic."""
    with LocalScript(flow(), path, shards=1) as script:
        topic = script.home.topic("bids")
        topic.append(rows(EPOCHS + 4))
        script.tick()
        expected = batch(topic.read(0, 0, topic.end()[0]))
        for view, columns in VIEWS.items():
            oracle.same(script.rows(view), expected[view], columns)


def batch(table: pa.Table) -> dict[str, list[dict[str, Any]]]:
    """All views at once, computed from all records."""
    key = orjson.dumps(table.select(SCHEMA.names).to_pylist())
    if key not in _KNOWN:
        sqls = {"totals": TOTALS, "windows": WINDOWS, "threes": THREES, "visits": VISITS}
        _KNOWN[key] = {view: oracle.batch(sql, bids=table) for view, sql in sqls.items()}
    return _KNOWN[key]


def hashes(path: Path) -> dict[str, str]:
    """What is in every file of a home, but for those of a running process."""
    return {
        str(p.relative_to(path)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(path.rglob("*"))
        if p.is_file() and p.name not in UNHASHED
    }


def last(path: Path) -> EpochRow | None:
    store = DuckStore(path / "store.duckdb", read_only=True)
    try:
        return store.last("counting")
    finally:
        store.close()


# ---------------------------------------------------------------- harm

STORES = ("same", "older", "oldest", "missing", "damaged")
RECORDS = (
    *("closed", "last open", "open", "none", "gap", "behind"),
    *("ahead", "last damaged", "open damaged", "slice", "plan", "elsewhere"),
)
STATES = ("whole", "missing", "damaged", "short", "older")
SOURCES = ("equal", "ahead", "behind", "trimmed")


def harm(homes: Path, path: Path, store: str, record: str, state: str, source: str, *, checkpoint: bool) -> int:
    """A home in `path` with these parts; returns the epoch that its store stands at."""
    begun = record in ("open", "open damaged", "elsewhere")
    shutil.copytree(homes / ("open" if begun else str(EPOCHS)), path)
    number = {"older": 6, "oldest": 1}.get(store, EPOCHS)
    if number != EPOCHS:
        shutil.copyfile(homes / str(number) / "store.duckdb", path / "store.duckdb")
    row = last(path)
    assert row is not None and row.number == number
    _harm_records(path, record)
    _harm_state(homes, path, row, state)
    _harm_log(homes, path, number, source, begun=begun)
    if checkpoint:
        shutil.copytree(homes / "checkpoint", path / "checkpoints")
    if store == "missing":
        (path / "store.duckdb").unlink()
    if store == "damaged":
        flip(path / "store.duckdb", 5000)
    return number


def _harm_records(path: Path, how: str) -> None:
    book = RecordBook(path / "flows/counting/epochs")
    record = book.read(EPOCHS)
    assert record is not None
    gone = {"none": book.numbers(), "gap": [EPOCHS - 1], "behind": [EPOCHS - 2, EPOCHS - 1, EPOCHS]}
    for number in gone.get(how, ()):
        book.path(number).unlink()
    if how == "last open":
        book.open(replace(record, state="open"))
    elif how == "ahead":
        begins = {0: (record.slices["bids"].end[0],) * 2}
        book.close(replace(record, epoch=EPOCHS + 1, slices={"bids": SourceSlice(begins)}))
    elif how == "last damaged":
        flip(book.path(EPOCHS), 60)
    elif how == "open damaged":
        flip(book.path(EPOCHS + 1), 60)
    elif how == "slice":
        book.open(replace(record, slices={"bids": SourceSlice({0: (0, 1)})}))
    elif how == "plan":
        book.close(replace(record, plan="another"))
    elif how == "elsewhere":
        book.open(replace(record, epoch=EPOCHS + 1, slices={"bids": SourceSlice({0: (1, 2)})}))


def _harm_state(homes: Path, path: Path, row: EpochRow, how: str) -> None:
    state = path / "flows/counting/state"
    newest = Version.from_json(row.version).of("totals")[-1]
    file = state / newest.file
    if how == "older":
        shutil.rmtree(state)
        shutil.copytree(homes / str(EPOCHS - 1) / "flows/counting/state", state)
    elif not file.exists():  # not even kept
        return
    elif how == "missing":
        file.unlink()
    elif how == "damaged":
        flip(file, file.stat().st_size // 2)
    elif how == "short":
        file.write_bytes(file.read_bytes()[:-1])


def _harm_log(homes: Path, path: Path, number: int, how: str, *, begun: bool) -> None:
    if how == "equal":
        return
    shutil.rmtree(path / "log")
    if how == "behind":
        shutil.copytree(homes / str(number - 1) / "log", path / "log")
        return
    shutil.copytree(homes / "more" / "log", path / "log")
    if how == "trimmed":
        with ms.open(path / "elsewhere") as home:
            home.log._root = path / "log"
            topic = home.topic("bids")
            topic.trim({0: (EPOCHS + 2) * ROWS}, force=True)
            assert topic.start()[0] > EPOCHS * ROWS + (ROWS if begun else 0)
        shutil.rmtree(path / "elsewhere")


def flip(path: Path, position: int) -> None:
    """Damage one byte of a file, in place."""
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)
        file.seek(position)
        file.write(bytes([byte[0] ^ 0xFF]))


def said_by(name: str, *arguments: str | Path) -> tuple[int, str]:
    """The exit code of a command and all that it says."""
    command: click.Command = importlib.import_module(f"millstream.cli.commands.{COMMANDS[name]}").command
    out, settings = io.StringIO(), Settings()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        call = [str(a) for a in arguments]
        code = guarded(settings, lambda: command.main(call, standalone_mode=False, obj=settings))
    return code, out.getvalue()


def findings_say(findings: list[Any]) -> str:
    return "; ".join(f"{f.problem} -> {f.would} ({f.lost})" for f in findings)
