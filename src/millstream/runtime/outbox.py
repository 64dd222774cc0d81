"""What a flow writes to its sinks: each epoch's changes once, whatever happens in between.

With ``exactly_once`` the changes are put down durably before the store commits the epoch, under
``out/<epoch>-<sink>.<crc>.arrow``, and go to the sink after it (`connect/sinks.py`): to a topic as the sequence of a
producer named after the sink. A crash anywhere leaves either nothing or a file that the next start delivers, and the
sink knows what it has. No reader sees a change of an epoch that the store does not have. With ``at_least_once`` the
changes go out before the commit and are not told apart; with ``at_most_once`` after it, and nothing is kept to try
again.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from millstream import paths
from millstream.connect.sinks import SinkPort
from millstream.errors import HomeDamaged
from millstream.plan.stages import Plan, ViewStage
from millstream.state.run import write_durably

EXACTLY, AT_LEAST, AT_MOST = "exactly_once", "at_least_once", "at_most_once"


class Outbox:
    """The sinks of one flow. Used by the flow's thread."""

    def __init__(self, plan: Plan, ports: Mapping[str, SinkPort], root: Path, generations: Mapping[str, int]) -> None:
        self._sinks: dict[str, tuple[ViewStage, SinkPort]] = {
            v.name: (v, ports[v.name]) for v in plan.views if v.sink is not None
        }
        self._plan, self._root, self._generations = plan, root, generations

    def before_commit(self, epoch: int, changes: Mapping[str, pa.Table], digest: str) -> None:
        """Put an epoch's changes down, or out."""
        for name, table in self._mine(changes):
            if self._plan.guarantee == EXACTLY:
                self._put(epoch, name, table, digest)
            elif self._plan.guarantee == AT_LEAST:
                self._send(epoch, name, self._sinks[name][0].for_sink(table))

    def after_commit(self, epoch: int, changes: Mapping[str, pa.Table]) -> None:
        """Deliver what the store has committed."""
        if self._plan.guarantee == EXACTLY:
            self.deliver(epoch)
        elif self._plan.guarantee == AT_MOST:
            for name, table in self._mine(changes):
                self._send(epoch, name, self._sinks[name][0].for_sink(table))

    def deliver(self, committed: int) -> None:
        """Deliver what was put down for committed epochs, and forget what was put down for others."""
        for path in sorted(self._root.glob("*.arrow")) if self._sinks else ():
            number, _, rest = path.name.partition("-")
            name, crc, _ = rest.rsplit(".", 2)
            if int(number) <= committed and name in self._sinks:
                data = path.read_bytes()
                if f"{zlib.crc32(data):08x}" != crc:
                    raise HomeDamaged(
                        f"the changes {path} do not match their checksum",
                        detail=f"epoch {int(number)} was committed, but its changes did not reach the sink `{name}`",
                        hint="`millstream repair` says what can be done",
                    )
                table = pa.ipc.open_file(data).read_all()
                digest = table.schema.metadata[b"digest"].decode()
                self._send(int(number), name, table.cast(self._sinks[name][0].sink_schema), digest=digest)
            paths.delete_file(path)

    def _mine(self, changes: Mapping[str, pa.Table]) -> list[tuple[str, pa.Table]]:
        return [(n, t) for n, t in changes.items() if n in self._sinks and t.num_rows]

    def _put(self, epoch: int, name: str, table: pa.Table, digest: str) -> None:
        shown = self._sinks[name][0].for_sink(table).replace_schema_metadata({b"digest": digest.encode()})
        out = pa.BufferOutputStream()
        with pa.ipc.new_file(out, shown.schema) as writer:
            writer.write_table(shown)
        data = out.getvalue()
        self._root.mkdir(parents=True, exist_ok=True)
        write_durably(self._root / f"{epoch:012d}-{name}.{zlib.crc32(data):08x}.arrow", data)

    def _send(self, epoch: int, name: str, shown: pa.Table, digest: str | None = None) -> None:
        writer = f"{self._plan.flow}/{name}/{self._generations[name]}"
        self._sinks[name][1].write(shown, epoch, writer=writer, digest=digest)
