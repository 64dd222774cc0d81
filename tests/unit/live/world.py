"""A home whose flows do not run by themselves: definitions, rows and questions without Spark.

A flow is performed by hand, with the local engine, where a test needs rows in its views.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from millstream.home import Home
from millstream.live.answer import Answer
from millstream.live.session import Session
from tests.sql.engine import QueryEngine

BIDS = """CREATE SOURCE bids (auction BIGINT, price BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '4' SECOND)
    FROM LOG('bids')"""
HOT = "CREATE VIEW hot AS SELECT auction, count(*) AS n FROM bids GROUP BY auction"
ITEMS = (
    "CREATE TABLE items (id BIGINT PRIMARY KEY, name STRING, price DECIMAL(10, 2), tags ARRAY<STRING>, seen TIMESTAMP)"
)


class Spoken:
    """One session on one home."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.session: Session = home.session(start=False)

    @property
    def live(self) -> Any:
        return self.session.deployment

    def say(self, *statements: str) -> Answer:
        """Carry out statements; the answer of the last."""
        answers = [a for s in statements for a in self.session.execute(s)]
        return answers[-1]

    def said(self, *statements: str) -> str:
        return self.say(*statements).message

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """The rows that a statement gives."""
        result = self.say(sql).result
        assert result is not None
        return result.to_dicts()

    def perform(self, flow: str) -> None:
        """Perform epochs of a flow until there is nothing to do."""
        planned = self.live.planned(flow)
        loop = self.home.loop(planned, engine=QueryEngine)
        while loop.step() is not None:
            pass
        loop.close()


@contextmanager
def opened(path: Path) -> Iterator[Spoken]:
    """A home, and somebody who speaks to it."""
    home = Home(path)
    home.open_home.on_store_open = lambda: None
    try:
        yield Spoken(home)
    finally:
        home.close()
