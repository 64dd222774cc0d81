"""`millstream log`: appending JSON lines, reading, following, listing, trimming and checking, as a person would."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from millstream.clock import SystemClock
from millstream.home import Home
from millstream.log import Log

from .conftest import Cli

LINES = '{"auction": 1, "price": 5, "ts": "2026-01-01T00:00:00Z"}\n\n{"auction": 2, "price": 7}\n'


@pytest.fixture
def bids(millstream: Cli) -> Cli:
    assert millstream("log", "append", "bids", stdin=LINES).exit_code == 0
    return millstream


def records(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_append_makes_the_topic_and_says_what_it_did(millstream: Cli) -> None:
    done = millstream("log", "append", "bids", stdin=LINES)
    assert done.exit_code == 0, done.output
    assert done.stdout == "appended 2 records to bids: partition 0 offsets 0 to 1\n"
    assert done.stderr == (
        "created the topic bids: auction BIGINT, price BIGINT, ts TIMESTAMP, as the first lines suggest\n"
    )
    again = millstream("log", "append", "bids", stdin=LINES)
    assert again.stdout == "appended 2 records to bids: partition 0 offsets 2 to 3\n"
    assert again.stderr == ""


def test_append_reads_a_file_into_a_schema_that_is_given(millstream: Cli, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text('{"a": 1}\n' * 25_000)
    done = millstream("log", "append", "t", "lines", "--schema", "a INT", "--partitions", "2", "--home", "h")
    assert done.stdout.startswith("appended 25,000 records to t: ")
    assert "created the topic t: a INT\n" in done.stderr
    assert sum(Log(tmp_path / "h" / "log", SystemClock()).topic("t").end().values()) == 25_000


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "it is not JSON"),
        ("[1]", "it is not an object"),
        ('{"auction": "x"}', "the value of `auction` is not BIGINT"),
        ('{"auktion": 1}', "has a column `auktion` that the topic does not have"),
        ('{"name": "' + "x" * (1 << 20) + '"}', "has a column `name`"),
    ],
)
def test_a_bad_line_is_refused_with_its_number(bids: Cli, line: str, said: str) -> None:
    done = bids("log", "append", "bids", stdin=f'{{"auction": 3}}\n\n{line}\n{{"auction": 4}}\n')
    assert done.exit_code == 7
    assert "error: line 3: " in done.stderr
    assert said in done.stderr
    assert "Nothing was appended." in done.stderr
    assert "--bad-lines skip" in done.stderr
    assert len(records(bids("log", "read", "bids").stdout)) == 2


def test_bad_lines_can_be_skipped(bids: Cli) -> None:
    done = bids("log", "append", "bids", "--bad-lines", "skip", stdin='{"auction": 3}\n{\n{"auction": "x"}\n')
    assert done.exit_code == 0
    assert done.stdout == "appended 1 record to bids: partition 0 offsets 2 to 2\n"
    assert "line 2 was skipped: it is not JSON" in done.stderr
    assert "line 3 was skipped: the value of `auction` is not BIGINT" in done.stderr
    assert "2 lines skipped" in done.stderr


def test_a_retry_of_a_producer_changes_nothing(bids: Cli) -> None:
    how = ("log", "append", "bids", "--producer", "loader", "--sequence", "1")
    assert bids(*how, stdin=LINES).stdout == "appended 2 records to bids: partition 0 offsets 2 to 3\n"
    again = bids(*how, stdin=LINES).stdout
    assert again == "nothing new: bids already has this sequence (partition 0 offsets 2 to 3)\n"
    assert bids("log", "append", "bids", "--producer", "loader", stdin=LINES).exit_code == 2


def test_read_prints_json_lines_with_their_place(bids: Cli) -> None:
    first, second = records(bids("log", "read", "bids").stdout)
    assert (first["auction"], first["ts"], first["$part"], first["$offset"]) == (1, "2026-01-01T00:00:00Z", 0, 0)
    assert (second["ts"], second["$offset"]) == (None, 1)
    assert records(bids("log", "read", "bids", "--from", "1").stdout) == [second]
    assert records(bids("log", "read", "bids", "--limit", "1").stdout) == [first]
    assert bids("log", "read", "bids", "--from", "end").stdout == ""
    assert len(records(bids("log", "read", "bids", "--from", "2020-01-01").stdout)) == 2
    assert bids("log", "read", "bids", "--from", "2999-01-01T00:00:00Z").stdout == ""
    assert bids("log", "read", "bids", "--format", "csv").stdout.startswith(
        "auction,price,ts,$part,$offset,$time\n1,5,"
    )
    assert len(json.loads(bids("log", "read", "bids", "--format", "json").stdout)) == 2


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (("read", "bidz"), "did you mean `bids`?", 2),
        (("read", "bids", "--from", "noon"), "'noon' is not an offset", 2),
        (("read", "bids", "--partition", "1"), "bids has 1 partition, numbered from 0", 2),
        (("trim", "bids", "--before", "x"), "'x' is not an offset", 2),
        (("create", "bids", "--schema", "a INT"), "there is a topic bids already", 2),
        (("create", "b", "--schema", "a HUGE"), "the schema cannot be read", 2),
    ],
)
def test_what_cannot_be_done_is_one_message(bids: Cli, arguments: tuple[str, ...], said: str, code: int) -> None:
    done = bids("log", *arguments)
    assert done.exit_code == code, done.output
    assert said in done.stderr
    assert "Traceback" not in done.output


def test_tail_prints_what_is_there_and_what_comes(bids: Cli, tmp_path: Path) -> None:
    assert len(records(bids("log", "tail", "bids", "--from", "beginning", "--limit", "2").stdout)) == 2
    script = "from millstream.cli import main; main()"
    command = [sys.executable, "-c", script, "log", "tail", "bids", "--from", "1", "--limit", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as following:
        assert following.stdout is not None
        assert json.loads(following.stdout.readline())["auction"] == 2
        bids("log", "append", "bids", stdin='{"auction": 3}')
        assert json.loads(following.stdout.readline())["auction"] == 3
        assert following.wait(60) == 0


def test_list_shows_offsets_sizes_and_readers(bids: Cli, tmp_path: Path) -> None:
    log = Log(tmp_path / "millstream-home" / "log", SystemClock())
    log.topic("bids").hold("flow/bids", {0: 1})
    (row,) = json.loads(bids("log", "list", "--format", "json").stdout)
    size = row.pop("bytes")
    assert size > 100
    assert row == {
        "topic": "bids",
        "partition": 0,
        "start": 0,
        "end": 2,
        "rows": 2,
        "segments": 0,
        "holds": {"flow/bids": 1},
    }
    assert "flow/bids: 1 behind" in bids("log", "list").stdout


def test_list_without_topics_says_what_to_do(millstream: Cli) -> None:
    assert millstream("log", "list").stdout == "no topics yet: create one with `millstream log create`\n"


def test_trim_says_first_what_it_would_remove(bids: Cli, tmp_path: Path) -> None:
    done = bids("log", "trim", "bids", "--before", "end")
    assert done.stdout == ("would remove 2 records of partition 0: offsets 0 to 1\nto do it, add --yes\n")
    assert len(records(bids("log", "read", "bids").stdout)) == 2
    assert "nothing to remove" in bids("log", "trim", "bids", "--before", "1", "--yes").stdout
    Log(tmp_path / "millstream-home" / "log", SystemClock()).topic("bids").hold("r", {0: 1})
    refused = bids("log", "trim", "bids", "--before", "end", "--yes")
    assert (refused.exit_code, "r still needs partition 0 from offset 1 on" in refused.stderr) == (7, True)
    done = bids("log", "trim", "bids", "--before", "end", "--yes", "--force")
    assert done.stdout == "removed 2 records of partition 0: offsets 0 to 1\n"
    assert bids("log", "read", "bids").stdout == ""


def test_check_finds_damage_and_names_the_file(bids: Cli, tmp_path: Path) -> None:
    assert bids("log", "check").stdout == "bids: 2 records, all intact\n"
    (wal,) = (tmp_path / "millstream-home" / "log" / "bids").rglob("*.wal")
    data = bytearray(wal.read_bytes())
    data[-20] ^= 1
    wal.write_bytes(data)
    done = bids("log", "check", "bids")
    assert done.exit_code == 4
    assert str(wal.name) in done.stdout


def test_create_takes_all_settings(millstream: Cli, tmp_path: Path) -> None:
    done = millstream(
        *("log", "create", "t", "--schema", "a INT, b STRING", "--partitions", "3", "--key", "b"),
        *("--retain", "7d", "--retain-bytes", "1000", "--hard-cap"),
    )
    assert done.stdout == "created the topic t with 3 partitions\n"
    about = Log(tmp_path / "millstream-home" / "log", SystemClock()).topic("t").about
    assert (about.partitions, about.key, about.retain_time) == (3, "b", 7 * 86_400_000_000)
    assert (about.retain_bytes, about.hard_cap) == (1000, True)


def test_a_reader_works_while_another_process_writes(bids: Cli, tmp_path: Path) -> None:
    log = Log(tmp_path / "millstream-home" / "log", SystemClock())
    log.topic("bids").append({"auction": 9})
    assert len(records(bids("log", "read", "bids").stdout)) == 3
    refused = bids("log", "append", "bids", stdin=LINES)
    assert (refused.exit_code, "another writer has bids, partition 0" in refused.stderr) == (7, True)
    log.close()


def test_what_was_appended_before_the_first_flow_is_in_a_home_that_flows_can_open(bids: Cli, tmp_path: Path) -> None:
    with Home(tmp_path / "millstream-home") as home:
        assert home.topics() == ["bids"]
        assert home.topic("bids").end() == {0: 2}


def test_a_folder_that_is_no_home_is_left_alone(millstream: Cli, tmp_path: Path) -> None:
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers/letter").write_text("dear")
    done = millstream("log", "append", "bids", "--home", "papers", stdin=LINES)
    assert done.exit_code == 4 and "is not a Millstream home" in done.stderr
    assert [p.name for p in (tmp_path / "papers").iterdir()] == ["letter"]


@pytest.mark.parametrize("place", ["/proc/x", "/dev/null", "papers", "letter", "letter/x"])
def test_what_cannot_be_a_home_is_one_message(millstream: Cli, tmp_path: Path, place: str) -> None:
    (tmp_path / "papers").mkdir()
    for file in ("papers/letter", "letter"):
        (tmp_path / file).write_text("dear")
    commands = [("log", "append", "t"), ("sql", "-c", "SHOW VIEWS"), ("views",)]
    if place != "/proc/x":  # nothing is there, and nothing has to be made to say so
        commands.append(("log", "list"))
    for arguments in commands:
        done = millstream(*arguments, "--home", place, stdin="")
        assert (done.exit_code, "unexpected" in done.stderr) == (4, False), (arguments, done.output)
    assert (tmp_path / "letter").read_text() == "dear"


@pytest.mark.parametrize("name", ["../../evil", "/tmp/evil", "", "x y", "x" * 300])
def test_a_name_that_no_topic_can_have_is_refused_also_for_no_records(millstream: Cli, name: str) -> None:
    done = millstream("log", "append", name, stdin="")
    assert (done.exit_code, "a topic cannot be called" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    "name", ["flows", "tables", "log", "repair", "checkpoints", "catalog.json", "store.duckdb", "lock"]
)
def test_a_file_for_a_folder_and_a_folder_for_a_file_are_named(bids: Cli, tmp_path: Path, name: str) -> None:
    path = tmp_path / "millstream-home" / name
    if path.is_dir():
        path.rename(tmp_path / "aside")
    if "." in name or name == "lock":
        path.unlink(missing_ok=True)
        path.mkdir()
    else:
        path.write_text("x")
    for arguments in (("log", "list"), ("log", "read", "bids"), ("sql", "-c", "SHOW VIEWS"), ("views",)):
        done = bids(*arguments)
        assert done.exit_code == 4, (arguments, done.output)
        assert f"{name} is not a {'file' if path.is_dir() else 'folder'}" in done.stderr
    path.rmdir() if path.is_dir() else path.unlink()
    path.symlink_to(tmp_path / "aside")
    assert "is a symbolic link" in bids("log", "list").stderr


@pytest.mark.parametrize("line", ["\ufeff" + '{"a": 1}', '{"a": "\\ud800"}', '{"a": ' * 2000 + "1" + "}" * 2000, "[1]"])
def test_a_first_line_that_cannot_be_read_is_what_the_error_names(millstream: Cli, line: str) -> None:
    """There is no topic yet, and no record to take its columns from."""
    failed = millstream("log", "append", "fresh", stdin=line + "\n")
    assert failed.exit_code == 7
    assert "line 1: it is not" in failed.stderr and "Nothing was appended" in failed.stderr
    assert "schema" not in failed.stderr
    skipped = millstream("log", "append", "fresh", "--bad-lines", "skip", stdin=line + '\n{"a": 2}\n')
    assert skipped.exit_code == 0
    assert "appended 1 record to fresh" in skipped.stdout


def test_only_lines_that_are_skipped_make_no_topic(millstream: Cli) -> None:
    skipped = millstream("log", "append", "fresh", "--bad-lines", "skip", stdin="[1]\n[2]\n")
    assert skipped.exit_code == 0
    assert "2 lines skipped" in skipped.stderr
    assert millstream("log", "read", "fresh").exit_code == 2


def test_a_sequence_that_does_not_fit_is_refused(millstream: Cli) -> None:
    failed = millstream("log", "append", "bids", "--producer", "p", "--sequence", str(10**30), stdin=LINES)
    assert failed.exit_code == 2
    assert "does not fit into 64 bits" in failed.stderr


def test_an_offset_that_cannot_be_read_names_its_option(millstream: Cli) -> None:
    millstream("log", "append", "bids", stdin=LINES)
    for command, option in (("read", "--from"), ("trim", "--before")):
        for text in ("zzz", "²"):
            failed = millstream("log", command, "bids", option, text)
            assert failed.exit_code == 2
            assert f"invalid value for {option}: '{text}'" in failed.stderr
