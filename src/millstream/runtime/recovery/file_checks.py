"""Checks the files of a home that belong to no flow: log, catalog, tables, and links or directories in place of files.
A repair checks them first, because its findings about flows depend on them.
"""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from millstream import paths
from millstream.clock import SystemClock
from millstream.errors import HomeDamaged, HomeTooNew
from millstream.log import repair
from millstream.runtime import home_dir
from millstream.runtime.epoch.stored_tables import SUMS, Tables, noted
from millstream.runtime.recovery import catalog_file
from millstream.runtime.recovery.file_inventory import COPIES, FOREIGN, LOCKS, present
from millstream.runtime.recovery.repair_actions import NOTHING, Finding, RepairContext, asides, message_of
from millstream.store.files import store_file

UNKNOWN = "what the file held, unless the next steps of the repair find it elsewhere"
UNSURE = "nothing is lost, unless a process died while it wrote the catalog: its last statement is undone then"
Read = Callable[[str], pa.Table | None]
"""The content of a stored table in the store; None when it has no table of this name."""


def first(home: Path) -> list[Finding]:
    """Find what must be repaired before anything else can be checked."""
    return list(_kinds(home)) or [*_format(home), *_catalog(home), *_log(home)]


def _kinds(home: Path) -> Iterator[Finding]:
    """Find links and directories in place of files, and unreadable files."""
    for path, role in present(home):
        if role in (COPIES, FOREIGN):
            continue
        if path.is_symlink() or not path.is_file():
            what = "a symbolic link" if path.is_symlink() else "not a file"
            if path.is_file() and role != LOCKS:
                would, do, lost = "the target of the link replaces it", _put(home, path, path.resolve()), NOTHING
            else:
                would, do, lost = "it is removed", asides(None, [path]), UNKNOWN
            yield Finding("", f"{path} is {what}", would, lost, do=do)
        elif not os.access(path, os.R_OK | os.W_OK, effective_ids=os.access in os.supports_effective_ids):
            problem = f"{path} cannot be used: this user may not read or write it"
            yield Finding("", problem, "nothing is done: give this user access to it, as with chmod u+rw")


def _format(home: Path) -> Iterator[Finding]:
    path = home / paths.MARKER
    try:
        home_dir.check_format(path)
    except HomeDamaged as error:
        yield Finding("", message_of(error), "it is rewritten", do=_put(home, path, home_dir.NEW))


def _catalog(home: Path) -> Iterator[Finding]:
    main, copy = home / catalog_file.FILE, home / catalog_file.COPY
    revision = catalog_file.revision_of(_bytes(main))
    donor = max((_bytes(copy), _stored_catalog(home)), key=catalog_file.revision_of)
    best = catalog_file.revision_of(donor)
    if donor is not None and best > revision:
        what = "is missing" if not main.exists() else "is damaged" if revision < 0 else "is older than its copy"
        sure = revision >= 0 and donor == _bytes(copy)
        would = "it is restored from its copy" + ("" if donor == _bytes(copy) else " in the store")
        lost = NOTHING if sure else UNSURE
        yield Finding("", f"the catalog {main} {what}", would, lost, _put(home, main, donor))
    elif main.exists() and revision < 0:
        problem = f"the catalog {main} is damaged"
        yield Finding("", problem, "nothing can be done: there is no good copy of it; restore it from a copy")
    elif copy.exists() and catalog_file.revision_of(_bytes(copy)) < 0:
        yield Finding("", f"the copy {copy} of the catalog is damaged", "it is rewritten", do=_put(home, copy, main))


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _stored_catalog(home: Path) -> bytes | None:
    """The catalog in the store, as far as it can be read."""
    from millstream.store.repair import kept_catalog

    return kept_catalog(store_file(home)) if store_file(home).is_file() else None


