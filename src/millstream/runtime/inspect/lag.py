"""The lag of flows on the topics they read, and the holds that checkpoints place on topics."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol

from millstream.errors import MillstreamError
from millstream.log.log import Log
from millstream.store.port import EpochRow

CHECKPOINT = "checkpoint"
"""The prefix of the holds of checkpoints; no flow may have this name."""


class _Reads(Protocol):
    def last(self, flow: str) -> EpochRow | None: ...


def lag_rows(store: _Reads, log: Log) -> list[dict[str, Any]]:
    """Return one row per flow, source and partition of a topic."""
    rows = []
    for name in log.topics():
        topic = log.topic(name)
        ends = topic.end()
        for reader, offsets in sorted(topic.holds().items()):
            flow, _, source = reader.partition(".")
            if flow == CHECKPOINT:
                continue
            last = store.last(flow)
            at = {} if last is None else {int(p): o for p, o in last.progress["offsets"].get(source, {}).items()}
            for partition, end in sorted(ends.items()):
                position = at.get(partition, offsets.get(partition, 0))
                place = {"flow": flow, "source": source, "topic": name, "partition": partition}
                rows.append({**place, "position": position, "end": end, "lag": max(0, end - position)})
    return rows


def hold_for(checkpoint: str, flows: Mapping[str, Mapping[str, Any]], log: Log) -> None:
    """Hold what a checkpoint needs in the topics: the records after the offsets of its flows."""
    for name in log.topics():
        topic = log.topic(name)
        needed: dict[int, int] = {}
        for reader in topic.holds():
            flow, _, source = reader.partition(".")
            for partition, offset in flows.get(flow, {}).get(source, {}).items():
                needed[int(partition)] = min(offset, needed.get(int(partition), offset))
        if needed:
            topic.hold(f"{CHECKPOINT}.{checkpoint}", needed)


def hold_again(flow: str, topics: Mapping[str, str], offsets: Mapping[str, Mapping[str, int]], log: Log) -> None:
    """Hold what a flow needs that goes back to earlier offsets. `topics` are those of its sources."""
    for source, name in topics.items():
        at = {int(p): o for p, o in offsets.get(source, {}).items()}
        with suppress(MillstreamError):  # the start of the flow reports what is wrong with its topic
            if at and log.exists(name):
                log.topic(name).hold(f"{flow}.{source}", at)


def release_flow(flow: str, log: Log) -> None:
    """Release the holds of a flow."""
    for name in log.topics():
        topic = log.topic(name)
        for reader in topic.holds():
            if reader.partition(".")[0] == flow:
                topic.release(reader)


def release_for(checkpoint: str, log: Log) -> None:
    """Release the holds of a checkpoint."""
    for name in log.topics():
        log.topic(name).release(f"{CHECKPOINT}.{checkpoint}")
