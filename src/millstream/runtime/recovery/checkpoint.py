"""Checkpoints: the whole home between two epochs, in a directory that can be moved elsewhere.

    checkpoints/<name>/
      manifest.json       format, time, per flow epoch, generation and offsets, and size and checksum of every file
      store.duckdb        the store
      catalog.json        the SQL definitions
      flows/<flow>/       state/ of the flow's version, epochs/, sources/
      tables/<table>/     versions of stored tables

Topics of the log are not included; the manifest lists the offsets from which a flow resumes, and they must still exist.
A checkpoint is written under another name and renamed when it is complete. The log holds the records after its offsets
before the rename, and until the checkpoint is dropped.
"""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from millstream import paths
from millstream.clock import Micros, SystemClock
from millstream.errors import DefinitionError, HomeDamaged, HomeTooNew, MillstreamError, UnknownName
from millstream.log.log import Log
from millstream.model.connectors import check_name
from millstream.runtime import state_location
from millstream.runtime.epoch.records import RecordBook
from millstream.runtime.epoch.stored_tables import SUMS
from millstream.runtime.inspect.lag import hold_again, hold_for, release_for
from millstream.runtime.recovery import catalog_file
from millstream.runtime.recovery.reconcile import RUN_FORMAT, read_kinds
from millstream.runtime.recovery.swap import Failpoint, Swap, sync_tree
from millstream.runtime.state_location import StateLocation
from millstream.state.durable import disk_full_named, write_durably
from millstream.state.manifest import load_version
from millstream.state.run import StateRun, missing_file
from millstream.state.run_block import ManifestFile
from millstream.store.files import STORE_FILE, WAL_FILE, has_store, store_file
from millstream.store.port import EpochRow

FORMAT = 1
FOLDER = "checkpoints"
OF_FLOW = ("epochs", "state", "sources", "out", "stopped.json")
"""What a checkpoint replaces of a flow; changes staged for its sinks are not restored."""

_PIECE = 1 << 20


@dataclass(frozen=True)
class Manifest:
    """The description of a checkpoint."""

    name: str
    made_at: int
    flows: Mapping[str, Mapping[str, Any]]
    """flow -> epoch, generation, offsets."""
    files: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """path -> bytes and crc."""

    @property
    def bytes(self) -> int:
        """The total size."""
        return sum(f["bytes"] for f in self.files.values())

    def to_json(self) -> dict[str, Any]:
        """Convert to plain data, without the checksum."""
        return {"format": FORMAT, "home": 1, "runs": RUN_FORMAT, **vars(self)}


def save(
    state: StateLocation,
    store: Any,
    log: Log,
    name: str,
    now: Micros,
    *,
    to: Path | None = None,
    failpoint: Failpoint = lambda _: None,
) -> Path:
    """Save a checkpoint, even while flows run; returns its directory. Epochs wait only while the store is copied."""
    check_name(name, "checkpoint")
    home = state.home
    folder = (to or home / FOLDER) / name
    if folder.exists():
        raise DefinitionError(
            f"there is a checkpoint {folder} already",
            hint=f"give it another name, or remove it: millstream checkpoint drop {name}",
        )
    links, unfinished = home / FOLDER / f".{name}.links", folder.with_name(f".{name}.new")
    try:
        for left, within in ((unfinished, folder.parent), (links, home)):
            paths.delete_tree(left, within=within)
            left.mkdir(parents=True)
    except OSError as error:
        raise DefinitionError(
            f"a checkpoint cannot be written to {folder.parent}",
            detail=error.strerror,
            hint="name a folder that can be created and written to",
        ) from None
    rows: dict[str, EpochRow] = {}
    try:
        with disk_full_named(unfinished), state.pins() as pinned:
            store.copied(store_file(unfinished), lambda: rows.update(_collect(state, store, links, pinned)))
            _copy_all(links, unfinished)
            _copy_state(state, rows, unfinished)
            manifest = Manifest(name, now, {f: _flow_entry(r, store.generation(f)) for f, r in rows.items()}, {})
            _seal(unfinished, manifest)
        hold_for(name, {flow: entry["offsets"] for flow, entry in manifest.flows.items()}, log)
        failpoint("held")
        paths.rename(unfinished, folder)
        paths.sync_directory(folder.parent)
    except Exception:
        if not folder.exists():
            with suppress(MillstreamError, OSError):
                release_for(name, log)
        raise
    finally:
        with suppress(OSError):
            paths.delete_tree(links, within=home)
            paths.delete_tree(unfinished, within=folder.parent)
        with suppress(OSError):  # only if it is empty
            paths.delete_folder(home / FOLDER)
    return folder


