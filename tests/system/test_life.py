"""The life of a flow through the command line: run, ask meanwhile, stop, start again, ask afterwards."""

import json
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pyarrow.compute as pc
import pytest

from millstream.cli.demo.flow import NAME as HOUSE
from millstream.connect.nexmark import Nexmark, count, events
from millstream.errors import MillstreamError
from millstream.reader import Reader
from millstream.store.duckdb import DuckStore

from .conftest import PATIENCE, Processes

pytestmark = pytest.mark.spark

FOLDER_FLOW = """
import millstream as ms

TABLES = {"names": [{"id": 7, "name": "a clock"}]}
flow = ms.Flow("auctions")
BID = "auction BIGINT, price BIGINT, ts TIMESTAMP"
bids = flow.source("bids", ms.files("bids", format="json"), schema=BID, event_time="ts", lateness="4 seconds")
(bids.where("price > 100").key_by("auction").window(ms.tumbling("10 seconds"))
     .aggregate(bids=ms.count(), top=ms.max("price")).view("hot_auctions"))
named = bids.enrich("names", on={"auction": "id"}, columns="name STRING", required=True)
named.select("name", "ts").view("named")


def halved(table):
    return table.set_column(1, "price", [[p.as_py() // 2 for p in table["price"]]])


bids.map_batches(halved, schema=BID).aggregate(n=ms.sum("price")).view("half")
"""
BIDS = """\
{"auction": 7, "price": 150, "ts": "2026-01-01T00:00:01Z"}
{"auction": 7, "price": 90, "ts": "2026-01-01T00:00:02Z"}
{"auction": 7, "price": 400, "ts": "2026-01-01T00:00:03Z"}
{"auction": 8, "price": 200, "ts": "2026-01-01T00:00:14Z"}
this is not JSON
"""

EVENTS, RATE = 80_000, 5_000
PACED_FLOW = f"""
import millstream as ms
flow = ms.Flow("paced")
bids = flow.source("bids", ms.nexmark("bid", rate={RATE}, events={EVENTS}), event_time="date_time")
bids.aggregate(bids=ms.count(), volume=ms.sum("price")).view("total")
bids.key_by("auction").window(ms.tumbling("1 second")).aggregate(bids=ms.count()).view("per_auction")
"""

SLICE, SLICES = 1_000, 3
HELD_FLOW = f"""
import time
from pathlib import Path
import millstream as ms

HERE = Path(__file__).parent


def held(table):
    (HERE / "begun").touch()
    while not (HERE / "go").exists():
        time.sleep(0.05)
    return table


flow = ms.Flow("held")
house = ms.nexmark("bid", events={SLICE * SLICES})
bids = flow.source("bids", house, event_time="date_time", max_rows={SLICE}).select("price", "date_time")
held_up = bids.map_batches(held, schema="price BIGINT, date_time TIMESTAMP")
held_up.aggregate(bids=ms.count(), volume=ms.sum("price")).view("total")
"""


@pytest.mark.slow
def test_a_folder_is_read_and_asked_after_the_run(millstream: Processes, tmp_path: Path) -> None:
    (tmp_path / "bids").mkdir()
    (tmp_path / "bids" / "one.json").write_text(BIDS, encoding="utf-8")
    (tmp_path / "flow.py").write_text(FOLDER_FLOW, encoding="utf-8")
    done = millstream.run("run", "flow.py", "--until-caught-up")
    assert done.returncode == 0, done.stderr
    assert "auctions: stopped, 5 rows" in done.stdout
    assert 'millstream query "SELECT * FROM' in done.stdout
    assert "Traceback" not in done.stderr

    def asked(*arguments: str) -> list[dict[str, object]]:
        answer = millstream.run(*arguments, "--format", "json")
        assert answer.returncode == 0, answer.stderr
        rows: list[dict[str, object]] = json.loads(answer.stdout)
        return rows

    assert asked("query", "SELECT window_start, auction, bids, top FROM hot_auctions ORDER BY auction") == [
        {"window_start": "2026-01-01T00:00:00Z", "auction": 7, "bids": 2, "top": 400},
        {"window_start": "2026-01-01T00:00:10Z", "auction": 8, "bids": 1, "top": 200},
    ]
    assert [(v["view"], v["rows"], v["errors"]) for v in asked("views")] == [
        ("half", 1, 1),
        ("hot_auctions", 2, 1),
        ("named", 3, 1),
    ]
    assert [(f["flow"], f["state"], f["rows"]) for f in asked("flows")] == [("auctions", "stopped", 5)]
    with Reader(tmp_path / "millstream-home") as reader:
        assert reader.query("SELECT n FROM half").to_dicts() == [{"n": 75 + 45 + 200 + 100}]
        assert [r["raw"] for r in reader.query("SELECT raw FROM bids$errors")] == ["this is not JSON"]


