"""Each fence of the commit protocol is needed: with it switched off, the check that it stands for finds a violation.

(The fences of the log, its checksums and its fsyncs, are in tests/unit/log/test_mutations.py.)
"""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import millstream as ms
from millstream.errors import LeaseLost, MillstreamError
from millstream.runtime.epoch.outbox import Outbox
from millstream.runtime.recovery import reconcile
from millstream.store import epoch_commit
from tests.local import LocalScript

SENT = [{"price": n, "ts": f"2026-01-01T00:00:{n:02d}Z"} for n in range(8)]


def flow() -> tuple[ms.Flow, Any]:
    made, memory = ms.Flow("prices"), ms.memory()
    rows = made.source("rows", memory, schema="price BIGINT, ts TIMESTAMP", event_time="ts", max_rows=2)
    rows.aggregate(n=ms.count(), total=ms.sum("price")).view("totals")
    rows.select("price").view("prices")
    rows.select("price").sink("out", ms.log("out"))
    return made, memory


def fenced(path: Path) -> bool:
    """An owner that was taken over from, and wakes up, changes nothing."""
    made, _ = flow()
    with LocalScript(made, path) as script:
        script.send("rows", *SENT)
        script.tick(1)
        frozen = script._loop
        assert frozen is not None
        script._loop = script._loop_of(script.home)  # another takes over, and has committed nothing yet
        try:
            frozen.step()
        except LeaseLost:
            pass
        else:
            return False
        script.tick()
        return Counter(r["price"] for r in script.rows("prices")) == Counter(r["price"] for r in SENT)


def compared(path: Path) -> bool:
    """A store and records that are of two different histories are not put together."""
    made, _ = flow()
    with LocalScript(made, path / "one") as script:
        script.send("rows", *SENT[:4])
        script.tick(2)
    other, _ = flow()
    with LocalScript(other, path / "two") as script:
        script.send("rows", SENT[0])
        script.tick(1)
        script.send("rows", SENT[1])
        script.tick(1)
    shutil.copytree(path / "two/flows/prices/epochs", path / "one/flows/prices/epochs", dirs_exist_ok=True)
    again, memory = flow()
    memory.send(*SENT)
    try:
        with LocalScript(again, path / "one"):
            return False
    except MillstreamError:
        return True


def send_without_number(self: Outbox, epoch: int, name: str, table: Any, digest: str | None = None) -> None:
    del digest
    real_send(self, epoch, name, table)


real_send = Outbox._send

MUTATIONS = {
    "the token in the store's transaction": (fenced, epoch_commit, "_fence", lambda *_: None),
    "the comparison of slices": (compared, reconcile, "_of_record", lambda *_: iter(())),
}


@pytest.mark.parametrize("fence", MUTATIONS)
def test_a_fence_that_is_switched_off_is_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fence: str) -> None:
    holds, owner, name, without = MUTATIONS[fence]
    assert holds(tmp_path / "with")
    monkeypatch.setattr(owner, name, without)
    assert not holds(tmp_path / "without"), f"nothing notices when {fence} is missing"


def test_the_number_of_an_epoch_in_a_sink_is_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A delivery that is repeated, because what was put down was still there, is known by its number."""

    def run(path: Path) -> bool:
        made, _ = flow()
        with LocalScript(made, path) as script:
            script.send("rows", *SENT)
            script.tick(2)
            script.crash()
            delivered = list((path / "flows").rglob("*.done"))
            assert delivered
            for file in delivered:
                file.rename(file.with_suffix(".arrow"))  # a crash before it was noted as delivered
            script.resume()
            script.tick()
            return Counter(r["price"] for r in script.written("out")) == Counter(r["price"] for r in SENT)

    assert run(tmp_path / "with")
    monkeypatch.setattr(Outbox, "_send", send_without_number)
    assert not run(tmp_path / "without")