def tidy(home: Path, log: Log) -> None:
    """Remove what an interrupted checkpoint, or an interrupted drop, has left in a home and its log. The home must be
    owned.
    """
    for left in (home / FOLDER).glob(".*"):
        if left.suffix in (".links", ".new", ".gone"):
            with suppress(OSError, MillstreamError):
                if left.suffix != ".links" and not left.with_name(left.stem[1:]).exists():
                    release_for(left.stem[1:], log)
                paths.delete_tree(left, within=home)


def listed(home: Path) -> list[dict[str, Any]]:
    """List the checkpoints of a home, newest first, one row each. `problem` states what is wrong with one, without
    reading its files.
    """
    rows = []
    for folder in sorted((home / FOLDER).glob("*")):
        if folder.name.startswith("."):
            continue
        row: dict[str, Any] = dict.fromkeys(("made_at", "flows", "bytes", "problem"))
        row |= {"checkpoint": folder.name, "folder": str(folder)}
        try:
            manifest = read(folder)
        except (HomeDamaged, HomeTooNew, UnknownName) as error:
            row["problem"] = error.message
        else:
            row["made_at"] = datetime.fromtimestamp(manifest.made_at / 1_000_000, UTC)
            row["flows"] = {f: entry["epoch"] for f, entry in manifest.flows.items()}
            row["bytes"] = manifest.bytes
        rows.append(row)
    return sorted(rows, key=lambda r: (r["made_at"] or datetime.min.replace(tzinfo=UTC), r["checkpoint"]), reverse=True)


def drop(home: Path, name: str, log: Log) -> None:
    """Drop a checkpoint, and release its holds on the log. A partial one never remains under its name."""
    folder = find(home, name)
    if folder.parent != home / FOLDER:
        raise DefinitionError(
            f"{folder} is not a checkpoint of the home {home}: nothing was removed",
            detail="only those that `millstream checkpoint list` shows are dropped by name",
            hint="remove a checkpoint elsewhere with the tools of your system",
        )
    gone = folder.with_name(f".{folder.name}.gone")
    paths.delete_tree(gone, within=home)
    paths.rename(folder, gone)
    paths.sync_directory(folder.parent)
    release_for(folder.name, log)
    paths.delete_tree(gone, within=home)


def find(home: Path, name: str) -> Path:
    """Find the directory of a checkpoint: by its name in the home, or by a path."""
    named = [home / FOLDER / name] if paths.is_part(name) else []
    for folder in (*named, Path(name)):
        if (folder / "manifest.json").exists():
            return folder
    known = [p.name for p in sorted((home / FOLDER).glob("*")) if not p.name.startswith(".")]
    raise UnknownName(
        f"there is no checkpoint `{name}`",
        detail="there are: " + (", ".join(known) or "none yet"),
        hint="create one with `millstream checkpoint save NAME`",
    )


