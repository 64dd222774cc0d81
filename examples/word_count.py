"""The word count: lines come from a Python function, flat_map produces one row per word.

    millstream run examples/word_count.py
    millstream query "SELECT word, n FROM words ORDER BY n DESC, word"

A generator computes its records from their numbers alone, so any range can be computed again at any time. That
makes a restart exact. The function is sent to the executors by value.
"""

from datetime import UTC, datetime, timedelta

import pyarrow as pa

import millstream as ms

LINES = (
    "the mill grinds with the water that comes",
    "the water that has passed turns no mill",
    "All is grist that comes to the mill",
)
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def proverbs(start: int, end: int) -> pa.Table:
    """The lines numbered from `start` to `end`, one per second of event time."""
    numbers = range(start, end)
    return pa.table(
        {
            "line": pa.array([LINES[n % len(LINES)] for n in numbers], pa.string()),
            "at": pa.array([BEGIN + timedelta(seconds=n) for n in numbers], pa.timestamp("us", tz="UTC")),
        }
    )


flow = ms.Flow("word_count")

lines = flow.source("lines", ms.generator(proverbs, events=3_000), schema="line STRING, at TIMESTAMP", event_time="at")

words = lines.flat_map(word="split(lower(line), ' ')")
words.key_by("word").aggregate(n=ms.count(), first_seen=ms.min("at")).view("words")
words.window(ms.tumbling("10 minutes")).aggregate(n=ms.count()).view("words_per_ten_minutes")
