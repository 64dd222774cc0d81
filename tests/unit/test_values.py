"""Small values everything else rests on: errors, clocks, answers."""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from millstream import errors
from millstream.clock import ManualClock, SystemClock
from millstream.errors import HomeInUse, MillstreamError, Origin
from millstream.result import Result, plain, text_table
from millstream.runtime.epoch.progress import Progress
from millstream.runtime.inspect.status import flow_rows, instant, view_rows
from millstream.store.port import EpochRow


def test_an_error_says_what_where_why_and_what_to_do() -> None:
    error = HomeInUse("the home is in use", detail="by process 5", hint="stop it", origin=Origin("flow.py", 3))
    assert str(error) == "the home is in use\n  at flow.py:3\n  by process 5\n  hint: stop it"
    assert str(MillstreamError("plain")) == "plain" and error.code == "home_in_use" and error.exit_code == 4


def test_every_error_has_a_code_of_its_own_and_an_exit_code() -> None:
    kinds = [k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, MillstreamError)]
    assert len({k("x").code for k in kinds}) == len(kinds) and all(k.exit_code for k in kinds)


def test_a_manual_clock_stands_still_and_never_goes_back() -> None:
    clock = ManualClock(5)
    assert clock.now() == clock.now() == 5
    clock.advance(3)
    clock.set(9)
    assert clock.now() == 9
    for wrong in (lambda: clock.advance(-1), lambda: clock.set(8)):
        with pytest.raises(ValueError, match="backwards"):
            wrong()


def test_the_system_clock_is_held_from_going_back(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([5_000, 3_000, 9_000])
    monkeypatch.setattr("millstream.clock.time.time_ns", lambda: next(times))
    clock = SystemClock()
    assert [clock.now() for _ in range(3)] == [5, 5, 9]


TABLE = pa.table(
    {
        "n": [1, None],
        "s": ["a", "long text"],
        "f": [0.1, 1e20],
        "ts": pa.array([0, 1_500_000], pa.timestamp("us", tz="UTC")),
    }
)


def test_an_answer_takes_every_shape() -> None:
    result = Result(TABLE)
    assert result.columns == ["n", "s", "f", "ts"] and len(result) == 2
    assert result.to_arrow() is TABLE and list(result) == result.to_dicts() == TABLE.to_pylist()
    assert isinstance(result.to_polars(), pl.DataFrame) and len(result.to_pandas()) == 2


def test_an_answer_prints_as_a_table() -> None:
    assert str(Result(TABLE)).splitlines() == [
        "n  s              f  ts",
        "-  ---------  -----  ---------------------",
        "1  a            0.1  1970-01-01 00:00:00",
        "   long text  1e+20  1970-01-01 00:00:01.5",
        "(2 rows)",
    ]
    assert text_table(["a"], []) == "a\n-\n(0 rows)"


PLAIN: list[tuple[Any, Any]] = [
    (datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01T00:00:00Z"),
    (datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), "2026-01-01T00:00:00Z"),
    (datetime(2026, 1, 1), "2026-01-01T00:00:00"),  # noqa: DTZ001
    (timedelta(hours=25), "INTERVAL '1 01:00:00' DAY TO SECOND"),
    (date(2026, 1, 1), "2026-01-01"),
    (Decimal("1.50"), "1.50"),
    (b"\x01\xff", "01ff"),
    (float("nan"), None),
    ({"a": [Decimal(1)]}, {"a": ["1"]}),
    ((1, 2), [1, 2]),
    (None, None),
    ("x", "x"),
    (5, 5),
]


@pytest.mark.parametrize(("value", "expected"), PLAIN, ids=str)
def test_values_as_json_would_have_them(value: Any, expected: Any) -> None:
    assert plain(value) == expected


class Kept:
    def views(self) -> list[dict[str, Any]]:
        return [{"view": "hot", "flow": "f", "rows": 3, "late": 1}, {"view": "new", "flow": "g", "rows": 0, "late": 0}]

    def flows(self) -> list[str]:
        return ["f", "g"]

    def failures(self) -> dict[str, str]:
        return {"h": "failed: no such folder"}

    def last(self, flow: str) -> EpochRow | None:
        clock = {"now": 5_000_000, "watermarks": {"a": 2_000_000, "b": 1_000_000}}
        progress = {
            **Progress().to_json(),
            "changed": {"hot": 6},
            "applied": {"hot": 9},
            "errors": {"a": 2, "b": 3},
            "rows": {"a": 10},
            "late": {"hot": 1},
        }
        progress["reached"] = clock["watermarks"]
        return EpochRow(7, "p", {}, clock, {}, progress) if flow == "f" else None


def test_the_state_of_views_and_flows_is_told_from_the_last_epoch() -> None:
    hot, new = view_rows(Kept(), 6_500_000)
    assert hot == {
        "view": "hot",
        "flow": "f",
        "rows": 3,
        "epoch": 7,
        "changed_in_epoch": 6,
        "watermark": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
        "freshness_seconds": 1.5,
        "applied": 9,
        "late": 1,
        "errors": 5,
        "offered": None,
        "filtered": None,
        "pending": None,
        "state": "stopped",
    }
    assert new["epoch"] == 0 and new["watermark"] is None and new["freshness_seconds"] is None
    f, g, h = flow_rows(Kept(), {"f": "running"})
    assert (f["state"], f["epoch"], f["rows"], f["errors"], f["late"]) == ("running", 7, 10, 5, 1)
    assert (g["state"], g["epoch"], g["last_epoch_at"]) == ("stopped", 0, None)
    assert (h["flow"], h["state"]) == ("h", "failed: no such folder")
    assert view_rows(Kept(), 0, states={"f": "idle"})[0]["state"] == "idle"


@pytest.mark.parametrize("micros", [-(2**62), 2**62, 2**62 - 1, 10**18])
def test_an_instant_outside_of_time_is_none(micros: int) -> None:
    assert instant(micros) is None