def _log(home: Path) -> Iterator[Finding]:
    try:
        wrong = list(repair.look(home / "log", SystemClock()))
    except HomeTooNew:
        raise
    except HomeDamaged as error:
        yield Finding("", message_of(error), repair.LOST)
        return
    for damage in wrong:
        if damage.path is None:
            yield Finding("", damage.problem, damage.would)
        elif damage.data is None:
            do = asides(None, [damage.path])
            yield Finding("", damage.problem, damage.would, do=do, harmless=damage.harmless)
        else:
            yield Finding("", damage.problem, damage.would, do=_put(home, damage.path, damage.data))


def tables(home: Path, read: Read, ahead: Mapping[str, int]) -> Iterator[Finding]:
    """Find stored tables whose newest version does not match its checksum: the store has it, too. Tables that are
    `ahead` of the store are written to it.
    """
    known = Tables(home / "tables")
    if misplaced := known.misplaced():
        yield from _misplaced(home, misplaced)
        return
    for name in (p.name for p in known.folders()):
        try:
            sums = known.known(name)
        except HomeDamaged as error:
            folder = home / "tables" / name
            anew = {f.name: zlib.crc32(f.read_bytes()) for f in sorted(folder.glob("*.arrow"))}
            yield Finding("", message_of(error), "it is rewritten", do=_put(home, folder / SUMS, noted(folder, anew)))
            sums = anew
        newest = max([known.newest().get(name, 0), *(int(f.partition(".")[0]) for f in sums)])
        path = known.path(name, newest)
        try:
            Tables(home / "tables").check({name: newest} if newest else {})
            if name in ahead:
                problem = (
                    f"the store does not have version {newest} of the table `{name}`: it is older, or was recreated"
                )
                yield Finding("", problem, f"it is put into the store from {path}", do=_stored(name, newest))
        except HomeDamaged as error:
            rows = read(name)
            if rows is None:
                left = known.path(name, newest).parent
                problem = f"the table `{name}` was dropped, but files of it are left in {left}"
                yield Finding("", problem, "they are removed", do=asides(None, [left]), harmless=True)
                continue
            data = known.encoded(rows)
            anew = {**sums, path.name: zlib.crc32(data)}

            def do(work: RepairContext, path: Path = path, data: Any = data, anew: Any = anew) -> None:
                _put(home, path, data)(work)
                _put(home, path.with_name(SUMS), noted(path.parent, anew))(work)

            yield Finding("", message_of(error), "it is rewritten from the store", do=do)


def _misplaced(home: Path, misplaced: Mapping[str, str]) -> Iterator[Finding]:
    """Find directories that hold the files of another table, to be moved to the right place. If that place exists, the
    directory is removed: the next start rewrites its table from the store.
    """
    root = home / "tables"
    places = {folder: paths.table_folder(root, table) for folder, table in misplaced.items()}
    free = {folder: to for folder, to in places.items() if to.name in misplaced or not to.exists()}
    moves = {folder: to for to, folder in {to: folder for folder, to in free.items()}.items()}
    for folder, table in misplaced.items():

        def do(work: RepairContext, folder: str = folder) -> None:
            if folder in moves:
                shutil.copytree(root / folder, work.swap.put(str(moves[folder].relative_to(home))))
            if root / folder not in moves.values():
                work.aside(root / folder)

        would = f"it becomes {moves[folder]}" if folder in moves else "it is removed; the store has the table"
        lost = NOTHING if folder in moves else f"older versions of the table `{folder}`"
        yield Finding("", f"the folder {root / folder} holds the table `{table}`", would, lost, do=do)


def _stored(name: str, version: int) -> Callable[[RepairContext], None]:
    def do(work: RepairContext) -> None:
        from millstream.store.repair import put_table

        put_table(work.store, name, Tables(work.home / "tables").rows(name, version), version)

    return do


def _put(home: Path, path: Path, content: Path | bytes) -> Callable[[RepairContext], None]:
    """Put a copy of a file, or bytes, at a path of the home."""

    def do(work: RepairContext) -> None:
        to = work.swap.put(str(path.relative_to(home)))
        if isinstance(content, Path):
            shutil.copyfile(content, to)
        else:
            to.write_bytes(content)

    return do
