"""The event files that every system reads: Nexmark bids as Parquet and as JSON lines, written once and kept.

A data set is a folder in bench/.data with one folder per format, ten files or more in each in event order, and a
small `warm-up` data set. `json-lanes` has the rows of `json` in two files that advance together, every second
row in each, for readers that take the files of a folder in any order at all (Flink). `manifest.json` holds
the settings and the sha256 of every file:

    {"bids": 5000000, "rate": 10000, "seed": 0, "version": 4, "sha256": {"json/part-00.json": "9f2c..."}}

A second kind of data set, `house`, has persons, auctions and bids with all their columns, as JSON lines alone: a folder
for each kind of event, made when it is first needed, with the folders `json` and `json-lanes` in it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millstream.connect import nexmark

ROOT = Path(__file__).parent / ".data"
FORMATS = ("json", "parquet")
LANES = 2
COLUMNS = ("auction", "bidder", "price", "date_time")
FILES = 10
BIDS_FOR_TEN_FILES = 5_000_000
"""A data set has ten files for each so many bids."""
WARM_UP_BIDS = 250_000
RATE = 10_000
"""Events of all kinds per second of event time, so 9,200 bids; it fixes how many keys a window holds."""
SEED = 0
VERSION = 4
EVENTS_PER_FILE = 250_000
HOUSE_VERSION = 1
NAMES = {
    "date_time": "dateTime",
    "item_name": "itemName",
    "initial_bid": "initialBid",
    "email_address": "emailAddress",
    "credit_card": "creditCard",
}
"""The columns that the queries of Nexmark know by another name than the generator."""


@dataclass(frozen=True)
class DataSet:
    """Bids in files. `digest` names their content in reports."""

    root: Path
    bids: int
    sha256: dict[str, str]

    @property
    def digest(self) -> str:
        """One sha256 for all files."""
        return hashlib.sha256("".join(f"{k}{v}" for k, v in sorted(self.sha256.items())).encode()).hexdigest()

    def folder(self, form: str) -> Path:
        return self.root / form

    def warm_up(self, form: str) -> Path:
        return self.root / "warm-up" / form


def bids(number: int, only: str | None = None) -> DataSet:
    """The first `number` bids of the generator, in all formats or `only` in one; made if they are not there yet."""
    root = ROOT / f"bids-{number}-rate{RATE}-seed{SEED}-v{VERSION}{'' if only is None else f'-{only}'}"
    forms = FORMATS if only is None else (only,)
    if not (root / "manifest.json").exists():
        half_done = root.with_suffix(".tmp")
        shutil.rmtree(half_done, ignore_errors=True)
        _write(half_done, number, FILES * max(1, number // BIDS_FOR_TEN_FILES), forms)
        _write(half_done / "warm-up", min(number, WARM_UP_BIDS), 2, forms)
        files = [path for path in sorted(half_done.rglob("part-*")) if path.is_file()]
        manifest = {
            "bids": number,
            "rate": RATE,
            "seed": SEED,
            "version": VERSION,
            "sha256": {str(path.relative_to(half_done)): _sha256(path) for path in files},
        }
        (half_done / "manifest.json").write_text(json.dumps(manifest, indent=1))
        half_done.rename(root)
    manifest = json.loads((root / "manifest.json").read_text())
    return DataSet(root, number, manifest["sha256"])


def _write(root: Path, number: int, files: int, forms: Sequence[str]) -> None:
    for folder in (*forms, *(["json-lanes"] if "json" in forms else [])):
        (root / folder).mkdir(parents=True)
    for i in range(files):
        first, last = number * i // files, number * (i + 1) // files
        table = nexmark.events("bid", position(first), position(last), _config(), COLUMNS)
        names = {form: root / form / f"part-{i:02}.{form}" for form in forms}
        if "parquet" in forms:
            pq.write_table(table, names["parquet"], row_group_size=250_000)
        if "json" in forms:
            names["json"].write_bytes(json_lines(table))
        for path in names.values():
            # Readers that go by modification time must see the files in event order.
            os.utime(path, (1_767_225_600 + i, 1_767_225_600 + i))
        for lane in range(LANES if "json" in forms else 0):
            with (root / "json-lanes" / f"part-{lane:02}.json").open("ab") as file:
                file.write(json_lines(table.take(pa.array(range(lane, table.num_rows, LANES)))))


def _config() -> nexmark.Nexmark:
    return nexmark.Nexmark(rate=RATE, seed=SEED)


def position(rank: int) -> int:
    """Where in the stream the bid number `rank` stands; see nexmark: 4 other events, then 46 bids."""
    return rank // 46 * 50 + (4 + rank % 46 if rank % 46 else 0)


@dataclass(frozen=True)
class House:
    """Persons, auctions and bids of the first `events` events, one folder for each kind."""

    events: int
    kinds: tuple[str, ...]
    rows: int
    """How many events are of these kinds."""
    sha256: dict[str, str]

    @property
    def digest(self) -> str:
        """One sha256 for all files."""
        return hashlib.sha256("".join(f"{k}{v}" for k, v in sorted(self.sha256.items())).encode()).hexdigest()

    @property
    def folders(self) -> dict[str, str]:
        """Where the files of each kind are: its folders `json` and `json-lanes`."""
        return {kind: str(_house(kind, self.events)) for kind in self.kinds}


def house(events: int, kinds: tuple[str, ...]) -> House:
    """The events of some kinds among the first `events` of the generator; made if they are not there yet."""
    rows, sha256 = 0, {}
    for kind in kinds:
        root = _house(kind, events)
        if not (root / "manifest.json").exists():
            half_done = root.with_suffix(".tmp")
            shutil.rmtree(half_done, ignore_errors=True)
            made = _write_kind(half_done, kind, events)
            files = sorted(path for path in half_done.rglob("part-*") if path.is_file())
            manifest = {
                "kind": kind,
                "events": events,
                "rows": made,
                "rate": RATE,
                "seed": SEED,
                "version": HOUSE_VERSION,
                "sha256": {str(path.relative_to(half_done)): _sha256(path) for path in files},
            }
            (half_done / "manifest.json").write_text(json.dumps(manifest, indent=1))
            half_done.rename(root)
        manifest = json.loads((root / "manifest.json").read_text())
        rows += manifest["rows"]
        sha256.update({f"{kind}/{name}": digest for name, digest in manifest["sha256"].items()})
    return House(events, kinds, rows, sha256)


def _house(kind: str, events: int) -> Path:
    return ROOT / f"house-{kind}-{events}-rate{RATE}-seed{SEED}-v{HOUSE_VERSION}"


def _write_kind(root: Path, kind: str, events: int) -> int:
    """Write the events of one kind, and say how many they are."""
    for folder in ("json", "json-lanes"):
        (root / folder).mkdir(parents=True)
    files, rows = max(-(-events // EVENTS_PER_FILE), FILES), 0
    for i in range(files):
        first, last = events * i // files, events * (i + 1) // files
        table = nexmark.events(kind, first, last, _config())
        table = table.rename_columns([NAMES.get(name, name) for name in table.column_names])
        path = root / "json" / f"part-{i:04}.json"
        path.write_bytes(json_lines(table))
        os.utime(path, (1_767_225_600 + i, 1_767_225_600 + i))
        for lane in range(LANES):
            with (root / "json-lanes" / f"part-{lane:02}.json").open("ab") as file:
                file.write(json_lines(table.take(pa.array(np.arange(lane, table.num_rows, LANES)))))
        rows += table.num_rows
    return rows


def json_lines(table: pa.Table) -> bytes:
    """The rows as JSON lines, with times in ISO 8601:
    {"auction":1000,...,"date_time":"2026-01-01T00:00:00.000Z"}. Text must need no escapes.
    """
    if not table.num_rows:
        return b""
    parts: list[object] = []
    for i, name in enumerate(table.schema.names):
        column, quote = table[name], ""
        if pa.types.is_timestamp(column.type):
            column, quote = pc.strftime(column.cast(pa.timestamp("ms", "UTC")), "%Y-%m-%dT%H:%M:%SZ"), '"'
        elif pa.types.is_string(column.type):
            quote = '"'
            if pc.any(pc.match_substring_regex(column, r'["\\[:cntrl:]]')).as_py():
                raise SystemExit(f"text in {name} needs escapes, which json_lines does not make")
        parts += [
            pa.scalar(f'{"," if i else "{"}"{name}":{quote}'),
            column.cast(pa.string()),
            pa.scalar(quote),
        ]
    lines = pc.binary_join_element_wise(*parts, pa.scalar("}\n"), "").combine_chunks()
    chunks = lines.chunks if isinstance(lines, pa.ChunkedArray) else [lines]
    return b"".join(chunk.buffers()[2].to_pybytes() for chunk in chunks)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
