"""Folders: a file is read once, in the order of discovery, which the ledger keeps through any crash."""

import os
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.connect.files.source import BYTES_PER_EPOCH, FileSource
from millstream.connect.forms import FileSet
from millstream.connect.port import SourceSlice
from millstream.connect.text_lines import is_plain
from millstream.errors import HomeDamaged, SourceMissing, SourceUnreadable
from millstream.model.connectors import Files
from millstream.model.types.schema import Schema

SCHEMA = Schema.parse("a BIGINT, s STRING, ts TIMESTAMP")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    made.mkdir()
    return made


def put(folder: Path, name: str, text: str = "{}\n", mtime: int | None = None) -> str:
    path = folder / name
    path.write_text(text)
    if mtime is not None:
        os.utime(path, (mtime, mtime))
    return str(path)


def opened(folder: Path, **options: object) -> FileSource:
    made = Files(str(options.pop("path", folder)), str(options.pop("format", "json")), **options)  # type: ignore[arg-type]
    return FileSource(made, SCHEMA, folder.parent / "ledger.jsonl")


def names(source: FileSource) -> list[str]:
    return [os.path.basename(e.path) for e in source.entries]


def test_files_are_taken_by_age_then_name_and_new_ones_come_behind(folder: Path) -> None:
    for name, mtime in (("c", 100), ("a", 200), ("b", 100)):
        put(folder, name, mtime=mtime)
    source = opened(folder)
    assert source.head(0) == {0: 3} and names(source) == ["b", "c", "a"]
    put(folder, "0", mtime=1)
    assert source.head(0) == {0: 4} and names(source) == ["b", "c", "a", "0"]
    assert source.head(0) == {0: 4}


def test_a_file_is_read_once_whatever_happens_to_it(folder: Path) -> None:
    path = put(folder, "a", mtime=100)
    source = opened(folder)
    source.head(0)
    put(folder, "a", "changed\n", mtime=900)
    assert source.head(0) == {0: 1}
    os.unlink(path)
    again = opened(folder)
    assert again.head(0) == {0: 1} and again.entries == source.entries
    put(folder, "a")
    assert again.head(0) == {0: 1}


def test_what_was_promised_is_on_disk_before_it_is_promised(folder: Path) -> None:
    put(folder, "a", "x" * 10, mtime=100)
    source = opened(folder)
    source.head(0)
    line = orjson.loads((folder.parent / "ledger.jsonl").read_bytes())
    assert line == {"n": 0, "path": str(folder / "a"), "size": 10, "mtime": 100_000_000}


