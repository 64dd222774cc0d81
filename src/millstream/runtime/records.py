"""Epoch records: what an epoch will see, written and fsynced before any work; and that it is done.

One file per epoch, ``epochs/000000000042.json``, written twice (temp, fsync, rename). Format 1:

    {"format": 1, "epoch": 42, "state": "open", "plan": "53de70929efcf355", "token": 3,
     "slices": {"bids": {"0": [12, 15]}},
     "clock": {"now": 1767225600000000, "since": 1767225599000000,
               "watermarks": {"bids": 1767225590000000}, "before": {"bids": ...}},
     "tables": {"categories": 2}}

(the clock has ``"fractions": {"bids": {"0.9": ...}}`` too if a trigger asks for it), and with ``"state": "closed"``
once the store has committed the epoch. The store is the authority: a record that is still open while the store has the
epoch is simply closed on the next start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from millstream.clock import BEGINNING
from millstream.connect.port import SourceSlice
from millstream.errors import HomeDamaged
from millstream.state.run import write_durably

FORMAT = 1
KEPT = 100


@dataclass(frozen=True)
class EpochRecord:
    """The input of one epoch, and whether it is done."""

    epoch: int
    plan: str
    token: int
    slices: Mapping[str, SourceSlice]
    now: int
    watermarks: Mapping[str, int]
    before: Mapping[str, int]
    tables: Mapping[str, int]
    state: str = "open"
    since: int = BEGINNING
    """The processing time of the epoch before."""
    replay: str | None = None
    """The view whose late records this epoch takes in; it takes no others."""
    fractions: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """source -> fraction of its records -> the watermark for it; empty unless a trigger asks for some."""

    @property
    def clock(self) -> dict[str, Any]:
        """The clock as plain data."""
        clock = {"now": self.now, "since": self.since, "watermarks": dict(self.watermarks), "before": dict(self.before)}
        return {**clock, "fractions": {s: dict(by) for s, by in self.fractions.items()}} if self.fractions else clock

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
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> EpochRecord:
        """Read what `to_json` wrote."""
        clock = data["clock"]
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
            fractions=clock.get("fractions", {}),
        )


class RecordBook:
    """The epoch records of one flow."""

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(parents=True, exist_ok=True)

    def open(self, record: EpochRecord) -> None:
        """Write an epoch down before its work starts."""
        write_durably(self._path(record.epoch), orjson.dumps(record.to_json()))

    def close(self, record: EpochRecord) -> None:
        """Mark an epoch as done, and forget the one that is old enough."""
        write_durably(self._path(record.epoch), orjson.dumps(replace(record, state="closed").to_json()))
        self._path(record.epoch - KEPT).unlink(missing_ok=True)

    def read(self, epoch: int) -> EpochRecord | None:
        """The record of an epoch, or None when there is none."""
        path = self._path(epoch)
        if not path.exists():
            return None
        try:
            data = orjson.loads(path.read_bytes())
            if data["format"] != FORMAT or data["epoch"] != epoch:
                raise ValueError(data["format"])
            return EpochRecord.from_json(data)
        except (ValueError, KeyError, TypeError) as error:
            raise HomeDamaged(
                f"the epoch record {path} cannot be read",
                detail=str(error),
                hint="restore the home from a copy; docs/guide/operations.md says how",
            ) from None

    def newest(self) -> int:
        """The number of the newest record, 0 when there is none."""
        names = [p.stem for p in self._root.glob("*.json")]
        return max((int(n) for n in names if n.isdigit()), default=0)

    def _path(self, epoch: int) -> Path:
        return self._root / f"{epoch:012d}.json"