@pytest.mark.slow
def test_a_flow_that_was_stopped_and_killed_goes_on_without_loss_or_repeat(
    millstream: Processes, tmp_path: Path
) -> None:
    (tmp_path / "flow.py").write_text(PACED_FLOW, encoding="utf-8")
    first = millstream.start("run", "flow.py", "--home", "house")
    seen = wait_for(lambda: counted(tmp_path / "house"), first)

    during = millstream.run("query", "SELECT bids FROM total", "--home", "house", "--format", "json")
    assert json.loads(during.stdout)[0]["bids"] >= seen
    second = millstream.run("run", "flow.py", "--home", "house")
    assert second.returncode == 4, second.stderr
    assert f"in use by process {first.pid}" in second.stderr

    first.send_signal(signal.SIGINT)
    stopped = millstream.ended(first)
    assert stopped.returncode == 0, stopped.stderr
    assert "stopping after the current epoch" in stopped.stderr
    assert "Traceback" not in stopped.stderr
    between = counted(tmp_path / "house")
    assert between is not None
    assert seen <= between

    killed = millstream.start("run", "flow.py", "--home", "house")
    wait_for(lambda: (counted(tmp_path / "house") or 0) > between, killed)
    killed.kill()
    killed.communicate()
    kept = counted(tmp_path / "house")  # the store can be read although nobody closed it
    assert kept is not None
    assert kept > between

    again = millstream.run("run", "flow.py", "--home", "house")
    assert again.returncode == 0, again.stderr
    assert "finished: everything was read" in again.stdout
    wanted = events("bid", 0, EVENTS, Nexmark(rate=RATE), columns=["auction", "price"])
    with Reader(tmp_path / "house") as reader:
        assert reader.query("SELECT * FROM total").to_dicts() == [
            {"bids": wanted.num_rows, "volume": pc.sum(wanted["price"]).as_py()}
        ]
        assert reader.query("SELECT sum(bids) AS n FROM per_auction").to_dicts() == [{"n": wanted.num_rows}]


@pytest.mark.slow
def test_sigterm_is_granted_after_the_epoch_that_is_being_performed(millstream: Processes, tmp_path: Path) -> None:
    process = held_in_an_epoch(millstream, tmp_path)
    process.send_signal(signal.SIGTERM)
    heard(process, "stopping after the current epoch")
    assert process.poll() is None
    assert not counted(tmp_path / "house")

    (tmp_path / "go").touch()
    stopped = millstream.ended(process)
    assert stopped.returncode == 0, stopped.stderr
    assert "Traceback" not in stopped.stderr
    assert "held: stopped, " in stopped.stdout
    assert counted(tmp_path / "house") == count("bid", 0, SLICE)  # that epoch, whole, and no other
    goes_on_to_the_end(millstream, tmp_path)


@pytest.mark.slow
def test_a_second_sigterm_ends_the_process_at_once_and_without_loss(millstream: Processes, tmp_path: Path) -> None:
    process = held_in_an_epoch(millstream, tmp_path)
    process.send_signal(signal.SIGTERM)
    heard(process, "stopping after the current epoch")
    process.send_signal(signal.SIGTERM)
    stopped = millstream.ended(process)
    assert stopped.returncode == 130, stopped.stderr
    assert "stopped at once" in stopped.stderr
    assert "Traceback" not in stopped.stderr
    assert not counted(tmp_path / "house")

    (tmp_path / "go").touch()
    goes_on_to_the_end(millstream, tmp_path)


@pytest.mark.slow
def test_a_killed_run_leaves_no_java_process_behind(millstream: Processes, tmp_path: Path) -> None:
    process = held_in_an_epoch(millstream, tmp_path)  # so Spark is at work, with Python workers of its own
    family = psutil.Process(process.pid).children(recursive=True)
    assert "java" in {p.name() for p in family}
    assert len(family) > 1
    process.kill()
    process.communicate()
    deadline = time.monotonic() + PATIENCE
    while left := [p for p in family if is_alive(p)]:
        assert time.monotonic() < deadline, f"left behind: {left}"
        time.sleep(0.1)  # other processes are watched: there is nothing to wait on


