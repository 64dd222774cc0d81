"""`millstream log`: topics of the home's log from the command line, directly on its files.

Appending and trimming take the log's own locks; everything else only reads, also while a flow runs in the home.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click
import orjson

from millstream.cli.commands.log import topic_lag
from millstream.cli.commands.log.append_lines import CHUNK, chunks, create_topic, fitting, parsed, refused
from millstream.cli.exit_codes import ExitCode
from millstream.cli.options import DurationType, F, format_option, home_option, yes_option
from millstream.cli.output import FORMATS, plural, print_listing, print_rows
from millstream.cli.signals import stop_on_signals
from millstream.errors import HomeDamaged, OffsetsTrimmed
from millstream.model.types.duration import Duration
from millstream.model.types.values import python_rows

if TYPE_CHECKING:
    from millstream.log import Log, Topic

POLL = 0.2
COLUMNS = ("topic", "partition", "start", "end", "rows", "bytes", "segments", "holds")
topic_argument = click.argument("topic")
partition_option = click.option("--partition", type=int, help="Only this partition, counted from 0.  [default: all]")
partitions_option = click.option(
    "--partitions", type=click.IntRange(1, 10_000), default=1, show_default=True, help="Partitions of a new topic."
)


def from_option(default: str) -> Callable[[F], F]:
    """``--from``: where to start reading."""
    place, text = "OFFSET|beginning|end|TIME", "Where to start."
    return click.option("--from", "begin", default=default, metavar=place, show_default=True, help=text)


def _log(home: Path, *, make: bool = False) -> Log:
    from millstream.clock import SystemClock
    from millstream.log import Log
    from millstream.runtime.home_dir import check_format, make_home, refuse_other

    if make:
        make_home(home.absolute())  # the first flow would not accept a directory with only a log as a home
    refuse_other(home.absolute())
    if (home / "millstream.json").exists():
        check_format(home / "millstream.json")
    return Log(home / "log", SystemClock())


@click.group(short_help="Append to the log, read it, and maintain it.")
def command() -> None:
    """Append to the home's durable log, read it, and maintain it.

    \b
    Examples:
      millstream log append bids < bids.ndjson      append; creates a missing topic
      millstream log read bids --from 2026-01-01T12:00:00 --limit 10
      millstream log tail bids                      records from now on; Ctrl-C ends it
      millstream log list                           topics, partitions, offsets, and the lag of readers
      millstream log trim bids --before 120000      report what would be removed; --yes removes it
      millstream log check                          compare everything with its checksums
    """  # noqa: D301 - click reads the control character \b


@command.command(short_help="Create a topic.")
@topic_argument
@click.option("--schema", required=True, help='The columns, e.g. "auction BIGINT, ts TIMESTAMP".')
@partitions_option
@click.option("--key", metavar="COLUMN", help="Records with equal values in this column go to the same partition.")
@click.option("--retain", type=DurationType(), help="Keep records for this time, e.g. 7d.  [default: permanently]")
@click.option("--retain-bytes", type=click.IntRange(1), help="Keep this many bytes per partition.  [default: all]")
@click.option("--hard-cap", is_flag=True, help="Let retention remove records that readers still need.")
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
    """Create a topic.

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
    click.echo(f"created the topic {topic} with {plural(partitions, 'partition')}")


