"""`millstream watermarks`: a row per partition, and a sentence that says who holds each flow back."""

import csv
import io
import json
from pathlib import Path

import pytest

from millstream.cli.commands.home.watermarks import NAMES, holder_sentences
from millstream.home import Home
from millstream.runtime.epoch.progress import Progress
from millstream.runtime.epoch.watermarks import SourceStanding, Watermarks
from millstream.store.port import EpochCommit, EpochRow, ViewSpec

from .conftest import NOW, SCHEMA, Cli

SECOND = 1_000_000


@pytest.fixture
def held(home: Path) -> Path:
    """The home with a second epoch: partition 1 of bids is behind, partition 0 goes on; sales has ended."""
    marks = Watermarks()
    looks = [
        SourceStanding("bids", (0, 1), lateness=5 * SECOND),
        SourceStanding("sales", (0,), lateness=None, finished=True),
    ]
    marks.seen("bids", {0: NOW, 1: NOW - 60 * SECOND}, NOW)
    marks.seen("sales", {0: NOW}, NOW)
    marks.reach(looks, NOW)
    marks.seen("bids", {0: NOW + 90 * SECOND}, NOW + 100 * SECOND)
    reached = marks.reach(looks, NOW + 100 * SECOND)
    progress = Progress({"bids": {0: 2, 1: 1}, "sales": {0: 1}}, marks, reached=reached)
    with Home(home) as opened:
        spec = ViewSpec("more", SCHEMA, tuple(SCHEMA.names), None, None, None, "fingerprint")
        opened.store.prepare("auctions", [spec], ["bids", "sales"])
        token = opened.store.take_lease("auctions", "a test")
        clock = {"now": NOW + 100 * SECOND, "watermarks": reached}
        row = EpochRow(2, "plan", {}, clock, {}, json.loads(json.dumps(progress.to_json())))
        opened.store.commit(EpochCommit("auctions", token, row))
    return home


def test_every_partition_is_told_with_what_it_allows(millstream: Cli, held: Path) -> None:
    rows = json.loads(millstream("watermarks", "--home", held, "--format", "json").stdout)
    assert [list(r) for r in rows] == [list(NAMES)] * 3
    assert rows[1] == {
        "flow": "auctions",
        "source": "bids",
        "partition": 1,
        "newest": "2026-01-01T00:00:40Z",
        "watermark": "2026-01-01T00:00:35Z",
        "lateness": "5s",
        "heard_at": "2026-01-01T00:01:40Z",
        "idle": False,
        "ended": False,
        "holds": True,
        "since": "2026-01-01T00:01:40Z",
    }
    assert [(r["holds"], r["ended"], r["lateness"]) for r in rows] == [
        (False, False, "5s"),
        (True, False, "5s"),
        (False, True, None),
    ]


def test_a_sentence_names_the_partition_that_holds_the_flow(millstream: Cli, held: Path) -> None:
    shown = millstream("watermarks", "--home", held).stdout
    assert shown.endswith(
        "\nauctions is held back by partition 1 of bids since 2026-01-01 00:01:40: "
        "its newest event time is 2026-01-01 00:00:40.\n"
    )
    assert "heard at" in shown and "2026-01-01 00:00:35" in shown


def test_a_program_gets_rows_and_no_sentence(millstream: Cli, held: Path) -> None:
    text = millstream("watermarks", "--home", held, "--format", "csv").stdout
    rows = list(csv.reader(io.StringIO(text)))
    assert rows[0] == list(NAMES) and len(rows) == 4
    assert rows[2][-2:] == ["true", "2026-01-01T00:01:40Z"]


def test_it_answers_through_the_process_that_owns_the_home(millstream: Cli, held: Path) -> None:
    with Home(held) as opened:
        assert opened.watermarks()[1]["holds"]
        shown = millstream("watermarks", "--home", held).stdout
    assert "held back by partition 1 of bids" in shown


def test_a_home_of_an_earlier_version_is_shown_as_far_as_it_is_known(millstream: Cli, home: Path) -> None:
    (row,) = json.loads(millstream("watermarks", "--home", home, "--format", "json").stdout)
    assert (row["source"], row["partition"], row["newest"], row["holds"]) == ("bids", 0, None, True)


def test_what_else_may_be_said() -> None:
    row = {"flow": "f", "source": "s", "partition": 0, "newest": None, "since": None, "holds": False, "ended": True}
    clock = {**row, "flow": "g", "ended": False}
    waiting = {**row, "flow": "h", "holds": True, "since": "2026-01-01T00:00:00Z"}
    assert list(holder_sentences([row, clock, waiting])) == [
        "f is not held back: everything was read.",
        "g is not held back: it follows the clock.",
        "h is held back by partition 0 of s since 2026-01-01 00:00:00: it has had no event time yet.",
    ]


def test_a_home_without_flows_says_what_to_do(millstream: Cli, tmp_path: Path) -> None:
    with Home(tmp_path / "new") as opened:
        opened.put_table("cities", [{"id": 1}])
    done = millstream("watermarks", "--home", tmp_path / "new")
    assert done.exit_code == 0 and "run a flow first" in done.stdout


def test_a_home_that_is_not_there_is_said(millstream: Cli) -> None:
    done = millstream("watermarks")
    assert done.exit_code == 4 and "there is no Millstream home at" in done.stderr
