"""Checks of sources without the flow, for a repair: ledgers of files, topics of the log, and notes of their kinds."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from millstream import paths
from millstream.clock import SystemClock
from millstream.connect.files.source import has_ledger
from millstream.connect.registry import Offline, offline_checks
from millstream.errors import MillstreamError
from millstream.log.log import Log
from millstream.runtime.epoch.records import RecordBook
from millstream.runtime.recovery.reconcile import read_kinds
from millstream.store.port import EpochRow


def source_problems(home: Path, root: Path, last: EpochRow | None) -> list[str]:
    """Return what is wrong with the sources of a flow whose files are under `root`, in sentences."""
    return wrong_offsets(home, root, last.progress["offsets"] if last is not None else {})


def wrong_offsets(home: Path, root: Path, offsets: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return why a flow whose files are under `root` cannot resume from these offsets, in sentences."""
    return list(_problems(home, root, offsets))


def cannot_begin(home: Path, flow: str, last: EpochRow | None) -> str | None:
    """Return why a flow cannot be recomputed from the beginning of its sources; None when it can."""
    root = paths.flow_folder(home, flow)
    names = _names(root, last)
    kinds = {**_kinds_by_holds(home, flow, names - set(read_kinds(root))), **read_kinds(root)}
    for name in sorted(names | set(kinds)):
        kind = kinds.get(name) or ("files" if has_ledger(root, name) else "")
        if not kind:
            return f"nothing is known about the source `{name}`"
        checks = offline_checks(kind)
        reason = None if checks is None else checks.cannot_begin(_place(home, root, name, kind))
        if reason is not None:
            return reason
    return None


def _problems(home: Path, root: Path, offsets: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    for name, kind in sorted(read_kinds(root).items()):
        checks = offline_checks(kind)
        if checks is not None:
            yield from checks.problems(_place(home, root, name, kind), offsets.get(name, {}))


def _place(home: Path, root: Path, name: str, kind: str) -> Offline:
    return Offline(home, root, name, kind.partition(" ")[2])


def _kinds_by_holds(home: Path, flow: str, names: Collection[str]) -> dict[str, str]:
    """The kinds of sources whose note is lost, as far as the holds of topics reveal them."""
    if not names:
        return {}
    log = Log(home / "log", SystemClock())
    kinds = {}
    try:
        for topic in log.topics():
            with suppress(MillstreamError):
                readers = log.topic(topic).holds()
                kinds.update({n: f"log {topic}" for n in names if f"{flow}.{n}" in readers})
    finally:
        log.close()
    return kinds


def _names(root: Path, last: EpochRow | None) -> set[str]:
    """The sources of a flow, from the store or from its newest readable record."""
    if last is not None:
        return set(last.progress["offsets"])
    book = RecordBook(root / "epochs")
    for number in reversed(book.numbers()):
        with suppress(MillstreamError):
            record = book.read(number)
            if record is not None:
                return set(record.slices)
    return set()
