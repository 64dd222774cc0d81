"""Reads JSON lines for a topic: in chunks, parsed, and checked against its schema."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from decimal import Decimal
from typing import IO, TYPE_CHECKING, Any

import click
import orjson

from millstream.cli.output import plural
from millstream.errors import RecordRefused

if TYPE_CHECKING:
    import pyarrow as pa

    from millstream.log import Log, Topic

CHUNK = 10_000
"""Lines that are appended together, if they arrive fast enough."""

PAUSE = 0.05


def chunks(file: IO[bytes], size: int | None) -> Iterator[list[tuple[int, bytes]]]:
    """Numbered lines in chunks: a full one, or the lines so far when no more arrive for a moment."""
    lines: queue.Queue[tuple[int, bytes] | None] = queue.Queue(maxsize=2 * CHUNK)

    def read() -> None:
        try:
            for number, line in enumerate(file, 1):
                if line.strip():
                    lines.put((number, line))
        finally:
            lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    chunk: list[tuple[int, bytes]] = []
    while True:
        try:
            item = lines.get(timeout=PAUSE if chunk and size is not None else None)
        except queue.Empty:
            yield chunk
            chunk = []
            continue
        if item is not None:
            chunk.append(item)
        if chunk and (item is None or len(chunk) == size):
            yield chunk
            chunk = []
        if item is None:
            return


def parsed(
    lines: list[tuple[int, bytes]], *, exact: bool
) -> tuple[list[tuple[int, dict[str, Any]]], list[tuple[int, str]]]:
    """Parse lines into records, and report what is wrong with the others; `exact` keeps all digits of numbers."""
    records, bad = [], []
    for number, line in lines:
        try:
            record = orjson.loads(line)
            record = json.loads(line, parse_float=Decimal) if exact else record
        except ValueError as error:
            bad.append((number, f"it is not JSON: {error}"))
            continue
        if isinstance(record, dict):
            records.append((number, record))
        else:
            bad.append((number, "it is not an object"))
    return records, bad


def fitting(
    topic: Topic, records: list[tuple[int, dict[str, Any]]]
) -> tuple[list[tuple[int, dict[str, Any]]], list[tuple[int, str]]]:
    """The records that match the topic's schema, and what is wrong with the others."""
    from millstream.log.rows import from_dicts, oversized

    limit = topic.about.record_bytes

    def why_not(some: list[tuple[int, dict[str, Any]]]) -> str | None:
        try:
            large = oversized(from_dicts([r for _, r in some], topic.schema), limit)
        except RecordRefused as error:
            detail = f" ({error.detail})" if error.detail else ""
            return error.message.removeprefix("row 0: ").removeprefix("row 0 ") + detail
        return f"it is larger than the limit of the topic: {limit:,} bytes" if large else None

    if why_not(records) is None:
        return records, []
    reasons = [(numbered, why_not([numbered])) for numbered in records]
    return [n for n, why in reasons if why is None], [(n[0], why) for n, why in reasons if why is not None]


def refused(line: tuple[int, str], appended: int) -> RecordRefused:
    """Return the error for a refused line, after `appended` records."""
    number, why = line
    return RecordRefused(
        f"line {number}: {why}",
        detail=f"{plural(appended, 'record')} of the lines before were appended; this line and those after it were not."
        if appended
        else "Nothing was appended.",
        hint="fix the line, or skip such lines: --bad-lines skip",
    )


def create_topic(
    log: Log, name: str, ddl: str | None, records: list[dict[str, Any]], partitions: int, key: str | None
) -> Topic:
    """Create a topic with the specified schema, or with one inferred from the first records."""
    from millstream.log.rows import infer
    from millstream.model.types.schema import Schema, ddl_type

    schema: pa.Schema = infer(records) if ddl is None else Schema.parse(ddl).to_arrow()
    topic = log.create(name, schema, partitions=partitions, key=key)
    columns = ", ".join(f"{f.name} {ddl_type(f.type)}" for f in topic.schema)
    source = "" if ddl is not None else ", as the first lines suggest"
    click.echo(f"created the topic {name}: {columns}{source}", err=True)
    return topic
