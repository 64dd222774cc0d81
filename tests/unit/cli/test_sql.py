"""`millstream sql` for programs, and what the shell is made of. Most tests have a double behind it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from millstream.cli import connection as connections
from millstream.cli.connection import Connection, connected
from millstream.cli.options import Settings
from millstream.cli.shell import waiting as shell_wait
from millstream.cli.shell.backslash_commands import HELP, LISTS, read_order
from millstream.cli.shell.output import MOST_SHOWN, AnswerPrinter, expanded_text
from millstream.cli.shell.prompt import SqlCompleter, coloured, finished_input, history_file, kept_history
from millstream.cli.shell.shell import Shell
from millstream.cli.shell.waiting import Listening, patiently
from millstream.cli.shell.watch import read_watch
from millstream.errors import ConnectionLost, DefinitionError, MillstreamError, QueryError, UnknownName
from millstream.live.answer import Answer, Changes
from millstream.result import Result
from millstream.serve.wire import greeting
from millstream.sql.parse.script import SqlScript, as_script
from millstream.sql.parse.text import word

from .conftest import Cli

HOT = pa.table({"auction": [1007, 1008], "bids": [3, None]})
CHANGED = pa.table({"op": ["-U", "+U"], "auction": [1007, 1007], "bids": [3, 4]})
SHOWN = {"SOURCES": ["bids"], "VIEWS": ["hot"], "TABLES": ["cities"]}
COLUMNS = {"bids": ["auction", "price", "ts"], "hot": ["auction", "bids"], "cities": ["id", "name"]}


class Double:
    """A session that answers a few statements, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.closed = threading.Event()

    def execute(self, sql: str | SqlScript, *, name: str = "SQL") -> Iterator[Answer]:
        for piece in as_script(sql, name):
            self.asked.append(piece.sql)
            words = [str(t.text) for t in piece.tokens]
            match word(piece.tokens[0]):
                case "SELECT":
                    yield Answer(result=Result(HOT))
                case "SHOW":
                    yield Answer(result=Result(pa.table({"name": SHOWN.get(words[1], [])})))
                case "DESCRIBE":
                    yield Answer(result=Result(pa.table({"column": COLUMNS[words[1]]})))
                case "EXPLAIN":
                    yield Answer(text="flow f\n└─ view hot")
                case "SUBSCRIBE":
                    yield Answer(changes=self.changes())
                case "CREATE" | "DROP" | "SET":
                    yield Answer(message=f"done: {piece.sql}")
                case _:
                    raise DefinitionError("no such thing", hint="another", origin=piece.text.of_token(piece.tokens[0]))

    def changes(self) -> Iterator[Changes]:
        try:
            yield Changes(7, HOT.add_column(0, "op", pa.array(["+I", "+I"])), snapshot=True)
            yield Changes(7, None)
            yield Changes(8, CHANGED)
        finally:
            self.closed.set()


@pytest.fixture
def double() -> Double:
    return Double()


@pytest.fixture
def connection(double: Double) -> Connection:
    return Connection(lambda: (double, lambda: None), where="a double")


