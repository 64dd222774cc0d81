"""Epoch records and progress: plain data that survives a restart, and damage that is named."""

import zlib
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.connect.port import SourceSlice
from millstream.errors import HomeDamaged
from millstream.runtime.epoch.progress import Progress, count
from millstream.runtime.epoch.records import KEPT, EpochRecord, RecordBook
from millstream.runtime.epoch.watermarks import Watermarks

NAMES = st.sampled_from(["bids", "sales"])
NUMBERS = st.integers(-(2**62), 2**62)
SLICES = st.builds(SourceSlice, st.dictionaries(st.integers(0, 3), st.tuples(st.integers(0, 99), st.integers(0, 99))))
RECORDS = st.builds(
    EpochRecord,
    st.integers(1, 10**9),
    st.text("0123456789abcdef"),
    st.integers(1, 99),
    st.dictionaries(NAMES, SLICES),
    NUMBERS,
    st.dictionaries(NAMES, NUMBERS),
    st.dictionaries(NAMES, NUMBERS),
    st.dictionaries(NAMES, st.integers(1, 9)),
    st.just("open"),
    st.dictionaries(NAMES, st.dictionaries(st.sampled_from(["0.5", "0.9"]), NUMBERS)),
)


@settings(max_examples=20)
@given(RECORDS)
def test_a_record_comes_back_as_it_was_written(tmp_path: Path, record: EpochRecord) -> None:
    book = RecordBook(tmp_path)
    book.open(record)
    assert book.read(record.epoch) == record
    book.close(record)
    closed = book.read(record.epoch)
    assert (
        closed is not None and closed.state == "closed" and closed.to_json() == {**record.to_json(), "state": "closed"}
    )


def test_poison_records_of_an_earlier_version_are_kept_but_searched_for_again(tmp_path: Path) -> None:
    now = replace(record(1), poison={"bids": [(0, 13, "poisonous")]})
    assert EpochRecord.from_json(now.to_json()).excluded == now.poison
    old = now.to_json()
    old["poison"] = old.pop("poison_records")
    found = EpochRecord.from_json(old)
    assert found.poison == now.poison and found.digest == now.digest and found.excluded == {}


def test_the_clock_names_fractions_only_where_a_trigger_asks() -> None:
    assert "fractions" not in record(1).clock
    asked = replace(record(1), fractions={"bids": {"0.9": 7}})
    assert asked.clock["fractions"] == {"bids": {"0.9": 7}}
    old = asked.to_json()
    del old["clock"]["fractions"]  # as written by a version that knew none
    assert EpochRecord.from_json(old).fractions == {}


def record(epoch: int) -> EpochRecord:
    return EpochRecord(epoch, "p", 1, {"bids": SourceSlice({0: (0, epoch)})}, 5, {"bids": 1}, {"bids": 0}, {})


def test_a_book_knows_its_newest_record_and_keeps_the_last_ones(tmp_path: Path) -> None:
    book = RecordBook(tmp_path / "epochs")
    assert book.newest() == 0 and book.read(1) is None
    for epoch in range(1, KEPT + 6):
        book.open(record(epoch))
        book.close(record(epoch))
    (tmp_path / "epochs" / ".000000000999.json.tmp").write_text("half")
    assert RecordBook(tmp_path / "epochs").newest() == KEPT + 5
    assert book.read(5) is None and book.read(6) is not None


@pytest.mark.parametrize(
    "garbled",
    [b"", b"{", b"[]", b"null", b"{}", b"\xff\xfe", b'{"format": 2, "epoch": 7}', b'{"format": 1, "epoch": 8}', b"5"],
)
def test_a_torn_or_garbled_record_is_named(tmp_path: Path, garbled: bytes) -> None:
    book = RecordBook(tmp_path)
    (tmp_path / f"{7:012d}.json").write_bytes(garbled)
    with pytest.raises(HomeDamaged, match=r"000000000007\.json cannot be read"):
        book.read(7)


def test_every_torn_prefix_of_a_record_is_noticed(tmp_path: Path) -> None:
    book = RecordBook(tmp_path)
    book.open(record(3))
    path = tmp_path / f"{3:012d}.json"
    whole = path.read_bytes()
    for length in range(len(whole) - 1):  # the end of its line may be missing
        path.write_bytes(whole[:length])
        with pytest.raises(HomeDamaged):
            book.read(3)


def test_a_closed_record_says_where_its_time_went(tmp_path: Path) -> None:
    book = RecordBook(tmp_path)
    book.open(record(3))
    book.close(replace(record(3), plan="q", token=2, seconds={"scan": 0.25, "commit": 0.0000014}))
    closed = book.read(3)
    assert closed is not None and (closed.state, closed.plan, closed.token) == ("closed", "q", 2)
    assert closed.seconds == {"scan": 0.25, "commit": 0.000001}


def test_a_record_whose_closing_line_is_torn_or_damaged_is_open(tmp_path: Path) -> None:
    book = RecordBook(tmp_path)
    book.open(record(3))
    path = book.path(3)
    opened = path.read_bytes()
    book.close(record(3))
    whole = path.read_bytes()
    torn = [whole[:length] for length in range(len(opened), len(whole))]
    flipped = [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(len(opened) + 1, len(whole))]
    for harmed in (*torn, *flipped, opened + bytes(len(whole) - len(opened))):
        path.write_bytes(harmed)
        assert book.read(3) == record(3)
        book.close(record(3))
        assert book.read(3) == replace(record(3), state="closed")


@pytest.mark.parametrize("state", ["open", "closed"])
def test_a_record_of_an_earlier_format_is_read_and_closed(tmp_path: Path, state: str) -> None:
    book = RecordBook(tmp_path)
    data = {**replace(record(3), state=state).to_json(), "format": 2}
    book.path(3).write_bytes(orjson.dumps({**data, "crc": zlib.crc32(orjson.dumps(data))}))
    assert book.read(3) == replace(record(3), state=state)
    book.close(record(3))
    assert book.read(3) == replace(record(3), state="closed")


def test_a_record_that_is_gone_when_it_is_closed_is_written_again(tmp_path: Path) -> None:
    book = RecordBook(tmp_path)
    book.close(record(3))
    assert book.read(3) == replace(record(3), state="closed")


@given(st.dictionaries(NAMES, st.dictionaries(st.integers(0, 3), NUMBERS)), st.dictionaries(NAMES, st.integers(0, 99)))
def test_progress_survives_json(offsets: dict[str, dict[int, int]], counts: dict[str, int]) -> None:
    progress = Progress(offsets, Watermarks(offsets, offsets, counts), counts, counts, counts, counts, counts)
    count(progress.rows, "bids", 3)
    text = orjson.dumps(progress.to_json(), option=orjson.OPT_NON_STR_KEYS)
    assert Progress.from_json(orjson.loads(text)) == progress
