"""Epoch records: the input of an epoch, written and fsynced before any work, and whether the epoch is done.

One file per epoch, ``epochs/000000000042.json``. Its first line is written at once (temp, fsync, rename). Format 3:

    {"format": 3, "epoch": 42, "state": "open", "plan": "53de70929efcf355", "token": 3,
     "slices": {"bids": {"0": [12, 15]}},
     "clock": {"now": 1767225600000000, "since": 1767225599000000,
               "watermarks": {"bids": 1767225590000000}, "before": {"bids": ...}},
     "tables": {"categories": 2}, "crc": 2774893043}

(the clock also has ``"fractions": {"bids": {"0.9": ...}}`` if a trigger needs it; poison records that are excluded from
the epoch are in ``"poison_records": {"bids": [[0, 13, "poisonous: ..."]]}``; earlier versions wrote ``"poison"`` with
other positions; hot keys of joins that are spread over several shards are in
``"hot": {"pairs": [[-9221120237041090560, 0]]}``), and with ``"state": "failed"`` if its work on stored tables failed.

Once the store has committed the epoch, a second line closes it: the plan and the token that it ran with, and where its
time went (`part_times.py`):

    {"state":"closed","plan":"53de70929efcf355","token":3,"seconds":{"scan":0.011,"commit":0.009},"crc":1908724311}

This line is appended without an fsync: the store is authoritative. An epoch that the store has and whose second line is
missing or incomplete is closed on the next start. Formats 1 and 2 have one line, whose state becomes ``"closed"``. The
checksum of a line covers the line without the checksum itself; format 1 had none.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from millstream import paths
from millstream.clock import BEGINNING, Micros
from millstream.connect.port import SourceSlice
from millstream.errors import HomeDamaged, HomeTooNew
from millstream.state.durable import disk_full_named, write_durably

FORMAT = 3
FAILED = "failed"
"""The state of an epoch over stored tables whose work has failed: it may be retried with newer tables."""
KEPT = 100


@dataclass(frozen=True)
class EpochRecord:
    """The input of one epoch, and whether it is done."""

    epoch: int
    plan: str
    token: int
    slices: Mapping[str, SourceSlice]
    now: Micros
    watermarks: Mapping[str, int]
    before: Mapping[str, int]
    tables: Mapping[str, int]
    state: str = "open"
    since: Micros = BEGINNING
    """The processing time of the previous epoch."""
    replay: str | None = None
    """The view whose late records this epoch replays; such an epoch reads no other records."""
    poison: Mapping[str, Sequence[tuple[int, int, str]]] = field(default_factory=dict)
    """source -> poison records that are excluded from the epoch: partition, position and reason."""
    hot: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """step of a join -> hash of a hot key -> the side that is split (see `engine/exchange/hot_keys.py`)."""
    fractions: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """source -> fraction of its records -> the watermark for it; empty unless a trigger needs some."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """The seconds of each part of a closed epoch, as far as it was over when the record was closed."""
    has_old_positions: bool = False
    """Whether an earlier version named the poison records, by other positions: then they are searched for again."""

    @property
    def excluded(self) -> Mapping[str, Sequence[tuple[int, int, str]]]:
        """The poison records that the epoch leaves out."""
        return {} if self.has_old_positions else self.poison

    @property
    def clock(self) -> dict[str, Any]:
        """The clock as plain data."""
        clock = {"now": self.now, "since": self.since, "watermarks": dict(self.watermarks), "before": dict(self.before)}
        return {**clock, "fractions": {s: dict(by) for s, by in self.fractions.items()}} if self.fractions else clock

    @property
    def digest(self) -> str:
        """A digest of the input of the epoch: slices, clock and plan."""
        content: list[Any] = [self.slices_json(), self.clock, self.plan, dict(self.tables), self.replay]
        content += [self.poison] if self.poison else []
        return hashlib.sha256(orjson.dumps(content, option=orjson.OPT_NON_STR_KEYS)).hexdigest()[:16]

    def slices_json(self) -> dict[str, Any]:
        """The slices as plain data."""
        return {name: part.to_json() for name, part in self.slices.items()}

    def to_json(self) -> dict[str, Any]:
        """The record as plain data."""
        return {
            "format": FORMAT,
            "epoch": self.epoch,
            "state": self.state,
            "plan": self.plan,
            "token": self.token,
            "slices": self.slices_json(),
            "clock": self.clock,
            "tables": dict(self.tables),
            **({"replay": self.replay} if self.replay is not None else {}),
            **({"poison_records": {s: [list(p) for p in by] for s, by in self.poison.items()}} if self.poison else {}),
            **({"hot": {step: [list(k) for k in by.items()] for step, by in self.hot.items()}} if self.hot else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> EpochRecord:
        """Read what `to_json` wrote."""
        clock, found = data["clock"], data.get("poison_records", data.get("poison", {}))
        return cls(
            data["epoch"],
            data["plan"],
            data["token"],
            {n: SourceSlice.from_json(s) for n, s in data["slices"].items()},
            clock["now"],
            clock["watermarks"],
            clock["before"],
            data["tables"],
            data["state"],
            since=clock["since"],
            replay=data.get("replay"),
            poison={s: [(p[0], p[1], p[2]) for p in by] for s, by in found.items()},
            fractions=clock.get("fractions", {}),
            has_old_positions="poison" in data,
            hot={step: {key: side for key, side in by} for step, by in data.get("hot", {}).items()},
        )


class RecordBook:
    """The epoch records of one flow."""

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(parents=True, exist_ok=True)

    def open(self, record: EpochRecord) -> None:
        """Write the record of an epoch before its work starts."""
        self._write(record)

    def close(self, record: EpochRecord) -> None:
        """Mark an epoch as done, and delete the record that is old enough. What is marked is not yet durable."""
        path = self.path(record.epoch)
        if not path.exists():
            self._write(record)
        with disk_full_named(path), os.fdopen(paths.open_file(path, os.O_WRONLY | os.O_APPEND), "ab") as file:
            file.write(_closing_line(record))
        paths.delete_file(self.path(record.epoch - KEPT), missing_ok=True)

    def drop(self, record: EpochRecord) -> None:
        """Delete the open record of an epoch that will not be run again."""
        paths.delete_file(self.path(record.epoch), missing_ok=True)
        paths.sync_directory(self._root)

    def read(self, epoch: int) -> EpochRecord | None:
        """Read the record of an epoch; None when there is none."""
        path = self.path(epoch)
        if not path.exists():
            return None
        try:
            first, *more = path.read_bytes().split(b"\n")
            data = orjson.loads(first)
            if data["format"] not in range(1, FORMAT + 1):
                raise _other_format(path, data["format"])
            if data["format"] > 1 and data.pop("crc") != _crc(data):
                raise ValueError("it does not match its checksum")
            if data["epoch"] != epoch:
                raise ValueError(f"it is the record of epoch {data['epoch']}")
            return _with_closing_line(EpochRecord.from_json(data), more)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise HomeDamaged(
                f"the epoch record {path} cannot be read",
                detail=str(error),
                hint="`millstream repair` says what can be done",
            ) from None

    def newest(self) -> int:
        """The number of the newest record; 0 when there is none."""
        return max(self.numbers(), default=0)

    def numbers(self) -> list[int]:
        """The epochs that have records, oldest first."""
        return sorted(int(p.stem) for p in self._root.glob("*.json") if p.stem.isdigit())

    def path(self, epoch: int) -> Path:
        """The file of an epoch's record."""
        return self._root / f"{epoch:012d}.json"

    def _write(self, record: EpochRecord) -> None:
        write_durably(self.path(record.epoch), written(record))


