"""What newcomers from other databases try (mistakes.txt): errors say what, where, why and what to write instead."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import millstream as ms
from millstream.errors import MillstreamError
from millstream.live.session import Session
from tests.sql import kit
from tests.sql.test_refused import LIBRARY

INTERNAL = re.compile(
    r"``|\bms\.|Duration\(|\bint64\b|\bint32\b|\bINT64\b|\bVARCHAR\b|Unexpected token|Expected \w|\bclass\b"
    r"|\bAnonymous\b|\bDataType\b|\bSENTINEL\b|_of_\w|\$(?!errors|late|panes)\w"
)
"""What no message may show: words of the parser, of the store's types, of Python's side, and names nobody wrote."""


def _corpus() -> list[str]:
    found: list[str] = []
    views = False
    for line in (Path(__file__).parent / "mistakes.txt").read_text(encoding="utf-8").splitlines():
        if line in ("[views]", "[statements]"):
            views = line == "[views]"
        elif line and not line.startswith("#"):
            found.append(f"CREATE VIEW newcomer AS {line}" if views else line)
    return found


CORPUS = _corpus()


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A session on a home with the definitions of kit.py, whose flows do not run."""
    with ms.open(tmp_path_factory.mktemp("mistakes") / "home") as home:
        session = home.session(start=False)
        list(session.execute(kit.BIDS + kit.OTHERS + "; INSERT INTO items VALUES (1, 'violin', 5)"))
        yield session


def wrong_with(session: Session, sql: str) -> list[str]:
    """What the error of a statement lacks."""
    try:
        list(session.execute(sql))
    except MillstreamError as error:
        said = str(error)
        listed = error.detail is not None and re.search(r"there are:", error.detail)
        found = [] if error.origin is not None and error.origin.column else ["no place"]
        found += [] if error.hint or listed else ["nothing to write instead"]
        shown = f"{error.message} {error.detail or ''}"
        found += [
            f"shows {w!r}" for p in (LIBRARY, INTERNAL) for w in p.findall(shown) if str(w).lower() not in sql.lower()
        ]
        return [f"{sql}: {f}\n{said}" for f in found]
    return [f"{sql}: nobody refused it"]


def test_the_corpus_is_large_enough_to_mean_something() -> None:
    assert len(set(CORPUS)) == len(CORPUS) >= 300


def test_every_mistake_is_explained(session: Session) -> None:
    before = list(session.deployment.catalog.entries)
    found = [problem for sql in CORPUS for problem in wrong_with(session, sql)]
    assert not found, "\n\n".join(found[:20])
    assert list(session.deployment.catalog.entries) == before