@pytest.fixture
def sql(millstream: Cli, connection: Connection, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The command, with the double behind it."""

    @contextmanager
    def given_connection(
        home: Path, memory: str = "2g", master: str | None = None, state: str | None = None
    ) -> Iterator[Connection]:
        yield connection

    monkeypatch.setattr(connections, "connected", given_connection)
    return lambda *arguments, stdin=None: millstream("sql", *arguments, stdin=stdin)


# ---------------------------------------------------------------- for programs


def test_a_table_is_printed_and_sentences_with_it(sql: Callable[..., Any]) -> None:
    done = sql("-c", "CREATE VIEW v AS SELECT 1; SELECT * FROM hot", "-c", "EXPLAIN VIEW hot")
    assert done.exit_code == 0
    assert done.stdout == (
        "done: CREATE VIEW v AS SELECT 1\n"
        "auction  bids\n-------  ----\n   1007     3\n   1008\n(2 rows)\n"
        "flow f\n└─ view hot\n"
    )


@pytest.mark.parametrize(
    ("form", "printed"),
    [
        ("csv", "auction,bids\n1007,3\n1008,\n"),
        ("json", '[\n  {"auction":1007,"bids":3},\n  {"auction":1008,"bids":null}\n]\n'),
    ],
)
def test_programs_get_rows_on_stdout_and_sentences_elsewhere(sql: Callable[..., Any], form: str, printed: str) -> None:
    done = sql("-c", "DROP VIEW v; SELECT * FROM hot;", "--format", form)
    assert done.stdout == printed
    assert "done: DROP VIEW v" in done.stderr


def test_arrow_is_a_stream_that_arrow_reads(sql: Callable[..., Any]) -> None:
    done = sql("-c", "SELECT * FROM hot", "--format", "arrow")
    with pa.ipc.open_stream(done.stdout_bytes) as reader:
        assert reader.read_all() == HOT


def test_arrow_is_refused_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    with pytest.raises(QueryError, match="not for a terminal"):
        AnswerPrinter("arrow")


def test_changes_as_json_are_one_line_each(sql: Callable[..., Any], double: Double) -> None:
    lines = sql("-c", "SUBSCRIBE TO hot", "--format", "json").stdout.splitlines()
    assert [orjson.loads(line) for line in lines] == [
        {"epoch": 7, "op": "+I", "auction": 1007, "bids": 3},
        {"epoch": 7, "op": "+I", "auction": 1008, "bids": None},
        {"epoch": 8, "op": "-U", "auction": 1007, "bids": 3},
        {"epoch": 8, "op": "+U", "auction": 1007, "bids": 4},
    ]
    assert double.closed.is_set()


def test_changes_come_as_lines_csv_and_arrow_too(sql: Callable[..., Any]) -> None:
    assert sql("-c", "SUBSCRIBE TO hot").stdout.splitlines()[:2] == [
        "epoch  op  auction  bids",
        "7      +I  1007     3",
    ]
    text = sql("-c", "SUBSCRIBE TO hot", "--format", "csv").stdout
    assert text.splitlines() == ["epoch,op,auction,bids", "7,+I,1007,3", "7,+I,1008,", "8,-U,1007,3", "8,+U,1007,4"]
    with pa.ipc.open_stream(sql("-c", "SUBSCRIBE TO hot", "--format", "arrow").stdout_bytes) as reader:
        table = reader.read_all()
    assert table["epoch"].to_pylist() == [7, 7, 8, 8]
    assert table["op"].to_pylist() == ["+I", "+I", "-U", "+U"]


def test_a_view_with_a_column_epoch_keeps_it() -> None:
    printer = AnswerPrinter("json").listener()
    seen: list[list[str]] = []
    printer.rows = lambda columns, rows: seen.append(columns)  # type: ignore[method-assign]
    printer.take(Changes(1, pa.table({"op": ["+I"], "epoch": [99]})))
    assert seen == [["_epoch", "op", "epoch"]]


def test_the_first_error_ends_it_with_its_exit_code(sql: Callable[..., Any], double: Double) -> None:
    done = sql("-c", "SELECT 1; FROBNICATE it; SELECT 2", "-c", "SELECT 3")
    assert done.exit_code == 2
    assert double.asked == ["SELECT 1", "FROBNICATE it"]
    assert "error: no such thing\n  at -c:1:11\n    1 | SELECT 1; FROBNICATE it; SELECT 2\n" in done.stderr
    assert "      |           ^^^^^^^^^^" in done.stderr


def test_a_file_and_its_line_are_named(sql: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "views.sql").write_text("SELECT 1;\n\nFROBNICATE;\n", encoding="utf-8")
    done = sql("-f", "views.sql")
    assert done.exit_code == 2
    assert "at views.sql:3:1" in done.stderr


def test_files_come_before_commands(sql: Callable[..., Any], double: Double, tmp_path: Path) -> None:
    (tmp_path / "one.sql").write_text("SELECT 1;", encoding="utf-8")
    sql("-c", "SELECT 2", "-f", "one.sql")
    assert double.asked == ["SELECT 1", "SELECT 2"]


def test_a_file_that_is_not_there_is_said(sql: Callable[..., Any]) -> None:
    done = sql("-f", "nowhere.sql")
    assert done.exit_code == 2
    assert "the file nowhere.sql cannot be read" in done.stderr


def test_statements_are_read_from_stdin(sql: Callable[..., Any], double: Double) -> None:
    assert sql(stdin="SELECT 1;\nSELECT\n2").exit_code == 0
    assert double.asked == ["SELECT 1", "SELECT\n2"]


def test_watch_needs_a_terminal(sql: Callable[..., Any]) -> None:
    done = sql("-c", "WATCH hot")
    assert done.exit_code == 6
    assert "SUBSCRIBE TO hot" in done.stderr


# ---------------------------------------------------------------- the shell, line by line


@pytest.fixture
def shell(connection: Connection) -> Shell:
    return Shell(connection, Settings())


def test_an_answer_says_how_many_rows_and_how_long(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    shell.take("SELECT * FROM hot;")
    assert "(2 rows, " in capsys.readouterr().out
    shell.take("\\timing off")
    shell.take("SELECT * FROM hot;")
    assert "(2 rows)" in capsys.readouterr().out


def test_an_error_is_told_and_the_shell_goes_on(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    assert shell.take("FROBNICATE;")
    said = capsys.readouterr().err
    assert "error: no such thing\n  at SQL:1:1\n" in said
    assert "hint: another" in said


def test_a_fault_does_not_end_the_shell_either(
    shell: Shell, double: Double, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(sql: str, *, name: str = "SQL") -> Iterator[Answer]:
        raise KeyError("lost")

    monkeypatch.setattr(double, "execute", broken)
    assert shell.take("SELECT 1;")
    assert "unexpected KeyError: 'lost'" in capsys.readouterr().err


def test_a_process_that_has_gone_away_is_said(
    shell: Shell, double: Double, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def hung_up(sql: str, *, name: str = "SQL") -> Iterator[Answer]:
        raise ConnectionLost("closed")
        yield Answer()

    def nobody() -> tuple[Double, Callable[[], None]]:
        raise ConnectionRefusedError

    monkeypatch.setattr(double, "execute", hung_up)
    monkeypatch.setattr(shell.connection, "_begin", nobody)
    shell.connection.hangs_up = True
    assert shell.take("SELECT 1;")
    assert "has ended, and no other process" in capsys.readouterr().err


def test_expanded_rows_are_one_line_per_value(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    shell.take("\\x")
    shell.take("SELECT * FROM hot;")
    assert "-- row 2\nauction  1008\nbids\n(2 rows" in capsys.readouterr().out
    assert expanded_text(["a"], []) == ""


def test_a_very_long_answer_is_not_shown_whole(capsys: pytest.CaptureFixture[str], shell: Shell) -> None:
    many = Result(pa.table({"n": range(MOST_SHOWN + 5)}))
    shell.runner.output.answer(Answer(result=many), 0.01)
    said = capsys.readouterr().out
    assert f"5 more rows are not shown; --format csv gives them all\n({MOST_SHOWN + 5:,} rows, 10 ms)" in said
    assert str(MOST_SHOWN - 1) in said
    assert f" {MOST_SHOWN + 1}\n" not in said


@pytest.mark.parametrize(
    ("typed", "asked"),
    [
        ("\\d", ["SHOW SOURCES", "SHOW TABLES", "SHOW VIEWS"]),
        ("\\d hot", ["DESCRIBE hot"]),
        ("\\dv;", ["SHOW VIEWS"]),
        ("  \\df ", ["SHOW FLOWS"]),
    ],
)
def test_backslash_commands_stand_for_sql(shell: Shell, double: Double, typed: str, asked: list[str]) -> None:
    assert shell.take(typed)
    assert double.asked == asked


def test_q_leaves(shell: Shell) -> None:
    assert not shell.take("\\q")


def test_help_names_every_command(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    shell.take("\\?")
    said = capsys.readouterr().out
    assert all(f"\\{name}" in said for name in (*LISTS, "watch", "i", "x", "timing", "pager", "q"))
    assert all(line.split()[0] in said for line in HELP)


@pytest.mark.parametrize(("typed", "said"), [("\\timin", "did you mean \\timing?"), ("\\i", "needs a file")])
def test_a_wrong_backslash_command_is_explained(
    shell: Shell, capsys: pytest.CaptureFixture[str], typed: str, said: str
) -> None:
    assert shell.take(typed)
    assert said in capsys.readouterr().err


def test_a_switch_is_on_or_off(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    shell.take("\\pager off")
    assert not shell.look.pager
    shell.take("\\pager perhaps")
    assert "is on or off, not perhaps" in capsys.readouterr().err


def test_i_reads_a_file(shell: Shell, double: Double, tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text("SELECT 1;\nSELECT 2;", encoding="utf-8")
    shell.take(f"\\i {tmp_path / 'a.sql'}")
    assert double.asked == ["SELECT 1", "SELECT 2"]


def test_statements_around_a_watch_keep_their_places(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    shell.take("SELECT 1;\nFROBNICATE;\nWATCH hot;")
    assert "at SQL:2:1" in capsys.readouterr().err


def test_orders_are_told_from_their_arguments() -> None:
    assert read_order("\\watch hot 5s").argument == "hot 5s"
    assert read_order("\\quit").name == "q"
    with pytest.raises(UnknownName):
        read_order("\\frobnicate")


# ---------------------------------------------------------------- what can be watched


def columns_of(name: str) -> tuple[str, ...]:
    return {"hot": ("window_start", "window_end", "auction")}.get(name, ())


@pytest.mark.parametrize(
    ("sql", "asked", "micros"),
    [
        ("WATCH hot", "SELECT * FROM `hot` ORDER BY `window_start` DESC, `auction`", 1_000_000),
        ("watch other every 5 seconds;", "SELECT * FROM `other`", 5_000_000),
        ("WATCH SELECT n FROM v EVERY INTERVAL '500' MILLISECOND", "SELECT n FROM v", 500_000),
        ("WATCH bids$errors EVERY 2s", "SELECT * FROM `bids$errors`", 2_000_000),
    ],
)
def test_what_is_watched_and_how_often(sql: str, asked: str, micros: int) -> None:
    found = read_watch(sql, columns_of)
    assert (found.sql, found.every.micros) == (asked, micros)


@pytest.mark.parametrize("sql", ["WATCH", "WATCH ;", "WATCH a b", "WATCH hot EVERY 0 SECONDS"])
def test_a_watch_of_nothing_is_refused(sql: str) -> None:
    with pytest.raises(DefinitionError):
        read_watch(sql, columns_of)


# ---------------------------------------------------------------- names, completion, colours


def completions(connection: Connection, before: str, after: str = "") -> list[str]:
    document = Document(before + after, len(before))
    return [c.text for c in SqlCompleter(connection).get_completions(document, CompleteEvent())]


def test_names_are_asked_for_once_and_again_after_a_change(shell: Shell, double: Double) -> None:
    assert shell.connection.names() == ("bids", "hot", "cities")
    shell.connection.names()
    assert len(double.asked) == 3
    shell.take("CREATE VIEW v AS SELECT 1;")
    shell.connection.names()
    assert len(double.asked) == 7


def test_columns_of_an_unknown_name_are_none(connection: Connection, double: Double) -> None:
    def refused(sql: str, *, name: str = "SQL") -> Iterator[Answer]:
        raise MillstreamError("no")
        yield Answer()

    double.execute = refused  # type: ignore[method-assign]
    assert connection.columns("nothing") == ()


@pytest.mark.parametrize(
    ("before", "after", "some"),
    [
        ("SEL", "", {"SELECT"}),
        ("sel", "", {"select"}),
        ("SELECT * FROM h", "", {"hot"}),
        ("SELECT pri", " FROM bids", {"price"}),
        ("SELECT b.pr", " FROM bids AS b", {"price"}),
        ("SELECT hot.b", " FROM hot", {"bids"}),
        ("SELECT cou", "", {"count("}),
        ("\\wa", "", {"\\watch"}),
        ("\\d ho", "", {"hot"}),
    ],
)
def test_completion_offers_what_fits(connection: Connection, before: str, after: str, some: set[str]) -> None:
    assert some <= set(completions(connection, before, after))


@pytest.mark.parametrize("before", ["SELECT 'SEL", "-- SEL", "SELECT b.pr", ""])
def test_completion_is_silent_where_nothing_fits(connection: Connection, before: str) -> None:
    assert completions(connection, before) == []


def test_columns_of_other_names_are_not_offered(connection: Connection) -> None:
    assert "price" not in completions(connection, "SELECT p", " FROM cities")


def test_files_are_completed_after_i(connection: Connection, tmp_path: Path) -> None:
    (tmp_path / "views.sql").touch()
    (tmp_path / "notes.txt").touch()
    assert completions(connection, f"\\i {tmp_path}/v") == [str(tmp_path / "views.sql")]


@given(st.text(alphabet="SELECT from'\"`-*/;$1.\n\\ é", max_size=40))
def test_colours_leave_the_text_as_it_is(sql: str) -> None:
    assert "".join(p[1] for p in coloured(sql)) == sql


def test_tokens_have_their_colours() -> None:
    found = {p[1]: p[0] for p in coloured("SELECT n, 'x' FROM bids -- why\nWHERE n > 10")}
    assert found["SELECT"] == found["FROM"] == found["WHERE"] == "class:keyword"
    assert found["'x'"] == "class:text"
    assert found["10"] == "class:number"
    assert found["bids"] == ""
    assert found[" -- why\n"] == "class:comment"


def test_an_open_quote_is_coloured_as_text() -> None:
    assert coloured("SELECT 'abc")[-1] == ("class:text", "'abc")


@pytest.mark.parametrize(
    ("text", "ready"),
    [("SELECT 1;", True), ("SELECT 1", False), ("SELECT ';", False), ("", True), ("\\d", True), ("a;\nb", False)],
)
def test_a_statement_is_ready_when_it_has_ended(text: str, ready: bool) -> None:
    assert (finished_input(text) is not None) is ready


def test_history_is_kept_in_the_state_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    kept_history().append_string("SELECT 1;")
    assert history_file() == tmp_path / "millstream" / "history"
    assert history_file().stat().st_mode & 0o077 == 0
    assert "SELECT 1;" in list(kept_history().load_history_strings())


def test_without_a_place_for_it_history_is_forgotten(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert list(kept_history().load_history_strings()) == []


# ---------------------------------------------------------------- waiting


def test_what_is_waited_for_is_given_or_raised() -> None:
    assert patiently(lambda: 7) == 7
    with pytest.raises(TimeoutError, match="mine"):
        patiently(lambda: (_ for _ in ()).throw(TimeoutError("mine")))


def test_after_a_while_it_is_said_what_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shell_wait, "PATIENCE", 0.0)
    said = threading.Event()

    def notice() -> str:
        said.set()
        return "starting Spark ..."

    patiently(said.wait, notice)
    assert capsys.readouterr().err == "starting Spark ...\n"


def test_leaving_a_subscription_ends_it() -> None:
    ended = threading.Event()

    def endless() -> Iterator[Changes]:
        try:
            while True:
                yield Changes(1, None)
        finally:
            ended.set()

    listening = Listening(endless())
    with listening:
        assert next(iter(listening)).epoch == 1
    assert ended.wait(10)
    assert listening.ended


def test_what_goes_wrong_in_a_subscription_is_raised() -> None:
    def failing() -> Iterator[Changes]:
        yield Changes(1, None)
        raise QueryError("gone")

    with Listening(failing()) as listening, pytest.raises(QueryError, match="gone"):
        list(listening)


def test_a_new_session_has_the_settings_of_the_old_one() -> None:
    sessions: list[Double] = []
    ended: list[Double] = []

    def begin() -> tuple[Double, Callable[[], None]]:
        mine = Double()
        sessions.append(mine)
        return mine, lambda: ended.append(mine)

    connection = Connection(begin)
    list(connection.execute("SET start = 'now'; SET wait; SELECT 1"))
    connection.anew()
    assert sessions[1].asked == ["SET start = 'now'"]
    assert ended == [sessions[0]]


# ---------------------------------------------------------------- a real home, without a flow


def rows(connection: Connection, sql: str) -> list[dict[str, Any]]:
    return [r for answer in connection.execute(sql) if answer.result is not None for r in answer.result.to_dicts()]


def test_a_second_shell_speaks_through_the_first(tmp_path: Path) -> None:
    with connected(tmp_path / "home") as first, connected(tmp_path / "home") as second:
        assert second.where.endswith("through the process that owns it")
        assert second.names() == ()
        list(first.execute("CREATE TABLE cities (id BIGINT, name STRING); INSERT INTO cities VALUES (1, 'Ghent')"))
        assert rows(second, "SELECT name FROM cities") == [{"name": "Ghent"}]
        with pytest.raises(MillstreamError) as wrong:
            rows(second, "SELECT 1;\nSELECT * FROM citis;")
        assert wrong.value.origin is not None
        assert "^^^^^" in wrong.value.origin.excerpt
        second.anew()
        second.forget_names()
        assert second.names() == ("cities",)
        assert second.columns("cities") == ("id", "name")
    with connected(tmp_path / "home") as again:
        assert again.where.endswith("opened here")
        assert rows(again, "SELECT name FROM cities") == [{"name": "Ghent"}]


def test_a_subscription_through_another_process_ends_with_its_session(tmp_path: Path) -> None:
    with connected(tmp_path / "home") as first:
        list(first.execute("CREATE SOURCE calls (n BIGINT) FROM LOG('calls'); CREATE TABLE t (id BIGINT);"))
        with connected(tmp_path / "home") as second:
            answer = next(second.execute("SUBSCRIBE TO calls WITH SNAPSHOT"))
            assert answer.changes is not None
            list(first.execute("INSERT INTO calls VALUES (7)"))
            with Listening(answer.changes) as listening:
                found = next(c.table for c in listening if c.table is not None)
            assert found["n"].to_pylist() == [7]
            second.anew()
            assert rows(second, "SELECT count(*) AS n FROM t") == [{"n": 0}]


def test_a_process_that_never_answers_can_be_left(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "query.sock"))
        server.listen()

        def greet() -> socket.socket:
            accepted, _ = server.accept()
            accepted.sendall(greeting())
            return accepted

        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(greet)
            with connected(tmp_path) as connection:
                accepted = first.result()
                told: list[MillstreamError] = []

                def ask() -> None:
                    try:
                        list(connection.execute("SELECT 1"))
                    except MillstreamError as error:
                        told.append(error)

                waiting = threading.Thread(target=ask, daemon=True)
                waiting.start()
                heard = b""
                while b"SELECT 1" not in heard:
                    heard += accepted.recv(1000)
                second = pool.submit(greet)
                connection.anew()
                second.result().close()
                accepted.close()
                waiting.join(10)
                assert "has closed the connection" in told[0].message