@given(st.integers(1, 200))
def test_a_torn_last_line_is_cut_and_its_file_found_again(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    folder = tmp_path_factory.mktemp("torn") / "data"
    folder.mkdir()
    for name in "abc":
        put(folder, name, mtime=100)
    opened(folder).head(0)
    ledger = folder.parent / "ledger.jsonl"
    whole = ledger.read_bytes()
    ledger.write_bytes(whole[: max(0, len(whole) - cut)])
    source = opened(folder)
    assert ledger.read_bytes() == b"" or ledger.read_bytes().endswith(b"\n")
    assert source.head(0) == {0: 3} and names(source) == ["a", "b", "c"]
    assert ledger.read_bytes() == whole


@pytest.mark.parametrize(
    "line", [b"nonsense\n", b'{"n": 5, "path": "x", "size": 1, "mtime": 1}\n', b"{}\n", b"[]\n", b"5\n", b"\n"]
)
def test_damage_inside_the_ledger_is_named_with_its_line(folder: Path, line: bytes) -> None:
    put(folder, "a")
    opened(folder).head(0)
    ledger = folder.parent / "ledger.jsonl"
    ledger.write_bytes(ledger.read_bytes() + line + b'{"n": 2}\n')
    with pytest.raises(HomeDamaged, match="line 2 of the ledger"):
        opened(folder)


def test_hidden_files_and_folders_are_left_out(folder: Path) -> None:
    for name in (".hidden", "_temporary", "_SUCCESS", "seen"):
        put(folder, name)
    (folder / "inner").mkdir()
    put(folder / "inner", "deep")
    (folder / "broken").symlink_to(folder / "nowhere")
    source = opened(folder)
    source.head(0)
    assert names(source) == ["seen"]


def test_a_slice_is_whole_files_up_to_the_bytes_of_an_epoch_and_at_least_one(folder: Path) -> None:
    for i, size in enumerate((100, 400, 700, 10)):
        put(folder, str(i), "x" * size, mtime=100 + i)
    source = opened(folder)
    head = source.head(0)
    assert source.admit({}, head, None) == SourceSlice({0: (0, 4)})
    assert source.admit({}, head, 5) == SourceSlice({0: (0, 2)})
    assert source.admit({0: 2}, head, 5) == SourceSlice({0: (2, 3)})
    assert source.admit({0: 4}, head, 5) == SourceSlice({0: (4, 4)})
    assert source.admit({}, {0: 1}, None) == SourceSlice({0: (0, 1)})
    assert source.rows(SourceSlice({0: (0, 2)})) == 5
    (form,) = source.slice(SourceSlice({0: (1, 3)}))
    assert isinstance(form, FileSet) and [f.size for f in form.files] == [400, 700]
    assert BYTES_PER_EPOCH > 1100


def test_a_bounded_folder_ends_with_what_was_there_at_the_start(folder: Path) -> None:
    put(folder, "a")
    source = opened(folder, bounded=True)
    assert not source.finished({})
    source.head(0)
    put(folder, "b")
    assert source.head(0) == {0: 1}
    assert not source.finished({}) and source.finished({0: 1})
    assert not opened(folder).finished({0: 99})


def test_a_glob_and_a_single_file_may_be_named(folder: Path) -> None:
    for name in ("a.json", "b.json", "c.txt"):
        put(folder, name, mtime=5)
    some = opened(folder, path=folder / "*.json")
    some.head(0)
    assert names(some) == ["a.json", "b.json"]
    (folder.parent / "ledger.jsonl").unlink()
    one = opened(folder, path=folder / "c.txt")
    one.head(0)
    assert names(one) == ["c.txt"]


def test_a_missing_folder_is_named_and_an_empty_one_is_not(folder: Path) -> None:
    with pytest.raises(SourceMissing, match="there is no folder or file") as caught:
        opened(folder, path=folder / "nope")
    assert "create the folder" in (caught.value.hint or "")
    assert opened(folder).head(0) == {0: 0}
    assert opened(folder, path=folder / "*.json").head(0) == {0: 0}


def test_an_unreadable_folder_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(SourceUnreadable, match="may not be read"):
        opened(folder)


def test_an_unreadable_file_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(folder, "a")
    source = opened(folder)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(SourceUnreadable, match=r"data/a may not be read"):
        source.head(0)
    assert source.entries == []


def test_a_file_whose_name_is_not_text_is_taken_and_found_again(folder: Path) -> None:
    name = os.fsencode(str(folder)) + b"/bad\xff.json"
    with open(name, "wb") as file:
        file.write(b"{}\n")
    source = opened(folder)
    assert source.head(0) == {0: 1}
    (form,) = source.slice(SourceSlice({0: (0, 1)}))
    assert isinstance(form, FileSet)
    assert not is_plain(form.files[0].path, "csv", 3)  # Spark could not open it
    again = opened(folder)
    assert [os.fsencode(e.path) for e in again.entries] == [name]
    assert again.head(0) == {0: 1}


def parquet(folder: Path, name: str, **columns: pa.Array) -> None:
    pq.write_table(pa.table(columns), folder / name)


def test_a_parquet_file_that_fits_is_taken(folder: Path) -> None:
    parquet(
        folder,
        "a",
        a=pa.array([1], pa.int32()),
        s=pa.array(["x"], pa.large_string()),
        ts=pa.array([1], pa.timestamp("ms", tz="UTC")),
    )
    parquet(folder, "missing_column", a=pa.array([1]))
    parquet(folder, "empty", a=pa.array([], pa.int64()))
    assert opened(folder, format="parquet").head(0) == {0: 3}


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("a", pa.array(["x"])),
        ("a", pa.array([1.5])),
        ("s", pa.array([1])),
        ("ts", pa.array([1])),
        ("ts", pa.array(["2026"])),
        ("a", pa.array([[1]])),
    ],
    ids=str,
)
def test_a_parquet_file_of_another_type_is_named_with_its_column(folder: Path, column: str, values: pa.Array) -> None:
    parquet(folder, "wrong", **{column: values})
    source = opened(folder, format="parquet")
    source.head(0)
    (entry,) = opened(folder, format="parquet").entries  # it is in the ledger, with its problem
    assert (entry.problem or "").startswith(f"its column `{column}` is {str(values.type).split('<')[0]}")


@pytest.mark.parametrize("content", [b"", b"PAR1", b"not parquet at all", b"PAR1" + b"\0" * 50 + b"PAR1"])
def test_a_broken_parquet_file_is_named(folder: Path, content: bytes) -> None:
    (folder / "broken").write_bytes(content)
    source = opened(folder, format="parquet")
    source.head(0)
    assert (source.entries[0].problem or "").startswith("it is not a Parquet file")


def test_damage_that_shows_when_a_file_is_read_is_noted_for_good(folder: Path) -> None:
    parquet(folder, "a", a=pa.array(range(1000)))
    data = bytearray((folder / "a").read_bytes())
    data[20:200] = b"\xff" * 180
    (folder / "b").write_bytes(data)
    source = opened(folder, format="parquet")
    head = source.head(0)
    part = source.admit({}, head, None)
    assert [e.problem for e in source.entries] == [None, None]
    assert source.examine(part)
    assert not source.examine(part)
    for known in (source, opened(folder, format="parquet")):
        assert [e.problem is None for e in known.entries] == [True, False]
