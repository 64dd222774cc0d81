"""Each limit of SQL that docs/limits.md names is shown by a statement, or says why it cannot be."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import millstream as ms
from millstream.errors import MillstreamError
from millstream.live.session import Session
from tests.docs.limits import CASES, NOTES
from tests.sql import kit

PAGE = (Path(__file__).parents[2] / "docs" / "limits.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("\n## SQL\n")[2].partition("\n## ")[0]
BULLETS = re.findall(r"^- .*$", SECTION, re.MULTILINE)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A session on a home with the definitions of kit.py, whose flows do not run."""
    with ms.open(tmp_path_factory.mktemp("limits") / "home") as home:
        session = home.session(start=False)
        list(session.execute(kit.BIDS + kit.OTHERS + "; INSERT INTO items VALUES (1, 'violin', 5)"))
        yield session


def test_every_limit_of_sql_has_a_name() -> None:
    named = [re.match(r"- <!-- limit: ([a-z-]+) --> \*\*", b) for b in BULLETS]
    assert [b for b, n in zip(BULLETS, named, strict=True) if n is None] == []
    names = [n[1] for n in named if n is not None]
    assert len(names) == len(set(names)) > 20


def test_every_limit_has_a_case_and_every_case_a_limit() -> None:
    names = set(re.findall(r"<!-- limit: ([a-z-]+) -->", SECTION))
    assert names == {*CASES, *NOTES}
    assert not set(CASES) & set(NOTES)


@pytest.mark.parametrize("limit", CASES)
def test_a_limit_is_what_the_page_says(session: Session, limit: str) -> None:
    for sql, said in CASES[limit]:
        if sql.startswith("note: "):
            answers = list(session.execute(sql.removeprefix("note: ")))
            assert said in answers[-1].message
            list(session.execute("DROP VIEW v"))
            continue
        with pytest.raises(MillstreamError) as caught:
            list(session.execute(sql))
        assert said in caught.value.message, str(caught.value)
        assert caught.value.origin is not None and caught.value.origin.column, str(caught.value)
