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
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa

from millstream import paths
from millstream.connect.port import SinkPort
from millstream.errors import HomeDamaged
from millstream.model.guarantees import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE
from millstream.plan.plan import Plan, PlannedView
from millstream.state.ipc import ipc_bytes
from millstream.state.run import write_durably

DONE = ".done"


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
    told = (e.partition("/") for e in expected)
    names = (name for number, _, name in told if int(number) == generation(sink_of(name)))
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

    def before_commit(self, epoch: int, changes: Mapping[str, pa.Table], digest: str) -> list[str]:
        """Stage or deliver an epoch's changes; returns the staged files, in the form that `expected` takes."""
        names = []
        for name, table in self._mine(changes):
            if self._plan.guarantee == EXACTLY_ONCE:
                names.append(f"{self._generations[name]}/{self._put(epoch, name, table, digest)}")
            elif self._plan.guarantee == AT_LEAST_ONCE:
                self._send(epoch, name, self._sinks[name][0].for_sink(table))
        return names

    def after_commit(self, epoch: int, changes: Mapping[str, pa.Table]) -> None:
        """Deliver what the store has committed."""
        if self._plan.guarantee == EXACTLY_ONCE:
            self.deliver(epoch)
        elif self._plan.guarantee == AT_MOST_ONCE:
            for name, table in self._mine(changes):
                self._send(epoch, name, self._sinks[name][0].for_sink(table))

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
        for path in sorted(self._root.glob("*.arrow")) if self._sinks else ():
            number, name = epoch_of(path.name), sink_of(path.name)
            if number > committed or name not in self._sinks:
                paths.delete_file(path)
                continue
            if not intact(path):
                self._refuse(path, "do not match their checksum")
            if self._has(name, number):
                self._confirm_file(path)
            else:
                self._send_file(path)
            paths.rename(path, done(path))
        for path in self._root.glob("*" + DONE):
            if epoch_of(path.name) < committed:
                paths.delete_file(path)
        self._recovering = False

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
                self._confirm_file(path)

    def _confirm_file(self, path: Path) -> None:
        changes, digest = self._changes(path)
        self._sinks[sink_of(path.name)][1].confirm(epoch_of(path.name), changes, digest=digest)

    def _send_file(self, path: Path) -> None:
        changes, digest = self._changes(path)
        self._send(epoch_of(path.name), sink_of(path.name), changes, digest=digest)

    def _changes(self, path: Path) -> tuple[pa.Table, str]:
        """Return the changes of a file, and the digest of their content."""
        with pa.ipc.open_file(path.read_bytes()) as file:
            table = file.read_all()
        digest = table.schema.metadata[b"digest"].decode()
        return table.cast(self._sinks[sink_of(path.name)][0].sink_schema), digest

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
        shown = self._sinks[name][0].for_sink(table).replace_schema_metadata({b"digest": digest.encode()})
        data = ipc_bytes(shown)
        self._root.mkdir(parents=True, exist_ok=True)
        file = f"{epoch:012d}-{name}.{zlib.crc32(data):08x}.arrow"
        write_durably(self._root / file, data)
        return file

    def _send(self, epoch: int, name: str, shown: pa.Table, digest: str | None = None) -> None:
        self._sinks[name][1].write(epoch, shown, digest=digest)

    def _writer(self, name: str) -> str:
        """The name under which a sink writes. A flow that was restored to an earlier epoch gets a different one."""
        return f"{self._plan.flow}/{name}/{self._generations[name]}"

    def close(self) -> None:
        """Close the resources of the sinks."""
        for _, port in self._sinks.values():
            port.close()
