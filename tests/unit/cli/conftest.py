"""A home with one view and one stored table, made without Spark: the store is filled by hand, once, and then copied."""

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from millstream.cli.app import cli
from millstream.home import Home
from millstream.model.types.schema import TIMESTAMP
from millstream.runtime.epoch.progress import Progress
from millstream.store.port import EpochCommit, EpochRow, ViewSpec

NOW = 1_767_225_700_000_000
SCHEMA = pa.schema({"window_end": TIMESTAMP, "auction": pa.int64(), "bids": pa.int64(), "mean": pa.float64()})
HOT = ViewSpec("hot", SCHEMA, tuple(SCHEMA.names), ("window_end", "auction"), None, "window_end", "fingerprint")


class Cli:
    """Calls the command line in this process, as a person would type it."""

    def __call__(self, *arguments: str | Path, stdin: str | None = None) -> Result:
        return CliRunner().invoke(cli, [str(a) for a in arguments], input=stdin)


@pytest.fixture
def millstream(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    monkeypatch.delenv("MILLSTREAM_HOME", raising=False)
    monkeypatch.delenv("MILLSTREAM_DEBUG", raising=False)
    monkeypatch.chdir(tmp_path)
    return Cli()


@pytest.fixture
def home(filled: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(filled, tmp_path / "a home"))


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("filled") / "a home"
    with Home(path) as opened:
        opened.put_table("cities", [{"id": 1, "name": "Ghent"}])
        opened.store.prepare("auctions", [HOT], ["bids"])
        token = opened.store.take_lease("auctions", "a test")
        rows = pa.table(
            {
                "$op": ["+I", "+I"],
                "window_end": pa.array([datetime(2026, 1, 1, 0, 0, 10, tzinfo=UTC)] * 2, TIMESTAMP),
                "auction": [1007, 1008],
                "bids": [3, 1],
                "mean": [2.5, None],
            }
        )
        clock = {"now": NOW, "watermarks": {"bids": NOW - 1_000_000}}
        progress = Progress(
            offsets={"bids": {0: 5}},
            rows={"bids": 5},
            errors={"bids": 1},
            applied={"hot": 4},
            changed={"hot": 1},
            reached={"bids": NOW - 1_000_000},
        )
        row = EpochRow(1, "plan", {}, clock, {}, progress.to_json())
        opened.store.commit(EpochCommit("auctions", token, row, {"hot": rows}))
    return path
