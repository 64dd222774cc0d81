"""`millstream log`: topics of the home's log from the command line, directly on its files.

Appending and trimming take the log's own locks; everything else only reads, also while a flow runs in the home.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click
import orjson

from millstream.cli import topic_lag
from millstream.cli.options import DurationType, format_option, home_option
from millstream.cli.output import FORMATS, plural, print_listing, print_rows
from millstream.cli.signals import stop_on_signals
from millstream.errors import HomeDamaged, OffsetsTrimmed, RecordRefused
from millstream.model.types.duration import Duration
from millstream.model.types.values import python_rows

if TYPE_CHECKING:
    import pyarrow as pa

    from millstream.log import Log, Topic

CHUNK = 10_000
"""Lines that are appended together, if they come fast enough."""

PAUSE = 0.05
POLL = 0.2
COLUMNS = ("topic", "partition", "start", "end", "rows", "bytes", "segments", "holds")
topic_argument = click.argument("topic")


def _log(home: Path, *, make: bool = False) -> Log:
    from millstream.clock import SystemClock
    from millstream.log import Log
    from millstream.runtime.home_dir import check_format, make_home, refuse_other

    if make:
        make_home(home.absolute())  # a log alone would not be taken for a home by the first flow
    refuse_other(home.absolute())
    if (home / "millstream.json").exists():
        check_format(home / "millstream.json")
    return Log(home / "log", SystemClock())


@click.group(short_help="Append to the log, read it, and look after it.")
def command() -> None:
    """Append to the home's durable log, read it, and look after it.

    \b
    Examples:
      millstream log append bids < bids.ndjson      make the topic if need be, and append
      millstream log read bids --from 2026-01-01T12:00:00 --limit 10
      millstream log tail bids                      what is appended from now on; Ctrl-C ends it
      millstream log list                           topics, partitions, offsets, and who still needs what
      millstream log trim bids --before 120000      says what it would remove; --yes removes it
      millstream log check                          read everything and compare it with its checksums
    """  # noqa: D301 - click reads the control character \b


@command.command(short_help="Make a topic.")
@topic_argument
@click.option("--schema", required=True, help='The columns, like "auction BIGINT, ts TIMESTAMP".')
@click.option("--partitions", type=click.IntRange(1, 10_000), default=1, show_default=True)
@click.option("--key", help="The column that decides about a record's partition.")
@click.option("--retain", type=DurationType(), help="Keep records for so long.")
@click.option("--retain-bytes", type=click.IntRange(1), help="Keep so much in each partition.")
@click.option("--hard-cap", is_flag=True, help="Let retention remove what readers still need.")
@home_option()
def create(
    topic: str,
    schema: str,
    partitions: int,
    key: str | None,
    retain: Duration | None,
    retain_bytes: int | None,
    hard_cap: bool,
    home: Path,
) -> None:
    """Make a topic.

    \b
    Examples:
      millstream log create bids --schema "auction BIGINT, price BIGINT, ts TIMESTAMP"
      millstream log create bids --schema "auction BIGINT" --partitions 8 --key auction --retain 7d
    """  # noqa: D301 - click reads the control character \b
    from millstream.model.types.schema import Schema

    log = _log(home, make=True)
    log.create(
        topic,
        Schema.parse(schema).to_arrow(),
        partitions=partitions,
        key=key,
        retain_time=None if retain is None else retain.micros,
        retain_bytes=retain_bytes,
        hard_cap=hard_cap,
    )
    click.echo(f"made the topic {topic} with {plural(partitions, 'partition')}")


@command.command(short_help="Append JSON lines to a topic.")
@topic_argument
@click.argument("file", type=click.File("rb"), default="-")
@click.option("--schema", help="The columns of a new topic; taken from the first lines when it is not said.")
@click.option("--partitions", type=click.IntRange(1, 10_000), default=1, help="Of a new topic.")
@click.option("--key", help="Of a new topic: the column that decides about a record's partition.")
@click.option("--producer", help="Who appends, so that a retry is recognised; all lines are one append then.")
@click.option("--sequence", type=int, help="A number that grows with every append of the producer.")
@click.option(
    "--bad-lines",
    type=click.Choice(["stop", "skip"]),
    default="stop",
    show_default=True,
    help="What to do with a line that does not fit.",
)
@home_option()
def append(
    topic: str,
    file: IO[bytes],
    schema: str | None,
    partitions: int,
    key: str | None,
    producer: str | None,
    sequence: int | None,
    bad_lines: str,
    home: Path,
) -> None:
    """Append JSON lines, one record per line, from FILE or standard input. Records are durable when it says so.

    \b
    Examples:
      millstream log append bids bids.ndjson
      tail -f app.log | millstream log append events --bad-lines skip
      millstream log append bids day1.ndjson --producer loader --sequence 1     a second time changes nothing
    """  # noqa: D301 - click reads the control character \b
    from millstream.log.topic_info import check_topic_name

    check_topic_name(topic)
    log = _log(home, make=True)
    target = log.topic(topic) if log.exists(topic) else None
    offsets: dict[int, tuple[int, int]] = {}
    taken = skipped = repeated = 0
    try:
        for lines in _chunks(file, None if producer is not None else CHUNK):
            if target is None and schema is not None:
                target = _made(log, topic, schema, [], partitions, key)
            records, bad = _parsed(lines, exact=target is not None and "decimal" in str(target.schema))
            if target is None and records and not (bad and bad_lines == "stop"):
                target = _made(log, topic, schema, [r for _, r in records], partitions, key)
            records, more = _fitting(target, records) if target is not None else ([], [])
            bad = sorted([*bad, *more])
            if bad and bad_lines == "stop":
                raise _bad(bad[0], taken)
            for number, why in bad[: max(0, 10 - skipped)]:
                click.echo(f"line {number} was skipped: {why}", err=True)
            skipped += len(bad)
            if target is None:  # no line so far says which columns the topic has
                continue
            ack = target.append([r for _, r in records], producer=producer, sequence=sequence)
            repeated = ack.repeated
            taken += 0 if ack.repeated else len(records)
            for partition, (first, end) in ack.offsets.items():
                offsets[partition] = (offsets.get(partition, (first, 0))[0], end)
    finally:
        log.close()
    _told(topic, taken, skipped, offsets, repeated=bool(repeated))


def _told(topic: str, taken: int, skipped: int, offsets: dict[int, tuple[int, int]], *, repeated: bool) -> None:
    where = ", ".join(f"partition {p} offsets {a:,} to {b - 1:,}" for p, (a, b) in sorted(offsets.items()))
    if repeated:
        click.echo(f"nothing new: {topic} has this sequence already" + (f" ({where})" if where else ""))
    else:
        click.echo(f"appended {plural(taken, 'record')} to {topic}" + (f": {where}" if where else ""))
    if skipped:
        click.echo(f"{plural(skipped, 'line')} skipped", err=True)


def _chunks(file: IO[bytes], size: int | None) -> Iterator[list[tuple[int, bytes]]]:
    """Numbered lines in chunks: a full one, or what has come when no more comes for a moment."""
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


def _parsed(
    lines: list[tuple[int, bytes]], *, exact: bool
) -> tuple[list[tuple[int, dict[str, Any]]], list[tuple[int, str]]]:
    """The records of some lines, and what is wrong with the others; `exact` keeps all digits of numbers."""
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


def _fitting(
    topic: Topic, records: list[tuple[int, dict[str, Any]]]
) -> tuple[list[tuple[int, dict[str, Any]]], list[tuple[int, str]]]:
    """The records that the topic takes, and what is wrong with the others."""
    from millstream.log.rows import from_dicts, oversized

    limit = topic.about.record_bytes

    def why_not(some: list[tuple[int, dict[str, Any]]]) -> str | None:
        try:
            large = oversized(from_dicts([r for _, r in some], topic.schema), limit)
        except RecordRefused as error:
            detail = f" ({error.detail})" if error.detail else ""
            return error.message.removeprefix("row 0: ").removeprefix("row 0 ") + detail
        return f"it is larger than the topic takes: {limit:,} bytes" if large else None

    if why_not(records) is None:
        return records, []
    told = [(numbered, why_not([numbered])) for numbered in records]
    return [n for n, why in told if why is None], [(n[0], why) for n, why in told if why is not None]


def _bad(line: tuple[int, str], taken: int) -> RecordRefused:
    number, why = line
    return RecordRefused(
        f"line {number}: {why}",
        detail=f"{plural(taken, 'record')} of the lines before were appended, nothing of this line or after it."
        if taken
        else "Nothing was appended.",
        hint="mend the line, or go on without such lines: --bad-lines skip",
    )


def _made(
    log: Log, name: str, ddl: str | None, records: list[dict[str, Any]], partitions: int, key: str | None
) -> Topic:
    """A new topic, with the schema that was given or that the first records suggest."""
    from millstream.log.rows import infer
    from millstream.model.types.schema import Schema, ddl_type

    schema: pa.Schema = infer(records) if ddl is None else Schema.parse(ddl).to_arrow()
    topic = log.create(name, schema, partitions=partitions, key=key)
    columns = ", ".join(f"{f.name} {ddl_type(f.type)}" for f in topic.schema)
    source = "" if ddl is not None else ", as the first lines suggest"
    click.echo(f"made the topic {name}: {columns}{source}", err=True)
    return topic


# ---------------------------------------------------------------- reading


@command.command(short_help="Print records.")
@topic_argument
@click.option("--partition", type=int, help="Only this one.")
@click.option("--from", "begin", default="beginning", metavar="OFFSET|beginning|end|TIME", show_default=True)
@click.option("--limit", type=click.IntRange(1), help="At most so many records.")
@format_option("ndjson", *FORMATS)
@home_option()
def read(topic: str, partition: int | None, begin: str, limit: int | None, form: str, home: Path) -> None:
    """Print the durable records of a topic, one partition after the other, with $part, $offset and $time.

    \b
    Examples:
      millstream log read bids --limit 10
      millstream log read bids --partition 0 --from 120000 --format csv
      millstream log read bids --from 2026-01-01T12:00:00
    """  # noqa: D301 - click reads the control character \b
    source = _log(home).topic(topic)
    ends = source.end()
    found: list[dict[str, Any]] = []
    columns = [*source.schema.names, "$part", "$offset", "$time"]
    left = limit
    for number, first in _begins(source, begin, partition).items():
        for row in _rows(source, number, first, ends[number], left):
            left = None if left is None else left - 1
            if form == "ndjson":
                _print_line(row)
            else:
                found.append(row)
    if form != "ndjson":
        print_rows(columns, [[r[c] for c in columns] for r in found], form)


@command.command(short_help="Print records as they are appended.")
@topic_argument
@click.option("--partition", type=int, help="Only this one.")
@click.option("--from", "begin", default="end", metavar="OFFSET|beginning|end|TIME", show_default=True)
@click.option("--limit", type=click.IntRange(1), help="Stop after so many records.")
@home_option()
def tail(topic: str, partition: int | None, begin: str, limit: int | None, home: Path) -> None:
    """Print records as JSON lines as soon as they are durable, until Ctrl-C.

    \b
    Examples:
      millstream log tail bids
      millstream log tail bids --from beginning --limit 100
    """  # noqa: D301 - click reads the control character \b
    source = _log(home).topic(topic)
    at = _begins(source, begin, partition)
    left = limit
    with stop_on_signals() as stop:
        while not stop.asked and left != 0:
            ends = source.end()
            for number, first in at.items():
                try:
                    for row in _rows(source, number, first, ends[number], left):
                        _print_line(row)
                        left = None if left is None else left - 1
                        at[number] = row["$offset"] + 1
                except OffsetsTrimmed:
                    at[number] = source.start()[number]
                    click.echo(f"partition {number} was trimmed: going on from {at[number]:,}", err=True)
            if left != 0:
                stop.wait(POLL)


def _begins(topic: Topic, text: str, partition: int | None, option: str = "--from") -> dict[int, int]:
    """Where to begin, by partition."""
    chosen = range(topic.partitions) if partition is None else [partition]
    if partition is not None and not 0 <= partition < topic.partitions:
        msg = f"{topic.name} has {plural(topic.partitions, 'partition')}, numbered from 0"
        raise click.BadParameter(msg, param_hint="--partition")
    starts, ends = topic.start(), topic.end()
    if text == "end":
        found = ends
    elif text == "beginning":
        found = starts
    elif text.isascii() and text.isdecimal():
        found = {p: min(int(text), ends[p]) for p in ends}
    else:
        try:
            when = datetime.fromisoformat(text)
        except ValueError:
            msg = f"{text!r} is no offset, no time like 2026-01-01T12:00:00, and not `beginning` or `end`"
            raise click.BadParameter(msg, param_hint=option) from None
        aware = when if when.tzinfo else when.replace(tzinfo=UTC)
        found = topic.at(int(aware.timestamp() * 1_000_000))
    return {p: found[p] for p in chosen}


def _rows(topic: Topic, partition: int, start: int, end: int, limit: int | None) -> Iterator[dict[str, Any]]:
    end = end if limit is None else min(end, start + limit)
    while start < end:
        until = min(end, start + CHUNK)
        yield from python_rows(topic.read(partition, start, until))
        start = until


def _print_line(row: dict[str, Any]) -> None:
    from millstream.result import plain

    click.echo(orjson.dumps({k: plain(v) for k, v in row.items()}, default=str))


# ---------------------------------------------------------------- care


@command.command("list", short_help="Show topics, partitions, and what readers still need.")
@format_option(*FORMATS)
@home_option()
def listing(form: str, home: Path) -> None:
    """Show the topics with their partitions, offsets and sizes, and how far behind each reader is.

    \b
    Examples:
      millstream log list
      millstream log list --format json
    """  # noqa: D301 - click reads the control character \b
    log = _log(home)
    rows = []
    committed = topic_lag.committed(home)
    for name in log.topics():
        topic = log.topic(name)
        holds = topic.holds()
        for part in topic.stats():
            number = part.partition
            at = {r: committed.get((r, number), o[number]) for r, o in sorted(holds.items()) if number in o}
            behind = {r: max(0, part.end - offset) for r, offset in at.items()}
            values = (name, part.partition, part.start, part.end, part.end - part.start, part.bytes, part.segments)
            rows.append(dict(zip(COLUMNS, (*values, behind), strict=True)))
    nothing = "no topics yet: make one, `millstream log create`"
    print_listing(rows, {c: c for c in COLUMNS}, form, spoken=_spoken, none=nothing)


def _spoken(column: str, value: Any) -> Any:
    if column == "holds":
        return topic_lag.spoken(value)
    return value


@command.command(short_help="Remove old records.")
@topic_argument
@click.option("--before", required=True, metavar="OFFSET|end|TIME", help="Remove files whose records all come before.")
@click.option("--partition", type=int, help="Only this one.")
@click.option("--force", is_flag=True, help="Also what readers still need.")
@click.option("--yes", is_flag=True, help="Do it; without this it is only said what would be removed.")
@home_option()
def trim(topic: str, before: str, partition: int | None, force: bool, yes: bool, home: Path) -> None:
    """Remove old records: whole files whose records all come before an offset or a time.

    \b
    Examples:
      millstream log trim bids --before 120000             what would go?
      millstream log trim bids --before 2026-01-01 --yes
    """  # noqa: D301 - click reads the control character \b
    log = _log(home)
    source = log.topic(topic)
    offsets = _begins(source, before, partition, "--before")
    try:
        if yes:
            removed = source.trim(offsets, force=force).removed
        else:
            starts = source.start()
            ends = {p: _droppable(source, p, starts[p], offset) for p, offset in offsets.items()}
            removed = {p: (starts[p], end) for p, end in ends.items() if end > starts[p]}
    finally:
        log.close()
    for number, (first, end) in removed.items():
        said = "removed" if yes else "would remove"
        click.echo(f"{said} {plural(end - first, 'record')} of partition {number}: offsets {first:,} to {end - 1:,}")
    if not removed:
        click.echo("nothing to remove: no file has only records from before that")
    elif not yes:
        held = [f"{r} still needs partition {p} from {o[p]:,} on" for r, o in source.holds().items() for p in o]
        for line in held:
            click.echo(line)
        click.echo("to do it, say it again with --yes")


def _droppable(topic: Topic, partition: int, start: int, before: int) -> int:
    for part in topic.parts(partition, start, max(start, before)):
        if not part.whole:
            break
        start = part.end
    return start


@command.command(short_help="Read everything and compare it with its checksums.")
@click.argument("topic", required=False)
@home_option()
def check(topic: str | None, home: Path) -> int:
    """Read every file of the log, or of one topic, and compare it with its checksums.

    \b
    Examples:
      millstream log check
      millstream log check bids
    """  # noqa: D301 - click reads the control character \b
    log = _log(home)
    broken = False
    for name in [topic] if topic is not None else log.topics():
        try:
            source = log.topic(name)
            damages = source.verify()
        except HomeDamaged as error:
            damages = [error]
        for damage in damages:
            broken = True
            click.echo(f"{name}: {damage.message}: {damage.detail}")
        if not damages:
            rows = sum(p.end - p.start for p in source.stats())
            click.echo(f"{name}: {plural(rows, 'record')}, all as they were written")
    return HomeDamaged.exit_code if broken else 0
