"""Every combination of what store, records, state and sources can be in goes on rightly, or stops by name and is
mended, or says why it cannot be.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.errors import HomeDamaged, RecoveryFailed
from millstream.home import Home
from millstream.runtime.recovery import repair
from millstream.runtime.supervision.lease import HomeLock
from millstream.state.version import Version

from .recovery_homes import EPOCHS, RECORDS, SOURCES, STATES, STORES, findings_say, go_on, harm, hashes, last, prepare

Case = tuple[str, str, str, str, bool]
FATAL_RECORDS = ("ahead", "last damaged", "open damaged", "slice", "plan", "elsewhere")


def everything() -> list[Case]:
    return list(itertools.product(STORES, RECORDS, STATES, SOURCES, (False, True)))


def pairs() -> list[Case]:
    """A choice of cases in which any two values of two parts meet."""
    dice = random.Random(7)
    cases = everything()
    dice.shuffle(cases)
    wanted = {pair for case in cases for pair in itertools.combinations(enumerate(case), 2)}
    chosen = []
    while wanted:
        some = dice.sample(cases, 60)
        best = max(some, key=lambda c: len(wanted & set(itertools.combinations(enumerate(c), 2))))
        chosen.append(best)
        wanted -= set(itertools.combinations(enumerate(best), 2))
    return chosen


@pytest.fixture(scope="module")
def homes() -> Iterator[Path]:
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # a thousand homes, each synced many times
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield prepare(Path(folder))


@pytest.fixture(autouse=True)
def without_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody asks these homes; to end the server takes longer than an epoch."""
    monkeypatch.setattr(Home, "_serve", lambda _: None)


def is_refused(case: Case, path: Path, number: int) -> bool:
    """What the table in docs/guide/recovery.md says."""
    store, record, state, source, _ = case
    if store in ("missing", "damaged") or source in ("behind", "trimmed"):
        return True
    if number == EPOCHS and record in FATAL_RECORDS:
        return True
    if number < EPOCHS and record != "none" and not (record == "behind" and number >= EPOCHS - 3):
        return True  # there are records that the store does not know
    if state in ("missing", "damaged", "short"):
        return True
    row = last(path)
    assert row is not None
    return not all((path / "flows/counting/state" / f).exists() for f in Version.from_json(row.version).files)


def walk(homes: Path, case: Case) -> None:
    store, record, state, source, checkpoint = case
    path = homes / "case"
    shutil.rmtree(path, ignore_errors=True)
    number = harm(homes, path, store, record, state, source, checkpoint=checkpoint)
    refused, before = is_refused(case, path, number), hashes(path)
    try:
        go_on(path)
    except (RecoveryFailed, HomeDamaged) as error:
        assert refused, f"refused: {error}"
        if state == "damaged" and error.message.endswith("does not match its checksum"):  # seen when it is first used
            row = last(path)
            assert row is not None and row.number == number
        else:
            assert hashes(path) == before
            assert error.hint is not None and "millstream repair" in error.hint, error
    else:
        assert not refused, "went on"
        return
    lock = HomeLock(path / "lock")
    try:
        damaged = hashes(path)
        findings = repair.look(path)
        assert findings and hashes(path) == damaged
        stuck = [f for f in findings if f.do is None]
        if stuck:
            assert source == "trimmed", findings_say(findings)
            assert stuck[0].would.startswith("nothing can be done: there is no intact checkpoint, and the beginning of")
            return
        kept = repair.mend(path, findings)
        assert kept is not None and (kept / "done.json").exists()
        assert not repair.look(path), findings_say(repair.look(path))
    finally:
        lock.release()
    go_on(path)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("case", pairs(), ids=lambda c: "-".join(map(str, c)))
def test_any_two_faults_are_survived_or_named_and_mended(homes: Path, case: Case) -> None:
    walk(homes, case)


@pytest.mark.slow
@pytest.mark.parametrize(("store", "record"), list(itertools.product(STORES, RECORDS)))
def test_all_faults_together_are_survived_or_named_and_mended(homes: Path, store: str, record: str) -> None:
    for state, source, checkpoint in itertools.product(STATES, SOURCES, (False, True)):
        walk(homes, (store, record, state, source, checkpoint))
