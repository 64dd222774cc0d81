"""Defects that were mended are noticed when they come back (tests/sql/mutations.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sql.mutations import MUTATIONS, ROOT, Mutation, goes_red


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.name)
def test_there_is_still_something_to_take_back(mutation: Mutation) -> None:
    for file, mended, _ in ((mutation.file, mutation.mended, mutation.broken), *mutation.also):
        assert mended in (ROOT / "src" / "millstream" / file).read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.name)
def test_a_mend_that_is_taken_back_is_noticed(tmp_path: Path, mutation: Mutation) -> None:
    noticed, said = goes_red(mutation, tmp_path)
    assert noticed, said
