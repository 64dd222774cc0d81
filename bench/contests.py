"""Contests: one question each, over files of persons, auctions and bids, to Millstream and to the systems that can
answer it. The queries of Nexmark are in nexmark.sql; a join of two streams, a pattern and a process are here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench.cases import HERE, OURS, PEERS, Peer

SECONDS = 10.0
"""How long the faster system must run at least."""
SIZES = tuple(n * 10**k for k in (5, 6, 7, 8) for n in (1, 2, 5))
"""Numbers of events to choose from, so that queries share their files."""
WARM_UP = 100_000
MOST_WITH_BIDS, MOST = 20_000_000, 200_000_000
"""Where the number of events ends, because of the disk: 10 M events are 5 GB with bids, and 0.8 GB without."""


@dataclass(frozen=True)
class Contest:
    """A question, and what is to be known to ask and to check it."""

    name: str
    title: str
    kinds: tuple[str, ...]
    ours: str
    """The query for Millstream; empty where it is asked in Python."""
    right: str
    """SQL for DuckDB over all events at once; or the name of a function of oracle_contest."""
    systems: tuple[Peer, ...]
    goals: dict[str, float] = field(default_factory=dict)
    dialects: dict[str, str] = field(default_factory=dict)
    """The query for other systems, where it differs from ours."""
    keeps: bool = True
    compares: str = "*"
    """The columns that count when answers are compared; none for an answer that depends on the clock."""
    events: int = 2_000_000
    lateness: int = 4
    grows: bool = True
    """Whether it is asked over more events until the faster system runs long enough."""

    def sql_for(self, system: Peer) -> str:
        return self.ours if system.name == OURS.name else self.dialects.get(system.name, self.ours)

    @property
    def most(self) -> int:
        return MOST_WITH_BIDS if "bid" in self.kinds else MOST


_OURS = replace(OURS, script=HERE / "ours_contest.py")
_FLINK = replace(PEERS["flink"], script=HERE / "peers" / "flink_sql.py")
_SPARK = replace(PEERS["spark"], script=HERE / "peers" / "spark_join.py")
_SPARK_STATE = Peer(
    "spark-process",
    HERE / "peers" / "spark_process.py",
    ("pyspark==4.3.0", "protobuf", "pyarrow", "pandas", "grpcio"),
    share=0.25,
)
_BYTEWAX = replace(PEERS["bytewax"], script=HERE / "peers" / "bytewax_process.py", share=0.5)

_NEXMARK = re.compile(r"^-- query (q\d+) (.*?)\n(.*?)(?=^-- query |\Z)", re.DOTALL | re.MULTILINE)
_NOTE = re.compile(r"^-- (reads|gives|compares) (.*)\n", re.MULTILINE)
_DIALECT = re.compile(r"^-- (flink|duckdb)\n", re.MULTILINE)


def nexmark(path: Path = HERE / "nexmark.sql") -> list[Contest]:
    """The queries of Nexmark."""
    found = []
    for name, title, body in _NEXMARK.findall(path.read_text()):
        notes = dict(_NOTE.findall(body))
        first, *others = _DIALECT.split(_NOTE.sub("", body))
        texts = {"": first.strip(), **{others[i]: others[i + 1].strip() for i in range(0, len(others), 2)}}
        found.append(
            Contest(
                f"nexmark-{name}",
                title,
                tuple(notes["reads"].split()),
                texts[""],
                texts.get("duckdb", texts[""]),
                (_OURS, _FLINK),
                {"flink": 1.0},
                {"flink": texts.get("flink", texts[""])},
                keeps=notes["gives"].strip() == "table",
                compares={"nothing": ""}.get(columns := notes.get("compares", "*").strip(), columns),
                events=2_000_000 if "bid" in notes["reads"] else 20_000_000,
            )
        )
    return found


_JOIN = """SELECT B.auction, B.bidder, B.price, B.dateTime, A.seller, A.category FROM bid B JOIN auction A
ON B.auction = A.id AND B.dateTime BETWEEN A.dateTime AND A.dateTime + INTERVAL '10' SECOND"""

_MATCH = """SELECT * FROM bid MATCH_RECOGNIZE (
  PARTITION BY auction ORDER BY dateTime, price
  MEASURES A.price AS was, LAST(B.price) AS low, C.price AS up, C.dateTime AS ended
  ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW
  PATTERN (A B+ C)
  DEFINE {define}
) AS M"""

CONTESTS = {
    contest.name: contest
    for contest in (
        *nexmark(),
        Contest(
            "interval-join",
            "bids with their auction, at most ten seconds after it opened",
            ("auction", "bid"),
            _JOIN,
            _JOIN,
            (_OURS, _SPARK),
            {"spark": 2.0},
            keeps=False,
        ),
        Contest(
            "pattern",
            "falling prices of an auction and then a rise: A B+ C",
            ("bid",),
            _MATCH.format(define="B AS B.price < PREV(B.price), C AS C.price > PREV(C.price)"),
            "falls",
            (_OURS, _FLINK),
            {"flink": 1.0},
            {
                "flink": _MATCH.format(
                    define="B AS (LAST(B.price, 1) IS NULL AND B.price < A.price) OR B.price < LAST(B.price, 1), "
                    "C AS C.price > LAST(B.price)"
                )
            },
            keeps=False,
            events=1_100_000,
            grows=False,
        ),
        Contest(
            "process",
            "the bids of a bidder so far, by a function with one value of state per key",
            ("bid",),
            "",
            "SELECT bidder, row_number() OVER (PARTITION BY bidder) AS bids FROM bid",
            (_OURS, _SPARK_STATE, _BYTEWAX),
            {"spark-process": 10.0, "bytewax": 2.0},
            keeps=False,
            events=2_000_000,
            grows=False,
        ),
    )
}
GEOMETRIC = 1.5
"""The least geometric mean of ours / Flink over the queries of Nexmark."""
OUTSIDE = ("nexmark-q10", "nexmark-q13")
"""Queries that are asked, but do not count in the mean: q10 measures the writing of files, and q13 is a join that keeps
all bids in Flink, which refuses a lookup into files.
"""