@command.command(short_help="Append JSON lines to a topic.")
@topic_argument
@click.argument("file", type=click.File("rb"), default="-")
@click.option("--schema", help="The columns of a new topic.  [default: inferred from the first lines]")
@partitions_option
@click.option("--key", metavar="COLUMN", help="The column that chooses the partition of a record in a new topic.")
@click.option(
    "--producer", metavar="NAME", help="The producer, so that a retry is recognised; all lines are one append."
)
@click.option("--sequence", type=int, help="The number of this append; it increases with every append of the producer.")
@click.option(
    "--bad-lines",
    type=click.Choice(["stop", "skip"]),
    default="stop",
    show_default=True,
    help="What to do with a line that does not fit the schema.",
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
    """Append JSON lines, one record per line, from FILE or standard input. Records are durable when it returns.

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
    appended = skipped = repeated = 0
    try:
        for lines in chunks(file, None if producer is not None else CHUNK):
            if target is None and schema is not None:
                target = create_topic(log, topic, schema, [], partitions, key)
            records, bad = parsed(lines, exact=target is not None and "decimal" in str(target.schema))
            if target is None and records and not (bad and bad_lines == "stop"):
                target = create_topic(log, topic, schema, [r for _, r in records], partitions, key)
            records, more = fitting(target, records) if target is not None else ([], [])
            bad = sorted([*bad, *more])
            if bad and bad_lines == "stop":
                raise refused(bad[0], appended)
            for number, why in bad[: max(0, 10 - skipped)]:
                click.echo(f"line {number} was skipped: {why}", err=True)
            skipped += len(bad)
            if target is None:  # no line so far determines the columns of the topic
                continue
            ack = target.append([r for _, r in records], producer=producer, sequence=sequence)
            repeated = ack.repeated
            appended += 0 if ack.repeated else len(records)
            for partition, (first, end) in ack.offsets.items():
                offsets[partition] = (offsets.get(partition, (first, 0))[0], end)
    finally:
        log.close()
    _print_appended(topic, appended, skipped, offsets, repeated=bool(repeated))


def _print_appended(
    topic: str, appended: int, skipped: int, offsets: dict[int, tuple[int, int]], *, repeated: bool
) -> None:
    where = ", ".join(f"partition {p} offsets {a:,} to {b - 1:,}" for p, (a, b) in sorted(offsets.items()))
    if repeated:
        click.echo(f"nothing new: {topic} already has this sequence" + (f" ({where})" if where else ""))
    else:
        click.echo(f"appended {plural(appended, 'record')} to {topic}" + (f": {where}" if where else ""))
    if skipped:
        click.echo(f"{plural(skipped, 'line')} skipped", err=True)


# ---------------------------------------------------------------- reading


@command.command(short_help="Print the records of a topic.")
@topic_argument
@partition_option
@from_option("beginning")
@click.option("--limit", type=click.IntRange(1), help="Print at most this many records.  [default: all]")
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
    records: list[dict[str, Any]] = []
    columns = [*source.schema.names, "$part", "$offset", "$time"]
    left = limit
    for number, first in _begins(source, begin, partition).items():
        for row in _rows(source, number, first, ends[number], left):
            left = None if left is None else left - 1
            if form == "ndjson":
                _print_line(row)
            else:
                records.append(row)
    if form != "ndjson":
        print_rows(columns, [[r[c] for c in columns] for r in records], form)


@command.command(short_help="Print records as they are appended.")
@topic_argument
@partition_option
@from_option("end")
@click.option("--limit", type=click.IntRange(1), help="Stop after this many records.  [default: at Ctrl-C]")
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
        while not stop.requested and left != 0:
            ends = source.end()
            for number, first in at.items():
                try:
                    for row in _rows(source, number, first, ends[number], left):
                        _print_line(row)
                        left = None if left is None else left - 1
                        at[number] = row["$offset"] + 1
                except OffsetsTrimmed:
                    at[number] = source.start()[number]
                    click.echo(f"partition {number} was trimmed: continuing from {at[number]:,}", err=True)
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
        offsets = ends
    elif text == "beginning":
        offsets = starts
    elif text.isascii() and text.isdecimal():
        offsets = {p: min(int(text), ends[p]) for p in ends}
    else:
        try:
            when = datetime.fromisoformat(text)
        except ValueError:
            msg = f"{text!r} is not an offset, a time like 2026-01-01T12:00:00, `beginning` or `end`"
            raise click.BadParameter(msg, param_hint=option) from None
        aware = when if when.tzinfo else when.replace(tzinfo=UTC)
        offsets = topic.at(int(aware.timestamp() * 1_000_000))
    return {p: offsets[p] for p in chosen}


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


@command.command("list", short_help="List topics and partitions with their readers.")
@format_option(*FORMATS)
@home_option()
def listing(form: str, home: Path) -> None:
    """List the topics with their partitions, offsets and sizes, and the lag of each reader.

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
    nothing = "no topics yet: create one with `millstream log create`"
    print_listing(rows, {c: c for c in COLUMNS}, form, format_value=_format_value, none=nothing)


def _format_value(column: str, value: Any) -> Any:
    if column == "holds":
        return topic_lag.lag_text(value)
    return value


@command.command(short_help="Remove old records.")
@topic_argument
@click.option("--before", required=True, metavar="OFFSET|end|TIME", help="Remove records before this offset or time.")
@partition_option
@click.option("--force", is_flag=True, help="Also remove records that readers still need.")
@yes_option("Do it; without this, only report what would be removed.")
@home_option()
def trim(topic: str, before: str, partition: int | None, force: bool, yes: bool, home: Path) -> None:
    """Remove old records: whole files whose records all come before an offset or a time.

    \b
    Examples:
      millstream log trim bids --before 120000             what would be removed?
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
        verb = "removed" if yes else "would remove"
        click.echo(f"{verb} {plural(end - first, 'record')} of partition {number}: offsets {first:,} to {end - 1:,}")
    if not removed:
        click.echo("nothing to remove: no file has only records from before that")
    elif not yes:
        held = [f"{r} still needs partition {p} from {o[p]:,} on" for r, o in source.holds().items() for p in o]
        for line in held:
            click.echo(line)
        click.echo("to do it, add --yes")


def _droppable(topic: Topic, partition: int, start: int, before: int) -> int:
    for part in topic.parts(partition, start, max(start, before)):
        if not part.whole:
            break
        start = part.end
    return start


@command.command(short_help="Compare everything with its checksums.")
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
            click.echo(f"{name}: {plural(rows, 'record')}, all intact")
    return ExitCode.HOME if broken else ExitCode.OK
