"""What a repair can know of sources without the flow: ledgers of files, topics of the log, and notes of their kinds."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from millstream import paths
from millstream.clock import SystemClock
from millstream.errors import MillstreamError
from millstream.log.log import Log
from millstream.runtime.epoch.records import RecordBook
from millstream.runtime.recovery.reconcile import read_kinds
from millstream.store.port import EpochRow


def source_problems(home: Path, root: Path, last: EpochRow | None) -> list[str]:
    """What is wrong with the sources of a flow whose files are under `root`, in sentences."""
    return wrong_offsets(home, root, last.progress["offsets"] if last is not None else {})


def wrong_offsets(home: Path, root: Path, offsets: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Why a flow whose files are under `root` cannot go on from these offsets, in sentences."""
    return list(_problems(home, root, offsets))


def cannot_begin(home: Path, flow: str, last: EpochRow | None) -> str | None:
    """Why a flow cannot be computed again from the beginning of its sources; None when it can."""
    root = paths.flow_folder(home, flow)
    names = _names(root, last)
    kinds = {**_held(home, flow, names - set(read_kinds(root))), **read_kinds(root)}
    for name in sorted(names | set(kinds)):
        kind = kinds.get(name) or ("files" if (root / "sources" / f"{name}.jsonl").exists() else "")
        if not kind:
            return f"nothing is known of the source `{name}`"
        if kind == "memory":
            return f"the rows of `{name}` were in memory and are gone"
        if kind == "files":
            gone = [
                e["path"] for e in _entries(root / "sources" / f"{name}.jsonl") or () if not os.path.exists(e["path"])
            ]
            if gone:
                return f"the file {gone[0]} of `{name}` is gone"
        if kind.startswith("log ") and (reason := _trimmed(home, kind.removeprefix("log "))):
            return reason
    return None


def _problems(home: Path, root: Path, offsets: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    for name, kind in sorted(read_kinds(root).items()):
        at = offsets.get(name, {})
        if kind == "files":
            ledger = root / "sources" / f"{name}.jsonl"
            entries = _entries(ledger)
            if entries is None:
                yield f"the ledger {ledger} cannot be read"
            elif len(entries) < at.get("0", 0):
                yield f"the ledger {ledger} has {len(entries)} files, but {at['0']} were read"
        elif kind.startswith("log "):
            ends = _topic(home, kind.removeprefix("log "), "end")
            starts = _topic(home, kind.removeprefix("log "), "start")
            for partition, offset in at.items():
                if ends is None or starts is None:
                    yield f"the topic `{kind.removeprefix('log ')}` of `{name}` cannot be read"
                    break
                end = ends.get(int(partition), 0)
                if offset > end:
                    yield f"partition {partition} of `{name}` ends at {end}, but it was read up to {offset}"
                elif offset < starts.get(int(partition), 0):
                    yield f"partition {partition} of `{name}` was trimmed behind {offset}, where the flow is"


def _held(home: Path, flow: str, names: Collection[str]) -> dict[str, str]:
    """The kinds of sources whose note is lost, as far as topics know that the flow reads them."""
    if not names:
        return {}
    log = Log(home / "log", SystemClock())
    found = {}
    try:
        for topic in log.topics():
            with suppress(MillstreamError):
                readers = log.topic(topic).holds()
                found.update({n: f"log {topic}" for n in names if f"{flow}.{n}" in readers})
    finally:
        log.close()
    return found


def _names(root: Path, last: EpochRow | None) -> set[str]:
    """The sources of a flow, from the store or from its newest record that can be read."""
    if last is not None:
        return set(last.progress["offsets"])
    book = RecordBook(root / "epochs")
    for number in reversed(book.numbers()):
        try:
            return set(orjson.loads(book.path(number).read_bytes())["slices"])
        except (ValueError, KeyError, TypeError):
            continue
    return set()


def _entries(ledger: Path) -> list[dict[str, Any]] | None:
    """The lines of a ledger, without a torn last one; None when it cannot be read."""
    try:
        data = ledger.read_bytes()
        lines = [orjson.loads(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]
        return lines if all(e["n"] == n and "path" in e for n, e in enumerate(lines)) else None
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError):
        return None


def _topic(home: Path, name: str, what: str) -> dict[int, int] | None:
    log = Log(home / "log", SystemClock())
    try:
        found: dict[int, int] = getattr(log.topic(name), what)()
    except MillstreamError:
        return None
    finally:
        log.close()
    return found


def _trimmed(home: Path, name: str) -> str | None:
    starts = _topic(home, name, "start")
    if starts is None:
        return f"the topic `{name}` cannot be read"
    if any(starts.values()):
        return f"the beginning of the topic `{name}` was trimmed"
    return None