def written(record: EpochRecord) -> bytes:
    """Encode a record as its file contains it, with the end of its line."""
    data = record.to_json()
    return orjson.dumps({**data, "crc": _crc(data)}) + b"\n"


def _closing_line(record: EpochRecord) -> bytes:
    """The line that closes a record. It ends the line before it, because an earlier closing line may be incomplete."""
    seconds = {part: round(s, 6) for part, s in record.seconds.items()}
    data = {"state": "closed", "plan": record.plan, "token": record.token, "seconds": seconds}
    return b"\n" + orjson.dumps({**data, "crc": _crc(data)})


def _with_closing_line(record: EpochRecord, lines: Sequence[bytes]) -> EpochRecord:
    """A record after the lines that follow it. A line that is damaged or incomplete counts as not written."""
    for line in lines:
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            data = orjson.loads(line)
            if data.pop("crc") == _crc(data):
                plan, token, seconds = data["plan"], data["token"], data["seconds"]
                record = replace(record, state=data["state"], plan=plan, token=token, seconds=seconds)
    return record


def _crc(data: Mapping[str, Any]) -> int:
    return zlib.crc32(orjson.dumps(data))


def _other_format(path: Path, version: Any) -> Exception:
    if not isinstance(version, int) or version < FORMAT:
        return ValueError(f"it has the format {version!r}")
    return HomeTooNew(
        f"the epoch record {path} has format {version}, and this Millstream knows formats up to {FORMAT}",
        detail="it was written by a newer version; nothing was touched",
        hint="upgrade: pip install --upgrade millstream",
    )
