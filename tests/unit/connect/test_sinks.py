"""Sinks: files are whole, named after their epoch and replaced by the same one; the console gets a line per change."""

import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from millstream.connect.sinks import ConsoleSink, FilesSink
from millstream.errors import SinkError
from millstream.state.durable import write_durably

ROWS = pa.table({"op": ["+I", "+U"], "item": ["tea", "cake"], "n": [1, 2]})


@pytest.mark.parametrize("form", ["json", "csv", "parquet"])
def test_a_file_holds_the_changes_of_its_epoch(tmp_path: Path, form: str) -> None:
    FilesSink(tmp_path / "out", form, "hot", 0, write_durably).write(7, ROWS, digest="x")
    (path,) = (tmp_path / "out").iterdir()
    assert path.name == f"hot-000-000000000007.{form}"
    if form == "json":
        found = [json.loads(line) for line in path.read_text().splitlines()]
    elif form == "csv":
        found = pa.csv.read_csv(path).to_pylist()
    else:
        found = pa.parquet.read_table(path).to_pylist()
    assert found == ROWS.to_pylist()


def test_the_same_epoch_again_replaces_its_file_and_a_new_generation_does_not(tmp_path: Path) -> None:
    for generation, rows in ((0, ROWS), (0, ROWS.slice(0, 1)), (1, ROWS)):
        FilesSink(tmp_path, "json", "hot", generation, write_durably).write(1, rows, digest="d")
    lines = {p.name: len(p.read_text().splitlines()) for p in tmp_path.iterdir()}
    assert lines == {"hot-000-000000000001.json": 1, "hot-001-000000000001.json": 2}


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(SinkError, match=r"cannot write to .*taken"):
        FilesSink(tmp_path / "taken", "json", "hot", 0, write_durably).write(1, ROWS)


def test_the_console_says_sink_epoch_and_op() -> None:
    out = io.StringIO()
    ConsoleSink("hot", "op", out).write(3, ROWS)
    assert out.getvalue().splitlines() == ['hot[3] +I {"item":"tea","n":1}', 'hot[3] +U {"item":"cake","n":2}']
