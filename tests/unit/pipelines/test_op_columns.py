"""Columns called like those that Millstream adds to changes: `op` and `epoch`, in views, sinks and subscriptions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millstream as ms
from millstream.cli.shell.output import ChangeJson
from millstream.live.answer import Changes
from millstream.live.feed import ChangeFeed
from tests.sql.engine import QueryEngine, QueryScript
from tests.unit.live.world import Spoken, opened

ROWS = [{"op": "buy", "epoch": 1}, {"op": "sell", "epoch": 2}, {"op": "buy", "epoch": 3}]


def trades(folder: Path) -> ms.Flow:
    flow = ms.Flow("trades")
    rows = flow.source("trades", ms.memory(), schema="op STRING, epoch BIGINT")
    counts = rows.key_by("op").aggregate(epoch=ms.count())
    counts.view("counts")
    counts.select(op="epoch").view("hidden")
    rows.view("rows")
    rows.aggregate(n=ms.count()).view("total")
    for name, stream in (("changes", counts), ("rows_out", rows)):
        stream.sink(f"{name}_topic", ms.log(f"{name}_topic"))
        stream.sink(f"{name}_files", ms.files(str(folder / name), format="json"))
        stream.sink(f"{name}_console", ms.console())
    return flow


def written(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(folder.iterdir()) for line in path.read_text().splitlines()]


def test_a_view_may_have_a_column_op(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with QueryScript(trades(tmp_path), tmp_path / "home") as script:
        script.send("trades", *ROWS[:2]).tick()
        script.send("trades", ROWS[2]).tick()
        script.expect_rows("counts", {"op": "buy", "epoch": 2}, {"op": "sell", "epoch": 1})
        script.expect_rows("hidden", {"op": 2}, {"op": 1})
        script.expect_rows("rows", *ROWS)
        script.expect_rows("total", {"n": 3})
        script.expect_rows("trades$errors")
        changes = [
            {"_op": "+I", "op": "buy", "epoch": 1},
            {"_op": "+I", "op": "sell", "epoch": 1},
            {"_op": "-U", "op": "buy", "epoch": 1},
            {"_op": "+U", "op": "buy", "epoch": 2},
        ]
        for found in (script.written("changes_topic"), written(tmp_path / "changes")):
            assert [list(row) for row in found] == [["_op", "op", "epoch"]] * 4
            assert sorted(map(str, found)) == sorted(map(str, changes))
        assert script.written("rows_out_topic") == ROWS == written(tmp_path / "rows_out")
        said = capsys.readouterr().out.splitlines()
        assert 'changes_console[2] -U {"op":"buy","epoch":1}' in said
        assert 'rows_out_console[1] +I {"op":"sell","epoch":2}' in said
        script.expect_changes(
            "counts",
            *((c["_op"], {"op": c["op"], "epoch": c["epoch"]}) for c in changes),
        )


def test_the_changes_of_a_view_without_op_have_one(tmp_path: Path) -> None:
    flow = ms.Flow("plain")
    rows = flow.source("rows", ms.memory(), schema="k BIGINT")
    rows.key_by("k").aggregate(n=ms.count()).sink("out", ms.log("out"))
    with QueryScript(flow, tmp_path) as script:
        script.send("rows", {"k": 1}).tick()
        assert script.written("out") == [{"op": "+I", "k": 1, "n": 1}]


def listen(spoken: Spoken, statement: str) -> Any:
    changes = spoken.say(statement).changes
    assert changes is not None
    return changes


def test_a_subscription_tells_its_own_op_from_that_of_the_view(tmp_path: Path) -> None:
    with opened(tmp_path) as spoken:
        spoken.say(
            "CREATE SOURCE trades (op STRING, _op BIGINT) FROM LOG('trades')",
            "CREATE VIEW counts WITH (flow = 'f') AS SELECT op, count(*) AS _op FROM trades GROUP BY op",
            "INSERT INTO trades VALUES ('buy', 7)",
        )
        feed = spoken.live.feeds.setdefault("f", ChangeFeed())
        loop = spoken.home.loop(spoken.live.planned("f"), engine=QueryEngine)
        changes = listen(spoken, "SUBSCRIBE TO counts AS OF EPOCH 0")
        while (report := loop.step()) is not None:
            feed.take(report.number, dict(report.output.changes))
        loop.close()
        expected = [{"__op": "+I", "op": "buy", "_op": 1}]
        assert next(changes).table.to_pylist() == expected
        assert next(listen(spoken, "SUBSCRIBE TO counts WITH SNAPSHOT")).table.to_pylist() == expected
        topic = next(listen(spoken, "SUBSCRIBE TO trades WITH SNAPSHOT")).table
        assert topic.to_pylist() == [{"__op": "+I", "op": "buy", "_op": 7}]


def test_the_shell_tells_the_epoch_of_a_change_from_that_of_the_view(capsys: pytest.CaptureFixture[str]) -> None:
    table = pa.table({"op": ["+I"], "Epoch": [3]})
    ChangeJson().take(Changes(7, table))
    assert json.loads(capsys.readouterr().out) == {"_epoch": 7, "op": "+I", "Epoch": 3}
