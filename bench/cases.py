"""What is measured: the cases that compare systems, the cases of our own engine, and the peers.

A new comparison is one line in `COMPARISONS`; a new peer is one line in `PEERS` and a script in bench/peers.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Comparison:
    """Count the bids per `key` in windows of `size` seconds, one starting every `slide` seconds; or, with a `gap`
    of seconds, in sessions.
    """

    name: str
    title: str
    format: str
    peers: tuple[str, ...]
    goals: dict[str, float] = field(default_factory=dict)
    """The least ours / peer that was asked for, by peer."""
    key: str = "auction"
    size: int = 10
    slide: int = 10
    gap: int = 0
    lateness: int = 4
    events: int = 5_000_000


@dataclass(frozen=True)
class OwnCase:
    """A figure of our engine alone: a module in bench/own with a function `measure(work, events)`."""

    name: str
    title: str
    module: str


@dataclass(frozen=True)
class Peer:
    """A system, its script, and the environment the script runs in."""

    name: str
    script: Path
    packages: tuple[str, ...] = ()
    """What pip installs into bench/.envs/<name>; none means the project's own environment."""
    share: float = 1.0
    """A slow system gets this part of the events, from the start; events per second are what is compared."""

    @property
    def python(self) -> Path:
        return HERE / ".envs" / self.name / "bin" / "python" if self.packages else Path(sys.executable)


OURS = Peer("millstream", HERE / "ours.py")

PEERS = {
    peer.name: peer
    for peer in (
        Peer("spark", HERE / "peers" / "spark.py"),
        Peer("flink", HERE / "peers" / "flink.py", ("apache-flink==2.3.0",)),
        Peer("pathway", HERE / "peers" / "pathway.py", ("pathway==0.33.0", "pyarrow"), share=0.2),
        Peer("bytewax", HERE / "peers" / "bytewax.py", ("bytewax==0.21.1", "orjson", "pyarrow"), share=0.1),
    )
}

_TUMBLING = "bids per auction, tumbling 10 s"
_HOPPING = "bids per auction, hopping 60 s by 1 s"
_SESSIONS = "bids per bidder, sessions with a gap of 10 s"

COMPARISONS = {
    case.name: case
    for case in (
        Comparison(
            "tumbling-json",
            f"{_TUMBLING}, from JSON lines",
            "json",
            ("spark", "flink", "pathway", "bytewax"),
            {"spark": 3.0, "flink": 3.0},
            events=20_000_000,
        ),
        Comparison(
            "tumbling-parquet",
            f"{_TUMBLING}, from Parquet",
            "parquet",
            ("spark",),
            {"spark": 2.5},
            events=50_000_000,
        ),
        Comparison(
            "hopping-json",
            f"{_HOPPING}, from JSON lines",
            "json",
            ("spark", "flink"),
            {"spark": 12.0, "flink": 10.0},
            size=60,
            slide=1,
            events=1_000_000,
        ),
        Comparison(
            "hopping-parquet",
            f"{_HOPPING}, from Parquet",
            "parquet",
            ("spark",),
            {"spark": 12.0},
            size=60,
            slide=1,
            events=1_000_000,
        ),
        *(
            Comparison(
                f"sessions-{form}",
                f"{_SESSIONS}, from {source}",
                form,
                ("spark",),
                {"spark": 1.5},
                "bidder",
                gap=10,
                events=20_000_000,
            )
            for form, source in (("json", "JSON lines"), ("parquet", "Parquet"))
        ),
    )
}

OWN = {
    case.name: case
    for case in (
        OwnCase("ten-views", "ten different views over one source against one of them", "bench.own.ten_views"),
        OwnCase("bad-lines", "JSON with 20 % NULLs and 0.1 % bad lines against clean JSON", "bench.own.bad_lines"),
        OwnCase(
            "steady",
            "2,000 events/s: epoch time, and latency from the intended send time",
            "bench.own.steady",
        ),
        OwnCase("state", "10 M keys held, 10 k touched per epoch", "bench.own.state"),
        OwnCase("memory", "resident memory and epoch time over 2,000 epochs", "bench.own.memory"),
        OwnCase(
            "early-panes",
            "early panes every second over 100 k live keys against answers on close alone",
            "bench.own.early_panes",
        ),
        OwnCase("live-windows", "1 M live windows held, 1,000 touched and fired per epoch", "bench.own.live_windows"),
        OwnCase("count-windows", "windows of 100 bids per auction, tumbling and every 10", "bench.own.count_windows"),
        OwnCase("log", "1 KB records with group commit, and rows in Arrow batches, all durable", "bench.own.log"),
        OwnCase(
            "topic-tail",
            "the unsealed tail of a topic, read and taken in by a flow, by the size of the appends",
            "bench.own.topic_tail",
        ),
        OwnCase("log-read", "bids from a topic of the log against the same from plain Parquet", "bench.own.log_read"),
        OwnCase("recovery", "seconds without a new result when a part dies", "bench.own.recovery"),
        OwnCase("guarantees", "exactly once against at most once, with a view and a sink", "bench.own.guarantees"),
        OwnCase("questions", "SELECTs over a view of 1 M rows while its flow runs", "bench.own.questions"),
        OwnCase("insert", "10,000 rows of 16 columns by VALUES, 100,000 rows by COPY: CPU seconds", "bench.own.insert"),
        OwnCase(
            "driver-cost", "the driver's own work per epoch, 20 operators, 10 to 1,000 shards", "bench.own.driver_cost"
        ),
        OwnCase("state-files", "CPU of writing, merging and describing files of state", "bench.own.state_files"),
        OwnCase("skew", "one key with half of all rows against uniform keys", "bench.own.skew"),
        OwnCase("levels", "rows/s through one, two and three levels of exchange", "bench.own.levels"),
        OwnCase("custom-windows", "10 s windows that a Python function gives", "bench.own.custom_windows"),
    )
}


def named(words: list[str], more: tuple[str, ...] = ()) -> list[str]:
    """The cases that `words` name, in full or by the part before a dash; all for no words. A query of Nexmark may be
    named without its part before the dash; beside one, `nexmark` alone names nothing.
    """
    known = [*COMPARISONS, *OWN, *more]
    if any(f"nexmark-{word}" in known for word in words):
        words = [word for word in words if word != "nexmark"]
    found: list[str] = []
    for word in words:
        matches = [name for name in known if name in (word, f"nexmark-{word}") or name.startswith(f"{word}-")]
        if not matches:
            raise SystemExit(f"no case {word!r}; the cases are {', '.join(known)}")
        found += [name for name in matches if name not in found]
    return found if words else known
