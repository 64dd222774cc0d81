"""A disk in memory that can crash after every operation.

What was not synced when it crashes is kept, dropped, torn or garbled; a name that was made, changed or removed, that of
a directory too, is lost unless its directory was synced. `at_every_step` is called after every operation that changes
something, with the disk: `crashes` then gives the images that a crash at that moment could leave. A `Fault` makes the
n-th call fail.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

import pyarrow as pa

from millstream.log.storage.disk import LOCKED_OUT

Write = tuple[int, bytes]
"""Where, and what; a cut is ``(size, None)``."""
Change = tuple[int, bytes | None]

FILE_MODES = ("kept", "dropped", "older", "torn", "torn at 4096", "hole", "zeros", "garbled")

SMALL_MODES = ("kept", "dropped", "older", "zeros")
"""For one small write within a sector: there is nothing to tear."""


@dataclass(eq=False)
class Node:
    """A file: what the medium has, and what was done since the last sync."""

    durable: bytes = b""
    current: bytes = b""
    pending: tuple[Change, ...] = ()

    def change(self, change: Change) -> None:
        self.current = applied(self.current, change)
        before = self.pending
        if before and len(before) > 2 and change[1] is not None and before[-1][1] is not None:
            same = all(c[1] is not None and (c[0], len(c[1])) == (change[0], len(change[1])) for c in before[-2:])
            if same:  # one small place written again and again: the first, the one before and the last say it all
                before = (*before[:-1],)
        self.pending = (*before, change)


def applied(data: bytes, change: Change) -> bytes:
    place, content = change
    if content is None:
        return data[:place]
    return data[:place].ljust(place, b"\0") + content + data[place + len(content) :]


def surviving(durable: bytes, pending: tuple[Change, ...], mode: str) -> bytes:
    """A file's content after a crash: the last write is the one that is torn."""
    if not pending or mode == "dropped":
        return durable
    data = durable
    for change in pending[:-1]:
        data = applied(data, change)
    place, content = pending[-1]
    if mode == "older":
        return data
    if content is None or mode == "kept":
        return applied(data, pending[-1])
    end = place + len(content)
    if mode.startswith("torn"):
        sector = 4096 if mode.endswith("4096") else 512
        cut = max(place, (end - 1) // sector * sector)
        return applied(data, (place, content[: cut - place]))
    if mode == "hole":
        cut = min(end, (place // 512 + 1) * 512)
        return applied(data, (place, bytes(cut - place) + content[cut - place :]))
    if mode == "zeros":
        return applied(data, (place, bytes(len(content))))
    last = max(place, (end - 1) // 512 * 512) - place
    return applied(data, (place, content[:last] + bytes(b ^ 0xA5 for b in content[last:])))


Names = dict[str, dict[str, Node]]
Step = tuple[str, str, Node | None]
"""In a directory: ``("put", name, node)``, ``("drop", name, None)`` or ``("mkdir", name, None)``; a rename is two that
hold together."""


@dataclass
class Fault:
    """Let the n-th call (from 1) of some operations fail, once or from then on."""

    at: int
    code: int = errno.EIO
    once: bool = True
    short: bool = False
    only: frozenset[str] = frozenset()
    seen: int = 0

    def strikes(self, operation: str) -> bool:
        if self.only and operation not in self.only:
            return False
        self.seen += 1
        return self.seen == self.at or (self.seen > self.at and not self.once)


@dataclass
class SimDisk:
    """A disk without threads; see the module."""

    names: Names = field(default_factory=dict)
    durable: Names = field(default_factory=dict)
    pending: dict[str, tuple[tuple[Step, ...], ...]] = field(default_factory=dict)
    start: int = 1
    replaced: Names = field(default_factory=dict)
    """What a directory held that was removed and made anew: it is there again if the new one is lost."""
    fault: Fault | None = None
    syncs: bool = True
    dir_syncs: bool = True
    at_every_step: Callable[[SimDisk], None] | None = None
    background: bool = False
    locked: dict[str, str] = field(default_factory=dict)

    # ------------------------------------------------------------ the Disk

    def boot(self) -> bytes:
        return self.start.to_bytes(16, "little")

    def mkdir(self, path: Path) -> None:
        for folder in (*reversed(path.parents), path):
            name = str(folder)
            if name in self.names:
                continue
            if name in self.durable:
                self.replaced[name] = self.durable[name]
                self.pending.pop(name, None)
            self.names[name], self.durable[name] = {}, {}
            if folder != folder.parent:
                self._directory(folder, ("mkdir", folder.name, None))

    def create(self, path: Path) -> None:
        self._may("create", path)
        self._directory(path, ("put", path.name, Node()))

    def append(self, path: Path, data: bytes | memoryview) -> None:
        node = self._node(path, "append")
        content = bytes(data)
        if self.fault is not None and self.fault.strikes("append"):
            if self.fault.short:
                node.change((len(node.current), content[: len(content) // 2]))
                self._step()
            raise OSError(self.fault.code, os.strerror(self.fault.code))
        node.change((len(node.current), content))
        self._step()

    def write_at(self, path: Path, position: int, data: bytes) -> None:
        self._may("write_at", path)
        folder = self.names[str(path.parent)]
        if path.name not in folder:
            self._directory(path, ("put", path.name, Node()))
        folder[path.name].change((position, bytes(data)))
        self._step()

    def truncate(self, path: Path, size: int) -> None:
        self._may("truncate", path)
        self._node(path).change((size, None))
        self._step()

    def fsync(self, path: Path) -> None:
        self._may("fsync", path)
        node = self._node(path)
        if self.syncs:
            node.durable, node.pending = node.current, ()
        self._step()

    def close(self, path: Path) -> None:
        return

    def rename(self, old: Path, new: Path) -> None:
        self._may("rename", new)
        self._directory(old, ("drop", old.name, None), ("put", new.name, self._node(old)))

    def unlink(self, path: Path) -> None:
        self._may("unlink", path)
        self._node(path)
        self._directory(path, ("drop", path.name, None))

    def rmdir(self, path: Path) -> None:
        """It stays on the medium, with all in it whose removal was not synced, until the one above is synced."""
        assert not self.list(path)
        del self.names[str(path)]

    def fsync_dir(self, path: Path) -> None:
        self._may("fsync_dir", path)
        if str(path) not in self.names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        if self.dir_syncs:
            self.durable[str(path)] = dict(self.names[str(path)])
            self.pending.pop(str(path), None)
            for inner in [f for f in self.durable if Path(f).parent == path and f != str(path)]:
                self.replaced.pop(inner, None)
                if inner not in self.names:
                    _lost(self.durable, inner)
                    self.pending = {f: s for f, s in self.pending.items() if f in self.durable}
        self._step()

    def list(self, path: Path) -> list[str]:
        inside = {*self.names.get(str(path), ())}
        prefix = f"{path}/"
        inside |= {f[len(prefix) :] for f in self.names if f.startswith(prefix) and "/" not in f[len(prefix) :]}
        return sorted(inside)

    def read(self, path: Path, start: int = 0, size: int | None = None) -> bytes:
        data = self._node(path).current
        return data[start : len(data) if size is None else start + size]

    def map(self, path: Path) -> pa.Buffer:
        return pa.py_buffer(self._node(path).current)

    def size(self, path: Path) -> int:
        return len(self._node(path).current)

    def exists(self, path: Path) -> bool:
        return path.name in self.names.get(str(path.parent), ()) or str(path) in self.names

    def lock(self, path: Path, *, wait: bool = False) -> SimLock:
        if str(path) in self.locked:
            raise LOCKED_OUT(self.locked[str(path)])
        self.locked[str(path)] = "4711"
        return SimLock(self, str(path))

    # ------------------------------------------------------------ inside

    def _may(self, operation: str, path: Path) -> None:
        if self.fault is not None and self.fault.strikes(operation):
            raise OSError(self.fault.code, os.strerror(self.fault.code), str(path))

    def _node(self, path: Path, _operation: str = "") -> Node:
        try:
            return self.names[str(path.parent)][path.name]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from None

    def _directory(self, path: Path, *steps: Step) -> None:
        folder = str(path.parent)
        _redo(self.names[folder], steps)
        self.pending[folder] = (*self.pending.get(folder, ()), steps)
        self._step()

    def _step(self) -> None:
        if self.at_every_step is not None:
            self.at_every_step(self)

    # ------------------------------------------------------------ crashing

    def killed(self) -> SimDisk:
        """The same disk for another process of the same run of the machine: nothing is lost yet, locks are free."""
        seen: dict[Node, Node] = {}

        def copy(node: Node) -> Node:
            if node not in seen:
                seen[node] = Node(node.durable, node.current, node.pending)
            return seen[node]

        def tree(names: Names) -> Names:
            return {f: {n: copy(node) for n, node in inside.items()} for f, inside in names.items()}

        pending = {
            f: tuple(tuple((k, n, copy(x) if x is not None else None) for k, n, x in steps) for steps in groups)
            for f, groups in self.pending.items()
        }
        return SimDisk(
            tree(self.names),
            tree(self.durable),
            pending,
            self.start,
            tree(self.replaced),
            syncs=self.syncs,
            dir_syncs=self.dir_syncs,
        )

    def crashes(self, left_out: frozenset[str] = frozenset()) -> Iterator[tuple[str, SimDisk]]:
        """What the machine may find when it starts again, each once, with a name for messages."""
        seen = set()
        open_files = {n for f in self.names.values() for n, x in f.items() if x.pending}
        modes = FILE_MODES if open_files - {"durable"} else SMALL_MODES if open_files else ("kept",)
        for kept, names in self._name_choices():
            for mode in (m for m in modes if m not in left_out):
                image = {
                    f: {n: surviving(x.durable, x.pending, mode) for n, x in inside.items()}
                    for f, inside in names.items()
                }
                key = _frozen(image)
                if key not in seen:
                    seen.add(key)
                    yield f"files {mode}, names {kept}", self.restarted(image)

    def restarted(self, image: dict[str, dict[str, bytes]]) -> SimDisk:
        """A disk that holds this and nothing else, all of it durable."""
        nodes = {f: {n: Node(data, data) for n, data in inside.items()} for f, inside in image.items()}
        durable = {f: dict(inside) for f, inside in nodes.items()}
        return SimDisk(nodes, durable, start=self.start + 1, syncs=self.syncs, dir_syncs=self.dir_syncs)

    def key(self) -> object:
        """Equal for disks that hold the same, and of which the same can be lost."""
        now = _frozen({f: {n: x.current for n, x in inside.items()} for f, inside in self.names.items()})
        written = [(f, n, x.durable, x.pending) for f, i in self.names.items() for n, x in i.items() if x.pending]
        named = [(f, k, n) for f, groups in self.pending.items() for steps in groups for k, n, _ in steps]
        return now, tuple(sorted(self.names)), self.start, tuple(written), tuple(named)

    def _name_choices(self) -> Iterator[tuple[str, Names]]:
        """Which unsynced changes of names survive: any of them while they are few, else a prefix or all but one."""
        todo = [(f, steps) for f, groups in self.pending.items() for steps in groups]
        count = len(todo)
        if count <= 3:
            choices = [set(c) for size in range(count + 1) for c in combinations(range(count), size)]
        else:
            choices = [set(range(size)) for size in range(count + 1)]
            choices += [set(range(count)) - {left} for left in range(count - 1)]
        for chosen in choices:
            names = {f: dict(inside) for f, inside in self.durable.items()}
            for number, (folder, steps) in enumerate(todo):
                if number in chosen:
                    _redo(names[folder], steps)
            for number, (folder, ((kind, name, _), *_)) in enumerate(todo):
                if kind == "mkdir" and number not in chosen:
                    _lost(names, f"{folder}/{name}")
                    if f"{folder}/{name}" in self.replaced and folder in names:
                        names[f"{folder}/{name}"] = dict(self.replaced[f"{folder}/{name}"])
            yield f"{sorted(chosen)} of {count}", names


class SimLock:
    def __init__(self, disk: SimDisk, path: str) -> None:
        self._disk, self._path = disk, path

    def release(self) -> None:
        self._disk.locked.pop(self._path, None)


def _redo(folder: dict[str, Node], steps: tuple[Step, ...]) -> None:
    for kind, name, node in steps:
        if kind == "drop":
            folder.pop(name, None)
        elif kind == "put":
            assert node is not None
            folder[name] = node


def _lost(names: Names, folder: str) -> None:
    """Without a directory and all below it."""
    for inner in [f for f in names if f == folder or f.startswith(f"{folder}/")]:
        del names[inner]


def _frozen(image: dict[str, dict[str, bytes]]) -> object:
    return frozenset((f, n, data) for f, inside in image.items() for n, data in inside.items())