def read(folder: Path) -> Manifest:
    """Read the manifest of a checkpoint; refuses one that is damaged or of a newer format."""
    path = folder / "manifest.json"
    try:
        data = orjson.loads(path.read_bytes())
        newer = {k: data[k] for k, known in (("format", FORMAT), ("home", 1), ("runs", RUN_FORMAT)) if data[k] > known}
        if newer:
            raise HomeTooNew(
                f"the checkpoint {folder} has a newer format than this Millstream knows",
                detail=", ".join(f"{k} {v}" for k, v in newer.items()) + "; nothing was touched",
                hint="upgrade: pip install --upgrade millstream",
            )
        if data.pop("crc") != zlib.crc32(orjson.dumps(data)):
            raise ValueError("it does not match its checksum")
        return Manifest(data["name"], data["made_at"], data["flows"], data["files"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise HomeDamaged(
            f"the manifest {path} cannot be read", detail=str(error), hint="use another checkpoint"
        ) from None


def verify(folder: Path) -> Manifest:
    """Return the manifest after verifying every file against it."""
    manifest = read(folder)
    for name, entry in manifest.files.items():
        path = folder / name
        if not path.exists():
            raise HomeDamaged(f"the file {path} of the checkpoint is missing", hint="use another checkpoint")
        if path.stat().st_size != entry["bytes"] or crc_of(path) != entry["crc"]:
            raise HomeDamaged(
                f"the file {path} of the checkpoint does not match its checksum", hint="use another checkpoint"
            )
    return manifest


def restore(home: Path, name: str, *, failpoint: Failpoint = lambda _: None) -> Path:
    """Restore a home to a checkpoint; returns the directory that keeps the replaced files. The home must be owned, and
    its store closed. Nothing is touched unless the whole checkpoint is intact. The next start completes or discards an
    interrupted restore.
    """
    from millstream.store.repair import following, generations, set_generations

    folder = find(home, name)
    manifest = verify(folder)
    state = state_location.recorded(home)
    swap = Swap(home, f"restore of the checkpoint {manifest.name}", failpoint=failpoint)
    try:
        with disk_full_named(swap.folder):
            if not state.in_home:
                _put_state(folder, state := state.moved(), manifest)
                for name_of in (state_location.FILE, state_location.COPY):
                    swap.put(name_of).write_bytes(state.encoded())
            shutil.copyfile(store_file(folder), swap.put(STORE_FILE))
            swap.aside(WAL_FILE)
            flows = {p.name for place in (home, folder) for p in (place / "flows").glob("*")}
            for part in ("tables", *(f"flows/{flow}/{part}" for flow in sorted(flows) for part in OF_FLOW)):
                if part.endswith("/state") and not state.in_home:
                    continue
                if (folder / part).exists():
                    shutil.copytree(folder / part, swap.put(part))
                else:
                    swap.aside(part)
            if (folder / catalog_file.FILE).exists():  # a checkpoint of an earlier version has none
                content = catalog_file.put_back(
                    catalog_file.read(folder / catalog_file.FILE), catalog_file.present(home)
                )
                for name_of in (catalog_file.FILE, catalog_file.COPY):
                    swap.put(name_of).write_bytes(catalog_file.encode(content))
            before = generations(store_file(home)) if has_store(home) else {}
            new = store_file(swap.folder / ".new")
            set_generations(new, following(before, generations(new)))
        _hold(home, folder, manifest)
    except BaseException:
        swap.cancel()
        raise
    return swap.commit()


def _put_state(folder: Path, state: StateLocation, manifest: Manifest) -> None:
    """Write the runs of a checkpoint to a new place outside the home."""
    for flow in manifest.flows:
        source = folder / "flows" / flow / "state"
        for path in sorted(p for p in source.rglob("*") if p.is_file()):
            state.of(flow).runs.put(str(path.relative_to(source)), path.read_bytes())


def undone(home: Path, name: str) -> list[str]:
    """The definitions that a restore would undo: created or replaced since the checkpoint was saved."""
    path = find(home, name) / catalog_file.FILE
    return catalog_file.differences(catalog_file.read(path), catalog_file.present(home))[0] if path.exists() else []


def _hold(home: Path, folder: Path, manifest: Manifest) -> None:
    """Hold what the flows resume with in the topics, even after the checkpoint is dropped."""
    log = Log(home / "log", SystemClock())
    try:
        for flow, entry in manifest.flows.items():
            kinds = read_kinds(folder / "flows" / flow)
            topics = {s: k.removeprefix("log ") for s, k in kinds.items() if k.startswith("log ")}
            hold_again(flow, topics, entry["offsets"], log)
    finally:
        log.close()


def crc_of(path: Path) -> int:
    """The checksum of a file."""
    crc = 0
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            crc = zlib.crc32(piece, crc)
    return crc


def _collect(state: StateLocation, store: Any, links: Path, pinned: list[tuple[str, str]]) -> dict[str, EpochRow]:
    """Capture everything that belongs to the last epoch of every flow; no epoch is committed in the meantime. Runs are
    pinned. Versions of tables are never rewritten, so a hard link is enough to keep them; the rest is copied.
    """
    home = state.home
    (links / catalog_file.FILE).write_bytes(catalog_file.encode(_defined(home)))
    rows: dict[str, EpochRow] = {}
    for flow in store.flows():
        root, last = paths.flow_folder(home, flow), store.last(flow)
        if last is None:
            continue
        rows[flow] = last
        state.pin(pinned, flow, load_version(last.version, state.of(flow).runs).files)
        book = RecordBook(root / "epochs")
        records = [book.path(n) for n in book.numbers() if n <= last.number]
        for path in (*records, *(root / "sources").glob("[!.]*")):
            _take(path, links / path.relative_to(home), link=False)
    for files in (f"*/{SUMS}", "*/*.arrow"):  # a version written in the meantime is not among the checksums
        for path in (home / "tables").glob(files):
            _take(path, links / path.relative_to(home), link=True)
    return rows


def _defined(home: Path) -> dict[str, Any]:
    """Copy the catalog. Steps after its last commit change the store, which is locked now: they are either done or
    listed in the catalog.
    """
    if not (home / catalog_file.FILE).exists() and not (home / catalog_file.COPY).exists():
        return dict(catalog_file.EMPTY)
    return catalog_file.read(home / catalog_file.FILE)


def _take(path: Path, to: Path, *, link: bool) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    try:
        if link:
            os.link(path, to)
        else:
            shutil.copyfile(path, to)
    except FileNotFoundError:
        raise HomeDamaged(f"the file {path} is missing", hint="`millstream repair` says what can be done") from None
    except OSError:
        if not link:
            raise
        shutil.copyfile(path, to)  # a disk without links


def _copy_state(state: StateLocation, rows: Mapping[str, EpochRow], to: Path) -> None:
    """Copy the runs of the last versions, and verify them."""
    for flow, row in rows.items():
        storage = state.of(flow).runs
        version = load_version(row.version, storage)
        files: list[StateRun | ManifestFile] = [r for of in version.runs.values() for r in of]
        files += version.manifests
        for file in files:
            try:
                content = storage.map(file.file)
            except FileNotFoundError:
                raise missing_file(storage, file.file) from None
            if content.size != file.bytes or zlib.crc32(content) != file.crc:
                raise HomeDamaged(
                    f"the state file {storage.place(file.file)} does not match its checksum",
                    detail="no checkpoint was created",
                    hint="`millstream repair` says what can be done",
                )
            target = to / "flows" / flow / "state" / file.file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)


def _copy_all(links: Path, to: Path) -> None:
    """Copy everything without sharing files with the home, so that one failure does not damage both."""
    for path in sorted(p for p in links.rglob("*") if p.is_file()):
        name = str(path.relative_to(links))
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, to / name)


def _seal(folder: Path, manifest: Manifest) -> None:
    from millstream.store.repair import folded

    folded(store_file(folder))
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        entry = {"bytes": path.stat().st_size, "crc": crc_of(path)}
        manifest.files[str(path.relative_to(folder))] = entry  # type: ignore[index]
    sync_tree(folder)
    data = manifest.to_json()
    write_durably(folder / "manifest.json", orjson.dumps({**data, "crc": zlib.crc32(orjson.dumps(data))}))


def _flow_entry(row: EpochRow, generation: int) -> dict[str, Any]:
    return {"epoch": row.number, "generation": generation, "offsets": row.progress["offsets"]}
