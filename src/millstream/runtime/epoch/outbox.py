"""What a flow writes to its sinks: each epoch's changes once, whatever happens in between.

With ``exactly_once`` the changes are put down durably before the store commits the epoch, under
``out/<epoch>-<sink>.<crc>.arrow``, and go to the sink after it (`connect/sinks.py`): to a topic as the sequence of a
producer named after the sink. A crash anywhere leaves either nothing or a file that the next start delivers, and the
sink knows what it has. The epoch's row in the store names its files; one that was delivered is called ``.done`` until
the next ones are, so a file that is lost is noticed. No reader sees a change of an epoch that the store does not have.
An epoch's row also says how far each sink had written its topic before, so a lost or replaced topic is noticed;
what the last epoch put down is given to a topic once more at a start, and the topic knows whether it has it.
With ``at_least_once`` the changes go out before the commit and are not told apart; with ``at_most_once`` after it, and
nothing is kept to try again.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa

from millstream import paths
from millstream.connect.sinks import Reach, SinkPort, TopicSink
from millstream.errors import HomeDamaged
from millstream.plan.stages import Plan, ViewStage
from millstream.state.ipc import ipc_bytes
from millstream.state.run import write_durably

EXACTLY, AT_LEAST, AT_MOST = "exactly_once", "at_least_once", "at_most_once"


DONE = ".done"


def epoch_of(file: str) -> int:
    """The epoch of a file of changes."""
    return int(file.partition("-")[0])


def sink_of(file: str) -> str:
    """The sink of a file of changes."""
    return file.partition("-")[2].rsplit(".", 2)[0]


def intact(path: Path) -> bool:
    """Whether a file of changes is what was written; the checksum is in its name."""
    return f"{zlib.crc32(path.read_bytes()):08x}" == path.name.rsplit(".", 2)[-2]


def done(path: Path) -> Path:
    """What a file of changes is called when it was delivered."""
    return path.with_suffix(DONE)


def lost(root: Path, expected: Sequence[str], generation: Callable[[str], int]) -> list[Path]:
    """Files of changes that are not there, of those that the present generation of each sink has put down."""
    told = (e.partition("/") for e in expected)
    names = (name for number, _, name in told if int(number) == generation(sink_of(name)))
    return [p for p in (root / n for n in names) if not p.exists() and not done(p).exists()]


class Outbox:
    """The sinks of one flow. Used by the flow's thread."""

    def __init__(self, plan: Plan, ports: Mapping[str, SinkPort], root: Path, generations: Mapping[str, int]) -> None:
        self._sinks: dict[str, tuple[ViewStage, SinkPort]] = {
            v.name: (v, ports[v.name]) for v in plan.views if v.sink is not None
        }
        self._plan, self._root, self._generations = plan, root, generations

    def before_commit(self, epoch: int, changes: Mapping[str, pa.Table], digest: str) -> list[str]:
        """Put an epoch's changes down, or out; returns the files that were put down, as `expected` takes them."""
        names = []
        for name, table in self._mine(changes):
            if self._plan.guarantee == EXACTLY:
                names.append(f"{self._generations[name]}/{self._put(epoch, name, table, digest)}")
            elif self._plan.guarantee == AT_LEAST:
                self._send(epoch, name, self._sinks[name][0].for_sink(table))
        return names

    def after_commit(self, epoch: int, changes: Mapping[str, pa.Table]) -> None:
        """Deliver what the store has committed."""
        if self._plan.guarantee == EXACTLY:
            self.deliver(epoch)
        elif self._plan.guarantee == AT_MOST:
            for name, table in self._mine(changes):
                self._send(epoch, name, self._sinks[name][0].for_sink(table))

    def resume(self, known: Mapping[str, Mapping[str, Any]]) -> None:
        """Refuse to go on with a topic that lacks what a sink has written to it. `known` is what `reach` gave for the
        last epoch; that of a sink that has begun again since, or writes elsewhere now, is of no importance.
        """
        for name, told in known.items():
            port = self._sinks[name][1] if name in self._sinks else None
            reach = Reach.from_json(told)
            if not isinstance(port, TopicSink) or not self._is_present(name, told) or port.topic.name != reach.topic:
                continue
            missing = reach.missing_in(port.topic)
            if missing is not None:
                raise HomeDamaged(
                    f"the topic `{reach.topic}` lacks changes that the sink `{name}` has written to it",
                    detail=f"{missing}; it was removed, or replaced by an older one",
                    hint="put the topic back from a copy; `millstream repair` says what can be done without one",
                )
            port.reach = reach

    def reach(self) -> dict[str, dict[str, Any]]:
        """How far each sink has written its topic."""
        known = ((name, port.reach) for name, (_, port) in self._sinks.items() if isinstance(port, TopicSink))
        return {n: {**r.to_json(), "generation": self._generations[n]} for n, r in known if r is not None}

    def _is_present(self, name: str, told: Mapping[str, Any]) -> bool:
        return bool(told["generation"] == self._generations.get(name))

    def deliver(self, committed: int, expected: Sequence[str] = ()) -> None:
        """Deliver what was put down for committed epochs, and forget what was put down for others. Refuses to go on
        without one of the `expected` files; those of a sink that was put back or dropped since are not expected.
        """
        for path in lost(self._root, expected, lambda sink: self._generations.get(sink, -1)):
            self._refuse(path, "are missing")
        self._repeat(expected)
        for path in sorted(self._root.glob("*.arrow")) if self._sinks else ():
            number, name = epoch_of(path.name), sink_of(path.name)
            if number > committed or name not in self._sinks:
                paths.delete_file(path)
                continue
            if not intact(path):
                self._refuse(path, "do not match their checksum")
            self._send_file(path)
            paths.rename(path, done(path))
        for path in self._root.glob("*" + DONE):
            if epoch_of(path.name) < committed:
                paths.delete_file(path)

    def _repeat(self, expected: Sequence[str]) -> None:
        """Give what was delivered of the last epoch to topics once more: they may have been replaced since."""
        for told in expected:
            number, _, file = told.partition("/")
            sink, path = self._sinks.get(sink_of(file)), done(self._root / file)
            same = int(number) == self._generations.get(sink_of(file))
            if sink is not None and isinstance(sink[1], TopicSink) and same and path.exists() and intact(path):
                self._send_file(path)

    def _send_file(self, path: Path) -> None:
        with pa.ipc.open_file(path.read_bytes()) as file:
            table = file.read_all()
        name, digest = sink_of(path.name), table.schema.metadata[b"digest"].decode()
        self._send(epoch_of(path.name), name, table.cast(self._sinks[name][0].sink_schema), digest=digest)

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
        writer = f"{self._plan.flow}/{name}/{self._generations[name]}"
        self._sinks[name][1].write(shown, epoch, writer=writer, digest=digest)
