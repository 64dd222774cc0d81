"""Frames: the format of records in a write-ahead file.

The file begins with a header: magic, length and checksum, then JSON with the topic's id, the partition, the base
offset, the last ingest time, and the known producers. Frames follow, each on a multiple of 8 bytes:

    magic 4 | crc 4 | meta length 4 | payload length 4 | base offset 8 | ingest time 8 | rows 4 | zero 4
    meta | payload | zeros

The checksum begins with the topic's id and the partition, so that a frame of another file is not taken for one of this.
The payload is one Arrow record batch message; the meta lists the producers and their sequences. One fsync per frame.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pyarrow as pa

from millstream.log.storage.disk import Disk
from millstream.log.storage.files import damaged

FORMAT = 1
ALIGNED = 8
MAX_FRAME = 256 << 20
"""The maximum payload of one frame, and so of one append to one partition."""

_HEAD = struct.Struct("<4sIIIqqII")
_MAGIC = b"MSF\1"
_FILE = struct.Struct("<8sII")
_FILE_MAGIC = b"MSWAL\0\0\1"


@dataclass(frozen=True, slots=True)
class Mark:
    """Records that a producer's sequence became the records from `first` to before `end`."""

    producer: str
    sequence: int
    digest: str | None
    first: int
    end: int


Producers = dict[str, Mark]
"""The last mark of each producer, the least recent first."""

MAX_PRODUCERS = 10_000


class Frame(NamedTuple):
    """A frame that was verified. There may be a hundred thousand in a file."""

    base: int
    rows: int
    time: int
    position: int
    size: int
    meta: bytes
    payload: tuple[int, int]
    """The position of the record batch message in the file: start and length."""

    @property
    def end(self) -> int:
        """The offset after its last record."""
        return self.base + self.rows

    def marks(self) -> Iterator[Mark]:
        """The producers and their sequences in it."""
        if self.meta:
            for values in orjson.loads(self.meta):
                yield Mark(*values)


@dataclass(frozen=True)
class Header:
    """The header of a write-ahead file."""

    topic: str
    partition: int
    base: int
    time: int
    """The ingest time of the last record before it."""
    producers: Mapping[str, Mark] = field(default_factory=dict)

    def pack(self) -> bytes:
        """Encode, padded to a multiple of 8 bytes."""
        body = orjson.dumps(
            {
                "format": FORMAT,
                "topic": self.topic,
                "partition": self.partition,
                "base": self.base,
                "time": self.time,
                "producers": [[m.producer, m.sequence, m.digest, m.first, m.end] for m in self.producers.values()],
            }
        )
        body += b" " * (-(len(body) + _FILE.size) % ALIGNED)
        return _FILE.pack(_FILE_MAGIC, len(body), zlib.crc32(body)) + body


def read_header(disk: Disk, path: Path, topic: str, partition: int, base: int) -> tuple[Header, int]:
    """Read the header of a write-ahead file and the position of its first frame."""
    start = disk.read(path, 0, _FILE.size)
    if len(start) < _FILE.size:
        raise damaged(path, 0, "its header is cut off")
    magic, length, crc = _FILE.unpack(start)
    body = disk.read(path, _FILE.size, length)
    if magic != _FILE_MAGIC or len(body) != length or zlib.crc32(body) != crc:
        raise damaged(path, 0, "its header does not match its checksum")
    header: dict[str, Any] = orjson.loads(body)
    if (header["topic"], header["partition"], header["base"]) != (topic, partition, base):
        raise damaged(path, 0, "it belongs to another topic, partition or position")
    marks = [Mark(*m) for m in header["producers"]]
    return Header(topic, partition, base, header["time"], {m.producer: m for m in marks}), _FILE.size + length


def seed_of(topic: str, partition: int) -> int:
    """The initial value of the checksum of this partition's frames."""
    return zlib.crc32(f"{topic}/{partition}".encode())


def pack_frame(seed: int, base: int, time: int, batch: pa.RecordBatch, marks: list[Mark]) -> bytes:
    """Encode a frame."""
    payload = batch.serialize()
    meta = orjson.dumps([[m.producer, m.sequence, m.digest, m.first, m.end] for m in marks]) if marks else b""
    head = _HEAD.pack(_MAGIC, 0, len(meta), payload.size, base, time, batch.num_rows, 0)[8:]
    padding = bytes(-(_HEAD.size + len(meta) + payload.size) % ALIGNED)
    crc = seed
    for piece in (head, meta, payload, padding):
        crc = zlib.crc32(piece, crc)
    return b"".join((_MAGIC, struct.pack("<I", crc), head, meta, payload, padding))


def frame_at(data: memoryview, at: int, seed: int, origin: int = 0) -> Frame | None:
    """Read the frame at this position of `data`, which begins at `origin` of its file;
    None when there is no whole one.
    """
    if len(data) - at < _HEAD.size:
        return None
    magic, crc, meta, payload, base, time, rows, _ = _HEAD.unpack_from(data, at)
    if magic != _MAGIC:
        return None
    content = _HEAD.size + meta + payload
    size = content + -content % ALIGNED
    if size > len(data) - at or zlib.crc32(data[at + 8 : at + size], seed) != crc:
        return None
    start = at + _HEAD.size
    place = (origin + start + meta, payload)
    return Frame(base, rows, time, origin + at, size, bytes(data[start : start + meta]), place)


def whole_frame_after(data: memoryview, at: int, seed: int) -> int | None:
    """The position of the next whole frame after a bad position; None when nothing follows that could be one."""
    raw = bytes(data)
    magic = raw.find(_MAGIC, at + 1)
    while magic >= 0:
        if magic % ALIGNED == 0 and frame_at(data, magic, seed) is not None:
            return magic
        magic = raw.find(_MAGIC, magic + 1)
    return None


def remember(producers: Producers, mark: Mark) -> None:
    """Record a producer's last mark, and evict the least recent one when there are too many."""
    producers.pop(mark.producer, None)
    producers[mark.producer] = mark
    if len(producers) > MAX_PRODUCERS:
        producers.pop(next(iter(producers)))
