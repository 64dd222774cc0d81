"""Manifests: the runs of a step, and the batches of each, in files beside the runs.

The store keeps a version in the row of its epoch. A step with few batches is there as a list of its runs:

    {"hot": [{"file": "hot/000000000042-1.arrow", ...}]}

A step with many has its older runs in manifests, which are never changed, and only the newest in the row:

    {"hot": {"manifests": [{"file": "hot/000000000042-1.runs", "crc": 2774893043, "bytes": 40312, "expired": 17}],
             "runs": [...]}}

So the row of an epoch, and the work to write it, follow what the epoch has changed. `expired` is the watermark up to
which batches of the manifest have been dropped since it was written; null: none.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from millstream.errors import HomeDamaged
from millstream.state.run import StateRun, damaged_file, missing_file
from millstream.state.storage import Storage
from millstream.state.version import Version

INLINE_BATCHES = 512
"""A row of the store has at most about this many batches of a step; more become a manifest."""
MOST_MANIFESTS = 8
"""A step with more manifests gets one for all."""
SUFFIX = ".runs"


@dataclass(frozen=True)
class RunManifest:
    """A manifest of a step, as a version names it."""

    file: str
    crc: int
    bytes: int
    runs: tuple[StateRun, ...]
    """Its runs as they are in the version: without those that have expired."""
    expired: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain data for the store."""
        return {"file": self.file, "crc": self.crc, "bytes": self.bytes, "expired": self.expired}


def save_version(version: Version, storage: Storage, name: str) -> tuple[dict[str, Any], Version]:
    """Write new manifests with this name. Returns the version as plain data for the store, and with its manifests."""
    data: dict[str, Any] = {}
    manifests: dict[str, tuple[RunManifest, ...]] = {}
    for step, runs in version.runs.items():
        kept, tail = _kept(version.manifests.get(step, ()), runs, version.expired.get(step))
        if len(kept) >= MOST_MANIFESTS:
            kept, tail = [], runs
        if sum(len(r.batches) for r in tail) > INLINE_BATCHES:
            kept.append(_written(storage, f"{step}/{name}{SUFFIX}", tail))
            tail = ()
        if kept:
            manifests[step] = tuple(kept)
            data[step] = {"manifests": [m.to_json() for m in kept], "runs": [r.to_json() for r in tail]}
        else:
            data |= Version({step: tuple(tail)}).to_json()
    return data, replace(version, manifests=manifests)


def load_version(data: Mapping[str, Any], storage: Storage) -> Version:
    """Read what `save_version` returned. Raises HomeDamaged for a manifest that is missing or damaged."""
    large = {step: entry for step, entry in data.items() if isinstance(entry, Mapping)}
    version = Version.from_json({s: large[s]["runs"] if s in large else entry for s, entry in data.items()})
    manifests = {step: tuple(_read(storage, m) for m in entry["manifests"]) for step, entry in large.items()}
    older = {step: (*(r for m in of_step for r in m.runs), *version.of(step)) for step, of_step in manifests.items()}
    return Version({**version.runs, **older}, manifests)


def manifest_entries(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The manifests that a version names: file, crc and bytes of each."""
    return [m for entry in data.values() if isinstance(entry, Mapping) for m in entry["manifests"]]


def inline_runs(data: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    """The runs that a version names without a manifest."""
    for entry in data.values():
        yield from entry["runs"] if isinstance(entry, Mapping) else entry


def damage(storage: Storage, entry: Mapping[str, Any]) -> HomeDamaged | None:
    """What is wrong with the file of a manifest; None if it is intact."""
    try:
        content = storage.map(entry["file"])
    except OSError as error:
        return missing_file(storage, entry["file"], error)
    intact = content.size == entry["bytes"] and zlib.crc32(content) == entry["crc"]
    return None if intact else damaged_file(storage, entry["file"])


def _kept(
    manifests: Sequence[RunManifest], runs: Sequence[StateRun], expired: int | None
) -> tuple[list[RunManifest], Sequence[StateRun]]:
    """The manifests that still describe the oldest runs of a step, and the runs after those. A merge has replaced runs
    of the others.
    """
    kept: list[RunManifest] = []
    at = 0
    for manifest in manifests:
        live = manifest.runs
        if expired is not None:
            live = tuple(r for run in live if (r := run.expire(expired)) is not None)
        if tuple(runs[at : at + len(live)]) != live:
            break
        at += len(live)
        if live:
            kept.append(replace(manifest, runs=live, expired=manifest.expired if expired is None else expired))
    return kept, runs[at:]


def _written(storage: Storage, file: str, runs: Sequence[StateRun]) -> RunManifest:
    content = orjson.dumps({"format": 1, "runs": [orjson.Fragment(r.encoded) for r in runs]})
    storage.put(file, content)
    return RunManifest(file, zlib.crc32(content), len(content), tuple(runs))


def _read(storage: Storage, entry: Mapping[str, Any]) -> RunManifest:
    problem = damage(storage, entry)
    if problem is not None:
        raise problem
    runs = tuple(StateRun.from_json(r) for r in orjson.loads(memoryview(storage.map(entry["file"])))["runs"])
    if entry["expired"] is not None:
        runs = tuple(r for run in runs if (r := run.expire(entry["expired"])) is not None)
    return RunManifest(entry["file"], entry["crc"], entry["bytes"], runs, entry["expired"])
