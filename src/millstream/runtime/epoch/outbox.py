"""The outbox: delivers the changes of each epoch to the sinks, across crashes.

With ``exactly_once`` the changes are staged durably before the store commits the epoch, under
``out/<epoch>-<sink>.<crc>.arrow``, and delivered to the sink after it (`connect/sinks.py`): to a topic as the sequence
of a producer named after the sink. A crash anywhere leaves either nothing or a file that the next start delivers, and
the sink knows what it has. The epoch's row in the store names its files; a delivered one is renamed to ``.done`` until
the next ones are delivered, so a lost file is detected. No reader sees a change of an epoch that the store does not
have. An epoch's row also records how far each sink had written its topic before, so a lost or replaced topic is
detected. On start, the last epoch is offered to the topic again, and the topic recognises whether it has it. With
``at_least_once`` the changes are delivered before the commit and are not deduplicated. With ``at_most_once`` they are
delivered after it, and nothing is kept for a retry.

Where tasks have written the rows of an epoch to the target themselves (`SinkWithParts`), a manifest of these parts
takes the place of the rows: it is staged before the commit, and the sink publishes the parts after it. A manifest
counts only if the row of its epoch names it, because two attempts at an epoch have different parts. Parts that no
manifest names are removed after each such epoch, and on start.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa

from millstream import paths
from millstream.connect.port import PartsWriter, SinkPart, SinkPort, SinkWithParts
from millstream.errors import HomeDamaged
from millstream.model.guarantees import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE
from millstream.plan.plan import Plan, PlannedView
from millstream.runtime.closing import closed
from millstream.runtime.epoch.parts_manifest import PartsManifest, staged_table
from millstream.state.durable import write_durably
from millstream.state.ipc import ipc_bytes

DONE = ".done"
NO_PARTS: Mapping[str, Sequence[SinkPart]] = {}


def epoch_of(file: str) -> int:
    """The epoch of a file of changes."""
    return int(file.partition("-")[0])


def sink_of(file: str) -> str:
    """The sink of a file of changes."""
    return file.partition("-")[2].rsplit(".", 2)[0]


def intact(path: Path) -> bool:
    """Whether a file of changes matches the checksum in its name."""
    return f"{zlib.crc32(path.read_bytes()):08x}" == path.name.rsplit(".", 2)[-2]


def done(path: Path) -> Path:
    """The name of a file of changes after its delivery."""
    return path.with_suffix(DONE)


def lost(root: Path, expected: Sequence[str], generation: Callable[[str], int]) -> list[Path]:
    """Return the missing files of changes among those that the current generation of each sink has staged."""
    entries = (e.partition("/") for e in expected)
    names = (name for number, _, name in entries if int(number) == generation(sink_of(name)))
    return [p for p in (root / n for n in names) if not p.exists() and not done(p).exists()]


class Outbox:
    """The sinks of one flow. Used by the flow's thread."""

    def __init__(self, plan: Plan, ports: Mapping[str, SinkPort], root: Path, generations: Mapping[str, int]) -> None:
        self._sinks: dict[str, tuple[PlannedView, SinkPort]] = {
            v.name: (v, ports[v.name]) for v in plan.views if v.sink is not None
        }
        self._plan, self._root, self._generations = plan, root, generations
        self._recovering = True
        """The files to expect, until the first delivery after a start."""
        self._staged: frozenset[str] = frozenset()
        """The files that this process has staged for its last epoch."""

    def parts_writers(self) -> dict[str, PartsWriter]:
        """By view: how tasks write to its sink, where they can."""
        return {name: port.parts_writer() for name, port in self._with_parts().items()}

    def before_commit(
        self,
        epoch: int,
        changes: Mapping[str, pa.Table],
        digest: str,
        parts: Mapping[str, Sequence[SinkPart]] = NO_PARTS,
    ) -> list[str]:
        """Stage or deliver an epoch's changes, or the parts that tasks have written; returns the staged files, in the
        form that `expected` takes.
        """
        names = []
        if self._plan.guarantee == EXACTLY_ONCE:
            for name, table in self._mine(changes):
                rows = self._sinks[name][0].for_sink(table).replace_schema_metadata(None)
                names.append((name, self._put(epoch, name, rows, digest)))
            for name, written in parts.items():
                manifest = PartsManifest(self._generations[name], written)
                names.append((name, self._put(epoch, name, manifest.to_table(), digest)))
            self._staged = frozenset(file for _, file in names)
        elif self._plan.guarantee == AT_LEAST_ONCE:
            self._deliver_now(epoch, changes, parts)
        return [f"{self._generations[name]}/{file}" for name, file in names]

    def after_commit(
        self, epoch: int, changes: Mapping[str, pa.Table], parts: Mapping[str, Sequence[SinkPart]] = NO_PARTS
    ) -> None:
        """Deliver what the store has committed."""
        if self._plan.guarantee == EXACTLY_ONCE:
            self.deliver(epoch)
        elif self._plan.guarantee == AT_MOST_ONCE:
            self._deliver_now(epoch, changes, parts)
        for name in parts:
            self._with_parts()[name].forget_parts(epoch)

    def _deliver_now(
        self, epoch: int, changes: Mapping[str, pa.Table], parts: Mapping[str, Sequence[SinkPart]]
    ) -> None:
        """Deliver an epoch that is not staged."""
        for name, table in self._mine(changes):
            self._send(epoch, name, self._sinks[name][0].for_sink(table))
        for name, written in parts.items():
            self._with_parts()[name].publish(epoch, written)

    def resume(self, known: Mapping[str, Mapping[str, Any]]) -> None:
        """Refuse to resume with a target that lacks what a sink has written to it. `known` is the result of `reach` for
        the last epoch; a sink that has been reset since is ignored.
        """
        for name, position in known.items():
            if name in self._sinks and position["generation"] == self._generations.get(name):
                self._sinks[name][1].resume({k: v for k, v in position.items() if k != "generation"})

    def reach(self) -> dict[str, dict[str, Any]]:
        """Return how far each sink has written its target, where that must be known."""
        known = ((name, port.position()) for name, (_, port) in self._sinks.items())
        return {n: {**p, "generation": self._generations[n]} for n, p in known if p is not None}

    def deliver(self, committed: int, expected: Sequence[str] = ()) -> None:
        """Deliver what was staged for committed epochs, and discard what was staged for others. Refuses to resume
        without one of the `expected` files; those of a sink that was reset or dropped since are not expected.
        """
        for path in lost(self._root, expected, lambda sink: self._generations.get(sink, -1)):
            self._refuse(path, "are missing")
        self._confirm(expected)
        named = self._staged.union(entry.partition("/")[2] for entry in expected)
        for path in sorted(self._root.glob("*.arrow")) if self._sinks else ():
            number, name = epoch_of(path.name), sink_of(path.name)
            if number > committed or name not in self._sinks or self._is_of_other_attempt(path, named):
                paths.delete_file(path)
                continue
            if not intact(path):
                self._refuse(path, "do not match their checksum")
            table = staged_table(path)
            manifest = PartsManifest.of(table)
            if manifest is not None:
                self._publish(path, manifest, table)
            elif self._has(name, number):
                self._confirm_rows(path, table)
            else:
                self._send(number, name, *self._rows(name, table))
            paths.rename(path, done(path))
        for path in self._root.glob("*" + DONE):
            if epoch_of(path.name) < committed:
                paths.delete_file(path)
        if self._recovering:
            for port in self._with_parts().values():
                port.forget_parts(None)
        self._recovering = False

    def _is_of_other_attempt(self, path: Path, named: Collection[str]) -> bool:
        """Whether a process that lost its lease has staged a file: the committed epoch does not name it, and its parts
        are not those that count. On start, rows that no epoch names are delivered: a version without such names may
        have staged them.
        """
        if path.name in named:
            return False
        if not self._recovering or any(n.startswith(f"{path.name.rsplit('.', 2)[0]}.") for n in named):
            return True
        return intact(path) and PartsManifest.of(staged_table(path)) is not None

    def _has(self, name: str, epoch: int) -> bool:
        """Whether a sink has an epoch: a process may have died after writing it and before recording that."""
        if not self._recovering:
            return False
        last = self._sinks[name][1].last_epoch(self._writer(name))
        return last is not None and epoch <= last

    def _confirm(self, expected: Sequence[str]) -> None:
        """Let sinks verify that they have what was delivered of the last epoch: a target may have been replaced."""
        for entry in expected:
            number, _, file = entry.partition("/")
            name, path = sink_of(file), done(self._root / file)
            same = name in self._sinks and int(number) == self._generations.get(name)
            if same and path.exists() and intact(path):
                table = staged_table(path)
                if PartsManifest.of(table) is None:  # parts that were published can not be written again
                    self._confirm_rows(path, table)

    def _confirm_rows(self, path: Path, table: pa.Table) -> None:
        name = sink_of(path.name)
        changes, digest = self._rows(name, table)
        self._sinks[name][1].confirm(epoch_of(path.name), changes, digest=digest)

    def _publish(self, path: Path, manifest: PartsManifest, table: pa.Table) -> None:
        """Let a sink publish the parts of an epoch. Those of an earlier generation may be missing: they are not
        needed.
        """
        number, name = epoch_of(path.name), sink_of(path.name)
        port = self._with_parts().get(name)
        if port is None:
            self._refuse(path, "are parts of files, but the sink writes elsewhere now")
        why = port.lost_parts(manifest.parts, verify=self._recovering)
        if why is None:
            port.publish(number, manifest.parts, digest=_digest(table))
        elif manifest.generation == self._generations[name]:
            self._refuse(path, f"are incomplete: {why}")

    def _rows(self, name: str, table: pa.Table) -> tuple[pa.Table, str]:
        """Return the changes of a staged table, and the digest of their content."""
        return table.cast(self._sinks[name][0].sink_schema), _digest(table)

    def _with_parts(self) -> dict[str, SinkWithParts]:
        return {name: port for name, (_, port) in self._sinks.items() if isinstance(port, SinkWithParts)}

    def _refuse(self, path: Path, why: str) -> NoReturn:
        number, name = epoch_of(path.name), sink_of(path.name)
        raise HomeDamaged(
            f"the changes {path} {why}",
            detail=f"epoch {number} was committed, but its changes did not reach the sink `{name}`",
            hint="`millstream repair` says what can be done",
        )

    def _mine(self, changes: Mapping[str, pa.Table]) -> list[tuple[str, pa.Table]]:
        return [(n, t) for n, t in changes.items() if n in self._sinks and t.num_rows]

    def _put(self, epoch: int, name: str, table: pa.Table, digest: str) -> str:
        """Stage a table durably; returns the name of its file."""
        metadata = {**(table.schema.metadata or {}), b"digest": digest.encode()}
        data = ipc_bytes(table.replace_schema_metadata(metadata))
        self._root.mkdir(parents=True, exist_ok=True)
        file = f"{epoch:012d}-{name}.{zlib.crc32(data):08x}.arrow"
        write_durably(self._root / file, data)
        return file

    def _send(self, epoch: int, name: str, sink_rows: pa.Table, digest: str | None = None) -> None:
        self._sinks[name][1].write(epoch, sink_rows, digest=digest)

    def _writer(self, name: str) -> str:
        """The name under which a sink writes. A flow that was restored to an earlier epoch gets a different one."""
        return f"{self._plan.flow}/{name}/{self._generations[name]}"

    def close(self) -> None:
        """Close the resources of the sinks."""
        for _, port in self._sinks.values():
            closed(port)


def _digest(table: pa.Table) -> str:
    """The digest of the content of an epoch, from one of its staged tables."""
    digest: bytes = table.schema.metadata[b"digest"]
    return digest.decode()
