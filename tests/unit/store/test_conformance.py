"""The embedded store passes the suite for stores, and the suite notices stores that do not."""

from dataclasses import replace
from pathlib import Path

import pytest

from millstream.store.duckdb import DuckStore
from millstream.store.files import open_store, store_file
from millstream.store.port import EpochCommit, Store
from millstream.testing.conformance.stores import StoreConformance


class TestDuckStore(StoreConformance):
    def open(self, folder: Path) -> Store:
        return open_store(folder)

    def file(self, folder: Path) -> Path:
        return store_file(folder)


class _Unfenced(DuckStore):
    """Takes commits of any owner."""

    def commit(self, commit: EpochCommit) -> None:
        token = self._one("SELECT token FROM millstream.flows WHERE flow = ?", [commit.flow])
        super().commit(replace(commit, token=token))


class _Forgetful(DuckStore):
    """Gives every owner the same token."""

    def take_lease(self, flow: str, owner: str) -> int:
        token = super().take_lease(flow, owner)
        with self._writing, self._transaction() as cursor:
            cursor.execute("UPDATE millstream.flows SET token = 1")
        return min(token, 1)


@pytest.mark.parametrize("broken", [_Unfenced, _Forgetful])
def test_the_suite_notices_a_broken_store(tmp_path: Path, broken: type[DuckStore]) -> None:
    class Suite(StoreConformance):
        def open(self, folder: Path) -> Store:
            return broken(store_file(folder))

    with pytest.raises((AssertionError, pytest.fail.Exception)):
        Suite().test_a_lease_that_was_taken_over_can_commit_nothing(tmp_path)
