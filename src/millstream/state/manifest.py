"""Manifests: blocks of runs of a step, in files beside the runs.

The store keeps a version in the row of its epoch. A step with few batches is there as a list of its runs:

    {"hot": [{"file": "hot/000000000042-1.arrow", ...}]}

A step with many has its older blocks in manifests, which are never changed, and only the newest runs in the row:

    {"hot": {"manifests": [{"file": "hot/000000000042-1.runs", "crc": 2774893043, "bytes": 40312, "expired": 17}],
             "runs": [...]}}

So the row of an epoch, and the work to write it, follow what the epoch has changed: a block gets a manifest once, and
another one only if a merge replaces some of its runs. `expired` is the watermark up to which batches of the manifest
have been dropped since it was written; null: none. `run_block.py` describes the content of a manifest (format 2). In
format 1 it is a list of runs, as in the row.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import orjson

from millstream.errors import HomeDamaged, HomeTooNew
from millstream.state.run import StateRun, damaged_file, missing_file
from millstream.state.run_block import FORMAT, ManifestFile, RunBlock
from millstream.state.run_list import RunList
from millstream.state.storage import Storage
from millstream.state.version import Version

INLINE_BATCHES = 512
"""A row of the store has at most about this many batches of a step; more become a manifest."""
MOST_MANIFESTS = 8
"""A step with more manifests gets one for its newest blocks."""
SUFFIX = ".runs"


def save_version(version: Version, storage: Storage, name: str) -> tuple[dict[str, Any], Version]:
    """Write new manifests with this name. Returns the version as plain data for the store, and with its manifests."""
    data: dict[str, Any] = {}
    lists: dict[str, RunList] = {}
    for step in version.runs:
        runs = version.list_of(step)
        blocks, tail = _described(runs, storage, f"{step}/{name}")
        if blocks:
            data[step] = {
                "manifests": [b.manifest.to_json() for b in blocks if b.manifest is not None],
                "runs": [r.to_json() for b in tail for r in b.runs],
            }
        elif runs:
            data[step] = [r.to_json() for r in runs]
        lists[step] = RunList((*blocks, *tail)) if blocks else runs
    return data, Version(lists)


def load_version(data: Mapping[str, Any], storage: Storage) -> Version:
    """Read what `save_version` returned. Raises HomeDamaged for a manifest that is missing or damaged."""
    lists: dict[str, RunList] = {}
    for step, entry in data.items():
        large = isinstance(entry, Mapping)
        blocks = [b for m in entry["manifests"] if (b := _read(storage, m)) is not None] if large else []
        newest = [StateRun.from_json(r) for r in (entry["runs"] if large else entry)]
        lists[step] = RunList([*blocks, *([RunBlock.of(newest)] if newest else ())])
    return Version(lists)


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


def _described(runs: RunList, storage: Storage, name: str) -> tuple[list[RunBlock], list[RunBlock]]:
    """The blocks of a step that have a manifest, or get one now, and the newest blocks, which the row has."""
    blocks = list(runs.blocks)
    last = max((i for i, b in enumerate(blocks) if b.manifest is not None), default=-1)
    tail = blocks[last + 1 :]
    if sum(len(b.batches) for b in tail) > INLINE_BATCHES:
        last, tail = len(blocks) - 1, []
    found: list[RunBlock] = []
    new: list[RunBlock] = []
    for block in blocks[: last + 1]:
        if block.manifest is None:
            new.append(block)
            continue
        found += _joined(new)
        found.append(block)
        new = []
    found += _joined(new)
    if len(found) > MOST_MANIFESTS:
        found = _fewer(found)
    written = 0
    for i, block in enumerate(found):
        if block.manifest is None:
            found[i] = _written(storage, f"{name}{f'-{written}' if written else ''}{SUFFIX}", block)
            written += 1
    return found, tail


def _joined(blocks: list[RunBlock]) -> list[RunBlock]:
    return [RunBlock.joined(blocks)] if len(blocks) > 1 else blocks


def _fewer(blocks: list[RunBlock]) -> list[RunBlock]:
    """The blocks with the newest of them joined, so that a run is described again only as often as its block doubles.
    At most half of MOST_MANIFESTS are left.
    """
    start, size = len(blocks) - 1, len(blocks[-1])
    while start and (start >= MOST_MANIFESTS // 2 or len(blocks[start - 1]) <= 2 * size):
        start -= 1
        size += len(blocks[start])
    return [*blocks[:start], RunBlock.joined(blocks[start:])]


def _written(storage: Storage, file: str, block: RunBlock) -> RunBlock:
    content = block.encoded()
    storage.put(file, content)
    return replace(block, manifest=ManifestFile(file, zlib.crc32(content), len(content)))


def _read(storage: Storage, entry: Mapping[str, Any]) -> RunBlock | None:
    """The block of a manifest; None if all of it has expired."""
    problem = damage(storage, entry)
    if problem is not None:
        raise problem
    content = orjson.loads(memoryview(storage.map(entry["file"])))
    if content["format"] > FORMAT:
        raise HomeTooNew(
            f"the manifest {storage.place(entry['file'])} has format {content['format']}, and this Millstream knows "
            f"formats up to {FORMAT}",
            detail="it was written by a newer version; nothing was touched",
            hint="upgrade: pip install --upgrade millstream",
        )
    is_first = content["format"] == 1
    block = RunBlock.of(map(StateRun.from_json, content["runs"])) if is_first else RunBlock.from_columns([content])
    described = replace(block, manifest=ManifestFile(entry["file"], entry["crc"], entry["bytes"], entry["expired"]))
    return described if entry["expired"] is None else described.expire(entry["expired"])
