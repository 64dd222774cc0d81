"""What is wrong with the files of a home that are no flow's own: log, catalog, tables, links and folders where files
should be. A repair looks at them first, because what it finds of flows builds on them.
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
from millstream.log import mending
from millstream.log.files import encoded
from millstream.runtime import catalog, place
from millstream.runtime.findings import NOTHING, Finding, Work, asides, said_of
from millstream.runtime.inventory import COPIES, FOREIGN, LOCKS, present
from millstream.runtime.tables import SUMS, Tables

UNKNOWN = "what the file held, unless the next steps of the repair find it elsewhere"
UNSURE = "nothing is lost, unless a process died while it wrote the catalog: its last statement is undone then"
Read = Callable[[str], pa.Table | None]
"""The content of a stored table, as the store has it; None when it has none of this name."""


def first(home: Path) -> list[Finding]:
    """What must be put right before anything else can be looked at."""
    return list(_kinds(home)) or [*_format(home), *_catalog(home), *_log(home)]


def _kinds(home: Path) -> Iterator[Finding]:
    """Links and folders where files should be, and files that cannot be read."""
    for path, role in present(home):
        if role in (COPIES, FOREIGN):
            continue
        if path.is_symlink() or not path.is_file():
            what = "a symbolic link" if path.is_symlink() else "not a file"
            if path.is_file() and role != LOCKS:
                would, do, lost = "what is behind the link takes its place", _put(home, path, path.resolve()), NOTHING
            else:
                would, do, lost = "it is taken away", asides(None, [path]), UNKNOWN
            yield Finding("", f"{path} is {what}", would, lost, do=do)
        elif not os.access(path, os.R_OK | os.W_OK, effective_ids=os.access in os.supports_effective_ids):
            found = f"{path} cannot be used: this user may not read or write it"
            yield Finding("", found, "nothing is done: give this user access to it, as with chmod u+rw")


def _format(home: Path) -> Iterator[Finding]:
    path = home / paths.MARKER
    try:
        place.check_format(path)
    except HomeDamaged as error:
        yield Finding("", said_of(error), "it is written anew", do=_put(home, path, place.NEW))


def _catalog(home: Path) -> Iterator[Finding]:
    main, copy = home / catalog.FILE, home / catalog.COPY
    if not main.exists() and not copy.exists():
        return
    revision, known = _revision(main), _revision(copy)
    if known is not None and (revision is None or revision < known):
        what = "is missing" if not main.exists() else "is damaged" if revision is None else "is older than its copy"
        lost = NOTHING if revision is not None else UNSURE
        yield Finding("", f"the catalog {main} {what}", "it is put back from its copy", lost, _put(home, main, copy))
    elif revision is None:
        found = f"the catalog {main} is damaged"
        yield Finding("", found, "nothing can be done: there is no good copy of it; restore it from a copy")
    elif known is None and copy.exists():
        yield Finding("", f"the copy {copy} of the catalog is damaged", "it is written anew", do=_put(home, copy, main))


def _revision(path: Path) -> int | None:
    """The revision of a catalog; None when it is not what was written."""
    try:
        return int(catalog.decode(path.read_bytes()).get("revision", 0))
    except (OSError, ValueError, TypeError):
        return None


def _log(home: Path) -> Iterator[Finding]:
    try:
        wrong = list(mending.look(home / "log", SystemClock()))
    except HomeTooNew:
        raise
    except HomeDamaged as error:
        yield Finding("", said_of(error), mending.LOST)
        return
    for found in wrong:
        if found.path is None:
            yield Finding("", found.found, found.would)
        elif found.data is None:
            do = asides(None, [found.path])
            yield Finding("", found.found, found.would, do=do, harmless=found.harmless)
        else:
            yield Finding("", found.found, found.would, do=_put(home, found.path, found.data))


def tables(home: Path, read: Read, ahead: Mapping[str, int]) -> Iterator[Finding]:
    """Stored tables whose newest version is not what was written: it is in the store, too. Tables that are `ahead` of
    the store are put into it.
    """
    known = Tables(home / "tables")
    for name in (p.name for p in known.folders()):
        try:
            sums = known.known(name)
        except HomeDamaged as error:
            folder = home / "tables" / name
            anew = {f.name: zlib.crc32(f.read_bytes()) for f in sorted(folder.glob("*.arrow"))}
            yield Finding("", said_of(error), "it is written anew", do=_put(home, folder / SUMS, encoded(anew)))
            sums = anew
        newest = max([known.newest().get(name, 0), *(int(f.partition(".")[0]) for f in sums)])
        path = known.path(name, newest)
        try:
            Tables(home / "tables").check({name: newest} if newest else {})
            if name in ahead:
                found = f"the store does not have version {newest} of the table `{name}`: it is older, or was made anew"
                yield Finding("", found, f"it is put into the store from {path}", do=_stored(name, newest))
        except HomeDamaged as error:
            rows = read(name)
            if rows is None:
                left = known.path(name, newest).parent
                found = f"the table `{name}` was dropped, but files of it are left in {left}"
                yield Finding("", found, "they are taken away", do=asides(None, [left]), harmless=True)
                continue
            data = known.encoded(rows)
            anew = {**sums, path.name: zlib.crc32(data)}

            def do(work: Work, path: Path = path, data: Any = data, anew: Any = anew) -> None:
                _put(home, path, data)(work)
                _put(home, path.with_name(SUMS), encoded(anew))(work)

            yield Finding("", said_of(error), "it is written anew from the store", do=do)


def _stored(name: str, version: int) -> Callable[[Work], None]:
    def do(work: Work) -> None:
        from millstream.store.mending import put_table

        put_table(work.store, name, Tables(work.home / "tables").rows(name, version), version)

    return do


def _put(home: Path, path: Path, content: Path | bytes) -> Callable[[Work], None]:
    """Put a copy of a file, or bytes, in a place of the home."""

    def do(work: Work) -> None:
        to = work.swap.put(str(path.relative_to(home)))
        if isinstance(content, Path):
            shutil.copyfile(content, to)
        else:
            to.write_bytes(content)

    return do
