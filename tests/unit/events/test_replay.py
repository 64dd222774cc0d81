"""Late records, replayed into their view as an epoch of its own: the view is then as if they had come in time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import millstream as ms
from millstream.errors import UnknownName, Unsupported
from millstream.runtime.epoch import late_replay
from millstream.testing.script import STEPS, Crash
from tests.local import LocalScript


def flow(window: Any, **how: Any) -> ms.Flow:
    made = ms.Flow("f")
    source = made.source("s", ms.memory(), schema="k STRING, v BIGINT, ts TIMESTAMP", event_time="ts")
    keyed = source.key_by("k").window(window, **how)
    keyed.aggregate(n=ms.count(), mean=ms.avg("v"), different=ms.count_distinct("v")).view("w")
    return made


def row(k: str, second: int, v: int = 1) -> dict[str, Any]:
    return {"k": k, "v": v, "ts": f"2026-01-01T00:{second // 60:02d}:{second % 60:02d}Z"}


WINDOWS = [
    ms.tumbling("10 seconds"),
    ms.hopping("10 seconds", "5 seconds"),
    ms.hopping("10 seconds", "4 seconds"),
    ms.cumulating("5 seconds", "20 seconds"),
    ms.custom(lambda t: [(t.replace(second=t.second // 10 * 10), t.replace(second=t.second // 10 * 10 + 9))]),
]


def shown(script: LocalScript) -> list[tuple[Any, ...]]:
    return sorted(
        (r["window_start"], r["window_end"], r["k"], r["n"], r["mean"], r["different"]) for r in script.rows("w")
    )


@pytest.mark.sampled(5)
@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize(
    "trigger", [ms.on_change(), ms.on_close(), ms.after_watermark(early=ms.after_count(2))], ids=str
)
def test_after_a_replay_the_view_is_as_if_nothing_had_been_late(tmp_path: Path, window: Any, trigger: Any) -> None:
    early = [row("a", 1), row("a", 7, 5), row("b", 3)]
    late = [row("a", 2, 8), row("c", 3), row("a", 7, 5)]
    end = [row("a", 48), row("b", 48)]
    with LocalScript(flow(window, trigger=trigger), tmp_path / "one") as script:
        for rows in (early, [end[0]], [*late, end[1]]):
            script.send("s", *rows)
            script.tick()
        assert len(script.rows("w$late")) == 3
        assert script.replay_late("w") == 3
        assert {r["replayed_in"] for r in script.rows("w$late")} == {script.reports[-1].number}
        assert script.replay_late("w") == 0
        script.end("s")
        script.tick()
        found = shown(script)
    with LocalScript(flow(window, trigger=trigger), tmp_path / "other") as script:
        script.send("s", *early, *late, *end).end("s")
        script.tick()
        assert found == shown(script)


def test_the_changes_take_back_what_was_shown(tmp_path: Path) -> None:
    with LocalScript(flow(ms.tumbling("10 seconds")), tmp_path) as script:
        for rows in ([row("a", 1), row("b", 2)], [row("a", 30)], [row("a", 5, 3), row("c", 5)]):
            script.send("s", *rows)
            script.tick()
        script.changes("w")
        script.replay_late("w")
        found = sorted((op, r["k"], r["n"]) for op, r in script.changes("w"))
        assert found == [("+I", "c", 1), ("+U", "a", 2), ("-U", "a", 1)]


@pytest.mark.parametrize("step", STEPS)
def test_a_replay_that_crashes_is_finished_once(tmp_path: Path, step: str) -> None:
    with LocalScript(flow(ms.tumbling("10 seconds")), tmp_path) as script:
        for rows in ([row("a", 1)], [row("a", 30)], [row("a", 5, 3)]):
            script.send("s", *rows)
            script.tick()
        script.crash(step)
        with pytest.raises(Crash):
            script.replay_late("w")
        script.resume()
        script.tick()
        script.replay_late("w")
        script.expect_rows("w", {"k": "a", "n": 2, "mean": 2.0}, {"k": "a", "n": 1, "mean": 1.0})


@pytest.mark.parametrize(
    ("window", "how"),
    [
        (ms.session("5 seconds"), {}),
        (ms.count_window(2), {}),
        (ms.tumbling("10 seconds"), {"accumulation": ms.discarding()}),
    ],
)
def test_what_cannot_be_replayed_says_so(tmp_path: Path, window: Any, how: dict[str, Any]) -> None:
    with LocalScript(flow(window, **how), tmp_path) as script:
        with pytest.raises(Unsupported):
            script.replay_late("w")
        with pytest.raises(UnknownName):
            script.replay_late("x")


def test_a_replay_that_fails_does_not_hold_up_the_flow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalScript(flow(ms.tumbling("10 seconds")), tmp_path / "one") as script:
        for rows in ([row("a", 1)], [row("a", 48)], [row("a", 2)]):
            script.send("s", *rows)
            script.tick()
        with monkeypatch.context() as patch:
            patch.setattr(late_replay, "with_replayed", _fails)
            with pytest.raises(Unsupported, match="not today"):
                script.replay_late("w")
        script.send("s", row("b", 49))
        script.tick()
        assert script.rows("w")[-1]["k"] == "b"
        assert script.replay_late("w") == 1


def _fails(*_: Any) -> Any:
    raise Unsupported("not today")