def is_alive(process: psutil.Process) -> bool:
    """Whether it still runs; one that has ended and that nobody has asked about yet does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def held_in_an_epoch(millstream: Processes, folder: Path) -> subprocess.Popen[str]:
    """A run whose first epoch has begun and ends when there is a file `go`."""
    (folder / "flow.py").write_text(HELD_FLOW, encoding="utf-8")
    process = millstream.start("run", "flow.py", "--home", "house")
    wait_for((folder / "begun").exists, process)
    return process


def heard(process: subprocess.Popen[str], text: str) -> None:
    """Wait until the process has said this on standard error."""
    assert process.stderr is not None
    said = ""
    while text not in said:
        ready, _, _ = select.select([process.stderr], [], [], PATIENCE)
        piece = os.read(process.stderr.fileno(), 4096) if ready else b""
        assert piece, f"`{text}` was not said: {said}"
        said += piece.decode()


def goes_on_to_the_end(millstream: Processes, folder: Path) -> None:
    again = millstream.run("run", "flow.py", "--home", "house")
    assert again.returncode == 0, again.stderr
    assert "finished: everything was read" in again.stdout
    wanted = events("bid", 0, SLICE * SLICES, columns=["price"])
    with Reader(folder / "house") as reader:
        assert reader.query("SELECT * FROM total").to_dicts() == [
            {"bids": wanted.num_rows, "volume": pc.sum(wanted["price"]).as_py()}
        ]


def counted(home: Path) -> int | None:
    """How many bids the view has, if it can be asked yet."""
    try:
        with Reader(home) as reader:
            rows = reader.query("SELECT bids FROM total").to_dicts()
    except (MillstreamError, OSError):
        return None
    return int(rows[0]["bids"]) if rows else None


def wait_for(look: Callable[[], int | bool | None], process: subprocess.Popen[str]) -> int:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        if process.poll() is not None:
            pytest.fail(f"the run has ended: {process.communicate()}")
        time.sleep(0.1)  # another process is watched: there is nothing to wait on
    pytest.fail("nothing was counted in time")


def test_the_demo_ends_by_itself_tells_how_it_went_and_prints_no_warning(millstream: Processes, tmp_path: Path) -> None:
    done = millstream.run("demo", "--for", "6s", "--rate", "1000", TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stdout + done.stderr
    assert done.stderr == ""
    assert "starting Spark" in done.stdout
    assert "events/s" in done.stdout
    assert "(p50)" in done.stdout
    held = {
        view: int(rows.replace(",", "")) for view, rows in re.findall(r"^  (\w+) +([\d,]+) rows? ", done.stdout, re.M)
    }
    assert set(held) >= {"hot_auctions", "category_prices", "seller_sales", "bids_per_minute"}
    assert all(rows > 0 for rows in held.values())
    assert "millstream query" in done.stdout
    assert not list(tmp_path.glob("millstream-demo-*"))


@pytest.mark.slow
def test_a_demo_opened_again_in_its_home_goes_on_where_it_was(millstream: Processes, tmp_path: Path) -> None:
    came = 0
    for _ in range(2):
        done = millstream.run("demo", "--for", "3s", "--rate", "1000", "--home", "house")
        assert done.returncode == 0, done.stderr
        assert "0 late, 0 errors" in done.stdout
        assert "millstream demo --home house" in done.stdout
        store = DuckStore(tmp_path / "house" / "store.duckdb", read_only=True)
        last = store.last(HOUSE)
        store.close()
        assert last is not None
        offsets = {name: by["0"] for name, by in last.progress["offsets"].items()}
        assert min(offsets.values()) > came
        assert max(last.progress["reached"].values()) <= last.clock["now"]  # events happen now, not ahead of time
        came = max(offsets.values())
        with Reader(tmp_path / "house") as reader:
            (row,) = reader.query(
                "SELECT (SELECT sum(members) FROM newcomers) AS persons, (SELECT sum(auctions) FROM seller_sales) AS "
                "auctions, (SELECT sum(bids) FROM bids_per_minute) AS bids"
            ).to_dicts()
        assert row == {f"{kind}s": count(kind, 0, offsets[f"{kind}s"]) for kind in ("person", "auction", "bid")}
